use std::{collections::VecDeque, fmt, sync::Arc};

use futures::{FutureExt, StreamExt, stream};
use mcr_core::{
    AccessPolicy, BoxError, Change, Discovery, HubEvent, HubWatch, ObjectKey, Provider, WatchError,
    internal::LoggedWatch,
};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::{
    config::Config,
    facts::{Facts, Lens},
    inventory::Inventory,
    secret::{Checks, SecretFacts},
    served::Served,
};

/// So many changes are looked at in one go at most, so that the first of thousands are announced at once.
const BATCH: usize = 32;

/// A provider that finds clusters in ClusterProfiles; see the [documentation of the crate](crate).
///
/// Clones share their memory of the clusters that they have announced.
///
/// # Cancellation
/// A discovery has one or two tasks, its watches, which end when the discovery is dropped or its token is cancelled. If the
/// discovery is checking kubeconfigs at that moment, the check finishes in the background.
#[derive(Clone)]
pub struct ClusterInventoryProvider {
    pub(crate) name: Arc<str>,
    pub(crate) config: Arc<Config>,
}

impl fmt::Debug for ClusterInventoryProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterInventoryProvider")
            .field("name", &self.name)
            .field("profiles", &self.config.profiles(Served::V1Alpha2).to_string())
            .field("selection", &self.config.selection)
            .field("access", &self.config.access)
            .finish()
    }
}

