use std::sync::Arc;

use futures::stream;
use k8s_openapi::api::core::v1::Secret;
use mcr_core::{
    Discovery, DiscoverySettings, Fingerprint, Object, Provider, WatchRequest,
    doctor::Doctor,
    hub::{Running, discovery},
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Config, Topology},
    decisions::{Decisions, Event},
    doctor::GardenerDoctor,
    facts::Facts,
    issue::Issuer,
    seed::{SECRET, SeedShoot},
};

/// A provider whose clusters are the Shoots in a garden of Gardener, or in one of its seeds; see the [documentation of
/// the crate](crate).
///
/// Clones share the kubeconfigs in use.
///
/// # Cancellation
/// A discovery has one task for each of its watches: one in a garden, two in a seed. The tasks end when the discovery
/// is dropped or its token is cancelled. If the discovery is parsing a kubeconfig at that moment, the parsing finishes
/// in the background.
#[derive(Debug, Clone)]
pub struct GardenerProvider(pub(crate) Arc<Config>);

impl Provider for GardenerProvider {
    fn name(&self) -> &str {
        &self.0.hub.name
    }

    fn doctor(&self) -> Option<Arc<dyn Doctor>> {
        let (config, hub) = (&self.0, &self.0.hub);
        let (client, namespaces) = (hub.client.clone(), hub.namespaces.clone());
        let subresource = match config.topology {
            Topology::Garden => Some(config.rights.subresource()),
            Topology::Seed => None,
        };
        let doctor = GardenerDoctor::new(client, namespaces, hub.labels.clone(), subresource);
        Some(Arc::new(doctor))
    }

    fn searched(&self) -> String {
        let (shoots, selection) = (
            self.0.hub.in_words(&self.0.resource()),
            self.0.selection.in_words(),
        );
        let subresource = self.0.rights.subresource();
        match self.0.topology {
            Topology::Garden => format!(
                "{shoots}{selection} of the garden, that are created and awake. To add a cluster, create a Shoot; if there is \
                 one, check its namespace and labels, and whether the garden's credentials may list and watch Shoots, and \
                 create shoots/{subresource} there"
            ),
            Topology::Seed => format!(
                "{shoots}{selection} of the seed, whose Shoots are created and awake. To add a cluster, create a Shoot on this \
                 seed; if there is one, check whether the seed's credentials may list and watch Clusters and Secrets, and get \
                 the Secrets named {SECRET}"
            ),
        }
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let (config, settings) = (self.0.clone(), settings.clone());
        discovery(stop, async move {
            let (hub, in_seed) = (&config.hub, config.topology == Topology::Seed);
            let mut refusals = config.refusals.listen();
            let refusals =
                stream::poll_fn(move |context| refusals.poll_recv(context).map(|it| it.map(Event::Refused)));
            let issuer = Issuer::new(config.clone(), &settings);
            let running = Running::new(Decisions::new(config.clone(), issuer)).source(refusals);
            let shoots = hub.objects(&config.resource()).into_iter().map(|request| {
                let selection = config.selection.clone();
                match config.topology {
                    Topology::Garden => {
                        let read = move |object: &_| Facts::read(object, &selection);
                        hub.watch(request, &settings, read, Event::Shoot)
                    }
                    Topology::Seed => {
                        let read = move |object: &_| SeedShoot::read(object, &selection);
                        hub.watch(request, &settings, read, Event::Cluster)
                    }
                }
            });
            // Only metadata: the watch does not transfer the contents.
            let secrets = WatchRequest::of::<Secret>()
                .fields(format!("metadata.name={SECRET}"))
                .metadata_only();
            let version = |object: &Object| Some(Fingerprint::of(&object.resource_version()));
            let secrets = in_seed.then(|| hub.watch(secrets, &settings, version, Event::Secret));
            Ok(running.sources(shoots).sources(secrets))
        })
    }
}
