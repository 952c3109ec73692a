//! The Shoots of a garden or a seed: which kubeconfig to ask for and what to announce. No I/O.

use std::{collections::HashMap, sync::Arc};

use futures::FutureExt;
use mcr_core::{
    ClusterName, Fingerprint, HubEvent, ObjectKey,
    hub::{Decide, Decoded, Inventory, Outcome, Requests, Ticket, Verdict},
};
use tokio::time::Instant;

use crate::{
    config::{Config, Topology, namespace},
    facts::{Facts, Named, State},
    issue::{Asked, Issuer},
    kubeconfig::{Failure, Held},
    project::{Found, Lookups},
    refusals::Refusal,
    seed::{Seed, SeedShoot},
};

/// An absent Secret is read again after so many of the longest pauses.
const ABSENT: u32 = 10;

pub(crate) enum Event {
    /// In a garden.
    Shoot(HubEvent<Decoded<Facts>>),
    /// In a seed.
    Cluster(HubEvent<Arc<SeedShoot>>),
    /// In a seed: the version of the Secret of a control plane.
    Secret(HubEvent<Fingerprint>),
    /// The project of a namespace is known, or will not be known.
    Project(Found),
    /// A request for the kubeconfig of a Shoot has ended. None: it was cancelled.
    Issued(ObjectKey, Ticket, Option<Result<Held, Failure>>),
    /// The API server of a Shoot has refused its kubeconfig.
    Refused(Refusal),
}

pub(crate) struct Decisions {
    config: Arc<Config>,
    issuer: Arc<Issuer>,
    lookups: Arc<Lookups>,
    inventory: Inventory<Named, Option<Held>>,
    kubeconfigs: HashMap<ObjectKey, Kubeconfig>,
    requests: Requests<ObjectKey>,
    seed: Seed,
    /// The Shoots whose project is being looked up, by namespace.
    unnamed: HashMap<Arc<str>, HashMap<ObjectKey, Decoded<Facts>>>,
    /// The names in place of projects that could not be read. They last as long as the discovery, so that no cluster is renamed.
    stand_ins: HashMap<Arc<str>, Arc<str>>,
}

/// The kubeconfig of a Shoot.
#[derive(Default)]
struct Kubeconfig {
    held: Option<Held>,
    /// Why the last request failed.
    failure: Option<Failure>,
}

impl Decide for Decisions {
    type Event = Event;

    fn decide(&mut self, events: Vec<Event>, now: Instant) -> Outcome<Event> {
        let mut outcome = Outcome::default();
        for event in events {
            match event {
                Event::Shoot(HubEvent::Applied(key, facts)) => self.in_garden(key, facts, now, &mut outcome),
                Event::Shoot(HubEvent::Deleted(key)) => self.gone(&key),
                Event::Cluster(HubEvent::Applied(key, shoot)) => {
                    if let Some(moved) = self.seed.cluster(&key.name, shoot) {
                        self.gone(&moved);
                    }
                    self.in_seed(&key.name, now);
                }
                Event::Cluster(HubEvent::Deleted(key)) => {
                    if let Some(gone) = self.seed.cluster_gone(&key.name) {
                        self.gone(&gone);
                    }
                }
                Event::Secret(HubEvent::Applied(key, version)) => {
                    self.seed.secret(&namespace(&key), Some(version));
                    self.in_seed(&namespace(&key), now);
                }
                Event::Secret(HubEvent::Deleted(key)) => {
                    self.seed.secret(&namespace(&key), None);
                    self.in_seed(&namespace(&key), now);
                }
                Event::Secret(HubEvent::Synced) => {
                    for control_plane in self.seed.secrets_listed() {
                        self.in_seed(&control_plane, now);
                    }
                    self.inventory.listed();
                }
                Event::Shoot(HubEvent::Synced) | Event::Cluster(HubEvent::Synced) => self.inventory.listed(),
                Event::Shoot(HubEvent::Recovered)
                | Event::Cluster(HubEvent::Recovered)
                | Event::Secret(HubEvent::Recovered) => self.requests.recovered(now),
                Event::Project(Found { namespace, project }) => {
                    // The next discovery may be allowed to read it.
                    let known = project.clone().unwrap_or_else(|| namespace.clone());
                    if project.is_some() {
                        self.config
                            .projects
                            .lock()
                            .insert(namespace.clone(), known.clone());
                    } else {
                        self.stand_ins.insert(namespace.clone(), known.clone());
                    }
                    for (key, facts) in self.unnamed.remove(&namespace).unwrap_or_default() {
                        self.named(&key, &known, facts, now);
                    }
                }
                Event::Issued(key, ticket, answer) => {
                    if self.requests.ended(&key, ticket)
                        && let Some(answer) = answer
                    {
                        self.answered(&key, answer, now);
                    }
                }
                Event::Refused((key, content)) => self.refused(&key, content),
                // An outage, which the watch logs.
                Event::Shoot(_) | Event::Cluster(_) | Event::Secret(_) => {}
            }
        }
        while let Some(request) = self.requests.start(now) {
            let (key, ticket, stop) = (request.key, request.ticket, request.stop);
            let name = self.inventory.get(&key).map(|entry| entry.name().clone());
            let shoot = self.inventory.get(&key).and_then(|entry| entry.facts().cloned());
            let held = self
                .kubeconfigs
                .get(&key)
                .and_then(|kubeconfig| kubeconfig.held.clone());
            let issuer = self.issuer.clone();
            outcome.tasks.push(
                async move {
                    let Some((name, shoot)) = name.zip(shoot) else {
                        return Event::Issued(key, ticket, None);
                    };
                    let asked = Asked {
                        key,
                        name,
                        shoot,
                        held,
                        again: request.again,
                    };
                    let answer = stop.run_until_cancelled(issuer.issue(&asked)).await;
                    Event::Issued(asked.key, ticket, answer)
                }
                .boxed(),
            );
        }
        outcome.changes = self.inventory.take_changes();
        outcome
    }

