//! Building a fleet.

use std::{fmt, sync::Arc};

use futures::{StreamExt, stream};
use kube::Client;
use tokio_util::sync::CancellationToken;

use super::{
    handle::Fleet,
    readiness::{NamedCheck, ReadyCheck},
    settings::{FleetSettings, LayeredCluster, TransportLayers},
};
use crate::{
    access::Access,
    provider::{Change, Discovery, Provider},
    spec::ClusterSpec,
};
use mcr_access::ClusterName;
use mcr_client::TransportLayer;

/// Builds a [`Fleet`].
#[derive(Default)]
#[must_use]
pub struct FleetBuilder {
    providers: Vec<Arc<dyn Provider>>,
    settings: FleetSettings,
    checks: Vec<NamedCheck>,
}

impl FleetBuilder {
    /// Adds a provider. Providers are independent of each other. If two providers announce the same name, the first one
    /// keeps it.
    pub fn provider(mut self, provider: impl Provider) -> Self {
        self.providers.push(Arc::new(provider));
        self
    }

    /// Changes settings.
    pub fn settings(mut self, change: impl FnOnce(&mut FleetSettings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Changes the time limits, size limits and proxies of connections to clusters.
    ///
    /// ```
    /// use mcr_core::{Fleet, ProxyEnvironment};
    /// use std::time::Duration;
    ///
    /// let proxies = ProxyEnvironment::from_env()?;
    /// let fleet = Fleet::builder().transport(|transport| {
    ///     transport.head_timeout = Duration::from_secs(120);
    ///     transport.proxies = Some(proxies.into());
    /// });
    /// # let _ = fleet.build();
    /// # Ok::<(), mcr_core::AccessError>(())
    /// ```
    pub fn transport(mut self, change: impl FnOnce(&mut mcr_client::Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings.transport));
        self
    }

    /// Puts a layer over the requests of each cluster, for tracing, signing, headers or limits of the program.
    ///
    /// `layer` is called for each cluster that joins, and for each scope endpoint, whose lists and watches serve all its
    /// clusters. If two tasks send the first request of a cluster at the same time, `layer` may be called twice for it, and
    /// one of the results is dropped. See [`TransportLayer`] for what passes the layer. The connections of providers to their hubs have none.
    ///
    /// ```
    /// use mcr_core::{Fleet, RequestLimit, TransportLayer};
    ///
    /// let fleet = Fleet::builder().transport_layer(|cluster| {
    ///     let per_second = if cluster.labels.contains_key("small") { 5 } else { 50 };
    ///     TransportLayer::new(RequestLimit::new(per_second, 10)).without_watches()
    /// });
    /// # let _ = fleet.build();
    /// ```
    pub fn transport_layer(
        mut self,
        layer: impl Fn(&LayeredCluster) -> TransportLayer + Send + Sync + 'static,
    ) -> Self {
        self.settings.transport_layer = Some(TransportLayers(Arc::new(layer)));
        self
    }

    /// Runs a check in each cluster: whether the cluster is ready for what the program does there. A check of the same name is
    /// replaced. See [`ReadyCheck`].
    pub fn ready_check(mut self, name: impl Into<Arc<str>>, check: ReadyCheck) -> Self {
        let name = name.into();
        self.checks.retain(|(known, _)| *known != name);
        self.checks.push((name, check));
        self
    }

    /// Builds the fleet. It does nothing before [`Fleet::run`].
    #[must_use]
    pub fn build(self) -> Fleet {
        Fleet::new(self.providers, self.settings, self.checks)
    }
}

impl fmt::Debug for FleetBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let providers: Vec<&str> = self.providers.iter().map(|provider| provider.name()).collect();
        f.debug_struct("FleetBuilder")
            .field("providers", &providers)
            .finish_non_exhaustive()
    }
}

/// The name of the only cluster of [`Fleet::single`].
pub const SINGLE_CLUSTER: &str = "local";

/// Building fleets.
impl Fleet {
    /// Starts to build a fleet.
    pub fn builder() -> FleetBuilder {
        FleetBuilder::default()
    }

    /// A fleet with one cluster, named `local`, which `client` connects to. It runs the same program on a single cluster.
    pub fn single(client: Client) -> Self {
        struct Single(Access);
        impl Provider for Single {
            fn name(&self) -> &str {
                "single"
            }
            fn discover(&self, stop: CancellationToken) -> Discovery {
                let only = ClusterName::new(SINGLE_CLUSTER)
                    .map(|name| Change::Upsert(ClusterSpec::new(name, self.0.clone())))
                    .map_err(Into::into);
                stream::iter([only, Ok(Change::Synced)])
                    .chain(stream::pending())
                    .take_until(stop.cancelled_owned())
                    .boxed()
            }
        }
        Self::builder().provider(Single(Access::from(client))).build()
    }
}
