//! The ClusterProfiles of the hub: which of them count, and what to announce. No I/O.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use futures::FutureExt;
use mcr_core::{
    BoxError, HubEvent, ObjectKey, WatchError, WatchProblem,
    hub::{Called, ComputedKubeconfigs, Decide, Decoded, Inventory, Judge, Outcome, Verdict},
};
use tokio::time::Instant;

use crate::{
    config::{Access, Config, Ids, PROFILES},
    duplicates::{Duplicates, Group},
    facts::{Facts, MEMBER_ID_LABEL, State},
    offer::Offer,
    placement::{Chosen, Slice},
    secret::{CONSUMER_LABEL, KUBECONFIG_KEY, PROFILE_LABEL, SecretFacts},
    v1alpha2::ClusterProfile,
};

/// What happens. The number is that of the namespace whose watch reports it.
pub(crate) enum Event {
    Profile(usize, HubEvent<Decoded<Facts>>),
    Secret(usize, HubEvent<Arc<SecretFacts>>),
    /// PlacementDecisions can name ClusterProfiles of all namespaces.
    Decision(HubEvent<Slice>),
    /// A call of the function for kubeconfigs has ended.
    Called(Called),
    /// Whether the hub serves ClusterProfiles in another version now.
    Moved(Option<BoxError>),
}

pub(crate) struct Decisions {
    config: Arc<Config>,
    version: &'static str,
    judge: Judge,
    inventory: Inventory<Facts, Ids>,
    /// The profiles that schedulers have not chosen.
    others: HashMap<ObjectKey, Decoded<Facts>>,
    /// None: no filter by schedulers.
    chosen: Option<Chosen>,
    duplicates: Duplicates,
    /// The Secrets of each profile.
    secrets: HashMap<ObjectKey, BTreeMap<ObjectKey, Arc<SecretFacts>>>,
    /// The profile of each Secret.
    profiles: HashMap<ObjectKey, ObjectKey>,
    /// The namespaces whose profiles, and whose Secrets, are listed.
    profiles_listed: HashSet<usize>,
    secrets_listed: HashSet<usize>,
    /// So many watches of PlacementDecisions have not listed them yet.
    decisions_unlisted: usize,
    /// None: kubeconfigs are described in profiles or Secrets.
    computed: Option<ComputedKubeconfigs<ClusterProfile>>,
    /// The time of these decisions.
    now: Instant,
}

impl Decide for Decisions {
    type Event = Event;
    /// It parses kubeconfigs.
    const BLOCKS: bool = true;

    fn decide(&mut self, events: Vec<Event>, now: Instant) -> Outcome<Event> {
        self.now = now;
        let (mut tasks, mut error) = (Vec::new(), None);
        let (mut decided, mut listed) = (false, false);
        for event in events {
            match event {
                Event::Profile(_, HubEvent::Applied(key, facts)) => self.profile(&key, facts),
                Event::Profile(_, HubEvent::Deleted(key)) => {
                    self.others.remove(&key);
                    self.remove(&key);
                    if let Some(computed) = &mut self.computed {
                        computed.forget(&key);
                    }
                }
                // Only now it is known which of them are duplicates.
                Event::Profile(at, HubEvent::Synced) => {
                    self.profiles_listed.insert(at);
                    listed = true;
                    self.inventory.listed();
                }
                Event::Profile(_, HubEvent::Failing(problem))
                    if matches!(*problem.error, WatchError::NotServed) =>
                {
                    let (hub, only) = (&self.config.hub, self.config.only);
                    let moved = PROFILES.moved(hub.client.clone(), only, hub.times.deadline, self.version);
                    tasks.push(moved.map(Event::Moved).boxed());
                }
                Event::Secret(_, HubEvent::Applied(key, secret)) => self.secret(&key, Some(secret)),
                Event::Secret(_, HubEvent::Deleted(key)) => self.secret(&key, None),
                // From now on a Secret that is unknown is missing.
                Event::Secret(at, HubEvent::Synced) => {
                    self.secrets_listed.insert(at);
                    listed = true;
                    self.inventory.listed();
                }
                Event::Decision(HubEvent::Applied(key, slice)) => {
                    if let Slice(Err(error)) = &slice {
                        tracing::warn!(
                            decision = %key, %error,
                            "this PlacementDecision can't be read; no cluster leaves because of it until its scheduler corrects it"
                        );
                    }
                    self.decision(&key, Some(&slice));
                    decided = true;
                }
                Event::Decision(HubEvent::Deleted(key)) => {
                    self.decision(&key, None);
                    decided = true;
                }
                // From now on a cluster that no PlacementDecision names is not chosen.
                Event::Decision(HubEvent::Synced) => {
                    self.decisions_unlisted = self.decisions_unlisted.saturating_sub(1);
                    (decided, listed) = (true, true);
                    self.inventory.listed();
                }
                Event::Decision(HubEvent::Failing(problem)) if self.decisions_unlisted > 0 => {
                    error = error.or(no_decisions(&problem));
                }
                Event::Called(called) => {
                    let computed = self.computed.as_mut();
                    if let Some(key) = computed.and_then(|computed| computed.ended(called, now)) {
                        self.announce(&key);
                    }
                }
                Event::Moved(moved) => error = error.or(moved),
                // An outage, which the watch logs.
                Event::Profile(..) | Event::Secret(..) | Event::Decision(_) => {}
            }
        }
        // Only now: a cluster can move from one PlacementDecision to another.
        if decided {
            self.choose();
        }
        if listed {
            for key in self.inventory.keys() {
                self.announce(&key);
            }
        }
        let calls = self.computed.iter_mut().flat_map(|computed| computed.start(now));
        tasks.extend(calls.map(|call| call.map(Event::Called).boxed()));
        let outcome = Outcome::from(self.inventory.take_changes());
        Outcome {
            tasks,
            error,
            ..outcome
        }
    }

