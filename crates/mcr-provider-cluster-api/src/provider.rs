use std::{collections::VecDeque, fmt, sync::Arc};

use futures::{StreamExt, stream};
use mcr_core::{
    BoxError, Change, Discovery, DiscoverySettings, HubEvent, HubWatch, Provider, WatchError,
    doctor::Doctor,
    internal::{EventPublisher, LoggedWatch},
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Config,
    doctor::ClusterApiDoctor,
    facts::Facts,
    inventory::{Inventory, Outcome},
    reader::Reader,
    secret::{Checks, SUFFIX, Stamp},
    served::Served,
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
#[derive(Clone)]
pub struct ClusterApiProvider {
    pub(crate) name: Arc<str>,
    pub(crate) config: Arc<Config>,
}

impl fmt::Debug for ClusterApiProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterApiProvider")
            .field("name", &self.name)
            .field("clusters", &self.config.clusters(Served::V1Beta2).to_string())
            .field("selection", &self.config.selection)
            .field("trust", &self.config.trust)
            .field("events", &self.config.events)
            .finish()
    }
}

impl Provider for ClusterApiProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn doctor(&self) -> Option<Arc<dyn Doctor>> {
        let config = &self.config;
        let namespaces = config.namespace.iter().cloned().collect();
        Some(Arc::new(ClusterApiDoctor::new(
            config.client.clone(),
            namespaces,
            config.labels.clone(),
        )))
    }

    fn searched(&self) -> String {
        format!(
            "{}{} of the hub, that are initialized and have a Secret with their kubeconfig. To add a cluster, create a Cluster \
             (clusterctl generate cluster prints one); if there is one, check its namespace and labels, and whether the \
             hub's credentials may list and watch Clusters, and list, watch and get Secrets there",
            self.config.clusters(Served::V1Beta2),
            self.config.selection.in_words()
        )
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let start = Step::Ask(self.config.clone(), settings.clone());
        stream::unfold(start, async |step| match step {
            Step::Ask(config, settings) => Some(match served(&config).await {
                // No change yet: the stream goes on at once.
                Ok(served) => (
                    None,
                    Step::Follow(Box::new(Running::start(config, served, &settings))),
                ),
                Err(error) => (Some(Err(error)), Step::End),
            }),
            Step::Follow(mut running) => Some(match running.next().await {
                Ok(change) => (Some(Ok(change)), Step::Follow(running)),
                Err(error) => (Some(Err(error)), Step::End),
            }),
            Step::End => None,
        })
        .filter_map(async |item| item)
        .take_until(stop.cancelled_owned())
        .boxed()
    }
}

async fn served(config: &Config) -> Result<Served, BoxError> {
    let best = Served::ask(&config.client, config.times.read).await?;
    Ok(config.only.unwrap_or(best))
}

enum Step {
    Ask(Arc<Config>, DiscoverySettings),
    Follow(Box<Running>),
    /// The discovery has ended with an error.
    End,
}

struct Running {
    config: Arc<Config>,
    served: Served,
    clusters: LoggedWatch<Arc<Facts>>,
    secrets: LoggedWatch<Arc<Stamp>>,
    reader: Reader,
    event_publisher: EventPublisher,
    inventory: Inventory,
    ready: VecDeque<Change>,
}

impl Running {
    fn start(config: Arc<Config>, served: Served, settings: &DiscoverySettings) -> Self {
        let selection = config.selection.clone();
        let watch = config.times.watch.as_ref().unwrap_or(&settings.watch);
        let policy = &settings.access_policy;
        let request = config.clusters(served);
        let clusters = HubWatch::projected(config.client.clone(), request.clone(), move |object| {
            Facts::read(object, served, &selection)
        });
        let clusters = LoggedWatch::new(
            clusters.settings(watch.clone()),
            request,
            config.times.blocked_for,
        );
        let (request, any_name) = (config.secrets(), config.selection.kubeconfig_secret.is_some());
        let secrets = HubWatch::projected(
            config.client.clone(),
            request.clone(),
            // Nothing is kept of the Secrets with the CA and the keys.
            move |object| (any_name || object.key().name.ends_with(SUFFIX)).then(|| Stamp::read(object))?,
        );
        let checks = Checks {
            trust: config.trust,
            policy: config.policy.clone(),
            fleet_policy: policy.clone(),
        };
        Self {
            served,
            clusters,
            secrets: LoggedWatch::new(secrets, request, config.times.blocked_for),
            event_publisher: EventPublisher::new(
                config.events.then(|| config.client.clone()),
                CONTROLLER,
                config.ledger.clone(),
            ),
            reader: Reader::new(config.clone(), checks),
            inventory: Inventory::new(config.namespace.is_none(), config.memory.clone()),
            ready: VecDeque::new(),
            config,
        }
    }

    async fn next(&mut self) -> Result<Change, BoxError> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Ok(change);
            }
            let outcome = tokio::select! {
                event = self.clusters.next() => self.cluster_event(event).await?,
                event = self.secrets.next() => self.secret_event(event),
                (read, answer) = self.reader.next() => self.inventory.answered(read, answer),
                never = self.event_publisher.run() => match never {},
            };
            self.ready.extend(outcome.changes);
            for read in outcome.reads {
                self.reader.read(read);
            }
            for notice in outcome.notices {
                self.event_publisher.take(notice);
            }
        }
    }

    async fn cluster_event(&mut self, event: HubEvent<Arc<Facts>>) -> Result<Outcome, BoxError> {
        Ok(match event {
            HubEvent::Applied(key, facts) => self.inventory.cluster(&key, facts),
            HubEvent::Deleted(key) => self.inventory.cluster_gone(&key),
            HubEvent::Synced => self.inventory.clusters_synced(),
            HubEvent::Failing(problem) => {
                // Cluster API was upgraded or restored, and serves another version now.
                if matches!(*problem.error, WatchError::NotServed)
                    && let Ok(served) = served(&self.config).await
                    && served != self.served
                {
                    return Err(format!(
                        "the hub serves Clusters as {} now, and as {} no more; they are listed again",
                        served.version(),
                        self.served.version()
                    )
                    .into());
                }
                Outcome::default()
            }
            _ => Outcome::default(),
        })
    }

    fn secret_event(&mut self, event: HubEvent<Arc<Stamp>>) -> Outcome {
        match event {
            HubEvent::Applied(key, stamp) => self.inventory.secret(&key, Some(stamp)),
            HubEvent::Deleted(key) => self.inventory.secret(&key, None),
            HubEvent::Synced => self.inventory.secrets_synced(),
            // An outage, which the watch logs.
            _ => Outcome::default(),
        }
    }
}
