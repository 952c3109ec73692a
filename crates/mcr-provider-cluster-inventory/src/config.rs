use std::{fmt, sync::Arc};

use k8s_openapi::api::core::v1::Secret;
use mcr_core::{
    WatchRequest,
    hub::{Hub, KubeconfigOf, Memory, Versions},
};

use crate::{
    access_providers::AccessProviders, placement::PlacementDecisions, secret::CONSUMER_LABEL,
    selection::Selection, v1alpha2::ClusterProfile,
};

/// The version that is read where the hub does not serve v1alpha2.
pub(crate) const OLD_VERSION: &str = "v1alpha1";

pub(crate) const PROFILES: Versions = Versions {
    group: "multicluster.x-k8s.io",
    kind: "ClusterProfile",
    plural: "clusterprofiles",
    versions: &["v1alpha2", OLD_VERSION],
    missing: "the hub has no Cluster Inventory API: it serves ClusterProfile of multicluster.x-k8s.io neither as v1alpha2 nor as \
              v1alpha1. Install or upgrade its CRD there, or give the provider the client of the hub that has the inventory; a newer \
              version needs a newer mcr",
};

/// The last [ids](Facts::ids) of a cluster.
pub(crate) type Ids = [Option<Box<str>>; 2];

/// The options of a provider, checked.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) hub: Hub,
    pub(crate) selection: Arc<Selection>,
    /// None: no filter by schedulers.
    pub(crate) placement: Option<PlacementDecisions>,
    pub(crate) access: Access,
    pub(crate) memory: Arc<Memory<Ids>>,
    /// The only version of the kind ClusterProfile that is read. None: the best that the hub serves.
    pub(crate) only: Option<&'static str>,
}

/// Where the access of a cluster is described.
#[derive(Clone)]
pub(crate) enum Access {
    /// In its ClusterProfile.
    Plugins(Arc<AccessProviders>),
    /// In a Secret for this consumer.
    Secrets(Arc<str>),
    /// In what this function gives.
    Computed(KubeconfigOf<ClusterProfile>),
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plugins(providers) => {
                let names = providers.0.iter().map(|provider| &provider.name);
                f.debug_list().entries(names).finish()
            }
            Self::Secrets(consumer) => write!(f, "Secrets of {consumer}"),
            Self::Computed(function) => function.fmt(f),
        }
    }
}

impl Config {
    pub(crate) fn consumer(&self) -> Option<&Arc<str>> {
        match &self.access {
            Access::Plugins(_) | Access::Computed(_) => None,
            Access::Secrets(consumer) => Some(consumer),
        }
    }

    /// The Secrets of the consumer, if there is one.
    pub(crate) fn secrets(&self) -> Vec<WatchRequest> {
        let consumer = self.consumer().into_iter();
        let request = |consumer| WatchRequest::of::<Secret>().labels(format!("{CONSUMER_LABEL}={consumer}"));
        consumer
            .flat_map(|consumer| self.hub.in_namespaces(request(consumer)))
            .collect()
    }

    /// The PlacementDecisions, with the option `placement`.
    pub(crate) fn decisions(&self) -> Vec<WatchRequest> {
        match &self.placement {
            None => Vec::new(),
            Some(placement) => match &placement.namespace {
                Some(namespace) => vec![placement.request().namespace(namespace)],
                None => self.hub.in_namespaces(placement.request()),
            },
        }
    }
}
