use std::{fmt, sync::Arc, time::Duration};

use kube::Client;
use mcr_core::{AccessPolicy, WatchRequest, WatchSettings};

use crate::{
    access_providers::AccessProviders,
    memory::Memory,
    secret::{CONSUMER_LABEL, secrets},
    selection::Selection,
    served::Served,
};

/// The options of a provider, checked.
pub(crate) struct Config {
    pub(crate) client: Client,
    /// None: all.
    pub(crate) namespace: Option<String>,
    pub(crate) labels: Option<String>,
    pub(crate) selection: Arc<Selection>,
    pub(crate) access: Access,
    /// None if the policy of the fleet applies.
    pub(crate) policy: Option<AccessPolicy>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) times: Times,
    /// The only version of the kind ClusterProfile that is read. None: the best that the hub serves.
    pub(crate) only: Option<Served>,
}

/// Where it says how to reach a cluster.
#[derive(Clone)]
pub(crate) enum Access {
    /// In its ClusterProfile.
    Plugins(Arc<AccessProviders>),
    /// In a Secret for this consumer.
    Secrets(Arc<str>),
}

/// Times that tests shorten.
#[derive(Debug, Clone)]
pub(crate) struct Times {
    pub(crate) watch: Arc<WatchSettings>,
    /// The provider reports a hub that refuses a list for this long.
    pub(crate) blocked_for: Duration,
    /// The hub may take so long to tell the versions that it serves.
    pub(crate) ask: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            watch: Arc::default(),
            blocked_for: Duration::from_secs(10),
            ask: Duration::from_secs(15),
        }
    }
}

impl Config {
    pub(crate) fn profiles(&self, served: Served) -> WatchRequest {
        let request = self.in_namespace(WatchRequest::resource(&served.resource()));
        match &self.labels {
            Some(labels) => request.labels(labels),
            None => request,
        }
    }

    /// The Secrets of this consumer.
    pub(crate) fn secrets(&self, consumer: &str) -> WatchRequest {
        self.in_namespace(WatchRequest::resource(&secrets()))
            .labels(format!("{CONSUMER_LABEL}={consumer}"))
    }

    fn in_namespace(&self, request: WatchRequest) -> WatchRequest {
        match &self.namespace {
            Some(namespace) => request.namespace(namespace),
            None => request,
        }
    }
}

impl Access {
    pub(crate) fn consumer(&self) -> Option<&Arc<str>> {
        match self {
            Self::Plugins(_) => None,
            Self::Secrets(consumer) => Some(consumer),
        }
    }

    pub(crate) fn providers(&self) -> Option<&Arc<AccessProviders>> {
        match self {
            Self::Plugins(providers) => Some(providers),
            Self::Secrets(_) => None,
        }
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plugins(providers) => {
                let names = providers.0.iter().map(|provider| &provider.name);
                f.debug_list().entries(names).finish()
            }
            Self::Secrets(consumer) => write!(f, "Secrets of {consumer}"),
        }
    }
}
