use std::{fmt, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use mcr_core::{AccessPolicy, WatchRequest, WatchSettings};

use crate::{
    access_providers::AccessProviders, memory::Memory, placement::PlacementDecisions, secret::CONSUMER_LABEL,
    selection::Selection, served::Served,
};

/// The options of a provider, checked.
pub(crate) struct Config {
    pub(crate) client: Client,
    /// The namespaces of the inventories. Empty: all.
    pub(crate) namespaces: Vec<String>,
    /// Whether the names of clusters have the namespace in them.
    pub(crate) qualified: bool,
    pub(crate) labels: Option<String>,
    pub(crate) selection: Arc<Selection>,
    /// None: whatever schedulers say.
    pub(crate) placement: Option<PlacementDecisions>,
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
    pub(crate) watch: Option<Arc<WatchSettings>>,
    /// The provider reports a hub that refuses a list for this long.
    pub(crate) blocked_for: Duration,
    /// The hub may take so long to tell the versions that it serves.
    pub(crate) ask: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            watch: None,
            blocked_for: Duration::from_secs(10),
            ask: Duration::from_secs(15),
        }
    }
}

impl Config {
    /// The ClusterProfiles of each namespace, or those of all.
    pub(crate) fn profiles(&self, served: Served) -> Vec<WatchRequest> {
        let request = WatchRequest::resource(&served.resource());
        self.each(match &self.labels {
            Some(labels) => request.labels(labels),
            None => request,
        })
    }

    /// Which ClusterProfiles are read, for people.
    pub(crate) fn in_words(&self) -> String {
        let mut all = self.profiles(Served::V1Alpha2).into_iter();
        let first = all.next().map(|request| request.to_string()).unwrap_or_default();
        all.fold(first, |words, request| format!("{words} and {request}"))
    }

    /// The Secrets of this consumer, as [`profiles`](Self::profiles).
    pub(crate) fn secrets(&self) -> Vec<WatchRequest> {
        let Some(consumer) = self.access.consumer() else {
            return Vec::new();
        };
        self.each(WatchRequest::of::<Secret>().labels(format!("{CONSUMER_LABEL}={consumer}")))
    }

    /// The PlacementDecisions.
    pub(crate) fn decisions(&self) -> Vec<WatchRequest> {
        match &self.placement {
            None => Vec::new(),
            Some(placement) => match &placement.namespace {
                Some(namespace) => vec![placement.request().namespace(namespace)],
                None => self.each(placement.request()),
            },
        }
    }

    /// The request in each namespace, or in all at once.
    fn each(&self, request: WatchRequest) -> Vec<WatchRequest> {
        match &*self.namespaces {
            [] => vec![request],
            some => some
                .iter()
                .map(|namespace| request.clone().namespace(namespace))
                .collect(),
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