    fn due(&self) -> Option<Instant> {
        self.requests.next_due()
    }
}

impl Decisions {
    pub(crate) fn new(config: Arc<Config>, issuer: Issuer) -> Self {
        let watches = match config.topology {
            Topology::Garden => 1,
            Topology::Seed => 2,
        };
        Self {
            issuer: issuer.into(),
            lookups: Arc::new(Lookups::new(config.clone())),
            inventory: Inventory::new("Shoot", watches, config.memory.clone()),
            kubeconfigs: HashMap::new(),
            requests: Requests::new(config.at_once, config.hub.times.pauses).one_cause(),
            seed: Seed::default(),
            unnamed: HashMap::new(),
            stand_ins: HashMap::new(),
            config,
        }
    }

    /// A Shoot of a garden was created or changed. Its name needs the project of its namespace.
    fn in_garden(
        &mut self,
        key: ObjectKey,
        facts: Decoded<Facts>,
        now: Instant,
        outcome: &mut Outcome<Event>,
    ) {
        let namespace = namespace(&key);
        let project = self.projects_of(&namespace);
        if let Some(project) = project {
            return self.named(&key, &project, facts, now);
        }
        self.inventory.hold(&key);
        let unnamed = self.unnamed.entry(namespace.clone()).or_default();
        if unnamed.is_empty() {
            let lookup = self.lookups.clone().project(namespace);
            outcome.tasks.push(lookup.map(Event::Project).boxed());
        }
        unnamed.insert(key, facts);
    }

    fn named(&mut self, key: &ObjectKey, project: &Arc<str>, facts: Decoded<Facts>, now: Instant) {
        let named = facts.map(|facts| {
            Arc::new(Named {
                place: facts.place,
                facts,
                project: project.clone(),
                control_plane: None,
            })
        });
        self.shoot(key, project, named, now);
    }

    /// A Cluster of a seed or its Secret was created or changed.
    fn in_seed(&mut self, control_plane: &Arc<str>, now: Instant) {
        let Some(joined) = self.seed.joined(control_plane) else {
            return;
        };
        // The Secret may be a new one, although its Cluster can't be decoded.
        if let Some(facts) = joined.facts {
            self.apply(&joined.key, &joined.project, Ok(facts), now);
        }
        if let Some(why) = joined.unreadable {
            self.apply(&joined.key, &joined.project, Err(why), now);
        }
        self.announce(&joined.key, now);
    }

    fn shoot(&mut self, key: &ObjectKey, project: &Arc<str>, facts: Decoded<Named>, now: Instant) {
        self.apply(key, project, facts, now);
        self.announce(key, now);
    }

    fn apply(&mut self, key: &ObjectKey, project: &Arc<str>, facts: Decoded<Named>, now: Instant) {
        let name = ClusterName::new(format!("{project}/{}", key.name)).inspect_err(|error| {
            // No garden has such Shoots.
            tracing::warn!(shoot = %key, %error, "left out: the name of the Shoot can't be that of a cluster");
        });
        let Some(name) = name
            .ok()
            .filter(|_| self.config.selection.selects_project(project))
        else {
            return self.gone(key);
        };
        let place = |inventory: &Inventory<Named, Option<Held>>| Some(inventory.get(key)?.facts()?.place);
        let before = place(&self.inventory);
        if self.inventory.applied(key, name, facts) {
            self.requests.cancel(key);
            let held = self.inventory.memory().kept(key).flatten();
            let kubeconfig = Kubeconfig {
                held: held.filter(|held| held.ends > now),
                failure: None,
            };
            self.kubeconfigs.insert(key.clone(), kubeconfig);
        } else if before != place(&self.inventory) && self.requests.is_planned(key) {
            self.requests.plan(key, now);
        }
    }

    fn gone(&mut self, key: &ObjectKey) {
        if let Some(unnamed) = self.unnamed.get_mut(&namespace(key)) {
            unnamed.remove(key);
        }
        self.requests.cancel(key);
        self.kubeconfigs.remove(key);
        self.inventory.deleted(key);
    }

