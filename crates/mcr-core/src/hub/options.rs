//! The options that all providers of a hub share.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use futures::{StreamExt, stream, stream::BoxStream};
use kube::{Client, core::ApiResource};

use super::kubeconfig::Judge;
use crate::provider::DiscoverySettings;
use mcr_access::{AccessPolicy, ClusterName, Trust, internal::namespace};
use mcr_store::{Object, ObjectKey};
use mcr_watch::{
    HubEvent, HubWatch, WatchRequest, WatchSettings,
    internal::{EventPublisher, Ledger, LoggedWatch},
};

/// The options that all providers of a hub share. The builder of a provider embeds them and sets their fields.
#[derive(Clone)]
#[non_exhaustive]
pub struct HubOptions {
    /// The name of the provider.
    pub name: Arc<str>,
    /// The client of the hub. Required.
    pub client: Option<Client>,
    /// Where the objects are. Default: the default namespace of the client.
    pub namespaces: Namespaces,
    /// The label selector of the objects. Default: none.
    pub labels: Option<String>,
    /// How far the kubeconfigs of the hub are trusted. Default: not.
    pub trust: Trust,
    /// What untrusted kubeconfigs may do. None: the policy of the fleet applies.
    pub access_policy: Option<AccessPolicy>,
    /// Whether to write Kubernetes events. Default: yes.
    pub events: bool,
    /// Times and limits.
    pub times: Times,
}

/// The namespaces of a hub that a provider reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Namespaces {
    /// The default namespace of the client.
    Default,
    /// This namespace. A cluster has the name of its object.
    One(String),
    /// Each of these. The name of a cluster is `<namespace>/<object>`.
    Several(Vec<String>),
    /// All, with one watch. The name of a cluster is `<namespace>/<object>`.
    All,
}

/// Times of a provider. The defaults are right for everything but tests.
#[derive(Debug, Clone)]
pub struct Times {
    /// The settings of watches. None: those of the fleet.
    pub watch: Option<Arc<WatchSettings>>,
    /// A hub that refuses a list for this long is logged as one that needs somebody to act.
    pub blocked_for: Duration,
    /// How long one request may take.
    pub deadline: Duration,
    /// The pause after the first failed request, and the longest one.
    pub pauses: (Duration, Duration),
}

impl Default for Times {
    fn default() -> Self {
        Self {
            watch: None,
            blocked_for: Duration::from_secs(10),
            deadline: Duration::from_secs(15),
            pauses: (Duration::from_secs(1), Duration::from_secs(60)),
        }
    }
}

/// What is wrong with [`HubOptions`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// There is no client of the hub.
    #[error("there is no hub; give the client of the management cluster with `client`")]
    NoHub,
    /// An invalid name of a namespace.
    #[error(
        "{0:?} can't be the name of a namespace, which has at most 63 lower-case letters, digits and hyphens; correct it, \
         or leave `namespace` out to take the client's default namespace"
    )]
    Namespace(String),
    /// An empty list of namespaces.
    #[error("`namespaces` is empty; name the namespaces of the hub there, or use `all_namespaces`")]
    NoNamespace,
    /// An empty or unprintable label selector.
    #[error(
        "{0:?} can't be a label selector; give `labels` one such as \"region=eu\", or leave it out to take all objects"
    )]
    Labels(String),
    /// Two options that name the kubeconfigs.
    #[error("`kubeconfig_secret` and `kubeconfig_of` exclude each other; leave one out")]
    TwoAccesses,
}

impl HubOptions {
    /// The defaults, for a provider of this name.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            client: None,
            namespaces: Namespaces::Default,
            labels: None,
            trust: Trust::Untrusted,
            access_policy: None,
            events: true,
            times: Times::default(),
        }
    }

    /// Checks the options.
    ///
    /// # Errors
    /// [`OptionError`] if there is no client, or if a namespace or the label selector is invalid. The API server checks the rest
    /// of a selector.
    pub fn check(self) -> Result<Hub, OptionError> {
        let client = self.client.ok_or(OptionError::NoHub)?;
        let qualified = matches!(self.namespaces, Namespaces::Several(_) | Namespaces::All);
        let namespaces = match self.namespaces {
            Namespaces::Default => vec![client.default_namespace().to_owned()],
            Namespaces::One(namespace) => vec![namespace],
            Namespaces::Several(all) if all.is_empty() => return Err(OptionError::NoNamespace),
            // Each once.
            Namespaces::Several(all) => BTreeSet::from_iter(all).into_iter().collect(),
            Namespaces::All => Vec::new(),
        };
        if let Some(wrong) = namespaces.iter().find(|name| !namespace::is_valid(name)) {
            return Err(OptionError::Namespace(wrong.clone()));
        }
        // An empty selector would select all objects.
        let is_selector = |text: &str| !text.trim().is_empty() && !text.chars().any(char::is_control);
        if let Some(labels) = self.labels.as_ref().filter(|labels| !is_selector(labels)) {
            return Err(OptionError::Labels(labels.clone()));
        }
        Ok(Hub {
            name: self.name,
            client,
            namespaces,
            qualified,
            labels: self.labels,
            trust: self.trust,
            access_policy: self.access_policy,
            events: self.events.then(Arc::default),
            times: self.times,
        })
    }
}

