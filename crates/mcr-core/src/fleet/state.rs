//! The states of a cluster and what makes it change.

use std::{fmt, sync::Arc};

use super::description::Description;
use crate::{Availability, Endpoint, Fingerprint};

/// Where a cluster is in its life.
///
/// Connected and listed are two things: a `Ready` cluster answers, and each of its
/// [kinds](crate::Cluster::kinds) says by itself whether it is listed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "state", rename_all = "camelCase")]
#[non_exhaustive]
pub enum ClusterState {
    /// A provider has announced it.
    Discovered,
    /// It is being connected for the first time, or after its address changed.
    Connecting,
    /// It answers.
    Ready,
    /// It does not answer, or refuses the credentials. It is tried again with growing pauses.
    Unreachable {
        /// Why, in words, with what to do about it.
        reason: Arc<str>,
    },
    /// Its provider says that it is not expected to answer.
    Suspended {
        /// The provider's reason.
        reason: Arc<str>,
    },
    /// It is leaving the fleet; what still runs for it is ending.
    Draining,
    /// It has left the fleet and nothing of it is left.
    Gone,
}

impl ClusterState {
    /// The names of all states.
    pub const NAMES: [&'static str; 7] = [
        "Discovered",
        "Connecting",
        "Ready",
        "Unreachable",
        "Suspended",
        "Draining",
        "Gone",
    ];

    /// Whether both are the same state, whatever their reasons.
    pub fn same_kind(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Whether the cluster answers.
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Ready)
    }

    /// The reason, for states that have one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Unreachable { reason } | Self::Suspended { reason } => Some(reason),
            _ => None,
        }
    }

    /// The state's name, without its reason.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Discovered => "Discovered",
            Self::Connecting => "Connecting",
            Self::Ready => "Ready",
            Self::Unreachable { .. } => "Unreachable",
            Self::Suspended { .. } => "Suspended",
            Self::Draining => "Draining",
            Self::Gone => "Gone",
        }
    }
}

impl fmt::Display for ClusterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            Some(reason) => write!(f, "{}: {reason}", self.as_str()),
            None => f.write_str(self.as_str()),
        }
    }
}

/// What of a spec decides how much a change of it costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) identity: Option<Arc<str>>,
    pub(crate) target: Target,
    pub(crate) credentials: Fingerprint,
    pub(crate) suspended: Option<Arc<str>>,
}

/// Where a spec leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Endpoint(Arc<Endpoint>),
    /// A ready client, whose address can't be seen; told apart by number.
    Client(u64),
}

/// How much has to change for a cluster to be as its provider now says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SpecChange {
    /// Labels and properties at most.
    Facts,
    /// Other credentials for the same place: swapped below the watches.
    Credentials,
    /// Another place. Whether the same cluster stands there is seen when it answers: if so, stores are kept,
    /// listed once and compared.
    Endpoint,
    /// Another cluster: the old one is drained and a new one engaged.
    Identity,
}

/// Tells the kinds of change apart.
pub(crate) fn classify(old: &Shape, new: &Shape) -> SpecChange {
    match (&old.identity, &new.identity) {
        (Some(old), Some(new)) if old != new => return SpecChange::Identity,
        _ => {}
    }
    if old.target != new.target {
        SpecChange::Endpoint
    } else if old.credentials != new.credentials {
        SpecChange::Credentials
    } else {
        SpecChange::Facts
    }
}

pub(crate) fn suspended(spec: &Description) -> Option<Arc<str>> {
    match &spec.availability {
        Availability::Available => None,
        Availability::Suspended { reason } => Some(reason.clone()),
    }
}

/// What is known of who a cluster is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KnownIdentity {
    pub(crate) declared: Option<Arc<str>>,
    /// The UID of the `kube-system` namespace, where it may be read.
    pub(crate) uid: Option<Arc<str>>,
    pub(crate) place: Option<Place>,
}