    fn due(&self) -> Option<Instant> {
        self.computed.as_ref()?.due()
    }
}

impl Decisions {
    pub(crate) fn new(config: Arc<Config>, version: &'static str, judge: Judge) -> Self {
        let profiles = config.hub.namespaces.len().max(1);
        let (secrets, decisions) = (config.secrets().len(), config.decisions().len());
        let computed = match &config.access {
            Access::Computed(function) => Some(ComputedKubeconfigs::new(
                &config.hub,
                judge.clone(),
                function.clone(),
            )),
            _ => None,
        };
        Self {
            computed,
            now: Instant::now(),
            inventory: Inventory::new(
                "ClusterProfile",
                profiles + secrets + decisions,
                config.memory.clone(),
            ),
            chosen: config.placement.as_ref().map(|_| Chosen::default()),
            config,
            version,
            judge,
            others: HashMap::new(),
            duplicates: Duplicates::default(),
            secrets: HashMap::new(),
            profiles: HashMap::new(),
            profiles_listed: HashSet::new(),
            secrets_listed: HashSet::new(),
            decisions_unlisted: decisions,
        }
    }

    /// A ClusterProfile was created or changed, or joined the selection.
    fn profile(&mut self, key: &ObjectKey, facts: Decoded<Facts>) {
        if self.inventory.get(key).is_some() || self.is_chosen(key) {
            // These facts are newer than those from the time when it was not chosen.
            self.others.remove(key);
            self.include(key, facts);
        } else {
            self.exclude(key, facts);
        }
    }

    fn is_chosen(&self, key: &ObjectKey) -> bool {
        let announced = || self.inventory.memory().contains(key);
        self.chosen
            .as_ref()
            .is_none_or(|chosen| chosen.selects(key, announced))
    }

    fn decision(&mut self, key: &ObjectKey, slice: Option<&Slice>) {
        if let Some(chosen) = &mut self.chosen {
            chosen.decision(key, slice);
        }
    }

    /// Includes and excludes profiles by the PlacementDecisions as they are now.
    fn choose(&mut self) {
        if let Some(chosen) = &mut self.chosen {
            chosen.recompute();
        }
        let others = std::mem::take(&mut self.others);
        let keys = self
            .inventory
            .keys()
            .into_iter()
            .filter(|_| self.decisions_unlisted == 0);
        for key in keys.filter(|key| !self.is_chosen(key)).collect::<Vec<_>>() {
            let entry = self.inventory.get(&key);
            let facts = entry.and_then(|entry| entry.facts().cloned());
            self.exclude(&key, facts.ok_or_else(|| "it can't be read".into()));
        }
        for (key, facts) in others {
            self.profile(&key, facts);
        }
    }

    /// A profile that schedulers have not chosen. Until all PlacementDecisions are listed, nothing leaves because of them.
    fn exclude(&mut self, key: &ObjectKey, facts: Decoded<Facts>) {
        if self.decisions_unlisted == 0 {
            self.remove(key);
        }
        self.others.insert(key.clone(), facts);
    }

