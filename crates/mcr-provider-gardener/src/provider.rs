use std::{collections::VecDeque, fmt, future::pending, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream, stream::FuturesUnordered};
use mcr_core::{BoxError, Change, Discovery, DiscoverySettings, Provider, doctor::Doctor};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Config, Topology},
    doctor::GardenerDoctor,
    inventory::{Inventory, Outcome, Request},
    issue::Issuer,
    kubeconfig::{Failure, Held},
    project::{Found, Lookups},
    refusals::Refusal,
    seed::{SECRET, ShootEvent},
    source::Source,
};

/// While the garden does not answer, the provider looks in this interval whether it does again.
const TICK: Duration = Duration::from_secs(1);

/// A provider that finds clusters in the Shoots of a Gardener, in its garden or in one of its seeds; see the [documentation of the crate](crate).
///
/// Clones share their memory of the kubeconfigs in use.
///
/// # Cancellation
/// A discovery has one task for each of its watches, one in a garden and two in a seed. They end when the discovery is dropped or
/// its token is cancelled. If the discovery is reading a kubeconfig at that moment, this finishes in the background.
#[derive(Clone)]
pub struct GardenerProvider {
    pub(crate) name: Arc<str>,
    pub(crate) config: Arc<Config>,
}

impl fmt::Debug for GardenerProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GardenerProvider")
            .field("name", &self.name)
            .field("topology", &self.config.topology)
            .field("shoots", &self.config.shoots().to_string())
            .field("selection", &self.config.selection)
            .field("rights", &self.config.rights)
            .field("valid_for", &self.config.valid_for)
            .finish()
    }
}

impl Provider for GardenerProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn doctor(&self) -> Option<Arc<dyn Doctor>> {
        let config = &self.config;
        let namespaces = config.namespace.iter().cloned().collect();
        let (client, labels) = (config.client.clone(), config.labels.clone());
        let doctor = GardenerDoctor::new(client, namespaces, labels, config.topology, config.rights);
        Some(Arc::new(doctor))
    }

    fn searched(&self) -> String {
        let (shoots, selection) = (self.config.shoots(), self.config.selection.in_words());
        let subresource = self.config.rights.subresource();
        match self.config.topology {
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
        let running = Running::start(self.config.clone(), settings);
        stream::unfold(running, async |mut running| {
            let change: Result<Change, BoxError> = Ok(running.next().await);
            Some((change, running))
        })
        .take_until(stop.cancelled_owned())
        .boxed()
    }
}

struct Running {
    source: Source,
    refusals: mpsc::Receiver<Refusal>,
    issuer: Arc<Issuer>,
    inventory: Inventory,
    requests: FuturesUnordered<BoxFuture<'static, (Request, Result<Held, Failure>)>>,
    projects: Arc<Lookups>,
    lookups: FuturesUnordered<BoxFuture<'static, Found>>,
    /// When to look next whether the garden answers again. None if it does.
    outage: Option<Instant>,
    ready: VecDeque<Change>,
}

impl Running {
    fn start(config: Arc<Config>, settings: &DiscoverySettings) -> Self {
        let policy = &settings.access_policy;
        Self {
            source: Source::start(&config, &settings.watch),
            refusals: config.refusals.listen(),
            issuer: Arc::new(Issuer::new(config.clone(), policy)),
            inventory: Inventory::new(
                config.selection.clone(),
                config.memory.clone(),
                config.at_once,
                config.times.pauses,
            ),
            requests: FuturesUnordered::new(),
            projects: Arc::new(Lookups::new(config.clone())),
            lookups: FuturesUnordered::new(),
            outage: None,
            ready: VecDeque::new(),
        }
    }

    /// The next change. Cancel safe.
    async fn next(&mut self) -> Change {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return change;
            }
            while let Some(request) = self.inventory.start(Instant::now()) {
                let issuer = self.issuer.clone();
                let run = async move {
                    let answer = issuer.issue(&request).await;
                    (request, answer)
                };
                self.requests.push(run.boxed());
            }
            let due = self
                .inventory
                .next_due(Instant::now())
                .into_iter()
                .chain(self.outage)
                .min();
            let due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            let outcome = tokio::select! {
                event = self.source.next() => self.received(event),
                Some((key, content)) = self.refusals.recv() => {
                    self.inventory.refused(&key, content);
                    Outcome::default()
                }
                Some((request, answer)) = self.requests.next(), if !self.requests.is_empty() => {
                    self.answered(&request, answer)
                }
                Some(found) = self.lookups.next(), if !self.lookups.is_empty() => {
                    self.inventory.project(&found, Instant::now())
                }
                () = due => {
                    self.look_after_outage(Instant::now());
                    Outcome::default()
                }
            };
            self.ready.extend(outcome.changes);
            for namespace in outcome.lookups {
                self.lookups
                    .push(self.projects.clone().project(namespace).boxed());
            }
        }
    }

    fn received(&mut self, event: ShootEvent) -> Outcome {
        match event {
            ShootEvent::Applied(key, facts) => self.inventory.shoot(&key, facts, Instant::now()),
            ShootEvent::Deleted(key) => self.inventory.shoot_gone(&key),
            ShootEvent::Synced => self.inventory.synced(),
            // The watch logs it.
            ShootEvent::Failing => {
                self.outage = Some(Instant::now() + TICK);
                Outcome::default()
            }
        }
    }

    fn look_after_outage(&mut self, now: Instant) {
        if self.outage.is_none_or(|look| look > now) {
            return;
        }
        self.outage = self.source.is_failing().then_some(now + TICK);
        if self.outage.is_none() {
            self.inventory.garden_is_back(now);
        }
    }

    fn answered(&mut self, request: &Request, answer: Result<Held, Failure>) -> Outcome {
        if let Err(failure) = &answer {
            tracing::debug!(shoot = %request.key, error = %failure.why, "no new kubeconfig; it is tried again");
        }
        self.inventory.answered(request, answer, Instant::now())
    }
}
