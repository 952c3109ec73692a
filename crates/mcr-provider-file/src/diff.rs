//! From what was said before and what is true now to what is to be said.

use std::{collections::BTreeMap, sync::Arc};

use mcr_core::{BrokenCluster, Change, ClusterName, ClusterSpec, KubeconfigAccess};

/// The property that names the file a cluster was found in.
const FILE: &str = "file";
/// The property that names the context a cluster was made of.
const CONTEXT: &str = "context";

/// All clusters, by name.
pub(crate) type Clusters = BTreeMap<ClusterName, Desired>;

/// One cluster as the files describe it.
#[derive(Debug, Clone)]
pub(crate) enum Desired {
    Good {
        access: KubeconfigAccess,
        file: Arc<str>,
        context: Arc<str>,
    },
    Broken {
        object: Arc<str>,
        error: Arc<str>,
    },
}

impl Desired {
    /// Where it comes from, for people.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Good { file, context, .. } => format!("file {file}, context {context:?}"),
            Self::Broken { object, .. } => object.to_string(),
        }
    }
}

// `file` and `context` follow from the cluster's name, and the files' contents are what is compared.
impl PartialEq for Desired {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Good { access: a, .. }, Self::Good { access: b, .. }) => {
                a.yaml == b.yaml && a.trust == b.trust && a.context == b.context && a.base_dir == b.base_dir
            }
            (Self::Broken { object: a, error: x }, Self::Broken { object: b, error: y }) => a == b && x == y,
            _ => false,
        }
    }
}

/// What is to be said after `before` was said, if `now` is true. New and changed clusters come first.
pub(crate) fn changes(before: &Clusters, now: &Clusters) -> Vec<Change> {
    let said = now
        .iter()
        .filter(|(name, desired)| before.get(*name) != Some(desired))
        .map(say);
    let gone = before
        .keys()
        .filter(|name| !now.contains_key(*name))
        .cloned()
        .map(Change::Remove);
    said.chain(gone).collect()
}

pub(crate) fn say((name, desired): (&ClusterName, &Desired)) -> Change {
    match desired {
        Desired::Good {
            access,
            file,
            context,
        } => Change::Upsert(
            ClusterSpec::new(name.clone(), access.clone().into())
                .property(FILE, &**file)
                .property(CONTEXT, &**context),
        ),
        Desired::Broken { object, error } => {
            Change::Broken(BrokenCluster::new(name.clone(), object.clone(), error))
        }
    }
}

#[cfg(test)]
mod tests {
    use mcr_core::Trust;

    use super::*;

    fn good(yaml: &str) -> Desired {
        let access = KubeconfigAccess::new(yaml, Trust::Trusted);
        Desired::Good {
            access,
            file: "f".into(),
            context: "c".into(),
        }
    }

    fn broken(error: &str) -> Desired {
        Desired::Broken {
            object: "file f".into(),
            error: error.into(),
        }
    }

    fn clusters<const N: usize>(clusters: [(&str, Desired); N]) -> Clusters {
        clusters
            .map(|(name, desired)| (ClusterName::new(name).unwrap(), desired))
            .into()
    }

    fn shown(before: &Clusters, now: &Clusters) -> Vec<String> {
        let show = |change| match change {
            Change::Upsert(spec) => format!("+{}", spec.name),
            Change::Broken(broken) => format!("!{} {}", broken.name, broken.error),
            Change::Remove(name) => format!("-{name}"),
            other => panic!("{other:?}"),
        };
        changes(before, now).into_iter().map(show).collect()
    }

    #[test]
    fn only_what_is_different_is_said() {
        let before = clusters([("same", good("1")), ("new token", good("1")), ("gone", good("1"))]);
        let now = clusters([("same", good("1")), ("new token", good("2")), ("new", good("1"))]);
        assert_eq!(shown(&before, &now), ["+new", "+new token", "-gone"]);
        assert!(shown(&now, &now).is_empty());
    }

    #[test]
    fn breaking_and_mending_are_said_even_if_the_good_description_is_the_old_one() {
        let fine = clusters([("a", good("1"))]);
        let torn = clusters([("a", broken("torn"))]);
        assert_eq!(shown(&fine, &torn), ["!a torn"]);
        assert_eq!(shown(&torn, &torn), [""; 0]);
        assert_eq!(shown(&torn, &clusters([("a", broken("other"))])), ["!a other"]);
        assert_eq!(shown(&torn, &fine), ["+a"]);
    }
}
