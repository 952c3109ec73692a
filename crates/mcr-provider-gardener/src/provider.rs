use std::{collections::VecDeque, fmt, future::pending, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream, stream::FuturesUnordered};
use mcr_core::{
    AccessPolicy, BoxError, Change, Discovery, HubEvent, HubWatch, Provider, internal::LoggedWatch,
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Config,
    facts::Facts,
    inventory::{Inventory, Outcome, Request},
    issue::Issuer,
    kubeconfig::{Failure, Held},
    project::project,
};

/// While the garden does not answer, the provider looks in this interval whether it does again.
const TICK: Duration = Duration::from_secs(1);

/// A provider that finds clusters in the Shoots of a Gardener; see the [documentation of the crate](crate).
///
/// Clones share their memory of the kubeconfigs in use.
///
/// # Cancellation
/// A discovery has one task, its watch, which ends when the discovery is dropped or its token is cancelled. If the discovery is
/// reading a kubeconfig at that moment, this finishes in the background.
#[derive(Clone)]
pub struct GardenerProvider {
    pub(crate) name: Arc<str>,
    pub(crate) config: Arc<Config>,
}

impl fmt::Debug for GardenerProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GardenerProvider")
            .field("name", &self.name)
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

    fn searched(&self) -> String {
        let subresource = self.config.rights.subresource();
        format!(
            "{}{} of the garden, that are created and awake. To add a cluster, create a Shoot; if there is one, check its \
             namespace and labels, and whether the garden's credentials may list and watch Shoots, and create \
             shoots/{subresource} there",
            self.config.shoots(),
            self.config.selection.in_words()
        )
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with_policy(stop, &AccessPolicy::default())
    }

    fn discover_with_policy(&self, stop: CancellationToken, policy: &AccessPolicy) -> Discovery {
        let running = Running::start(self.config.clone(), policy);
        stream::unfold(running, async |mut running| {
            let change: Result<Change, BoxError> = Ok(running.next().await);
            Some((change, running))
        })
        .take_until(stop.cancelled_owned())
        .boxed()
    }
}

struct Running {
    config: Arc<Config>,
    shoots: LoggedWatch<Arc<Facts>>,
    issuer: Arc<Issuer>,
    inventory: Inventory,
    requests: FuturesUnordered<BoxFuture<'static, (Request, Result<Held, Failure>)>>,
    lookups: FuturesUnordered<BoxFuture<'static, (Arc<str>, Arc<str>)>>,
    /// When to look next whether the garden answers again. None if it does.
    outage: Option<Instant>,
    ready: VecDeque<Change>,
}

impl Running {
    fn start(config: Arc<Config>, policy: &AccessPolicy) -> Self {
        let (request, selection) = (config.shoots(), config.selection.clone());
        let shoots = HubWatch::projected_with_settings(
            config.client.clone(),
            request.clone(),
            config.times.watch.clone(),
            move |object| Facts::read(object, &selection),
        );
        Self {
            shoots: LoggedWatch::new(shoots, request, config.times.blocked_for),
            issuer: Arc::new(Issuer::new(config.clone(), policy)),
            inventory: Inventory::new(
                config.selection.clone(),
                config.memory.clone(),
                policy.clone(),
                config.at_once,
                config.times.pauses,
            ),
            requests: FuturesUnordered::new(),
            lookups: FuturesUnordered::new(),
            outage: None,
            ready: VecDeque::new(),
            config,
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
            let due = self.inventory.next_due().into_iter().chain(self.outage).min();
            let due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            let outcome = tokio::select! {
                event = self.shoots.next() => self.heard(event),
                Some((request, answer)) = self.requests.next(), if !self.requests.is_empty() => {
                    self.answered(&request, answer)
                }
                Some((namespace, project)) = self.lookups.next(), if !self.lookups.is_empty() => {
                    self.inventory.project(&namespace, &project, Instant::now())
                }
                () = due => {
                    self.look_after_outage(Instant::now());
                    Outcome::default()
                }
            };
            self.ready.extend(outcome.changes);
            for namespace in outcome.lookups {
                let (client, pauses) = (self.config.client.clone(), self.config.times.pauses);
                self.lookups.push(project(client, namespace, pauses).boxed());
            }
        }
    }

    fn heard(&mut self, event: HubEvent<Arc<Facts>>) -> Outcome {
        match event {
            HubEvent::Applied(key, facts) => self.inventory.shoot(&key, facts, Instant::now()),
            HubEvent::Deleted(key) => self.inventory.shoot_gone(&key),
            HubEvent::Synced => self.inventory.synced(),
            // The watch logs it.
            HubEvent::Failing(_) => {
                self.outage = Some(Instant::now() + TICK);
                Outcome::default()
            }
            _ => Outcome::default(),
        }
    }

    fn look_after_outage(&mut self, now: Instant) {
        if self.outage.is_none_or(|look| look > now) {
            return;
        }
        self.outage = self.shoots.is_failing().then_some(now + TICK);
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
