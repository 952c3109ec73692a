//! Which Clusters of the hub belong to the fleet, and when.

use mcr_core::hub::{Closure, KubeconfigOf, SecretKeyRef, is_wanted, selection_in_words};

use crate::v1beta2::Cluster;

/// The options that concern a Cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    /// Empty: all.
    pub(crate) infrastructure_kinds: Vec<String>,
    /// Empty: all.
    pub(crate) cluster_classes: Vec<String>,
    pub(crate) select: Option<Closure<Cluster>>,
    pub(crate) ready_when: Option<Closure<Cluster>>,
    pub(crate) kubeconfig_secret: Option<Closure<Cluster, SecretKeyRef>>,
    pub(crate) kubeconfig_of: Option<KubeconfigOf<Cluster>>,
    pub(crate) keep_while: Option<Closure<Cluster>>,
}

impl Selection {
    /// Whether the Cluster belongs to the fleet now.
    pub(crate) fn selects(&self, cluster: &Cluster) -> bool {
        let infrastructure = cluster.spec.infrastructure_ref.as_ref();
        let class = cluster
            .spec
            .topology
            .as_ref()
            .map(|topology| &*topology.class_ref.name);
        is_wanted(
            &self.infrastructure_kinds,
            infrastructure.map(|infrastructure| &*infrastructure.kind),
        ) && is_wanted(&self.cluster_classes, class)
            && self.select.as_ref().is_none_or(|select| select.call(cluster))
            && (cluster.metadata.deletion_timestamp.is_none()
                || self.keep_while.as_ref().is_some_and(|keep| keep.call(cluster)))
    }

    /// What is selected on this side of the API, for people.
    pub(crate) fn in_words(&self) -> String {
        let lists = [
            ("with infrastructure", &*self.infrastructure_kinds),
            ("of ClusterClass", &self.cluster_classes),
        ];
        selection_in_words(&lists, self.select.is_some())
    }
}
