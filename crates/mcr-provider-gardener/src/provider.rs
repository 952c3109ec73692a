use std::{sync::Arc, time::Duration};

use futures::stream;
use k8s_openapi::api::core::v1::Secret;
use kube::core::ApiResource;
use mcr_core::{
    Discovery, DiscoverySettings, Fingerprint, Object, ObjectKey, Provider, WatchRequest,
    doctor::Doctor,
    hub::{Hub, Memory, Running, discovery},
};
use parking_lot::Mutex;
use std::collections::HashMap;
use tokio_util::sync::CancellationToken;

use crate::{
    decisions::{Decisions, Event},
    doctor::GardenerDoctor,
    facts::Facts,
    issue::Issuer,
    kubeconfig::Held,
    refusals::Refusals,
    seed::{SECRET, SeedShoot},
    selection::Selection,
    v1alpha1::Cluster,
    v1beta1::Shoot,
};

/// A provider that finds clusters in the Shoots of a Gardener, in its garden or in one of its seeds; see the [documentation of the crate](crate).
///
/// Clones share their memory of the kubeconfigs in use.
///
/// # Cancellation
/// A discovery has one task for each of its watches, one in a garden and two in a seed. They end when the discovery is dropped or
/// its token is cancelled. If the discovery is reading a kubeconfig at that moment, this finishes in the background.
#[derive(Debug, Clone)]
pub struct GardenerProvider(pub(crate) Arc<Config>);

/// Where a provider finds Shoots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topology {
    /// In the garden, as Shoots. Gardener issues a kubeconfig on request.
    #[default]
    Garden,
    /// In a seed, as the Clusters of Gardener's extensions. The kubeconfig is in a Secret beside the control plane.
    Seed,
}

/// The options of a provider, checked.
#[derive(Debug)]
pub(crate) struct Config {
    /// In a seed without namespaces and labels, which the selection has.
    pub(crate) hub: Hub,
    pub(crate) topology: Topology,
    pub(crate) selection: Arc<Selection>,
    pub(crate) rights: Rights,
    pub(crate) valid_for: Duration,
    pub(crate) at_once: usize,
    pub(crate) first_deadline: Duration,
    /// With the kubeconfig in use. None once a suspension has ended its use.
    pub(crate) memory: Arc<Memory<Option<Held>>>,
    /// The project of each namespace.
    pub(crate) projects: Mutex<HashMap<Arc<str>, Arc<str>>>,
    pub(crate) refusals: Arc<Refusals>,
}

/// What the kubeconfigs allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    Admin,
    Viewer,
}

impl Rights {
    pub(crate) fn subresource(self) -> &'static str {
        match self {
            Self::Admin => "adminkubeconfig",
            Self::Viewer => "viewerkubeconfig",
        }
    }

    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Admin => "AdminKubeconfigRequest",
            Self::Viewer => "ViewerKubeconfigRequest",
        }
    }
}

impl Config {
    /// The kind that describes Shoots: Shoots in a garden, Clusters in a seed.
    fn resource(&self) -> ApiResource {
        match self.topology {
            Topology::Garden => ApiResource::erase::<Shoot>(&()),
            Topology::Seed => ApiResource::erase::<Cluster>(&()),
        }
    }
}

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
            // Their content does not come with the watch.
            let secrets = WatchRequest::of::<Secret>()
                .fields(format!("metadata.name={SECRET}"))
                .metadata_only();
            let version = |object: &Object| Some(Fingerprint::of(&object.resource_version()));
            let secrets = in_seed.then(|| hub.watch(secrets, &settings, version, Event::Secret));
            Ok(running.sources(shoots).sources(secrets))
        })
    }
}

/// The namespace of an object, which all of Gardener's have.
pub(crate) fn namespace(key: &ObjectKey) -> Arc<str> {
    key.namespace.clone().unwrap_or_default()
}
