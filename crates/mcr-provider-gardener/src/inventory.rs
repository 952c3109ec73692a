//! The Shoots of a garden or a seed, and what was announced of them. It decides what to announce and which kubeconfig to ask for next. No
//! I/O, no clock of its own.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use mcr_core::{
    Change, ClusterName, Fingerprint, ObjectKey,
    internal::{Line, Pace, Schedule, Ticket},
};
use tokio::time::Instant;

use crate::{
    facts::{Facts, InSeed, State},
    kubeconfig::{Failure, Held},
    member::{Announced, Attempt, Member, Verdict},
    memory::Memory,
    project::Found,
    selection::Selection,
};

/// What an inventory knows.
#[derive(Debug)]
pub(crate) struct Inventory {
    selection: Arc<Selection>,
    memory: Arc<Memory>,
    pauses: (Duration, Duration),
    shoots: HashMap<ObjectKey, Member>,
    /// The project of each namespace. None: it is being looked up.
    projects: HashMap<Arc<str>, Option<Arc<str>>>,
    schedule: Schedule<ObjectKey>,
    pace: Pace,
    synced: bool,
    announced_synced: bool,
    /// Shoots about which nothing was said because something of them is not known yet. Used until all has been said.
    pending: HashSet<ObjectKey>,
}

/// A kubeconfig to ask for.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) ticket: Ticket,
    pub(crate) key: ObjectKey,
    pub(crate) name: ClusterName,
    pub(crate) place: Fingerprint,
    /// None in a garden.
    pub(crate) in_seed: Option<InSeed>,
    /// The kubeconfig in use.
    pub(crate) held: Option<Held>,
    /// The last attempt failed.
    pub(crate) again: bool,
}

/// The changes to announce, and the namespaces whose project is to be looked up.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) changes: Vec<Change>,
    pub(crate) lookups: Vec<Arc<str>>,
}

impl Inventory {
    pub(crate) fn new(
        selection: Arc<Selection>,
        memory: Arc<Memory>,
        at_once: usize,
        pauses: (Duration, Duration),
    ) -> Self {
        Self {
            selection,
            memory,
            pauses,
            shoots: HashMap::new(),
            projects: HashMap::new(),
            schedule: Schedule::new(at_once),
            pace: Pace::default(),
            synced: false,
            announced_synced: false,
            pending: HashSet::new(),
        }
    }

    /// A Shoot was created or changed, or joined the selection.
    pub(crate) fn shoot(&mut self, key: &ObjectKey, facts: Arc<Facts>, now: Instant) -> Outcome {
        let mut outcome = Outcome::default();
        let namespace: Arc<str> = key.namespace.clone().unwrap_or_default();
        if !self.projects.contains_key(&namespace) {
            let in_seed = facts.in_seed.as_ref().map(|in_seed| in_seed.project.clone());
            let known = in_seed.or_else(|| self.memory.project(&namespace));
            if known.is_none() {
                outcome.lookups.push(namespace.clone());
            }
            self.projects.insert(namespace, known);
        }
        let readable = !matches!(facts.state, State::Unreadable(_));
        let remembered = self.memory.get(key);
        let another = readable
            && match self.shoots.get(key) {
                Some(member) if member.facts.uid.is_some() => member.facts.uid != facts.uid,
                _ => remembered
                    .as_ref()
                    .is_some_and(|engaged| engaged.uid != facts.uid),
            };
        if another {
            self.remove(key, &mut outcome);
        }
        match self.shoots.get_mut(key) {
            Some(member) => {
                let place = member.facts.place;
                member.learn(facts);
                if member.facts.place != place && member.attempt == Attempt::Planned {
                    self.schedule.cancel(key);
                    member.attempt = Attempt::None;
                }
            }
            None => {
                let held = remembered.filter(|_| !another).and_then(|engaged| engaged.held);
                let held = held.filter(|held| held.ends > now);
                let member = Member::new(facts, held, self.pauses);
                self.shoots.insert(key.clone(), member);
            }
        }
        self.announce(key, now, &mut outcome);
        self.announce_synced(&mut outcome);
        outcome
    }

    /// A Shoot was deleted, or left the selection.
    pub(crate) fn shoot_gone(&mut self, key: &ObjectKey) -> Outcome {
        let mut outcome = Outcome::default();
        self.remove(key, &mut outcome);
        self.announce_synced(&mut outcome);
        outcome
    }