    /// Plans the next request, and announces what is new.
    fn announce(&mut self, key: &ObjectKey, now: Instant) {
        let verdict = self.verdict(key, now);
        let is_good = matches!(verdict, Some(Verdict::Good(_)));
        self.inventory.announce(key, verdict);
        let held = self
            .kubeconfigs
            .get(key)
            .and_then(|kubeconfig| kubeconfig.held.clone());
        self.inventory
            .memory()
            .keep(key, |kept| *kept = held.filter(|_| is_good).or(kept.take()));
    }

    /// None if something is not known yet.
    fn verdict(&mut self, key: &ObjectKey, now: Instant) -> Option<Verdict> {
        let entry = self.inventory.get(key)?;
        let shoot = entry.facts()?;
        let kubeconfig = self.kubeconfigs.get_mut(key)?;
        let waits = match &shoot.facts.state {
            _ if !entry.is_readable() => None,
            State::Waiting(why) => Some(why),
            // A cluster that is engaged stays so while its control plane moves: the fleet finds out by itself whether it answers.
            State::Moving(why) if !self.inventory.memory().is_engaged(key) => Some(why),
            _ => None,
        };
        if let Some(why) = waits {
            self.requests.cancel(key);
            *kubeconfig = Kubeconfig::default();
            self.inventory.memory().keep(key, |kept| *kept = None);
            return Some(Verdict::Waiting(why.clone()));
        }
        // One that can't be decoded keeps what it has: the kubeconfig in use is renewed, and no other one is asked for.
        if self.requests.is_idle(key) && (entry.is_readable() || entry.is_in_use()) {
            let held = kubeconfig.held.as_ref().filter(|_| kubeconfig.failure.is_none());
            let held = held.filter(|held| held.place == shoot.place);
            self.requests.plan(key, held.map_or(now, |held| held.renew_at));
        }
        let good = |held: &Held| Some(Verdict::Good(held.access.clone()));
        match (&kubeconfig.held, &kubeconfig.failure) {
            (Some(held), None) => good(held),
            (Some(held), Some(failure)) if !failure.unusable && held.ends > now => good(held),
            (_, None) => None,
            (_, Some(failure)) if failure.absent => Some(Verdict::Waiting(failure.why.clone())),
            (held, Some(failure)) => {
                let why = match held.as_ref().filter(|held| held.ends <= now) {
                    Some(_) => format!(
                        "its kubeconfig has expired, and there is no new one: {}",
                        failure.why
                    )
                    .into(),
                    None => failure.why.clone(),
                };
                // As broken, a suspended cluster would still be shown with the reason of its suspension.
                if entry.is_waiting() {
                    let why = format!("it is ready, but there is no kubeconfig: {why}");
                    return Some(Verdict::Waiting(why.into()));
                }
                let object = format!("Shoot {key}");
                Some(Verdict::Broken { object, why })
            }
        }
    }

    fn answered(&mut self, key: &ObjectKey, answer: Result<Held, Failure>, now: Instant) {
        let Some(kubeconfig) = self.kubeconfigs.get_mut(key) else {
            return;
        };
        match answer {
            Ok(held) => {
                self.requests.succeeded(key, now);
                *kubeconfig = Kubeconfig {
                    held: Some(held),
                    failure: None,
                };
            }
            // The seed has answered, so nothing is wrong with it. Its watch will report the Secret.
            Err(failure) if failure.absent => {
                self.requests.succeeded(key, now);
                self.requests
                    .plan(key, now + ABSENT * self.config.hub.times.pauses.1);
                kubeconfig.failure = Some(failure);
            }
            Err(failure) => {
                tracing::debug!(shoot = %key, error = %failure.why, "no new kubeconfig; it is requested again");
                let at_least = failure
                    .retry_after
                    .unwrap_or_default()
                    .min(self.config.hub.times.pauses.1);
                if failure.retry_after.is_some() {
                    self.requests.quiet(now + at_least);
                }
                self.requests.failed(key, now, at_least);
                kubeconfig.failure = Some(failure);
            }
        }
        self.announce(key, now);
    }

    /// The API server of a Shoot has refused the kubeconfig with this content. Another one is asked for.
    ///
    /// A kubeconfig is used for the longest pause before, so that one that is always refused does not keep the garden busy.
    fn refused(&mut self, key: &ObjectKey, content: Fingerprint) {
        let Some(Kubeconfig {
            held: Some(held),
            failure: None,
        }) = self.kubeconfigs.get(key)
        else {
            return;
        };
        if held.fingerprint == content && self.requests.is_planned(key) {
            self.requests
                .plan(key, held.issued() + self.config.hub.times.pauses.1);
        }
    }

    fn projects_of(&self, namespace: &str) -> Option<Arc<str>> {
        let known = self.config.projects.lock().get(namespace).cloned();
        known.or_else(|| self.stand_ins.get(namespace).cloned())
    }
}
