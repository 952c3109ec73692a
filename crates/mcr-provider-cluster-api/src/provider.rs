use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use mcr_core::{
    Discovery, DiscoverySettings, Provider, WatchRequest,
    doctor::Doctor,
    hub::{Running, discovery},
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{CLUSTERS, Config},
    decisions::{Decisions, Event},
    doctor::ClusterApiDoctor,
    facts::Facts,
    secret::{CLUSTER_NAME_LABEL, SUFFIX, Stamp},
};

/// A qualified name, as the API of events wants it.
const CONTROLLER: &str = "mcr.dev/provider-cluster-api";

/// A provider that finds clusters in the Clusters of Cluster API; see the [documentation of the crate](crate).
///
/// Clones share their memory of the clusters that they have announced.
///
/// # Cancellation
/// A discovery has two tasks, its watches, which end when the discovery is dropped or its token is cancelled. If the discovery
/// is checking kubeconfigs at that moment, the check finishes in the background.
#[derive(Debug, Clone)]
pub struct ClusterApiProvider(pub(crate) Arc<Config>);

impl Provider for ClusterApiProvider {
    fn name(&self) -> &str {
        &self.0.hub.name
    }

    fn doctor(&self) -> Option<Arc<dyn Doctor>> {
        let hub = &self.0.hub;
        let (client, namespaces) = (hub.client.clone(), hub.namespaces.clone());
        Some(Arc::new(ClusterApiDoctor::new(
            client,
            namespaces,
            hub.labels.clone(),
            &self.0.selection,
        )))
    }

    fn searched(&self) -> String {
        let secrets = match self.0.selection.kubeconfig_of {
            Some(_) => "",
            None => ", and list, watch and get Secrets",
        };
        format!(
            "{}{} of the hub, that are initialized and have a kubeconfig. To add a cluster, create a Cluster \
             (clusterctl generate cluster prints one); if there is one, check its namespace and labels, and whether the \
             hub's credentials may list and watch Clusters{secrets} there",
            self.0.hub.in_words(&CLUSTERS.resource(CLUSTERS.versions[0])),
            self.0.selection.in_words()
        )
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let (config, settings) = (self.0.clone(), settings.clone());
        discovery(stop, async move {
            let Config { hub, selection, .. } = &*config;
            let version = CLUSTERS
                .served(&hub.client, config.only, hub.times.deadline)
                .await?;
            let decisions = Decisions::new(config.clone(), version, hub.judge(&settings));
            let clusters = hub
                .objects(&CLUSTERS.resource(version))
                .into_iter()
                .map(|request| {
                    let selection = selection.clone();
                    let read = move |object: &_| Facts::read(object, version, &selection);
                    hub.watch(request, &settings, read, Event::Cluster)
                });
            let any_name = selection.kubeconfig_secret.is_some();
            let secrets = WatchRequest::of::<Secret>()
                .labels(CLUSTER_NAME_LABEL)
                .metadata_only();
            let secrets = hub.in_namespaces(secrets).into_iter();
            let secrets = secrets.filter(|_| selection.kubeconfig_of.is_none());
            let secrets = secrets.map(|request| {
                // Nothing is kept of the Secrets with the CA and the keys.
                let read = move |object: &mcr_core::Object| {
                    (any_name || object.key().name.ends_with(SUFFIX)).then(|| Stamp::read(object))?
                };
                hub.watch(request, &settings, read, Event::Secret)
            });
            Ok(Running::new(decisions)
                .sources(clusters)
                .sources(secrets)
                .publisher(hub.publisher(CONTROLLER)))
        })
    }
}
