//! What is known of one cluster beside its spec: its ClusterProperties, and its identity. No I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use mcr_core::{Change, ClusterSpec};

/// The property with the id of a cluster, which is unique in its ClusterSet. KEP-2149 defines it.
pub const CLUSTER_ID: &str = "cluster.clusterset.k8s.io";

/// The property with the name of the ClusterSet that a cluster belongs to. KEP-2149 defines it.
pub const CLUSTER_SET: &str = "clusterset.k8s.io";

/// The longest value that becomes a property, in bytes.
const MAX_VALUE: usize = 4 << 10;

/// The most properties that a cluster may add.
const MAX_PROPERTIES: usize = 64;

pub(crate) type Properties = BTreeMap<String, String>;

/// The usable ClusterProperties among those that a cluster has listed, by name.
///
/// Somebody hostile may control the cluster, so it may answer anything. Names must be valid in Kubernetes, and an id
/// or ClusterSet must be valid according to KEP-2149.
pub(crate) fn usable(listed: impl IntoIterator<Item = (String, String)>) -> Properties {
    let mut usable = Properties::new();
    let mut others = Properties::new();
    for (name, value) in listed {
        let well_known = name == CLUSTER_ID || name == CLUSTER_SET;
        if !is_subdomain(&name)
            || value.is_empty()
            || value.len() > MAX_VALUE
            || (well_known && !is_subdomain(&value))
        {
            tracing::debug!(
                ?name,
                bytes = value.len(),
                "a ClusterProperty is not usable, left out"
            );
        } else if well_known {
            usable.insert(name, value);
        } else {
            others.insert(name, value);
        }
    }
    let room = MAX_PROPERTIES - usable.len();
    usable.extend(others.into_iter().take(room));
    usable
}

/// Whether this is a DNS subdomain (RFC 1123).
fn is_subdomain(name: &str) -> bool {
    let inside = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| match label.as_bytes() {
        [first, .., last] => {
            inside(first) && inside(last) && label.bytes().all(|byte| inside(&byte) || byte == b'-')
        }
        [only] => inside(only),
        [] => false,
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// What is known of one cluster. Kept between discoveries, as long as it is the same cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// The identity that the inner provider declares.
    declared: Option<Arc<str>>,
    /// The properties in the last answer. `None` before the first answer.
    pub(crate) found: Option<Properties>,
    /// The last cluster id.
    id: Option<String>,
    /// The identity to announce. `None` until the cluster id has changed.
    identity: Option<Arc<str>>,
    /// The identity that was announced last.
    announced: Option<Arc<str>>,
}

impl Known {
    /// If the inner provider announces that this is another cluster, forgets everything and returns true.
    pub(crate) fn follow(&mut self, spec: &ClusterSpec) -> bool {
        let other = matches!((&self.declared, &spec.identity), (Some(was), Some(is)) if was != is);
        if other {
            *self = Self::default();
        }
        self.declared.clone_from(&spec.identity);
        other
    }

    /// The properties that are known of the cluster: those of the inner provider, and those that the cluster reports.
    ///
    /// For the same name, the inner provider has priority, because it represents the operators of the fleet.
    pub(crate) fn properties(&self, spec: &ClusterSpec) -> Properties {
        let mut properties = spec.properties.clone();
        for (name, value) in self.found.iter().flatten() {
            if !properties.contains_key(name) {
                properties.insert(name.clone(), value.clone());
            }
        }
        properties
    }

    /// What to announce about the cluster. From its ClusterProperties, only those in `may_set` are announced, because
    /// controllers select clusters by properties and place Secrets in the selected clusters.
    ///
    /// If the cluster id has changed, it is another cluster and gets another identity. A fleet treats a cluster
    /// without a declared identity as the same cluster when it gets one. So such a cluster is removed first.
    pub(crate) fn announce(&mut self, spec: &ClusterSpec, may_set: &BTreeSet<String>) -> Vec<Change> {
        let mut known = self.properties(spec);
        let mut spec = spec.clone();
        let mut changes = Vec::new();
        if let Some(id) = known.get(CLUSTER_ID) {
            if let Some(was) = self.id.as_ref().filter(|was| *was != id) {
                tracing::warn!(cluster = %spec.name, ?was, is = ?id, "the cluster id has changed: another cluster has this name now");
                let declared = spec.identity.as_deref().unwrap_or_default();
                self.identity = Some(format!("{declared}/{id}").into());
                if self.announced.is_none() {
                    changes.push(Change::Remove(spec.name.clone()));
                }
            }
            self.id = Some(id.clone());
        }
        known.retain(|name, _| may_set.contains(name) || spec.properties.contains_key(name));
        spec.properties = known;
        if self.identity.is_some() {
            spec.identity.clone_from(&self.identity);
        }
        self.announced.clone_from(&spec.identity);
        changes.push(Change::Upsert(spec));
        changes
    }
}

#[cfg(test)]
mod tests;
