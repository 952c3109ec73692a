//! Computes the changes to announce, from the last announced clusters and the current ones.

use std::{collections::BTreeMap, fmt, sync::Arc};

use mcr_core::{BrokenCluster, Change, ClusterName, ClusterSpec, EndpointAccess, Fingerprint};

use crate::label::Labels;

/// The property with the file of a cluster.
const FILE: &str = "file";
/// The property with the context of a cluster.
const CONTEXT: &str = "context";

/// All clusters, by name.
pub(crate) type Clusters = BTreeMap<ClusterName, Desired>;

/// One cluster as the files describe it.
#[derive(Debug, Clone)]
pub(crate) enum Desired {
    Good {
        /// `None` after the cluster was announced: the texts of thousands of kubeconfigs would take much memory.
        access: Option<Box<EndpointAccess>>,
        /// The fingerprint of the access, for comparisons after the access was dropped.
        print: Fingerprint,
        file: Arc<str>,
        context: Arc<str>,
        labels: Labels,
    },
    Broken {
        object: Arc<str>,
        error: Arc<str>,
    },
}

impl Desired {
    pub(crate) fn good(access: EndpointAccess, file: Arc<str>, context: Arc<str>, labels: Labels) -> Self {
        Self::Good {
            print: access.fingerprint(),
            access: Some(Box::new(access)),
            file,
            context,
            labels,
        }
    }

    pub(crate) fn broken(object: impl Into<Arc<str>>, error: &dyn fmt::Display) -> Self {
        Self::Broken {
            object: object.into(),
            error: error.to_string().into(),
        }
    }

    /// Whether both have the same access and labels, even if they are from different files.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Good {
                    print: a, labels: x, ..
                },
                Self::Good {
                    print: b, labels: y, ..
                },
            ) => (a, x) == (b, y),
            _ => false,
        }
    }

    /// Drops the access. The fingerprint stays, so that a change can be detected.
    pub(crate) fn drop_access(&mut self) {
        if let Self::Good { access, .. } = self {
            *access = None;
        }
    }

    /// The file and context of the cluster, as text for people.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Good { file, context, .. } => format!("file {file}, context {context:?}"),
            Self::Broken { object, .. } => object.to_string(),
        }
    }
}

// Compares fingerprints, because accesses may have been dropped.
impl PartialEq for Desired {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Good {
                    file: a, context: x, ..
                },
                Self::Good {
                    file: b, context: y, ..
                },
            ) => a == b && x == y && self.is_same(other),
            (Self::Broken { object: a, error: x }, Self::Broken { object: b, error: y }) => a == b && x == y,
            _ => false,
        }
    }
}

/// The changes from `before` to `now`. New and changed clusters come first. `None` if the access of a cluster to
/// announce was dropped.
pub(crate) fn changes(before: &Clusters, now: &Clusters) -> Option<Vec<Change>> {
    let announced: Option<Vec<Change>> = now
        .iter()
        .filter(|(name, desired)| before.get(*name) != Some(desired))
        .map(announce)
        .collect();
    let gone = before
        .keys()
        .filter(|name| !now.contains_key(*name))
        .cloned()
        .map(Change::Remove);
    Some(announced?.into_iter().chain(gone).collect())
}

/// The announcement of a cluster. `None` if its access was dropped.
pub(crate) fn announce((name, desired): (&ClusterName, &Desired)) -> Option<Change> {
    Some(match desired {
        Desired::Good {
            access,
            file,
            context,
            labels,
            print: _,
        } => {
            let access = EndpointAccess::clone(access.as_ref()?);
            let mut spec = ClusterSpec::new(name.clone(), access.into())
                .property(FILE, &**file)
                .property(CONTEXT, &**context);
            spec.labels.clone_from(labels);
            Change::Upsert(spec)
        }
        Desired::Broken { object, error } => {
            Change::Broken(BrokenCluster::new(name.clone(), object.clone(), error))
        }
    })
}

#[cfg(test)]
mod tests {
    use mcr_core::{Credential, Endpoint, StaticCredential};

    use super::*;

    fn good(token: &str) -> Desired {
        let endpoint = Endpoint::new("https://a".parse().unwrap());
        Desired::good(
            EndpointAccess::new(endpoint, StaticCredential::new(Credential::token(token))),
            "f".into(),
            "c".into(),
            Labels::new(),
        )
    }

    fn clusters<const N: usize>(clusters: [(&str, Desired); N]) -> Clusters {
        clusters
            .map(|(name, desired)| (ClusterName::new(name).unwrap(), desired))
            .into()
    }

    fn shown(before: &Clusters, now: &Clusters) -> Vec<String> {
        let show = |change| match change {
            Change::Upsert(spec) => format!("+{}", spec.name),
            other => panic!("{other:?}"),
        };
        changes(before, now).unwrap().into_iter().map(show).collect()
    }

    #[test]
    fn what_was_released_is_known_but_can_not_be_announced() {
        let before = clusters([("a", good("1"))]);
        let mut now = before.clone();
        now.values_mut().for_each(Desired::drop_access);
        assert!(changes(&before, &now).is_some_and(|changes| changes.is_empty()));
        assert!(changes(&now, &before).is_some_and(|changes| changes.is_empty()));
        assert!(changes(&Clusters::new(), &now).is_none());
        assert_eq!(shown(&now, &clusters([("a", good("2"))])), ["+a"]);
    }
}
