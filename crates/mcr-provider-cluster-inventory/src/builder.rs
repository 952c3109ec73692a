use std::{sync::Arc, time::Duration};

use kube::Client;
use mcr_core::{
    AccessPolicy, BoxError, WatchSettings,
    hub::{Closure, HubOptions, KubeconfigOf, Namespaces, OptionError, SecretKeyRef},
};

use crate::{
    access_providers::AccessProviders,
    config::{Access, Config, OLD_VERSION},
    error::ClusterInventoryError,
    placement::PlacementDecisions,
    provider::ClusterInventoryProvider,
    selection::{Ready, Selection},
    v1alpha2::ClusterProfile,
};

/// Builds a [`ClusterInventoryProvider`]. [`ClusterInventoryProvider::builder`] creates it.
///
/// The closures run in the task that watches the hub: they must be quick and must not block. If one panics, the panic is logged,
/// and the cluster stays as it is until its ClusterProfile changes.
#[must_use]
#[derive(Debug, Clone)]
pub struct ClusterInventoryProviderBuilder {
    hub: HubOptions,
    selection: Selection,
    placement: Option<PlacementDecisions>,
    providers: Option<Arc<AccessProviders>>,
    consumer: Option<Arc<str>>,
    secret: Option<Closure<ClusterProfile, SecretKeyRef>>,
    function: Option<KubeconfigOf<ClusterProfile>>,
    only: Option<&'static str>,
}

impl ClusterInventoryProvider {
    /// A builder. [`client`](ClusterInventoryProviderBuilder::client) is required, and one way to reach clusters:
    /// [`access_providers`](ClusterInventoryProviderBuilder::access_providers),
    /// [`consumer_secrets`](ClusterInventoryProviderBuilder::consumer_secrets),
    /// [`kubeconfig_secret`](ClusterInventoryProviderBuilder::kubeconfig_secret) or
    /// [`kubeconfig_of`](ClusterInventoryProviderBuilder::kubeconfig_of). All other options have defaults.
    pub fn builder() -> ClusterInventoryProviderBuilder {
        ClusterInventoryProviderBuilder {
            hub: HubOptions::new("cluster-inventory"),
            selection: Selection::default(),
            placement: None,
            providers: None,
            consumer: None,
            secret: None,
            function: None,
            only: None,
        }
    }
}

