//! What a provider has said about a cluster, as it is held.

use std::{collections::BTreeMap, sync::Arc};

use crate::{Access, Availability, ClusterName, ClusterSpec};

/// A [`ClusterSpec`], held for as long as the cluster is there.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) name: ClusterName,
    pub(crate) access: Access,
    /// The namespace of requests that name none; not known if the access is a kubeconfig that can't be used.
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
            access,
            identity,
            labels: labels.into(),
            properties: properties.into(),
            availability,
            announced_by,
        }
    }
}

/// Names and values, in the order of the names. Clusters have a few, and a map has room for eleven: 544 bytes.
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
