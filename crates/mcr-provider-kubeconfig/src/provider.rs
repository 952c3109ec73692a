use std::{collections::VecDeque, fmt, sync::Arc};

use futures::{FutureExt, StreamExt, stream};
use mcr_core::{
    BoxError, Change, Discovery, DiscoverySettings, HubEvent, HubWatch, ObjectKey, Provider, WatchSettings,
    doctor::Doctor,
    internal::{EventPublisher, LoggedWatch},
};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::{
    config::Config,
    doctor::KubeconfigDoctor,
    inventory::{Inventory, Outcome},
    secret::{Rules, SecretFacts},
};

/// So many Secrets are looked at in one go at most, so that the first of thousands are announced at once.
const BATCH: usize = 32;
/// A qualified name, as the API of events wants it.
const CONTROLLER: &str = "mcr.dev/provider-kubeconfig";

/// A provider that finds clusters in Secrets of a hub; see the [documentation of the crate](crate).
///
/// Clones share the record of the events that they have written on Secrets.
///
/// # Cancellation
/// A discovery has one task, its watch, which ends when the discovery is dropped or its token is cancelled. If the discovery
/// is checking kubeconfigs at that moment, the check finishes in the background.
#[derive(Clone)]
pub struct KubeconfigProvider {
    pub(crate) name: Arc<str>,
    pub(crate) config: Arc<Config>,
}

impl fmt::Debug for KubeconfigProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeconfigProvider")
            .field("name", &self.name)
            .field("watches", &self.config.request.to_string())
            .field("rules", &self.config.rules)
            .field("events", &self.config.events)
            .finish()
    }
}

impl Provider for KubeconfigProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn doctor(&self) -> Option<Arc<dyn Doctor>> {
        let config = &self.config;
        let namespaces = config.namespace.iter().cloned().collect();
        let label = config.rules.label.to_string();
        Some(Arc::new(KubeconfigDoctor::new(
            config.client.clone(),
            namespaces,
            label,
        )))
    }

    fn searched(&self) -> String {
        let (request, key) = (&self.config.request, &self.config.rules.key);
        format!(
            "{request} of the hub, each with a kubeconfig under the key {key}. To add a cluster, create such a Secret \
             (mcr kubeconfig-secret create prints one); if there is one, check its namespace and label, and whether the \
             hub's credentials may list and watch Secrets there"
        )
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let config = self.config.clone();
        let mut rules = Rules::clone(&config.rules);
        rules.fleet_policy = settings.access_policy.clone();
        let watch = config.watch.clone().unwrap_or_else(|| settings.watch.clone());
        // The watch begins when the stream is first polled, as it needs a runtime then and not before.
        stream::once(async move { Running::start(config, rules, watch) })
            .flat_map(|running| {
                stream::unfold(running, async |mut running| {
                    let item = running.next().await?;
                    Some((item, running))
                })
            })
            .take_until(stop.cancelled_owned())
            .boxed()
    }
}

struct Running {
    watch: LoggedWatch<SecretFacts>,
    event_publisher: EventPublisher,
    /// None while Secrets are looked at.
    inventory: Option<Inventory>,
    ready: VecDeque<Change>,
}

/// A change in the hub, for the thread that may block.
enum HubChange {
    Applied(ObjectKey, SecretFacts),
    Deleted(ObjectKey),
    Synced,
}

impl Running {
    fn start(config: Arc<Config>, rules: Rules, settings: Arc<WatchSettings>) -> Self {
        let rules = Arc::new(rules);
        let reads = rules.clone();
        let watch = HubWatch::projected(config.client.clone(), config.request.clone(), move |object| {
            Some(reads.read(object))
        })
        .settings(settings);
        let writes_events = config.events.then(|| config.client.clone());
        Self {
            watch: LoggedWatch::new(watch, config.request.clone(), config.blocked_for),
            event_publisher: EventPublisher::new(writes_events, CONTROLLER, config.ledger.clone()),
            inventory: Some(Inventory::new(rules)),
            ready: VecDeque::new(),
        }
    }

    /// The next item; the last one after an error. Dropping the future in between loses the discovery.
    async fn next(&mut self) -> Option<Result<Change, BoxError>> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Some(Ok(change));
            }
            // Without an inventory an error was the last item.
            self.inventory.as_ref()?;
            let batch = self.batch().await;
            if batch.is_empty() {
                continue;
            }
            let mut inventory = self.inventory.take()?;
            let work = spawn_blocking(move || {
                let outcomes: Vec<Outcome> = batch
                    .into_iter()
                    .map(|change| outcome(&mut inventory, change))
                    .collect();
                (inventory, outcomes)
            });
            match work.await {
                Ok((inventory, outcomes)) => {
                    self.inventory = Some(inventory);
                    for outcome in outcomes {
                        self.ready.extend(outcome.changes);
                        if let Some(notice) = outcome.notice {
                            self.event_publisher.take(notice);
                        }
                    }
                }
                // A panic. The fleet starts another discovery.
                Err(error) => return Some(Err(error.into())),
            }
        }
    }

    /// Waits until something happens and takes what has happened by then.
    async fn batch(&mut self) -> Vec<HubChange> {
        let first = tokio::select! {
            event = self.watch.next() => Some(event),
            never = self.event_publisher.run() => match never {},
        };
        let mut batch = Vec::new();
        let mut event = first;
        loop {
            match event {
                Some(HubEvent::Applied(key, secret)) => batch.push(HubChange::Applied(key, secret)),
                Some(HubEvent::Deleted(key)) => batch.push(HubChange::Deleted(key)),
                Some(HubEvent::Synced) => batch.push(HubChange::Synced),
                // An outage, which the watch logs, is no change of a Secret.
                Some(_) | None => {}
            }
            if batch.len() >= BATCH {
                break;
            }
            event = self.watch.next().now_or_never();
            if event.is_none() {
                break;
            }
        }
        batch
    }
}

fn outcome(inventory: &mut Inventory, change: HubChange) -> Outcome {
    match change {
        HubChange::Applied(key, secret) => inventory.applied(&key, secret),
        HubChange::Deleted(key) => inventory.deleted(&key),
        HubChange::Synced => Outcome {
            changes: vec![Change::Synced],
            notice: None,
        },
    }
}