impl ClusterInventoryProviderBuilder {
    /// Sets the provider's name. Default: `cluster-inventory`.
    pub fn provider_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.hub.name = name.into();
        self
    }

    /// Sets the client of the hub: the cluster that has the ClusterProfiles.
    pub fn client(mut self, client: Client) -> Self {
        self.hub.client = Some(client);
        self
    }

    /// Sets the plugins with which clusters are reached. The policy of the fleet must allow them: see
    /// [`AccessProviders::plugin_policy`].
    pub fn access_providers(mut self, providers: AccessProviders) -> Self {
        self.providers = Some(Arc::new(providers));
        self
    }

    /// Takes the kubeconfigs of clusters from Secrets instead, which cluster managers write for the consumer of this name.
    ///
    /// The Cluster Inventory API has deprecated such Secrets in favour of access providers. A Secret is in the namespace of its
    /// ClusterProfile, and has the labels [`CONSUMER_LABEL`](crate::CONSUMER_LABEL) and [`PROFILE_LABEL`](crate::PROFILE_LABEL)
    /// and the key [`KUBECONFIG_KEY`](crate::KUBECONFIG_KEY). A ClusterProfile may have one such Secret. The client needs the
    /// right to list and watch Secrets.
    pub fn consumer_secrets(mut self, consumer: impl Into<Arc<str>>) -> Self {
        self.consumer = Some(consumer.into());
        self
    }

    /// Takes the kubeconfig of a cluster from the Secret of the hub that this predicate names, for ClusterProfiles that are ready.
    ///
    /// The Secret is read when its ClusterProfile changes, and again each minute. The client needs the right to get it, and no right to
    /// list or watch Secrets. Whoever writes a ClusterProfile chooses its name, and so which of the Secrets its cluster gets: with several
    /// namespaces, the name of the Secret needs the namespace of the ClusterProfile too.
    ///
    /// ```
    /// use mcr_provider_cluster_inventory::{ClusterInventoryProvider, SecretKeyRef};
    ///
    /// let builder = ClusterInventoryProvider::builder().kubeconfig_secret(|profile| {
    ///     let namespace = profile.metadata.namespace.as_deref().unwrap_or_default();
    ///     let name = profile.metadata.name.as_deref().unwrap_or_default();
    ///     SecretKeyRef::new(format!("{namespace}.{name}"), "kubeconfig").namespace("credentials")
    /// });
    /// ```
    pub fn kubeconfig_secret(
        mut self,
        secret: impl Fn(&ClusterProfile) -> SecretKeyRef + Send + Sync + 'static,
    ) -> Self {
        self.secret = Some(Closure::new(secret));
        self
    }

    /// Takes the kubeconfigs from a function instead, for ClusterProfiles that are ready. None: there is no kubeconfig yet. The rules are
    /// those of `kubeconfig_of` for Clusters of Cluster API: it is called when its ClusterProfile changes, after `every`, and after a
    /// failure; it must not block, and its errors are shown. A cluster that is connected stays so after a later None.
    pub fn kubeconfig_of<F, R>(mut self, every: Duration, function: F) -> Self
    where
        F: Fn(Arc<ClusterProfile>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Option<Vec<u8>>, BoxError>> + Send + 'static,
    {
        self.function = Some(KubeconfigOf::new(every, function));
        self
    }

    /// Sets the namespace of the inventory. Default: the default namespace of the client; in a pod, the namespace of the pod. A
    /// cluster has the name of its ClusterProfile.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.hub.namespaces = Namespaces::One(namespace.into());
        self
    }

    /// Uses the inventories of these namespaces instead of one. The name of a cluster is `<namespace>/<profile>`.
    ///
    /// Inventories are never merged: a cluster that two namespaces list is in the fleet twice. Each namespace has a watch of its
    /// own, so the client needs rights in these namespaces only. As long as one of them can't be read, the fleet removes no
    /// cluster that a former discovery has announced.
    pub fn namespaces<N: Into<String>>(mut self, namespaces: impl IntoIterator<Item = N>) -> Self {
        self.hub.namespaces = Namespaces::Several(namespaces.into_iter().map(Into::into).collect());
        self
    }

    /// Uses the inventories of all namespaces instead of one, as [`namespaces`](Self::namespaces) does, with one watch. The client
    /// needs rights in the whole hub.
    pub fn all_namespaces(mut self) -> Self {
        self.hub.namespaces = Namespaces::All;
        self
    }

    /// Selects ClusterProfiles by their labels, such as `region=eu,tier!=test`. The API server applies the selector and sends no
    /// other ClusterProfiles. One that does not match any more leaves the fleet.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.hub.labels = Some(selector.into());
        self
    }

    /// Selects the ClusterProfiles of these cluster managers, by `spec.clusterManager.name`. Default: all.
    pub fn managers<M: Into<String>>(mut self, managers: impl IntoIterator<Item = M>) -> Self {
        self.selection.managers = managers.into_iter().map(Into::into).collect();
        self
    }

    /// Selects ClusterProfiles by a predicate. It is called at each change of a ClusterProfile; one that it does not select any more
    /// leaves the fleet.
    pub fn select(mut self, select: impl Fn(&ClusterProfile) -> bool + Send + Sync + 'static) -> Self {
        self.selection.select = Some(Closure::new(select));
        self
    }

    /// Selects the clusters that a scheduler has chosen for a placement, and has named in PlacementDecisions (KEP-5313). Default:
    /// PlacementDecisions are not read.
    ///
    /// A cluster joins when any of the PlacementDecisions names its ClusterProfile, and leaves when none of them does any more. A
    /// text is a placement key: see [`PlacementDecisions`] for more. If the hub does not serve them at the start, or forbids to
    /// read them, the discovery ends with an error, and the fleet tries again. Until all of them are known, no cluster leaves
    /// because of them. The client needs the right to list and watch PlacementDecisions.
    pub fn placement(mut self, decisions: impl Into<PlacementDecisions>) -> Self {
        self.placement = Some(decisions.into());
        self
    }

    /// Sets the condition by which a cluster is ready, such as `Joined`. Default: `ControlPlaneHealthy`.
    ///
    /// `True`: the cluster is engaged. `False`: it is suspended. `Unknown`, or no such condition: a cluster that is engaged stays
    /// so, and another one waits.
    pub fn ready_condition(mut self, type_: impl Into<Arc<str>>) -> Self {
        self.selection.ready = Ready::Condition(type_.into());
        self
    }

    /// Sets when a cluster is ready by a predicate instead. It is called at each change of a ClusterProfile. A cluster that is not
    /// ready any more is suspended.
    pub fn ready_when(mut self, ready: impl Fn(&ClusterProfile) -> bool + Send + Sync + 'static) -> Self {
        self.selection.ready = Ready::Predicate(Closure::new(ready));
        self
    }

    /// Keeps a cluster engaged that was ready once, also while it is not ready: for cluster managers whose reports of health flap. The
    /// fleet finds out by itself whether a cluster answers. Default: such a cluster is suspended.
    ///
    /// A cluster that is not ready when the program starts waits.
    pub fn sticky_readiness(mut self) -> Self {
        self.selection.sticky = true;
        self
    }

    /// Sets what the ClusterProfiles and Secrets of this provider may use. Default: the policy of the fleet,
    /// `FleetSettings::access_policy`.
    ///
    /// The provider announces an access that the policy forbids as broken. The fleet always checks its own policy before it
    /// connects, so this option can forbid more than the fleet does, but never allow more.
    pub fn access_policy(mut self, policy: AccessPolicy) -> Self {
        self.hub.access_policy = Some(policy);
        self
    }

    /// Reads ClusterProfiles as v1alpha1 also from a hub that serves v1alpha2.
    ///
    /// For cluster managers that write the deprecated `credentialProviders` and no `accessProviders`: v1alpha2 does not show
    /// these.
    pub fn v1alpha1(mut self) -> Self {
        self.only = Some(OLD_VERSION);
        self
    }

    /// Times that tests shorten: those of the watches of the hub, how long the hub has to forbid them before this is
    /// logged as something that will not end by itself, and how long it may take to list its versions. Not part of the API.
    #[doc(hidden)]
    pub fn times(
        mut self,
        watch: impl Into<Arc<WatchSettings>>,
        blocked_for: Duration,
        ask: Duration,
    ) -> Self {
        self.hub.times.watch = Some(watch.into());
        (self.hub.times.blocked_for, self.hub.times.deadline) = (blocked_for, ask);
        self
    }

    /// Builds the provider. Opens no connection yet.
    ///
    /// # Errors
    /// [`ClusterInventoryError`] if there is no client, if there is not exactly one way to reach clusters, or if a namespace, the
    /// label selector, the placement or the consumer is invalid.
    pub fn build(self) -> Result<ClusterInventoryProvider, ClusterInventoryError> {
        // Without a namespace of their own, PlacementDecisions are in those of the inventories.
        let of_placement = self
            .placement
            .as_ref()
            .and_then(|placement| placement.namespace.clone());
        if let Some(namespace) = of_placement {
            let mut options = self.hub.clone();
            options.namespaces = Namespaces::One(namespace);
            options.check()?;
        }
        self.hub.client.as_ref().ok_or(OptionError::NoHub)?;
        if let Some(wrong) = self
            .consumer
            .as_ref()
            .filter(|consumer| !is_label_value(consumer))
        {
            return Err(ClusterInventoryError::Consumer(wrong.to_string()));
        }
        let hub = self.hub.check()?;
        let of_secret = self
            .secret
            .map(|secret| KubeconfigOf::in_secret(hub.client.clone(), secret));
        let mut ways = (self.providers.map(Access::Plugins).into_iter())
            .chain(self.consumer.map(Access::Secrets))
            .chain(of_secret.into_iter().chain(self.function).map(Access::Computed));
        let access = ways.next().ok_or(ClusterInventoryError::NoAccess)?;
        if ways.next().is_some() {
            return Err(ClusterInventoryError::TwoAccesses);
        }
        let placement = self.placement;
        if let Some(wrong) = placement
            .as_ref()
            .filter(|placement| !is_label_value(&placement.key))
        {
            return Err(ClusterInventoryError::Placement(wrong.key.clone()));
        }
        Ok(ClusterInventoryProvider(Arc::new(Config {
            hub,
            selection: Arc::new(self.selection),
            placement,
            access,
            memory: Arc::default(),
            only: self.only,
        })))
    }
}

fn is_label_value(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63 && bytes.iter().copied().all(fits) && ends(bytes.first()) && ends(bytes.last())
}