    /// All Shoots that existed at the start are known.
    pub(crate) fn synced(&mut self) -> Outcome {
        let mut outcome = Outcome::default();
        self.synced = true;
        // Those that vanished while no discovery ran are never told to be gone.
        self.memory.keep(|key| self.shoots.contains_key(key));
        self.announce_synced(&mut outcome);
        outcome
    }

    /// The project of a namespace is known, or will not be known.
    pub(crate) fn project(&mut self, found: &Found, now: Instant) -> Outcome {
        let mut outcome = Outcome::default();
        let Found { namespace, project } = found;
        if let Some(project) = project {
            self.memory.set_project(namespace, project);
        }
        // The next discovery may be allowed to read it.
        let project = project.as_ref().unwrap_or(namespace);
        self.projects.insert(namespace.clone(), Some(project.clone()));
        let there = |key: &&ObjectKey| key.namespace.as_deref().unwrap_or_default() == &**namespace;
        let shoots: Vec<ObjectKey> = self.shoots.keys().filter(there).cloned().collect();
        for key in &shoots {
            self.announce(key, now, &mut outcome);
        }
        self.announce_synced(&mut outcome);
        outcome
    }

    /// The next kubeconfig to ask for, if one is due and may be asked for now.
    pub(crate) fn start(&mut self, now: Instant) -> Option<Request> {
        if self.pace.quiet_until(now).is_some() {
            return None;
        }
        while let Some((key, ticket)) = self.schedule.start(now) {
            let name = self.name(&key);
            if let (Some(member), Some((name, _))) = (self.shoots.get_mut(&key), name) {
                member.attempt = Attempt::Running(ticket);
                return Some(Request {
                    ticket,
                    name,
                    place: member.facts.place,
                    in_seed: member.facts.in_seed.clone(),
                    held: member.held.clone(),
                    again: member.failure.is_some(),
                    key,
                });
            }
            self.schedule.ended(ticket);
        }
        None
    }

    /// When the next kubeconfig is due.
    pub(crate) fn next_due(&self, now: Instant) -> Option<Instant> {
        let due = self.schedule.next_due()?;
        Some(self.pace.quiet_until(now).map_or(due, |until| until.max(due)))
    }

    /// A request has ended.
    pub(crate) fn answered(
        &mut self,
        request: &Request,
        answer: Result<Held, Failure>,
        now: Instant,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        self.schedule.ended(request.ticket);
        // Otherwise the Shoot was suspended or replaced since.
        let current = Attempt::Running(request.ticket);
        let member = self.shoots.get_mut(&request.key);
        let Some(member) = member.filter(|member| member.attempt == current) else {
            return outcome;
        };
        member.attempt = Attempt::None;
        match answer {
            Ok(held) => {
                member.backoff.reset();
                let failed = member.failure.take();
                member.held = Some(held);
                if failed.is_some_and(|failure| !failure.absent) {
                    self.try_others(now);
                }
            }
            Err(failure) => {
                let wanted = failure.retry_after.unwrap_or_default().min(self.pauses.1);
                let pause = member.backoff.pause().max(wanted);
                if failure.retry_after.is_some() && !failure.absent {
                    self.pace.quiet(now + wanted);
                }
                let due = self.pace.refused(now, pause);
                self.schedule.plan(&request.key, Line::Failing, due);
                member.attempt = Attempt::Planned;
                member.failure = Some(failure);
            }
        }
        self.announce(&request.key, now, &mut outcome);
        self.announce_synced(&mut outcome);
        outcome
    }

    /// The API server of a Shoot has refused the kubeconfig with this content. Another one is asked for.
    pub(crate) fn refused(&mut self, key: &ObjectKey, content: Fingerprint) {
        let due = self
            .shoots
            .get(key)
            .and_then(|member| member.refused(content, self.pauses.1));
        if let Some(due) = due {
            self.schedule.plan(key, Line::Healthy, due);
        }
    }

    /// What was refused is given again: some of the others are asked for at once.
    fn try_others(&mut self, now: Instant) {
        let others = self.pace.recovered(now);
        let refused = |member: &Member| {
            let failure = member
                .failure
                .as_ref()
                .filter(|_| member.attempt == Attempt::Planned);
            failure.is_some_and(|failure| !failure.absent)
        };
        let waiting = self.shoots.iter().filter(|(_, member)| refused(member));
        for (key, member) in waiting.take(others) {
            self.schedule.plan(key, member.line(), now);
        }
    }

