use std::{fmt, sync::Arc, time::Duration};

use futures::{StreamExt, future::ready};
use mcr_core::{
    Discovery, DiscoverySettings, Provider,
    doctor::Doctor,
    hub::{Running, discovery},
};
use tokio_util::sync::CancellationToken;

use crate::{
    discovery::{Decisions, Event, Options},
    statuses::{MemberStatus, Shared},
};

/// A provider that adds ClusterProperties to the clusters of another provider; see the [documentation of the
/// crate](crate).
///
/// It has the name of the inner provider. Clones share what is known of the clusters.
///
/// # Cancellation
/// A discovery has no task of its own. Dropping it, or cancelling its token, ends the inner discovery and all probes.
///
/// ```
/// use mcr_core::Provider;
/// use mcr_provider_about::AboutApi;
///
/// # fn example(kind: impl Provider) {
/// let provider = AboutApi::around(kind);
/// let about = provider.handle(); // the provider itself goes to the fleet
/// for status in about.statuses() {
///     println!("{} says that it is in {:?}", status.name, status.cluster_set);
/// }
/// # }
/// ```
#[must_use]
#[derive(Clone)]
pub struct AboutApi {
    inner: Arc<dyn Provider>,
    options: Options,
    shared: Arc<Shared>,
}

impl AboutApi {
    /// Announces the clusters of a provider, with their ClusterProperties.
    pub fn around(provider: impl Provider) -> Self {
        Self {
            inner: Arc::new(provider),
            options: Options {
                refresh: Duration::from_secs(600),
                timeout: Duration::from_secs(10),
                at_once: 8,
                may_set: Arc::default(),
            },
            shared: Arc::default(),
        }
    }

    /// Sets the time between two probes of a cluster, which varies by a tenth. Default 10 minutes. Less than a second
    /// counts as one second.
    pub fn refresh_every(mut self, interval: Duration) -> Self {
        self.options.refresh = interval.max(Duration::from_secs(1));
        self
    }

    /// Sets how long a probe may take, including the request for a credential. Default 10 seconds.
    pub fn probe_timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self
    }

    /// Sets how many clusters are probed at once. Default 8. 0 counts as 1.
    pub fn probes_at_once(mut self, probes: usize) -> Self {
        self.options.at_once = probes;
        self
    }

    /// Allows the clusters to set these properties with their ClusterProperties. Default: none. Further calls add
    /// names.
    ///
    /// Controllers select clusters by properties, and copy data into the selected clusters, including Secrets. Whoever
    /// may write ClusterProperties in a cluster can then set these properties to any value. With
    /// [`CLUSTER_SET`](crate::CLUSTER_SET), a cluster can join any ClusterSet. So allow only properties that no
    /// placement of sensitive data depends on, or trust every cluster. A property that the inner provider sets keeps
    /// its value.
    ///
    /// ```
    /// use mcr_core::Provider;
    /// use mcr_provider_about::AboutApi;
    ///
    /// # fn example(kind: impl Provider) {
    /// let provider = AboutApi::around(kind).member_properties(["region.example.com"]);
    /// # }
    /// ```
    pub fn member_properties(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let names = names.into_iter().map(Into::into);
        Arc::make_mut(&mut self.options.may_set).extend(names);
        self
    }

    /// The handle that shows the status of the clusters. Get it before you give the provider to the fleet.
    pub fn handle(&self) -> AboutHandle {
        AboutHandle(self.shared.clone())
    }
}

impl fmt::Debug for AboutApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AboutApi")
            .field("inner", &self.inner.name())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Provider for AboutApi {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn searched(&self) -> String {
        self.inner.searched()
    }

    fn doctor(&self) -> Option<Arc<dyn Doctor>> {
        self.inner.doctor()
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let inner = self.inner.discover_with(stop.clone(), settings);
        let decisions = Decisions::new(&self.options, self.shared.clone(), settings);
        let running = Running::new(decisions).source(inner.map(Event::Announced));
        discovery(stop, ready(Ok(running)))
    }
}

/// Shows the status of the clusters of an [`AboutApi`].
///
/// Every method works before, during and after a discovery, and returns at once.
///
/// ```
/// use mcr_core::Provider;
/// use mcr_provider_about::AboutApi;
///
/// # fn example(kind: impl Provider) {
/// let about = AboutApi::around(kind).handle();
/// assert!(about.statuses().is_empty());
/// assert_eq!(about.status("dev"), None);
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct AboutHandle(Arc<Shared>);

impl AboutHandle {
    /// The status of each cluster, sorted by name.
    pub fn statuses(&self) -> Vec<MemberStatus> {
        self.0.statuses.lock().values().cloned().collect()
    }

    /// The status of a cluster. `None` if the inner provider has announced no usable description of a cluster with
    /// this name.
    pub fn status(&self, name: &str) -> Option<MemberStatus> {
        self.0.statuses.lock().get(name).cloned()
    }
}
