//! Which Clusters of the hub belong to the fleet, and when.

use std::{fmt, sync::Arc};

use crate::{secret::SecretKeyRef, v1beta2::Cluster};

pub(crate) type Predicate = Arc<dyn Fn(&Cluster) -> bool + Send + Sync>;
pub(crate) type Lookup = Arc<dyn Fn(&Cluster) -> SecretKeyRef + Send + Sync>;

/// The options that look at a Cluster.
#[derive(Clone, Default)]
pub(crate) struct Selection {
    /// Empty: all.
    pub(crate) infrastructure_kinds: Vec<String>,
    /// Empty: all.
    pub(crate) cluster_classes: Vec<String>,
    pub(crate) select: Option<Predicate>,
    pub(crate) ready_when: Option<Predicate>,
    pub(crate) kubeconfig_secret: Option<Lookup>,
    pub(crate) keep_while: Option<Predicate>,
}

impl Selection {
    /// Whether the Cluster belongs to the fleet now.
    pub(crate) fn takes(&self, cluster: &Cluster) -> bool {
        let infrastructure = cluster.spec.infrastructure_ref.as_ref();
        let class = cluster.spec.topology.as_ref().map(|topology| &topology.class_ref);
        let has = |wanted: &[String], there: Option<&String>| {
            wanted.is_empty() || there.is_some_and(|there| wanted.contains(there))
        };
        has(
            &self.infrastructure_kinds,
            infrastructure.map(|infrastructure| &infrastructure.kind),
        ) && has(&self.cluster_classes, class.map(|class| &class.name))
            && self.select.as_ref().is_none_or(|select| select(cluster))
            && (cluster.metadata.deletion_timestamp.is_none()
                || self.keep_while.as_ref().is_some_and(|keep| keep(cluster)))
    }

    /// What is selected on this side of the API, for people.
    pub(crate) fn in_words(&self) -> String {
        let mut words = String::new();
        if !self.infrastructure_kinds.is_empty() {
            words.push_str(&format!(
                ", with infrastructure {}",
                self.infrastructure_kinds.join(" or ")
            ));
        }
        if !self.cluster_classes.is_empty() {
            words.push_str(&format!(
                ", of ClusterClass {}",
                self.cluster_classes.join(" or ")
            ));
        }
        if self.select.is_some() {
            words.push_str(", chosen by `select`");
        }
        words
    }
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selection")
            .field("infrastructure_kinds", &self.infrastructure_kinds)
            .field("cluster_classes", &self.cluster_classes)
            .field("select", &self.select.is_some())
            .field("ready_when", &self.ready_when.is_some())
            .field("kubeconfig_secret", &self.kubeconfig_secret.is_some())
            .field("keep_while", &self.keep_while.is_some())
            .finish()
    }
}
