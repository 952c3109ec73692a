use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use mcr_core::{AccessPolicy, Trust, WatchRequest, WatchSettings, internal::Ledger};

use crate::{memory::Memory, secret::CLUSTER_NAME_LABEL, selection::Selection, served::Served};

/// The options of a provider, checked.
pub(crate) struct Config {
    pub(crate) client: Client,
    /// None: all.
    pub(crate) namespace: Option<String>,
    pub(crate) labels: Option<String>,
    pub(crate) selection: Arc<Selection>,
    pub(crate) trust: Trust,
    /// None if the policy of the fleet applies.
    pub(crate) policy: Option<AccessPolicy>,
    pub(crate) events: bool,
    pub(crate) memory: Arc<Memory>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) times: Times,
    /// The only version of the kind Cluster that is read. None: the best that the hub serves.
    pub(crate) only: Option<Served>,
}

/// Times that tests shorten.
#[derive(Debug, Clone)]
pub(crate) struct Times {
    pub(crate) watch: Option<Arc<WatchSettings>>,
    /// The provider reports a hub that refuses a list for this long.
    pub(crate) blocked_for: Duration,
    /// A read of a Secret may take so long.
    pub(crate) read: Duration,
    /// The pause after the first failed read, and the longest one.
    pub(crate) pauses: (Duration, Duration),
}

impl Default for Times {
    fn default() -> Self {
        Self {
            watch: None,
            blocked_for: Duration::from_secs(10),
            read: Duration::from_secs(15),
            pauses: (Duration::from_secs(1), Duration::from_secs(60)),
        }
    }
}

impl Config {
    pub(crate) fn clusters(&self, served: Served) -> WatchRequest {
        let request = self.in_namespace(WatchRequest::resource(&served.resource()));
        match &self.labels {
            Some(labels) => request.labels(labels),
            None => request,
        }
    }

    pub(crate) fn secrets(&self) -> WatchRequest {
        self.in_namespace(WatchRequest::of::<Secret>())
            .labels(CLUSTER_NAME_LABEL)
            .metadata_only()
    }

    fn in_namespace(&self, request: WatchRequest) -> WatchRequest {
        match &self.namespace {
            Some(namespace) => request.namespace(namespace),
            None => request,
        }
    }
}
