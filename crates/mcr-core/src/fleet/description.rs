//! The spec of a cluster, as the fleet stores it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{task::spawn_blocking, time::timeout};

use crate::{
    access::Access,
    scope::ScopedAccess,
    spec::{Availability, ClusterSpec},
};
use mcr_access::{AccessError, ClusterName};

/// A [`ClusterSpec`] in a form that takes little memory.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) name: ClusterName,
    /// No text of a kubeconfig: what it was parsed into, or why it can't be used.
    pub(crate) access: Result<Access, Arc<str>>,
    /// The namespace of requests that name none. None for a kubeconfig that can't be used, and for an access by a scope.
    pub(crate) default_namespace: Option<Arc<str>>,
    pub(crate) identity: Option<Arc<str>>,
    pub(crate) labels: Pairs,
    pub(crate) properties: Pairs,
    pub(crate) availability: Availability,
    pub(crate) announced_by: Option<Arc<str>>,
}

impl From<ClusterSpec> for Description {
    fn from(spec: ClusterSpec) -> Self {
        let ClusterSpec {
            name,
            access,
            identity,
            labels,
            properties,
            availability,
            announced_by,
        } = spec;
        Self {
            name,
            default_namespace: access.default_namespace(),
            access: Ok(access),
            identity,
            labels: labels.into(),
            properties: properties.into(),
            availability,
            announced_by,
        }
    }
}

/// Why a cluster can't be used whose kubeconfig can't be.
pub(super) fn unusable(error: &AccessError) -> String {
    format!("its description can't be used: {error}")
}

/// The error of a task would quote the message of the panic, which may quote a kubeconfig.
pub(super) const PANICKED: &str =
    "its description could not be read: reading it panicked, which is a fault in mcr";

impl Description {
    /// Parses the kubeconfig of a spec, if that is its access. Off the executor, because it may take long.
    pub(crate) async fn parse(mut spec: ClusterSpec) -> Self {
        const PATIENCE: Duration = Duration::from_secs(1);
        let Access::Kubeconfig(kubeconfig) = &spec.access else {
            return spec.into();
        };
        let text = kubeconfig.clone();
        let parsed = match timeout(PATIENCE, spawn_blocking(move || text.parse())).await {
            Ok(Ok(parsed)) => parsed.map_err(|error| unusable(&error)),
            Ok(Err(_)) => Err(PANICKED.to_owned()),
            // All threads for blocking work may be waiting for slow files. Other clusters must not wait for those files.
            Err(_) => kubeconfig.parse().map_err(|error| unusable(&error)),
        };
        match parsed {
            Ok(access) => {
                spec.access = access.into();
                spec.into()
            }
            Err(problem) => Self {
                access: Err(problem.into()),
                ..spec.into()
            },
        }
    }

    /// The reason why the cluster is suspended, if it is.
    pub(crate) fn suspended(&self) -> Option<Arc<str>> {
        match &self.availability {
            Availability::Available => None,
            Availability::Suspended { reason } => Some(reason.clone()),
        }
    }

    /// The access of the cluster, if the cluster is in a scope.
    pub(crate) fn scoped(&self) -> Option<&ScopedAccess> {
        match &self.access {
            Ok(Access::Scoped(scoped)) => Some(scoped),
            _ => None,
        }
    }
}

/// A cluster as a provider announces it.
#[derive(Debug, Clone)]
pub(crate) struct DesiredCluster {
    pub(crate) provider: Arc<str>,
    pub(crate) spec: Arc<Description>,
    pub(crate) claim: Claim,
}

/// Counts how often a name was removed that one task supervises. If it has changed, the cluster was removed and announced again, so
/// its engagement ends even if the spec is the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Claim(u64);

impl Claim {
    pub(crate) fn removed(&mut self) {
        self.0 += 1;
    }
}

/// Names and values, in the order of the names. Takes less memory than a map, whose smallest node has room for eleven
/// entries (544 bytes).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Pairs(Box<[(Box<str>, Box<str>)]>);

impl Pairs {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        self.0.get(at).map(|(_, value)| &**value)
    }

    pub(crate) fn to_map(&self) -> BTreeMap<String, String> {
        let pairs = self.0.iter();
        pairs
            .map(|(name, value)| (String::from(&**name), String::from(&**value)))
            .collect()
    }
}

impl From<BTreeMap<String, String>> for Pairs {
    fn from(map: BTreeMap<String, String>) -> Self {
        let pairs = map.into_iter();
        Self(pairs.map(|(name, value)| (name.into(), value.into())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcr_access::Trust;

    #[tokio::test]
    async fn of_a_kubeconfig_stays_what_it_was_parsed_into_or_why_it_can_not_be_used() {
        let good = "{current-context: c, contexts: [{name: c, context: {cluster: c, namespace: team}}], \
                    clusters: [{name: c, cluster: {server: 'https://a', certificate-authority: /nowhere}}]}";
        let parse = |text: &str| {
            let access = Access::kubeconfig(text, Trust::Untrusted);
            Description::parse(ClusterSpec::named("a", access).unwrap())
        };
        let parsed = parse(good).await;
        assert!(matches!(&parsed.access, Ok(Access::Endpoint(access)) if access.trust == Trust::Untrusted));
        assert_eq!(parsed.default_namespace.as_deref(), Some("team"));
        let broken = parse("contexts: [").await;
        let problem = broken.access.unwrap_err();
        assert!(
            problem.starts_with("its description can't be used: the kubeconfig can't be read"),
            "{problem}"
        );
        assert_eq!(broken.default_namespace, None);
    }

    #[test]
    fn pairs_are_the_map_they_were_made_of() {
        let map =
            BTreeMap::from([("b", "2"), ("", "0"), ("a", "1")].map(|(k, v)| (k.to_owned(), v.to_owned())));
        let pairs = Pairs::from(map.clone());
        assert_eq!(pairs.to_map(), map);
        for name in ["", "a", "b", "c", "aa"] {
            assert_eq!(pairs.get(name), map.get(name).map(String::as_str), "{name}");
        }
        assert_eq!(Pairs::default().get(""), None);
    }
}