    /// The garden answers again after an outage. What it has refused is asked for at once.
    pub(crate) fn garden_is_back(&mut self, now: Instant) {
        for (key, member) in &mut self.shoots {
            if member.attempt == Attempt::Planned && member.failure.is_some() {
                member.backoff.reset();
                // The garden may still hang for it.
                self.schedule.plan(key, member.line(), now);
            }
        }
    }

    fn remove(&mut self, key: &ObjectKey, outcome: &mut Outcome) {
        let name = self.name(key);
        let known = self.shoots.remove(key);
        self.schedule.cancel(key);
        self.pending.remove(key);
        // An earlier discovery may have announced it.
        let earlier = self.memory.forget(key).is_some();
        if earlier || known.is_some_and(|member| !matches!(member.announced, Announced::Nothing)) {
            outcome.changes.extend(name.map(|(name, _)| Change::Remove(name)));
        }
    }

    fn announce_synced(&mut self, outcome: &mut Outcome) {
        if self.synced && !self.announced_synced && self.pending.is_empty() {
            self.announced_synced = true;
            outcome.changes.push(Change::Synced);
        }
    }

    /// Plans the next request, and announces what has changed.
    fn announce(&mut self, key: &ObjectKey, now: Instant, outcome: &mut Outcome) {
        let named = self.name(key);
        let Some(member) = self.shoots.get_mut(key) else {
            return;
        };
        let Some((name, project)) = named else {
            let namespace = key.namespace.as_deref().unwrap_or_default();
            let known = self.projects.get(namespace).is_some_and(Option::is_some);
            if !known && !self.announced_synced {
                self.pending.insert(key.clone());
            } else {
                self.pending.remove(key);
            }
            return;
        };
        if !self.selection.takes_project(&project) {
            self.pending.remove(key);
            return;
        }
        let uid = member.facts.uid.clone();
        let engaged = self.memory.get(key).is_some_and(|engaged| engaged.uid == uid);
        if member.waits(engaged).is_some() {
            self.schedule.cancel(key);
            member.attempt = Attempt::None;
            member.held = None;
            member.failure = None;
            member.backoff.reset();
            if engaged {
                self.memory.engaged(key, uid.as_ref(), None);
            }
        } else if member.attempt == Attempt::None && member.wants_kubeconfig() {
            self.schedule.plan(key, member.line(), member.due(now));
            member.attempt = Attempt::Planned;
        }
        let renewed = member.renewed_unread(name.clone(), &project);
        let mut in_use = renewed.is_some();
        if let Some((announced, change)) = renewed {
            member.note_announced(announced);
            outcome.changes.push(change);
        }
        let verdict = member.verdict(engaged, now);
        in_use |= matches!(verdict, Some(Verdict::Good(_)));
        let announced = verdict.and_then(|verdict| member.announcement(key, name, &project, verdict));
        if let Some((announced, change)) = announced {
            member.note_announced(announced);
            outcome.changes.push(change);
        }
        if in_use {
            self.memory.engaged(key, uid.as_ref(), member.held.clone());
        }
        if matches!(member.announced, Announced::Nothing) && !self.announced_synced {
            self.pending.insert(key.clone());
        } else {
            self.pending.remove(key);
        }
    }

    /// The name of the cluster and its project. None if the project is not known yet.
    fn name(&self, key: &ObjectKey) -> Option<(ClusterName, Arc<str>)> {
        let in_seed = self
            .shoots
            .get(key)
            .and_then(|member| member.facts.in_seed.as_ref());
        let project = match in_seed {
            Some(in_seed) => in_seed.project.clone(),
            None => {
                let namespace = key.namespace.as_deref().unwrap_or_default();
                self.projects.get(namespace)?.clone()?
            }
        };
        match ClusterName::new(format!("{project}/{}", key.name)) {
            Ok(name) => Some((name, project)),
            Err(error) => {
                // No garden has such Shoots.
                tracing::warn!(shoot = %key, %error, "left out: the name of the Shoot can't be that of a cluster");
                None
            }
        }
    }
}
