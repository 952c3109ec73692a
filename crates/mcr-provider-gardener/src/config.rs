use std::{collections::HashMap, sync::Arc, time::Duration};

use kube::core::ApiResource;
use mcr_core::{
    ObjectKey,
    hub::{Hub, Memory},
};
use parking_lot::Mutex;

use crate::{
    kubeconfig::UsableKubeconfig, refusals::Refusals, selection::Selection, v1alpha1::Cluster, v1beta1::Shoot,
};

/// Where a provider finds Shoots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topology {
    /// In the garden, as Shoots. Gardener issues a kubeconfig on request.
    #[default]
    Garden,
    /// In a seed, as the Clusters of Gardener's extensions. The kubeconfig is in a Secret beside the control plane.
    Seed,
}

/// The options of a provider, checked.
#[derive(Debug)]
pub(crate) struct Config {
    /// The options of the hub. In a seed, namespaces and labels are in `selection` instead.
    pub(crate) hub: Hub,
    pub(crate) topology: Topology,
    pub(crate) selection: Arc<Selection>,
    pub(crate) rights: Rights,
    pub(crate) valid_for: Duration,
    pub(crate) at_once: usize,
    pub(crate) first_deadline: Duration,
    /// The provider's memory, with the kubeconfigs in use. `None` after a suspension has ended the use of a
    /// kubeconfig.
    pub(crate) memory: Arc<Memory<Option<UsableKubeconfig>>>,
    /// The project of each namespace.
    pub(crate) projects: Mutex<HashMap<Arc<str>, Arc<str>>>,
    pub(crate) refusals: Arc<Refusals>,
}

/// What the kubeconfigs allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    Admin,
    Viewer,
}

impl Rights {
    pub(crate) fn subresource(self) -> &'static str {
        match self {
            Self::Admin => "adminkubeconfig",
            Self::Viewer => "viewerkubeconfig",
        }
    }

    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Admin => "AdminKubeconfigRequest",
            Self::Viewer => "ViewerKubeconfigRequest",
        }
    }
}

impl Config {
    /// The kind that describes Shoots: Shoots in a garden, Clusters in a seed.
    pub(crate) fn resource(&self) -> ApiResource {
        match self.topology {
            Topology::Garden => ApiResource::erase::<Shoot>(&()),
            Topology::Seed => ApiResource::erase::<Cluster>(&()),
        }
    }
}

/// The namespace of an object. All kinds of Gardener that are used here are namespaced.
pub(crate) fn namespace(key: &ObjectKey) -> Arc<str> {
    key.namespace.clone().unwrap_or_default()
}
