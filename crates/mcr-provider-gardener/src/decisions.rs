//! Decides for the Shoots of a garden or a seed which kubeconfigs to request and what to announce. No I/O.

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
    issue::{Issuer, KubeconfigRequest},
    kubeconfig::{Failure, UsableKubeconfig},
    project::{FoundProject, Lookups},
    refusals::Refusal,
    seed::{Seed, SeedShoot},
};

/// A missing Secret is read again after this many times the longest pause.
const ABSENT: u32 = 10;

pub(crate) enum Event {
    /// An event of the Shoot watch in a garden.
    Shoot(HubEvent<Decoded<Facts>>),
    /// An event of the Cluster watch in a seed.
    Cluster(HubEvent<Arc<SeedShoot>>),
    /// An event of the Secret watch in a seed, with the version of a control plane's Secret.
    Secret(HubEvent<Fingerprint>),
    /// The project of a namespace was found, or can't be read.
    Project(FoundProject),
    /// A request for the kubeconfig of a Shoot has ended. `None`: it was cancelled.
    Issued(ObjectKey, Ticket, Option<Result<UsableKubeconfig, Failure>>),
    /// The API server of a Shoot has refused its kubeconfig.
    Refused(Refusal),
}

pub(crate) struct Decisions {
    config: Arc<Config>,
    issuer: Arc<Issuer>,
    lookups: Arc<Lookups>,
    inventory: Inventory<Named, Option<UsableKubeconfig>>,
    kubeconfigs: HashMap<ObjectKey, Kubeconfig>,
    requests: Requests<ObjectKey>,
    seed: Seed,
    /// The Shoots whose project is being looked up, by namespace.
    awaiting_project: HashMap<Arc<str>, HashMap<ObjectKey, Decoded<Facts>>>,
    /// Names that replace projects which could not be read. They are kept until the discovery ends, so that no cluster
    /// is renamed.
    substitute_names: HashMap<Arc<str>, Arc<str>>,
}

/// The kubeconfig of a Shoot.
#[derive(Default)]
struct Kubeconfig {
    held: Option<UsableKubeconfig>,
    /// Why the last request failed.
    failure: Option<Failure>,
}

impl Decide for Decisions {
    type Event = Event;

    fn decide(&mut self, events: Vec<Event>, now: Instant) -> Outcome<Event> {
        let mut outcome = Outcome::default();
        for event in events {
            match event {
                Event::Shoot(HubEvent::Applied(key, facts)) => {
                    self.garden_shoot_changed(key, facts, now, &mut outcome)
                }
                Event::Shoot(HubEvent::Deleted(key)) => self.remove_shoot(&key),
                Event::Cluster(HubEvent::Applied(key, shoot)) => {
                    if let Some(moved) = self.seed.cluster(&key.name, shoot) {
                        self.remove_shoot(&moved);
                    }
                    self.control_plane_changed(&key.name, now);
                }
                Event::Cluster(HubEvent::Deleted(key)) => {
                    if let Some(gone) = self.seed.cluster_gone(&key.name) {
                        self.remove_shoot(&gone);
                    }
                }
                Event::Secret(HubEvent::Applied(key, version)) => {
                    self.seed.secret(&namespace(&key), Some(version));
                    self.control_plane_changed(&namespace(&key), now);
                }
                Event::Secret(HubEvent::Deleted(key)) => {
                    self.seed.secret(&namespace(&key), None);
                    self.control_plane_changed(&namespace(&key), now);
                }
                Event::Secret(HubEvent::Synced) => {
                    for control_plane in self.seed.secrets_listed() {
                        self.control_plane_changed(&control_plane, now);
                    }
                    self.inventory.listed();
                }
                Event::Shoot(HubEvent::Synced) | Event::Cluster(HubEvent::Synced) => self.inventory.listed(),
                Event::Shoot(HubEvent::Recovered)
                | Event::Cluster(HubEvent::Recovered)
                | Event::Secret(HubEvent::Recovered) => self.requests.recovered(now),
                Event::Project(FoundProject { namespace, project }) => {
                    // Not stored in the config, because the next discovery may be allowed to read the project.
                    let known = project.clone().unwrap_or_else(|| namespace.clone());
                    if project.is_some() {
                        self.config
                            .projects
                            .lock()
                            .insert(namespace.clone(), known.clone());
                    } else {
                        self.substitute_names.insert(namespace.clone(), known.clone());
                    }
                    for (key, facts) in self.awaiting_project.remove(&namespace).unwrap_or_default() {
                        self.project_known(&key, &known, facts, now);
                    }
                }
                Event::Issued(key, ticket, answer) => {
                    if self.requests.ended(&key, ticket)
                        && let Some(answer) = answer
                    {
                        self.handle_answer(&key, answer, now);
                    }
                }
                Event::Refused((key, content)) => self.handle_refusal(&key, content),
                // The watch fails, which it logs itself.
                Event::Shoot(_) | Event::Cluster(_) | Event::Secret(_) => {}
            }
        }
        while let Some(request) = self.requests.start(now) {
            let (key, ticket, stop, again) = (request.key, request.ticket, request.stop, request.again);
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
                    let request = KubeconfigRequest {
                        key,
                        name,
                        shoot,
                        held,
                        again,
                    };
                    let answer = stop.run_until_cancelled(issuer.issue(&request)).await;
                    Event::Issued(request.key, ticket, answer)
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
            awaiting_project: HashMap::new(),
            substitute_names: HashMap::new(),
            config,
        }
    }