    fn include(&mut self, key: &ObjectKey, facts: Decoded<Facts>) {
        let Some(name) = self.config.hub.cluster_name(key) else {
            return;
        };
        // A cluster manager may build another cluster under a profile. An id that comes or goes is no change.
        if let Ok(facts) = &facts
            && let Some(before) = self.inventory.memory().kept(key)
        {
            let mut ids = before.iter().zip(facts.ids());
            if ids.any(|(was, is)| was.is_some() && is.is_some() && was.as_deref() != is) {
                self.remove(key);
            }
        }
        let before = self.facts(key);
        if self.inventory.applied(key, name, facts) {
            // What a function has given is for the profile that had the name before.
            self.call_no_more(key);
        }
        let after = self.facts(key);
        if let (Some(computed), Some(before), Some(after)) = (&mut self.computed, &before, &after)
            && before.description != after.description
        {
            computed.outdate(key);
        }
        let is_invalid = |facts: &Option<Arc<Facts>>| {
            let facts = facts.as_ref();
            facts.is_some_and(|facts| facts.member_id.as_deref() == Some(""))
        };
        if is_invalid(&after) && !is_invalid(&before) {
            tracing::warn!(
                profile = %key, "the label {MEMBER_ID_LABEL} is empty, so duplicates of this ClusterProfile are not found"
            );
        }
        let place = |facts: &Option<Arc<Facts>>| {
            let facts = facts.as_ref()?;
            Some((Group::of(key, facts)?, facts.created.clone()))
        };
        let (left, joined) = (place(&before), place(&after));
        if left != joined {
            if let (Some((group, _)), Some(before)) = (&left, &before) {
                self.duplicates.remove(group, key, before);
            }
            if let (Some((group, _)), Some(after)) = (&joined, &after) {
                self.duplicates.add(group, key, after);
            }
            for (group, _) in [left, joined].iter().flatten() {
                self.announce_group(group);
            }
        }
        self.announce(key);
    }

    fn facts(&self, key: &ObjectKey) -> Option<Arc<Facts>> {
        self.inventory.get(key)?.facts().cloned()
    }

    fn remove(&mut self, key: &ObjectKey) {
        self.call_no_more(key);
        let facts = self.facts(key);
        self.inventory.deleted(key);
        if let Some(facts) = facts
            && let Some(group) = Group::of(key, &facts)
        {
            self.duplicates.remove(&group, key, &facts);
            self.announce_group(&group);
        }
    }

    /// A Secret of the consumer was created or changed. None: it was deleted, or lost its label.
    fn secret(&mut self, key: &ObjectKey, secret: Option<Arc<SecretFacts>>) {
        let name = secret.as_ref().and_then(|secret| secret.profile.clone());
        let namespace = key.namespace.clone();
        let profile = name.map(|name| ObjectKey { namespace, name });
        let left = self.profiles.remove(key);
        if let Some(left) = &left
            && let Some(all) = self.secrets.get_mut(left)
        {
            all.remove(key);
            if all.is_empty() {
                self.secrets.remove(left);
            }
        }
        if let (Some(profile), Some(secret)) = (&profile, secret) {
            self.profiles.insert(key.clone(), profile.clone());
            self.secrets
                .entry(profile.clone())
                .or_default()
                .insert(key.clone(), secret);
        }
        for changed in left
            .iter()
            .filter(|left| Some(*left) != profile.as_ref())
            .chain(&profile)
        {
            self.announce(changed);
        }
    }

    fn call_no_more(&mut self, key: &ObjectKey) {
        if let Some(computed) = &mut self.computed {
            computed.pause(key);
        }
    }

    fn announce_group(&mut self, group: &Group) {
        for key in self.duplicates.all(group) {
            self.announce(&key);
        }
    }

    /// Announces what has changed.
    fn announce(&mut self, key: &ObjectKey) {
        let Some(facts) = self.facts(key) else {
            return self.inventory.announce(key, None);
        };
        let engaged = self.inventory.memory().is_engaged(key);
        let verdict = match self.unready(key, &facts, engaged) {
            Ok(()) => self.verdict(key, &facts, engaged),
            Err(waits) => {
                self.call_no_more(key);
                waits.map(Verdict::Waiting)
            }
        };
        let is_announced = matches!(verdict, Some(Verdict::Good(_) | Verdict::Waiting(_)));
        self.inventory.announce(key, verdict);
        if is_announced {
            self.inventory.memory().keep(key, |ids| {
                for (known, id) in ids.iter_mut().zip(facts.ids()) {
                    *known = id.map(Box::from).or(known.take());
                }
            });
        }
    }

    /// The number of the namespace of a profile.
    fn place(&self, key: &ObjectKey) -> usize {
        let namespaces = &self.config.hub.namespaces;
        let at = namespaces
            .iter()
            .position(|name| Some(&**name) == key.namespace.as_deref());
        at.unwrap_or_default()
    }