impl Provider for ClusterInventoryProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn searched(&self) -> String {
        let rights = match self.config.access.consumer() {
            Some(_) => "ClusterProfiles and Secrets",
            None => "ClusterProfiles",
        };
        format!(
            "{}{} of the hub, that are ready and tell how to reach their cluster. A cluster manager, such as Open Cluster \
             Management, creates a ClusterProfile for each of its clusters; if there is one, check its namespace and labels, \
             and whether the hub's credentials may list and watch {rights} there",
            self.config.profiles(Served::V1Alpha2),
            self.config.selection.in_words()
        )
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with_policy(stop, &AccessPolicy::default())
    }

    fn discover_with_policy(&self, stop: CancellationToken, policy: &AccessPolicy) -> Discovery {
        let start = Step::Ask(self.config.clone(), policy.clone());
        stream::unfold(start, async |step| match step {
            Step::Ask(config, policy) => Some(match served(&config).await {
                // No change yet: the stream goes on at once.
                Ok(served) => (
                    None,
                    Step::Follow(Box::new(Running::start(config, served, policy))),
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
    let best = Served::ask(&config.client, config.times.ask).await?;
    Ok(config.only.unwrap_or(best))
}

enum Step {
    Ask(Arc<Config>, AccessPolicy),
    Follow(Box<Running>),
    /// The discovery has ended with an error.
    End,
}

struct Running {
    config: Arc<Config>,
    served: Served,
    profiles: LoggedWatch<Arc<Facts>>,
    /// None if no Secrets are needed.
    secrets: Option<LoggedWatch<Arc<SecretFacts>>>,
    /// None while it is in the thread that may block, and after a panic there.
    inventory: Option<Inventory>,
    ready: VecDeque<Change>,
}

enum Event {
    Profile(HubEvent<Arc<Facts>>),
    Secret(HubEvent<Arc<SecretFacts>>),
}

/// A change in the hub, for the thread that may block.
enum HubChange {
    Profile(ObjectKey, Option<Arc<Facts>>),
    Secret(ObjectKey, Option<Arc<SecretFacts>>),
    ProfilesSynced,
    SecretsSynced,
}

impl Running {
    fn start(config: Arc<Config>, served: Served, policy: AccessPolicy) -> Self {
        let settings = &config.times.watch;
        let lens = Lens {
            served,
            selection: config.selection.clone(),
            providers: config.access.providers().cloned(),
        };
        let request = config.profiles(served);
        let profiles = HubWatch::projected_with_settings(
            config.client.clone(),
            request.clone(),
            settings.clone(),
            move |object| lens.read(object),
        );
        let profiles = LoggedWatch::new(profiles, request, config.times.blocked_for);
        let secrets = config.access.consumer().map(|consumer| {
            let request = config.secrets(consumer);
            let watch = HubWatch::projected_with_settings(
                config.client.clone(),
                request.clone(),
                settings.clone(),
                |object| Some(Arc::new(SecretFacts::read(object))),
            );
            LoggedWatch::new(watch, request, config.times.blocked_for)
        });
        let checks = Checks {
            policy: config.policy.clone(),
            fleet_policy: policy,
        };
        let inventory = Inventory::new(
            config.namespace.is_none(),
            config.access.consumer().cloned(),
            checks,
            config.memory.clone(),
        );
        Self {
            config,
            served,
            profiles,
            secrets,
            inventory: Some(inventory),
            ready: VecDeque::new(),
        }
    }

    /// Dropping the future in between loses the discovery.
    async fn next(&mut self) -> Result<Change, BoxError> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Ok(change);
            }
            let batch = self.batch().await?;
            if batch.is_empty() {
                continue;
            }
            let mut inventory = self.inventory.take().ok_or("mcr has ended this discovery")?;
            // Parsing may take long, and a parser may panic.
            let work = spawn_blocking(move || {
                let changes: Vec<Change> = batch
                    .into_iter()
                    .flat_map(|change| apply(&mut inventory, change))
                    .collect();
                (inventory, changes)
            });
            // After a panic the fleet starts another discovery.
            let (inventory, changes) = work.await?;
            self.inventory = Some(inventory);
            self.ready.extend(changes);
        }
    }

    /// Waits until something happens and takes what has happened by then.
    async fn batch(&mut self) -> Result<Vec<HubChange>, BoxError> {
        let mut batch = Vec::new();
        let mut event = Some(self.event().await);
        while let Some(happened) = event {
            batch.extend(self.change(happened).await?);
            event = match batch.len() {
                BATCH.. => None,
                _ => self.event().now_or_never(),
            };
        }
        Ok(batch)
    }

    /// Cancel safe.
    async fn event(&mut self) -> Event {
        let Self {
            profiles, secrets, ..
        } = self;
        tokio::select! {
            event = profiles.next() => Event::Profile(event),
            Some(event) = async { Some(secrets.as_mut()?.next().await) } => Event::Secret(event),
        }
    }

    async fn change(&self, event: Event) -> Result<Option<HubChange>, BoxError> {
        Ok(match event {
            Event::Profile(HubEvent::Applied(key, facts)) => Some(HubChange::Profile(key, Some(facts))),
            Event::Profile(HubEvent::Deleted(key)) => Some(HubChange::Profile(key, None)),
            Event::Profile(HubEvent::Synced) => Some(HubChange::ProfilesSynced),
            Event::Profile(HubEvent::Failing(problem)) => {
                // The CRD was upgraded or restored, and serves another version now.
                if matches!(*problem.error, WatchError::NotServed)
                    && let Ok(served) = served(&self.config).await
                    && served != self.served
                {
                    return Err(format!(
                        "the hub serves ClusterProfiles as {} now, and as {} no more; they are listed again",
                        served.version(),
                        self.served.version()
                    )
                    .into());
                }
                None
            }
            Event::Secret(HubEvent::Applied(key, secret)) => Some(HubChange::Secret(key, Some(secret))),
            Event::Secret(HubEvent::Deleted(key)) => Some(HubChange::Secret(key, None)),
            Event::Secret(HubEvent::Synced) => Some(HubChange::SecretsSynced),
            // An outage, which the watch logs.
            _ => None,
        })
    }
}

fn apply(inventory: &mut Inventory, change: HubChange) -> Vec<Change> {
    match change {
        HubChange::Profile(key, Some(facts)) => inventory.profile(&key, facts),
        HubChange::Profile(key, None) => inventory.profile_gone(&key),
        HubChange::Secret(key, secret) => inventory.secret(&key, secret),
        HubChange::ProfilesSynced => inventory.profiles_synced(),
        HubChange::SecretsSynced => inventory.secrets_synced(),
    }
}
