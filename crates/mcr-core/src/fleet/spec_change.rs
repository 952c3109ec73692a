//! How the fleet follows a changed spec: the three kinds of change.

use std::sync::Arc;

use mcr_access::{Endpoint, Fingerprint};

/// The parts of a resolved spec that decide what a change costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedSpec {
    pub(crate) identity: Option<Arc<str>>,
    pub(crate) target: Target,
    pub(crate) credentials: Fingerprint,
}

/// The server that a spec names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Endpoint(Arc<Endpoint>),
    /// The number of a ready client. Its address can't be read, so another client may lead to another cluster.
    Client(u64),
}

impl Target {
    /// Whether both lead to the same cluster for sure.
    pub(crate) fn is_same_cluster(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Endpoint(a), Self::Endpoint(b)) => {
                // A front may choose the cluster by the name that is asked for.
                a.server == b.server
                    && a.certificate_authority == b.certificate_authority
                    && a.tls_server_name == b.tls_server_name
            }
            _ => self == other,
        }
    }
}

/// The difference between the spec in use and a new one, in the order of cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SpecChange {
    /// At most labels, properties and the default namespace differ.
    Info,
    /// The credentials differ. The fleet swaps them below the watches.
    Credentials,
    /// The target differs. If the same cluster answers there, the fleet keeps its stores, and lists and compares each
    /// kind once.
    Endpoint,
    /// It is another cluster. The fleet drains the old one and engages the new one.
    Identity,
}

/// Whether the connection by the spec in use may serve again, although none comes about by the newest spec: that can't be resolved,
/// gives no credential or has another one.
pub(crate) fn may_fall_back(change: Result<SpecChange, String>, no_credential: bool) -> bool {
    match change {
        Ok(SpecChange::Info) => no_credential,
        Ok(change) => change == SpecChange::Credentials,
        Err(_) => true,
    }
}

/// Compares the spec in use with a new one.
pub(crate) fn classify(old: &ResolvedSpec, new: &ResolvedSpec) -> SpecChange {
    match (&old.identity, &new.identity) {
        (Some(old), Some(new)) if old != new => return SpecChange::Identity,
        _ => {}
    }
    if old.target != new.target {
        SpecChange::Endpoint
    } else if old.credentials != new.credentials {
        SpecChange::Credentials
    } else {
        SpecChange::Info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(identity: Option<&str>, server: &str, credential: &str) -> ResolvedSpec {
        ResolvedSpec {
            identity: identity.map(Arc::from),
            target: Target::Endpoint(Arc::new(Endpoint::new(server.parse().unwrap()))),
            credentials: Fingerprint::of(&credential),
        }
    }

    #[test]
    fn the_three_kinds_of_change_are_distinguished() {
        let old = resolved(Some("a"), "https://one", "x");
        assert_eq!(classify(&old, &old.clone()), SpecChange::Info);
        assert_eq!(
            classify(&old, &resolved(Some("a"), "https://one", "y")),
            SpecChange::Credentials
        );
        assert_eq!(
            classify(&old, &resolved(Some("a"), "https://two", "x")),
            SpecChange::Endpoint
        );
        assert_eq!(
            classify(&old, &resolved(Some("b"), "https://one", "x")),
            SpecChange::Identity
        );
        // A provider that begins to declare identities does not make every cluster another one.
        assert_eq!(
            classify(&resolved(None, "https://one", "x"), &old),
            SpecChange::Info
        );
        let other_ca = ResolvedSpec {
            target: Target::Endpoint(Arc::new(
                Endpoint::new("https://one".parse().unwrap()).certificate_authority("ca"),
            )),
            ..old.clone()
        };
        assert_eq!(classify(&old, &other_ca), SpecChange::Endpoint);
    }

    #[test]
    fn the_connection_in_use_serves_again_only_if_the_newest_spec_gives_no_other_way() {
        for (change, may, without_credential) in [
            (Err("broken".to_owned()), true, true),
            (Ok(SpecChange::Info), false, true),
            (Ok(SpecChange::Credentials), true, true),
            (Ok(SpecChange::Endpoint), false, false),
            (Ok(SpecChange::Identity), false, false),
        ] {
            assert_eq!(may_fall_back(change.clone(), false), may, "{change:?}");
            assert_eq!(
                may_fall_back(change.clone(), true),
                without_credential,
                "{change:?}"
            );
        }
    }
}