    /// An error is the reason why a cluster is not to be engaged now, or None if that is not known yet.
    fn unready(&self, key: &ObjectKey, facts: &Facts, engaged: bool) -> Result<(), Option<Arc<str>>> {
        if let Some(group) = Group::of(key, facts) {
            if !self.profiles_listed.contains(&self.place(key)) || self.decisions_unlisted > 0 {
                return Err(None);
            }
            if let Some(first) = self.duplicates.first(&group).filter(|first| **first != key.name) {
                let why = format!(
                    "ClusterProfile {first} is older and describes the same cluster: both have the label {MEMBER_ID_LABEL}={}. The \
                     fleet has the cluster once, as {first}; to select this one, use `labels` or `managers`",
                    group.member_id()
                );
                return Err(Some(why.into()));
            }
        }
        match &facts.state {
            State::Unready(why) if !(engaged && self.config.selection.sticky) => Err(Some(why.clone())),
            // The manager of the inventory has trouble, which takes nothing from a cluster that is engaged.
            State::Unknown(why) if !engaged => Err(Some(why.clone())),
            _ => Ok(()),
        }
    }

    /// What follows for a cluster that is to be engaged. None if something is not known yet.
    fn verdict(&mut self, key: &ObjectKey, facts: &Facts, engaged: bool) -> Option<Verdict> {
        let profile = format!("ClusterProfile {key}");
        let broken = |object: &str, why: Arc<str>| {
            Some(Verdict::Broken {
                object: object.to_owned(),
                why,
            })
        };
        let of_profile = format!("{profile}, status.accessProviders");
        let nothing: Arc<str> = match &facts.offer {
            Offer::Nothing(why) => why.clone(),
            Offer::Bad(why) => return broken(&of_profile, why.clone()),
            Offer::Kubeconfig(offered) => {
                return match offered.parse(&self.judge) {
                    Ok(access) => Some(Verdict::Good(access)),
                    Err(problem) => broken(&of_profile, problem.text),
                };
            }
            Offer::Computed(profile) => {
                let computed = self.computed.as_mut()?;
                return computed.verdict("ClusterProfile", (key, profile), engaged, self.now);
            }
            // A second one may come yet.
            Offer::Secret if !self.secrets_listed.contains(&self.place(key)) => return None,
            Offer::Secret => {
                let consumer = self.config.consumer().map_or("", |consumer| consumer);
                let labels = format!(
                    "the labels {CONSUMER_LABEL}={consumer} and {PROFILE_LABEL}={}",
                    key.name
                );
                let mut all = self.secrets.get(key).into_iter().flatten();
                match (all.next(), all.next()) {
                    (None, _) => {
                        let namespace = key.namespace.as_deref().unwrap_or_default();
                        format!("no Secret in namespace {namespace} has {labels}").into()
                    }
                    (Some((one, _)), Some((two, _))) => {
                        let (one, two) = (&one.name, &two.name);
                        let why = format!("the Secrets {one} and {two} both have {labels}; delete one");
                        return broken(&profile, why.into());
                    }
                    (Some((secret, facts)), None) => {
                        let parsed = match &facts.kubeconfig {
                            Ok(kubeconfig) => kubeconfig.parse(&self.judge).map_err(|problem| problem.text),
                            Err(why) => Err(why.clone()),
                        };
                        let of_secret = format!("Secret {secret}, key {KUBECONFIG_KEY:?}");
                        return parsed
                            .map_or_else(|why| broken(&of_secret, why), |it| Some(Verdict::Good(it)));
                    }
                }
            }
        };
        if engaged {
            return broken(&profile, nothing);
        }
        let why = format!("the cluster is ready, but can't be reached yet: {nothing}");
        Some(Verdict::Waiting(why.into()))
    }
}

/// An error if PlacementDecisions can't be read before somebody does something about it.
fn no_decisions(problem: &WatchProblem) -> Option<BoxError> {
    match &*problem.error {
        WatchError::NotServed => Some(
            "the hub has no PlacementDecisions: it does not serve placementdecisions of multicluster.x-k8s.io/v1alpha1. Install \
             their CRD there, or leave out the provider's option `placement`"
                .into(),
        ),
        WatchError::Forbidden { message } => Some(format!(
            "the hub forbids the option `placement` to read PlacementDecisions: {message}. Grant list and watch on \
             placementdecisions of multicluster.x-k8s.io to the credentials of the hub, as the manifest of the provider does"
        )
        .into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