/// Where a cluster was found.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// The same for the same server and certificate authority.
    Server(Arc<Endpoint>),
    /// A ready client, by its number: where it leads can't be seen, so another one may lead to another cluster.
    Client(u64),
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Server(a), Self::Server(b)) => {
                a.server == b.server && a.certificate_authority == b.certificate_authority
            }
            (Self::Client(a), Self::Client(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Place {}

impl KnownIdentity {
    /// Whether what answers now is the cluster that was known before.
    pub(crate) fn is_same(&self, now: &Self) -> bool {
        if let (Some(old), Some(new)) = (&self.declared, &now.declared) {
            return old == new;
        }
        if let (Some(old), Some(new)) = (&self.uid, &now.uid) {
            return old == new;
        }
        self.place == now.place
    }

    /// What to show as the identity.
    pub(crate) fn shown(&self) -> Option<Arc<str>> {
        self.declared.clone().or_else(|| self.uid.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(identity: Option<&str>, server: &str, credential: &str) -> Shape {
        Shape {
            identity: identity.map(Arc::from),
            target: Target::Endpoint(Arc::new(Endpoint::new(server.parse().unwrap()))),
            credentials: Fingerprint::of(&credential),
            suspended: None,
        }
    }

    #[test]
    fn the_three_kinds_of_change_are_told_apart() {
        let old = shape(Some("a"), "https://one", "x");
        assert_eq!(classify(&old, &old.clone()), SpecChange::Facts);
        assert_eq!(
            classify(&old, &shape(Some("a"), "https://one", "y")),
            SpecChange::Credentials
        );
        assert_eq!(
            classify(&old, &shape(Some("a"), "https://two", "x")),
            SpecChange::Endpoint
        );
        assert_eq!(
            classify(&old, &shape(Some("b"), "https://one", "x")),
            SpecChange::Identity
        );
        // A provider that begins to declare identities does not make every cluster another one.
        assert_eq!(
            classify(&shape(None, "https://one", "x"), &old),
            SpecChange::Facts
        );
        let other_ca = Shape {
            target: Target::Endpoint(Arc::new(
                Endpoint::new("https://one".parse().unwrap()).certificate_authority("ca"),
            )),
            ..old.clone()
        };
        assert_eq!(classify(&old, &other_ca), SpecChange::Endpoint);
    }

    #[test]
    fn identity_goes_by_what_is_declared_then_by_kube_system_then_by_place() {
        let place = |s: &str| Some(Place::Server(Arc::new(Endpoint::new(s.parse().unwrap()))));
        let known = |declared: Option<&str>, uid: Option<&str>, at: &str| KnownIdentity {
            declared: declared.map(Arc::from),
            uid: uid.map(Arc::from),
            place: place(at),
        };
        assert!(known(Some("a"), Some("1"), "https://x").is_same(&known(Some("a"), Some("2"), "https://y")));
        assert!(!known(Some("a"), Some("1"), "https://x").is_same(&known(Some("b"), Some("1"), "https://x")));
        assert!(known(None, Some("1"), "https://x").is_same(&known(None, Some("1"), "https://y")));
        assert!(!known(None, Some("1"), "https://x").is_same(&known(None, Some("2"), "https://x")));
        assert!(known(None, None, "https://x").is_same(&known(None, Some("2"), "https://x")));
        assert!(!known(None, None, "https://x").is_same(&known(None, Some("2"), "https://y")));
        let reached = |change: &dyn Fn(&mut Endpoint)| {
            let mut endpoint = Endpoint::new("https://x".parse().unwrap());
            change(&mut endpoint);
            KnownIdentity {
                place: Some(Place::Server(Arc::new(endpoint))),
                declared: None,
                uid: None,
            }
        };
        let plainly = reached(&|_| ());
        assert!(!plainly.is_same(&reached(
            &|to| to.certificate_authority = Some(b"another".as_slice().into())
        )));
        assert!(plainly.is_same(&reached(&|to| to.tls_server_name = Some("y".into()))));
        assert!(plainly.is_same(&reached(&|to| to.proxy = Some("http://proxy".parse().unwrap()))));
        let by = |client: u64, uid: Option<&str>| KnownIdentity {
            place: Some(Place::Client(client)),
            uid: uid.map(Arc::from),
            declared: None,
        };
        assert!(by(1, None).is_same(&by(1, Some("1"))));
        assert!(by(1, Some("1")).is_same(&by(2, Some("1"))));
        assert!(!by(1, None).is_same(&by(2, Some("1"))));
    }
}
