//! The watches of a garden or of a seed.

use std::{collections::VecDeque, sync::Arc};

use mcr_core::{
    Fingerprint, HubEvent, HubWatch, Object, ObjectKey, WatchRequest, WatchSettings, internal::LoggedWatch,
};

use crate::{
    config::{Config, Topology},
    facts::Facts,
    seed::{Seed, SeedShoot, ShootEvent},
};

/// What tells of Shoots.
pub(crate) enum Source {
    Garden(LoggedWatch<Arc<Facts>>),
    Seed(Box<SeedWatches>),
}

/// The two watches of a seed.
pub(crate) struct SeedWatches {
    clusters: LoggedWatch<Arc<SeedShoot>>,
    /// With the versions of the Secrets.
    secrets: LoggedWatch<Fingerprint>,
    seed: Seed,
    ready: VecDeque<ShootEvent>,
}

impl Source {
    pub(crate) fn start(config: &Config, settings: &Arc<WatchSettings>) -> Self {
        let selection = config.selection.clone();
        match config.topology {
            Topology::Garden => Self::Garden(watch(config, settings, config.shoots(), move |object| {
                Facts::read(object, &selection)
            })),
            Topology::Seed => Self::Seed(Box::new(SeedWatches {
                clusters: watch(config, settings, config.shoots(), move |object| {
                    SeedShoot::read(object, &selection)
                }),
                secrets: watch(config, settings, config.secrets(), |object| {
                    Some(Fingerprint::of(&object.resource_version()))
                }),
                seed: Seed::default(),
                ready: VecDeque::new(),
            })),
        }
    }

    /// The next event. Cancel safe.
    pub(crate) async fn next(&mut self) -> ShootEvent {
        match self {
            Self::Garden(shoots) => loop {
                return match shoots.next().await {
                    HubEvent::Applied(key, facts) => ShootEvent::Applied(key, facts),
                    HubEvent::Deleted(key) => ShootEvent::Deleted(key),
                    HubEvent::Synced => ShootEvent::Synced,
                    HubEvent::Failing(_) => ShootEvent::Failing,
                    _ => continue,
                };
            },
            Self::Seed(watches) => watches.next().await,
        }
    }

    /// Whether the API server can't be asked at the moment.
    pub(crate) fn is_failing(&self) -> bool {
        match self {
            Self::Garden(shoots) => shoots.is_failing(),
            Self::Seed(watches) => watches.clusters.is_failing() || watches.secrets.is_failing(),
        }
    }
}

impl SeedWatches {
    async fn next(&mut self) -> ShootEvent {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return event;
            }
            let events = tokio::select! {
                event = self.clusters.next() => match event {
                    HubEvent::Applied(ObjectKey { name, .. }, shoot) => self.seed.cluster(&name, shoot),
                    HubEvent::Deleted(key) => self.seed.cluster_gone(&key.name),
                    HubEvent::Synced => self.seed.clusters_synced(),
                    HubEvent::Failing(_) => vec![ShootEvent::Failing],
                    _ => Vec::new(),
                },
                event = self.secrets.next() => match event {
                    HubEvent::Applied(key, version) => self.seed.secret(&namespace(key), Some(version)),
                    HubEvent::Deleted(key) => self.seed.secret(&namespace(key), None),
                    HubEvent::Synced => self.seed.secrets_synced(),
                    HubEvent::Failing(_) => vec![ShootEvent::Failing],
                    _ => Vec::new(),
                },
            };
            self.ready.extend(events);
        }
    }
}

fn namespace(key: ObjectKey) -> Arc<str> {
    key.namespace.unwrap_or_default()
}

fn watch<T: Clone + PartialEq + Send + Sync + 'static>(
    config: &Config,
    settings: &Arc<WatchSettings>,
    request: WatchRequest,
    read: impl Fn(&Object) -> Option<T> + Send + Sync + 'static,
) -> LoggedWatch<T> {
    let watch = HubWatch::projected(config.client.clone(), request.clone(), read);
    let settings = config.times.watch.as_ref().unwrap_or(settings);
    LoggedWatch::new(
        watch.settings(settings.clone()),
        request,
        config.times.blocked_for,
    )
}