    /// A Shoot of a garden was created or changed. The name of its cluster contains the project of its namespace.
    fn garden_shoot_changed(
        &mut self,
        key: ObjectKey,
        facts: Decoded<Facts>,
        now: Instant,
        outcome: &mut Outcome<Event>,
    ) {
        let namespace = namespace(&key);
        let project = self.project_of(&namespace);
        if let Some(project) = project {
            return self.project_known(&key, &project, facts, now);
        }
        self.inventory.hold(&key);
        let awaiting_project = self.awaiting_project.entry(namespace.clone()).or_default();
        if awaiting_project.is_empty() {
            let lookup = self.lookups.clone().project(namespace);
            outcome.tasks.push(lookup.map(Event::Project).boxed());
        }
        awaiting_project.insert(key, facts);
    }

    /// The project of a Shoot in a garden is known, so its cluster has a name.
    fn project_known(&mut self, key: &ObjectKey, project: &Arc<str>, facts: Decoded<Facts>, now: Instant) {
        let named = facts.map(|facts| {
            Arc::new(Named {
                place: facts.place,
                facts,
                project: project.clone(),
                control_plane: None,
            })
        });
        self.apply(key, project, named, now);
        self.announce(key, now);
    }

    /// A Cluster of a seed, or its Secret, was created or changed.
    fn control_plane_changed(&mut self, control_plane: &Arc<str>, now: Instant) {
        let Some(joined) = self.seed.joined(control_plane) else {
            return;
        };
        // The Secret may be new even if the Cluster can't be decoded.
        if let Some(facts) = joined.facts {
            self.apply(&joined.key, &joined.project, Ok(facts), now);
        }
        if let Some(why) = joined.unreadable {
            self.apply(&joined.key, &joined.project, Err(why), now);
        }
        self.announce(&joined.key, now);
    }

    /// Stores the facts of a Shoot, without announcing them.
    fn apply(&mut self, key: &ObjectKey, project: &Arc<str>, facts: Decoded<Named>, now: Instant) {
        let name = ClusterName::new(format!("{project}/{}", key.name)).inspect_err(|error| {
            // A garden allows no Shoots with such names.
            tracing::warn!(shoot = %key, %error, "left out: the name of the Shoot can't be that of a cluster");
        });
        let Some(name) = name
            .ok()
            .filter(|_| self.config.selection.selects_project(project))
        else {
            return self.remove_shoot(key);
        };
        let place =
            |inventory: &Inventory<Named, Option<UsableKubeconfig>>| Some(inventory.get(key)?.facts()?.place);
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

    fn remove_shoot(&mut self, key: &ObjectKey) {
        if let Some(awaiting_project) = self.awaiting_project.get_mut(&namespace(key)) {
            awaiting_project.remove(key);
        }
        self.requests.cancel(key);
        self.kubeconfigs.remove(key);
        self.inventory.deleted(key);
    }

    /// Plans the next request, and announces changes.
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

    /// What to announce about a Shoot. `None` if something is still unknown.
    fn verdict(&mut self, key: &ObjectKey, now: Instant) -> Option<Verdict> {
        let entry = self.inventory.get(key)?;
        let shoot = entry.facts()?;
        let kubeconfig = self.kubeconfigs.get_mut(key)?;
        let waits = match &shoot.facts.state {
            _ if !entry.is_readable() => None,
            State::Waiting(why) => Some(why),
            // While the control plane moves, an engaged cluster stays engaged: the fleet notices itself whether the
            // cluster answers.
            State::Moving(why) if !self.inventory.memory().is_engaged(key) => Some(why),
            _ => None,
        };
        if let Some(why) = waits {
            self.requests.cancel(key);
            *kubeconfig = Kubeconfig::default();
            self.inventory.memory().keep(key, |kept| *kept = None);
            return Some(Verdict::Waiting(why.clone()));
        }
        // If the Shoot can't be decoded, its cluster keeps the kubeconfig in use, which is renewed. No new one is
        // requested.
        if self.requests.is_idle(key) && (entry.is_readable() || entry.is_in_use()) {
            let held = kubeconfig.held.as_ref().filter(|_| kubeconfig.failure.is_none());
            let held = held.filter(|held| held.place == shoot.place);
            self.requests.plan(key, held.map_or(now, |held| held.renew_at));
        }
        let good = |held: &UsableKubeconfig| Some(Verdict::Good(held.access.clone()));
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
                // If it was announced as broken, a suspended cluster would still show the reason of its suspension.
                if entry.is_waiting() {
                    let why = format!("it is ready, but there is no kubeconfig: {why}");
                    return Some(Verdict::Waiting(why.into()));
                }
                let object = format!("Shoot {key}");
                Some(Verdict::Broken { object, why })
            }
        }
    }

    fn handle_answer(&mut self, key: &ObjectKey, answer: Result<UsableKubeconfig, Failure>, now: Instant) {
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
            // The seed has answered, so the request counts as successful. The watch will report the Secret when it
            // exists.
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

    /// The API server of a Shoot has refused the kubeconfig with this fingerprint, so a new one is requested.
    ///
    /// The request waits until the kubeconfig is as old as the longest pause. So a kubeconfig that is always refused
    /// does not overload the garden.
    fn handle_refusal(&mut self, key: &ObjectKey, content: Fingerprint) {
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

    fn project_of(&self, namespace: &str) -> Option<Arc<str>> {
        let known = self.config.projects.lock().get(namespace).cloned();
        known.or_else(|| self.substitute_names.get(namespace).cloned())
    }
}
