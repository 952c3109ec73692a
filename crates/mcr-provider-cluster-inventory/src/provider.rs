use std::sync::Arc;

use mcr_core::{
    Discovery, DiscoverySettings, Object, Provider,
    doctor::Doctor,
    hub::{Running, discovery},
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Config, PROFILES},
    decisions::{Decisions, Event},
    doctor::InventoryDoctor,
    facts::Lens,
    placement::Slice,
    secret::SecretFacts,
};

/// A provider that finds clusters in ClusterProfiles; see the [documentation of the crate](crate).
///
/// Clones share their memory of the clusters that they have announced.
///
/// # Cancellation
/// A discovery has a task for each of its watches: of ClusterProfiles, Secrets and PlacementDecisions, in each namespace. They end
/// when the discovery is dropped or its token is cancelled. If the discovery is checking kubeconfigs at that moment, the check finishes in the background.
#[derive(Debug, Clone)]
pub struct ClusterInventoryProvider(pub(crate) Arc<Config>);

impl Provider for ClusterInventoryProvider {
    fn name(&self) -> &str {
        &self.0.hub.name
    }

    fn doctor(&self) -> Option<Arc<dyn Doctor>> {
        let hub = &self.0.hub;
        let (client, namespaces) = (hub.client.clone(), hub.namespaces.clone());
        let access = self.0.access.clone();
        let doctor = InventoryDoctor::new(client, namespaces, hub.labels.clone(), access);
        Some(Arc::new(doctor))
    }

    fn searched(&self) -> String {
        let mut rights = "ClusterProfiles".to_owned();
        let mut chosen = String::new();
        if self.0.consumer().is_some() {
            rights.push_str(" and Secrets");
        }
        if let Some(request) = self.0.decisions().first() {
            rights.push_str(" and PlacementDecisions");
            chosen = format!(", named by {request} (see the option `placement`)");
        }
        format!(
            "{}{}{chosen} of the hub, that are ready and describe how to reach their cluster. A cluster manager, such as Open Cluster \
             Management, creates a ClusterProfile for each of its clusters; if there is one, check its namespace and labels, \
             and whether the hub's credentials may list and watch {rights} there",
            self.0.hub.in_words(&PROFILES.resource(PROFILES.versions[0])),
            self.0.selection.in_words()
        )
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let (config, settings) = (self.0.clone(), settings.clone());
        discovery(stop, async move {
            let (hub, settings) = (&config.hub, &settings);
            let version = PROFILES
                .served(&hub.client, config.only, hub.times.deadline)
                .await?;
            let lens = Lens {
                version,
                selection: config.selection.clone(),
                access: config.access.clone(),
            };
            let profiles = hub.objects(&PROFILES.resource(version)).into_iter().enumerate();
            let profiles = profiles.map(|(at, request)| {
                let lens = lens.clone();
                hub.watch(
                    request,
                    settings,
                    move |object| lens.read(object),
                    move |event| Event::Profile(at, event),
                )
            });
            let secrets = config.secrets().into_iter().enumerate().map(|(at, request)| {
                let read = |object: &Object| Some(Arc::new(SecretFacts::read(object)));
                hub.watch(request, settings, read, move |event| Event::Secret(at, event))
            });
            let decisions = config.decisions().into_iter();
            let decisions =
                decisions.map(|request| hub.watch(request, settings, Slice::read, Event::Decision));
            let running = Running::new(Decisions::new(config.clone(), version, hub.judge(settings)));
            Ok(running.sources(profiles).sources(secrets).sources(decisions))
        })
    }
}
