use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use kube::{Client, core::ApiResource};
use mcr_core::{AccessPolicy, WatchRequest, WatchSettings};

use crate::{
    memory::Memory, refusals::Refusals, seed::SECRET, selection::Selection, v1alpha1::Cluster, v1beta1::Shoot,
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
pub(crate) struct Config {
    pub(crate) client: Client,
    pub(crate) topology: Topology,
    /// The namespace that the watch selects. None: all. In a seed the selection has it.
    pub(crate) namespace: Option<String>,
    /// The label selector of the watch. In a seed the selection has it.
    pub(crate) labels: Option<String>,
    pub(crate) selection: Arc<Selection>,
    pub(crate) rights: Rights,
    pub(crate) valid_for: Duration,
    pub(crate) at_once: usize,
    /// None if the policy of the fleet applies.
    pub(crate) policy: Option<AccessPolicy>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) times: Times,
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

/// Times that tests shorten.
#[derive(Debug, Clone)]
pub(crate) struct Times {
    pub(crate) watch: Option<Arc<WatchSettings>>,
    /// The provider reports a garden that refuses a list for this long.
    pub(crate) blocked_for: Duration,
    /// How long a first request may take. It is short, so that a few requests that are never answered delay no others.
    pub(crate) first: Duration,
    /// How long any other request may take.
    pub(crate) request: Duration,
    /// The pause after the first failed request, and the longest one.
    pub(crate) pauses: (Duration, Duration),
}

impl Default for Times {
    fn default() -> Self {
        Self {
            watch: None,
            blocked_for: Duration::from_secs(10),
            first: Duration::from_secs(3),
            request: Duration::from_secs(30),
            pauses: (Duration::from_secs(1), Duration::from_secs(60)),
        }
    }
}

impl Config {
    /// The Shoots of a garden, or the Clusters of a seed.
    pub(crate) fn shoots(&self) -> WatchRequest {
        let request = WatchRequest::resource(&match self.topology {
            Topology::Garden => ApiResource::erase::<Shoot>(&()),
            Topology::Seed => ApiResource::erase::<Cluster>(&()),
        });
        let request = match &self.namespace {
            Some(namespace) => request.namespace(namespace),
            None => request,
        };
        match &self.labels {
            Some(labels) => request.labels(labels),
            None => request,
        }
    }

    /// The Secrets of a seed with the kubeconfigs of Shoots. Their content does not come with the watch.
    pub(crate) fn secrets(&self) -> WatchRequest {
        WatchRequest::resource(&ApiResource::erase::<Secret>(&()))
            .fields(format!("metadata.name={SECRET}"))
            .metadata_only()
    }
}