impl fmt::Debug for HubOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubOptions")
            .field("name", &self.name)
            .field("namespaces", &self.namespaces)
            .field("labels", &self.labels)
            .field("trust", &self.trust)
            .field("access_policy", &self.access_policy)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

/// A hub, and how a provider reads it: [`HubOptions`] that were checked. Clones share the record of written events.
#[derive(Clone)]
#[non_exhaustive]
pub struct Hub {
    /// The name of the provider.
    pub name: Arc<str>,
    /// The client of the hub.
    pub client: Client,
    /// The namespaces of the objects. Empty: all.
    pub namespaces: Vec<String>,
    /// Whether the names of clusters have the namespace in them.
    pub qualified: bool,
    /// The label selector of the objects.
    pub labels: Option<String>,
    /// How far kubeconfigs are trusted.
    pub trust: Trust,
    /// None if the policy of the fleet applies.
    pub access_policy: Option<AccessPolicy>,
    /// Times and limits.
    pub times: Times,
    /// None: no events.
    events: Option<Arc<Ledger>>,
}

impl Hub {
    /// The objects of a kind that the options select: a request for each namespace, or one for all.
    pub fn objects(&self, resource: &ApiResource) -> Vec<WatchRequest> {
        let request = WatchRequest::resource(resource);
        self.in_namespaces(match &self.labels {
            Some(labels) => request.labels(labels),
            None => request,
        })
    }

    /// A request in each namespace of the options, or the request itself for all.
    pub fn in_namespaces(&self, request: WatchRequest) -> Vec<WatchRequest> {
        match &*self.namespaces {
            [] => vec![request],
            some => some.iter().map(|name| request.clone().namespace(name)).collect(),
        }
    }

    /// Which objects of a kind are read, for people.
    pub fn in_words(&self, resource: &ApiResource) -> String {
        let requests = self.objects(resource).into_iter();
        let requests: Vec<String> = requests.map(|request| request.to_string()).collect();
        requests.join(" and ")
    }

    /// The name of the cluster that an object describes: that of the object, with its namespace if there are several. None, and
    /// a warning, if it can't be the name of a cluster; no API server has such objects.
    pub fn cluster_name(&self, key: &ObjectKey) -> Option<ClusterName> {
        let name = match &key.namespace {
            Some(namespace) if self.qualified => ClusterName::new(format!("{namespace}/{}", key.name)),
            _ => ClusterName::new(&key.name),
        };
        name.inspect_err(
            |error| tracing::warn!(object = %key, %error, "left out: its name can't be that of a cluster"),
        )
        .ok()
    }

    /// Watches objects, keeps `project(object)` of each, and turns the events into those of the provider. Outages are logged. See
    /// [`HubWatch::projected`]: `project` must be quick and must not block.
    pub fn watch<T: Clone + PartialEq + Send + Sync + 'static, E: Send + 'static>(
        &self,
        request: WatchRequest,
        settings: &DiscoverySettings,
        project: impl Fn(&Object) -> Option<T> + Send + Sync + 'static,
        event: impl Fn(HubEvent<T>) -> E + Send + 'static,
    ) -> BoxStream<'static, E> {
        let watch = HubWatch::projected(self.client.clone(), request.clone(), project);
        let watch = watch.settings(self.times.watch.as_ref().unwrap_or(&settings.watch).clone());
        let watch = LoggedWatch::new(watch, request, self.times.blocked_for);
        stream::unfold(watch, async |mut watch| Some((watch.next().await, watch)))
            .map(event)
            .boxed()
    }

    /// Writes events on Secrets in the name of this controller (a DNS name, a slash and a word), unless the options turn them off.
    pub fn publisher(&self, controller: &'static str) -> Option<EventPublisher> {
        let ledger = self.events.clone()?;
        Some(EventPublisher::new(self.client.clone(), controller, ledger))
    }

    /// Judges the kubeconfigs of a discovery with these settings.
    pub fn judge(&self, settings: &DiscoverySettings) -> Judge {
        Judge {
            trust: self.trust,
            policy: self.access_policy.clone(),
            fleet_policy: settings.access_policy.clone(),
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("name", &self.name)
            .field("namespaces", &self.namespaces)
            .field("labels", &self.labels)
            .field("trust", &self.trust)
            .field("events", &self.events.is_some())
            .finish_non_exhaustive()
    }
}
