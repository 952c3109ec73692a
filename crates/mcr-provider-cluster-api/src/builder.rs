use std::{sync::Arc, time::Duration};

use kube::Client;
use mcr_core::{
    AccessPolicy, BoxError, Trust, WatchSettings,
    hub::{Closure, HubOptions, KubeconfigOf, Namespaces, OptionError, SecretKeyRef, Times},
};

use crate::{
    config::Config, facts::OLD_VERSION, provider::ClusterApiProvider, selection::Selection, v1beta2::Cluster,
};

/// Builds a [`ClusterApiProvider`]. [`ClusterApiProvider::builder`] creates it.
///
/// The closures run in the task that watches the hub: they must be quick and must not block. If one panics, the panic is logged,
/// and the cluster stays as it is until its Cluster changes.
#[must_use]
#[derive(Debug, Clone)]
pub struct ClusterApiProviderBuilder {
    hub: HubOptions,
    selection: Selection,
    only: Option<&'static str>,
}

impl ClusterApiProvider {
    /// A builder. [`client`](ClusterApiProviderBuilder::client) is required; all other options have defaults.
    pub fn builder() -> ClusterApiProviderBuilder {
        ClusterApiProviderBuilder {
            hub: HubOptions::new("cluster-api"),
            selection: Selection::default(),
            only: None,
        }
    }
}

