//! A discovery that follows the hub.

use std::{collections::VecDeque, sync::Arc};

use futures::FutureExt;
use mcr_core::{BoxError, Change, DiscoverySettings, HubEvent, WatchError, WatchProblem};
use tokio::task::spawn_blocking;

use crate::{
    config::Config,
    facts::{Facts, Lens},
    inventories::{HubChange, Inventories},
    inventory::Inventory,
    placement::{Chosen, Slice},
    secret::{Checks, SecretFacts},
    served::Served,
    watches::Watches,
};

/// So many changes are looked at in one go at most, so that the first of thousands are announced at once.
const BATCH: usize = 32;

/// Asks the hub for the version of ClusterProfile to read.
pub(crate) async fn served(config: &Config) -> Result<Served, BoxError> {
    Served::ask(&config.client, config.only, config.times.ask).await
}

pub(crate) struct Running {
    config: Arc<Config>,
    served: Served,
    profiles: Watches<Arc<Facts>>,
    /// Empty if no Secrets are needed.
    secrets: Watches<Arc<SecretFacts>>,
    /// Empty without the option `placement`.
    decisions: Watches<Slice>,
    /// So many of these have not listed their objects yet.
    unlisted: usize,
    /// None while they are in the thread that may block, and after a panic there.
    inventories: Option<Inventories>,
    ready: VecDeque<Change>,
}

/// An event, with the number of its watch.
enum Event {
    Profile(usize, HubEvent<Arc<Facts>>),
    Secret(usize, HubEvent<Arc<SecretFacts>>),
    Decision(HubEvent<Slice>),
}

impl Running {
    pub(crate) fn start(config: Arc<Config>, served: Served, settings: DiscoverySettings) -> Self {
        let mut times = config.times.clone();
        times.watch.get_or_insert(settings.watch);
        let (client, times) = (&config.client, &times);
        let lens = Lens {
            served,
            selection: config.selection.clone(),
            providers: config.access.providers().cloned(),
        };
        let profiles = Watches::new(client, config.profiles(served), times, move |object| {
            lens.read(object)
        });
        let secrets = Watches::new(client, config.secrets(), times, |object| {
            Some(Arc::new(SecretFacts::read(object)))
        });
        let decisions = Watches::new(client, config.decisions(), times, Slice::read);
        let checks = Checks {
            policy: config.policy.clone(),
            fleet_policy: settings.access_policy,
        };
        let inventory = |_| {
            Inventory::new(
                config.qualified,
                config.access.consumer().cloned(),
                config.placement.as_ref().map(|_| Chosen::default()),
                checks.clone(),
                config.memory.clone(),
            )
        };
        let inventories = (0..profiles.len()).map(inventory).collect();
        Self {
            served,
            unlisted: decisions.len(),
            inventories: Some(Inventories::new(inventories, decisions.len())),
            profiles,
            secrets,
            decisions,
            ready: VecDeque::new(),
            config,
        }
    }

    /// Dropping the future in between loses the discovery.
    pub(crate) async fn next(&mut self) -> Result<Change, BoxError> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Ok(change);
            }
            let batch = self.batch().await?;
            if batch.is_empty() {
                continue;
            }
            let mut inventories = self.inventories.take().ok_or("mcr has ended this discovery")?;
            // Parsing may take long, and a parser may panic.
            let work = spawn_blocking(move || {
                let changes = inventories.apply(batch);
                (inventories, changes)
            });
            // After a panic the fleet starts another discovery.
            let (inventories, changes) = work.await?;
            self.inventories = Some(inventories);
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
        tokio::select! {
            (at, event) = self.profiles.next() => Event::Profile(at, event),
            (at, event) = self.secrets.next() => Event::Secret(at, event),
            (_, event) = self.decisions.next() => Event::Decision(event),
        }
    }

    async fn change(&mut self, event: Event) -> Result<Option<HubChange>, BoxError> {
        Ok(match event {
            Event::Profile(at, HubEvent::Applied(key, facts)) => {
                Some(HubChange::Profile(at, key, Some(facts)))
            }
            Event::Profile(at, HubEvent::Deleted(key)) => Some(HubChange::Profile(at, key, None)),
            Event::Profile(at, HubEvent::Synced) => Some(HubChange::ProfilesSynced(at)),
            Event::Profile(_, HubEvent::Failing(problem)) => {
                self.upgraded(&problem).await?;
                None
            }
            Event::Secret(at, HubEvent::Applied(key, secret)) => {
                Some(HubChange::Secret(at, key, Some(secret)))
            }
            Event::Secret(at, HubEvent::Deleted(key)) => Some(HubChange::Secret(at, key, None)),
            Event::Secret(at, HubEvent::Synced) => Some(HubChange::SecretsSynced(at)),
            Event::Decision(HubEvent::Applied(key, slice)) => {
                if let Slice(Err(error)) = &slice {
                    tracing::warn!(
                        decision = %key, %error,
                        "this PlacementDecision can't be read; no cluster leaves because of it until its scheduler corrects it"
                    );
                }
                Some(HubChange::Decision(key, Some(slice)))
            }
            Event::Decision(HubEvent::Deleted(key)) => Some(HubChange::Decision(key, None)),
            Event::Decision(HubEvent::Synced) => {
                self.unlisted = self.unlisted.saturating_sub(1);
                Some(HubChange::DecisionsSynced)
            }
            Event::Decision(HubEvent::Failing(problem)) if self.unlisted > 0 => {
                no_decisions(&problem)?;
                None
            }
            // An outage, which the watch logs.
            _ => None,
        })
    }

    /// An error if the CRD of ClusterProfiles was upgraded or restored, and serves another version now.
    async fn upgraded(&self, problem: &WatchProblem) -> Result<(), BoxError> {
        if !matches!(*problem.error, WatchError::NotServed) {
            return Ok(());
        }
        match served(&self.config).await {
            Ok(served) if served != self.served => Err(format!(
                "the hub serves ClusterProfiles as {} now, and as {} no more; they are listed again",
                served.version(),
                self.served.version()
            )
            .into()),
            _ => Ok(()),
        }
    }
}

/// An error if PlacementDecisions can't be read before somebody does something about it.
fn no_decisions(problem: &WatchProblem) -> Result<(), BoxError> {
    match &*problem.error {
        WatchError::NotServed => Err(
            "the hub has no PlacementDecisions: it does not serve placementdecisions of multicluster.x-k8s.io/v1alpha1. Install \
             their CRD there, or leave out the provider's option `placement`"
                .into(),
        ),
        WatchError::Forbidden { message } => Err(format!(
            "the hub forbids the option `placement` to read PlacementDecisions: {message}. Grant list and watch on \
             placementdecisions of multicluster.x-k8s.io to the credentials of the hub, as the manifest of the provider does"
        )
        .into()),
        _ => Ok(()),
    }
}