impl ClusterApiProviderBuilder {
    /// Sets the provider's name. Default: `cluster-api`.
    pub fn provider_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.hub.name = name.into();
        self
    }

    /// Sets the client of the hub: the management cluster, where Cluster API runs.
    pub fn client(mut self, client: Client) -> Self {
        self.hub.client = Some(client);
        self
    }

    /// Sets the namespace of the Clusters. Default: the default namespace of the client; in a pod, the namespace of the pod.
    /// A cluster has the name of its Cluster.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.hub.namespaces = Namespaces::One(namespace.into());
        self
    }

    /// Uses the Clusters of all namespaces instead of one. The name of a cluster is `<namespace>/<cluster>`.
    ///
    /// The client then needs a ClusterRole that reads the Secrets of the whole hub. For a few namespaces, use one provider for
    /// each, or [`select`](Self::select).
    pub fn all_namespaces(mut self) -> Self {
        self.hub.namespaces = Namespaces::All;
        self
    }

    /// Selects Clusters by their labels, such as `region=eu,tier!=test`. The API server applies the selector and sends no other
    /// Clusters. A Cluster that does not match any more leaves the fleet.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.hub.labels = Some(selector.into());
        self
    }

    /// Selects Clusters whose infrastructure is of one of these kinds, such as `AWSCluster`. Default: all.
    pub fn infrastructure_kinds<K: Into<String>>(mut self, kinds: impl IntoIterator<Item = K>) -> Self {
        self.selection.infrastructure_kinds = kinds.into_iter().map(Into::into).collect();
        self
    }

    /// Selects Clusters with one of these ClusterClasses, by name. Default: all, also those without a class.
    pub fn cluster_classes<C: Into<String>>(mut self, classes: impl IntoIterator<Item = C>) -> Self {
        self.selection.cluster_classes = classes.into_iter().map(Into::into).collect();
        self
    }

    /// Selects Clusters by a predicate. It is called at each change of a Cluster; one that it does not select any more leaves the
    /// fleet.
    pub fn select(mut self, select: impl Fn(&Cluster) -> bool + Send + Sync + 'static) -> Self {
        self.selection.select = Some(Closure::new(select));
        self
    }

    /// Sets when a cluster can be engaged. Default: [`Cluster::is_control_plane_initialized`].
    ///
    /// It is called at each change of a Cluster. Once it was true for a Cluster, that cluster stays engaged: the fleet finds out by
    /// itself whether a cluster answers.
    pub fn ready_when(mut self, ready: impl Fn(&Cluster) -> bool + Send + Sync + 'static) -> Self {
        self.selection.ready_when = Some(Closure::new(ready));
        self
    }

    /// Sets where the kubeconfig of a Cluster is, for providers of Cluster API with another contract. Default: the Secret
    /// `<cluster>-kubeconfig` with the key [`value`](crate::KUBECONFIG_KEY).
    ///
    /// A Secret in the namespace of the Cluster must have the label [`CLUSTER_NAME_LABEL`](crate::CLUSTER_NAME_LABEL). One whose
    /// [`namespace`](SecretKeyRef::namespace()) is set needs no label and is not watched: it is read when its Cluster changes, and again
    /// each minute, for which the client needs the right to get it there. The Secrets in the namespaces of the Clusters are listed and
    /// watched all the same.
    ///
    /// Whoever writes a Cluster chooses its name, and all that the closure takes from it. In a namespace of kubeconfigs for several
    /// namespaces of Clusters, the name of the Secret needs the namespace of the Cluster: `format!("{namespace}.{name}")`.
    ///
    /// ```
    /// use mcr_provider_cluster_api::{ClusterApiProvider, SecretKeyRef};
    ///
    /// // The kubeconfig that Cluster API Provider AWS makes for people.
    /// let builder = ClusterApiProvider::builder().kubeconfig_secret(|cluster| {
    ///     let name = cluster.metadata.name.as_deref().unwrap_or_default();
    ///     SecretKeyRef::new(format!("{name}-user-kubeconfig"), "value")
    /// });
    /// ```
    pub fn kubeconfig_secret(
        mut self,
        secret: impl Fn(&Cluster) -> SecretKeyRef + Send + Sync + 'static,
    ) -> Self {
        self.selection.kubeconfig_secret = Some(Closure::new(secret));
        self
    }

    /// Takes the kubeconfigs from a function instead of Secrets, for Clusters that are ready. No Secret is read then, and the client
    /// needs no right to Secrets. None: there is no kubeconfig yet. A cluster that is connected stays so after a later None.
    ///
    /// The function is called when its Cluster changes, and again after `every`, so that it can give other credentials. A call may take 15 s.
    /// After an error, a panic or None it is called again after a pause of at most a minute. It must not block, and must not put secrets into
    /// its error, which is shown. New labels and properties of the Cluster are announced once the function has given a kubeconfig for them.
    /// Its kubeconfig counts as untrusted like the content of a Secret. Whoever writes a Cluster chooses its name.
    ///
    /// ```
    /// use std::time::Duration;
    /// use mcr_core::{ObjectKey, hub::kubeconfig_in_secret};
    /// use mcr_provider_cluster_api::ClusterApiProvider;
    ///
    /// # fn example(vault: kube::Client) {
    /// // The Secrets are in another cluster than the Clusters.
    /// let builder = ClusterApiProvider::builder().kubeconfig_of(Duration::from_secs(300), move |cluster| {
    ///     let vault = vault.clone();
    ///     async move {
    ///         let of = &cluster.metadata;
    ///         let (namespace, name) = of.namespace.as_ref().zip(of.name.as_ref()).ok_or("it has no name")?;
    ///         let secret = ObjectKey::namespaced("fleet", format!("{namespace}.{name}"));
    ///         kubeconfig_in_secret(&vault, &secret, "kubeconfig").await
    ///     }
    /// });
    /// # }
    /// ```
    pub fn kubeconfig_of<F, R>(mut self, every: Duration, function: F) -> Self
    where
        F: Fn(Arc<Cluster>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Option<Vec<u8>>, BoxError>> + Send + 'static,
    {
        self.selection.kubeconfig_of = Some(KubeconfigOf::new(every, function));
        self
    }

    /// Keeps a cluster whose Cluster is being deleted, while the predicate is true. Default: such a cluster leaves at once.
    ///
    /// For controllers that release finalizers in the cluster before it goes. It is called at each change of a Cluster that has a
    /// `deletionTimestamp`.
    pub fn keep_while(mut self, keep: impl Fn(&Cluster) -> bool + Send + Sync + 'static) -> Self {
        self.selection.keep_while = Some(Closure::new(keep));
        self
    }

    /// Sets what the kubeconfigs of this provider may use. Default: the policy of the fleet, `FleetSettings::access_policy`.
    ///
    /// The provider announces a kubeconfig that the policy forbids as broken, and reports it on the Secret. The fleet always
    /// checks its own policy before it connects, so this option can forbid more than the fleet does, but never allow more.
    pub fn access_policy(mut self, policy: AccessPolicy) -> Self {
        self.hub.access_policy = Some(policy);
        self
    }

    /// Trusts the kubeconfigs as if they were files on the command line.
    ///
    /// # Security
    /// The kubeconfigs may then **run any program** with the rights of this process, **read any file** that it can read and
    /// send it to any server, turn off the verification of TLS, and connect to any address, such as the metadata service of a
    /// cloud. So can everybody who may write a Secret in the namespace. An [`access_policy`](Self::access_policy) that allows
    /// only the plugin or folder that you need is nearly always the better choice. The policy has no effect on trusted
    /// kubeconfigs.
    pub fn trusted(mut self) -> Self {
        self.hub.trust = Trust::Trusted;
        self
    }

    /// Sets whether to write Kubernetes events on Secrets with problems. Default: yes.
    pub fn events(mut self, on: bool) -> Self {
        self.hub.events = on;
        self
    }

    /// Reads Clusters as v1beta1, whatever the hub serves. Not part of the API.
    #[doc(hidden)]
    pub fn only_v1beta1(mut self) -> Self {
        self.only = Some(OLD_VERSION);
        self
    }

    /// Times that tests shorten: those of the watches of the hub, how long the hub has to forbid them before this is logged
    /// as something that will not end by itself, how long a read of a Secret may take, and the first pause after one that failed. Not part
    /// of the API.
    #[doc(hidden)]
    pub fn times(
        mut self,
        watch: impl Into<Arc<WatchSettings>>,
        blocked_for: Duration,
        read: Duration,
        first_pause: Duration,
    ) -> Self {
        self.hub.times = Times {
            watch: Some(watch.into()),
            blocked_for,
            deadline: read,
            pauses: (first_pause, 8 * first_pause),
        };
        self
    }

    /// Builds the provider. Opens no connection yet.
    ///
    /// # Errors
    /// [`ClusterApiError`](crate::ClusterApiError) if there is no client, if the namespace or the label selector is invalid, or if there
    /// are both [`kubeconfig_secret`](Self::kubeconfig_secret) and [`kubeconfig_of`](Self::kubeconfig_of).
    pub fn build(self) -> Result<ClusterApiProvider, OptionError> {
        if self.selection.kubeconfig_secret.is_some() && self.selection.kubeconfig_of.is_some() {
            return Err(OptionError::TwoAccesses);
        }
        Ok(ClusterApiProvider(Arc::new(Config {
            hub: self.hub.check()?,
            selection: self.selection.into(),
            only: self.only,
            memory: Arc::default(),
        })))
    }
}
