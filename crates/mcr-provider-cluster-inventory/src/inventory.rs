//! The ClusterProfiles of the hub, and what was announced of them. It decides what to announce next. No I/O.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use mcr_core::{Change, ClusterName, EndpointAccess, ObjectKey, internal::KubeconfigProblem};

use crate::{
    duplicates::{Duplicates, Group},
    facts::{Facts, MEMBER_ID_LABEL, State},
    memory::Memory,
    offer::Offer,
    placement::{Chosen, Slice},
    profile::{Announced, Profile, Verdict},
    secret::{CONSUMER_LABEL, Checks, KUBECONFIG_KEY, PROFILE_LABEL, SecretFacts},
};

/// What an inventory knows. The watches of the hub share the memory of it.
#[derive(Debug)]
pub(crate) struct Inventory {
    /// Whether names have the namespace in them.
    qualified: bool,
    /// The consumer that Secrets are for. None: the profiles themselves tell how to reach clusters.
    consumer: Option<Arc<str>>,
    checks: Checks,
    memory: Arc<Memory>,
    profiles: HashMap<ObjectKey, Profile>,
    /// The profiles that schedulers have not chosen.
    others: HashMap<ObjectKey, Arc<Facts>>,
    /// None: whatever schedulers say.
    chosen: Option<Chosen>,
    duplicates: Duplicates,
    secrets: Secrets,
    synced: Synced,
}

#[derive(Debug, Default)]
struct Synced {
    profiles: bool,
    secrets: bool,
    announced: bool,
}

type Content = Result<EndpointAccess, KubeconfigProblem>;

/// The Secrets of the consumer.
#[derive(Debug, Default)]
struct Secrets {
    of_profile: HashMap<ObjectKey, BTreeMap<ObjectKey, Content>>,
    /// The profile of each Secret.
    profiles: HashMap<ObjectKey, ObjectKey>,
}

impl Secrets {
    /// Returns the profile whose Secret it was.
    fn remove(&mut self, secret: &ObjectKey) -> Option<ObjectKey> {
        let profile = self.profiles.remove(secret)?;
        if let Some(all) = self.of_profile.get_mut(&profile) {
            all.remove(secret);
            if all.is_empty() {
                self.of_profile.remove(&profile);
            }
        }
        Some(profile)
    }

    fn insert(&mut self, secret: &ObjectKey, profile: &ObjectKey, content: Content) {
        self.profiles.insert(secret.clone(), profile.clone());
        self.of_profile
            .entry(profile.clone())
            .or_default()
            .insert(secret.clone(), content);
    }
}

/// What there is to reach a cluster with.
enum Access {
    Good(EndpointAccess),
    /// Nothing yet, and why.
    Nothing(Arc<str>),
    /// The object at fault, and why.
    Bad(String, Arc<str>),
}

impl Inventory {
    pub(crate) fn new(
        qualified: bool,
        consumer: Option<Arc<str>>,
        chosen: Option<Chosen>,
        checks: Checks,
        memory: Arc<Memory>,
    ) -> Self {
        Self {
            qualified,
            consumer,
            checks,
            memory,
            profiles: HashMap::new(),
            others: HashMap::new(),
            chosen,
            duplicates: Duplicates::default(),
            secrets: Secrets::default(),
            synced: Synced::default(),
        }
    }

    /// A ClusterProfile was created or changed, or joined the selection.
    pub(crate) fn profile(&mut self, key: &ObjectKey, facts: Arc<Facts>) -> Vec<Change> {
        let mut changes = Vec::new();
        match self.profiles.contains_key(key) || self.is_chosen(key) {
            true => self.take_in(key, facts, &mut changes),
            false => self.leave_out(key, facts, &mut changes),
        }
        changes
    }

    /// A ClusterProfile was deleted, or left the selection.
    pub(crate) fn profile_gone(&mut self, key: &ObjectKey) -> Vec<Change> {
        let mut changes = Vec::new();
        self.others.remove(key);
        self.remove(key, &mut changes);
        changes
    }

    /// A PlacementDecision was created or changed, or was deleted.
    pub(crate) fn decision(&mut self, key: &ObjectKey, slice: Option<&Slice>) {
        if let Some(chosen) = &mut self.chosen {
            chosen.decision(key, slice);
        }
    }

    /// All PlacementDecisions that existed at the start are known. From now on a cluster that none of them names is not chosen.
    pub(crate) fn decisions_synced(&mut self) -> Vec<Change> {
        if let Some(chosen) = &mut self.chosen {
            chosen.synced = true;
        }
        let mut changes = self.announce_decisions();
        changes.extend(self.announce_all());
        changes
    }

    /// Takes and leaves out profiles as the PlacementDecisions say now.
    pub(crate) fn announce_decisions(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        if let Some(chosen) = &mut self.chosen {
            chosen.count();
        }
        let left = self
            .profiles
            .iter()
            .filter(|(key, _)| self.has_synced_decisions() && !self.is_chosen(key));
        let left: Vec<_> = left
            .map(|(key, profile)| (key.clone(), profile.facts.clone()))
            .collect();
        for (key, facts) in left.into_iter().chain(std::mem::take(&mut self.others)) {
            match self.is_chosen(&key) {
                true => self.take_in(&key, facts, &mut changes),
                false => self.leave_out(&key, facts, &mut changes),
            }
        }
        changes
    }

    fn is_chosen(&self, key: &ObjectKey) -> bool {
        self.chosen
            .as_ref()
            .is_none_or(|chosen| chosen.takes(key, &self.memory))
    }

    fn has_synced_decisions(&self) -> bool {
        self.chosen.as_ref().is_none_or(|chosen| chosen.synced)
    }

    /// A profile that schedulers have not chosen. Until all that they say is known, nothing leaves because of it.
    fn leave_out(&mut self, key: &ObjectKey, facts: Arc<Facts>, changes: &mut Vec<Change>) {
        if self.has_synced_decisions() {
            self.remove(key, changes);
        }
        self.others.insert(key.clone(), facts);
    }

    fn take_in(&mut self, key: &ObjectKey, facts: Arc<Facts>, changes: &mut Vec<Change>) {
        if let State::Unreadable(why) = &facts.state
            && let Some(profile) = self.profiles.get_mut(key)
        {
            profile.unreadable = Some(why.clone());
            self.announce(key, changes);
            return;
        }
        let known = self.profiles.get(key).map(|profile| &profile.facts);
        let is_new = known.is_some_and(|known| known.is_readable() && known.uid != facts.uid);
        if facts.is_readable() && (is_new || self.memory.is_another(key, &facts)) {
            self.remove(key, changes);
        }
        let group = Group::of(key, &facts);
        let before = self.profiles.get(key).map(|profile| profile.facts.clone());
        let left = before.as_ref().and_then(|before| Group::of(key, before));
        if is_invalid(&facts) && !before.as_deref().is_some_and(is_invalid) {
            tracing::warn!(
                profile = %key, "the label {MEMBER_ID_LABEL} is empty, so duplicates of this ClusterProfile are not found"
            );
        }
        let moved = left != group;
        if let (true, Some(left), Some(before)) = (moved, &left, &before) {
            self.duplicates.remove(left, key, before);
        }
        if let (true, Some(group)) = (moved, &group) {
            self.duplicates.add(group, key, &facts);
        }
        match self.profiles.get_mut(key) {
            Some(profile) => profile.update(facts),
            None => {
                self.profiles.insert(key.clone(), Profile::new(facts));
            }
        }
        for group in [left, group].iter().flatten().filter(|_| moved) {
            self.announce_group(group, changes);
        }
        self.announce(key, changes);
    }

    /// A Secret of the consumer was created or changed. None: it was deleted, or lost its label.
    pub(crate) fn secret(&mut self, key: &ObjectKey, facts: Option<Arc<SecretFacts>>) -> Vec<Change> {
        let mut changes = Vec::new();
        let profile = facts
            .as_ref()
            .and_then(|facts| facts.profile.clone())
            .map(|name| ObjectKey {
                namespace: key.namespace.clone(),
                name,
            });
        let content = match facts.as_ref().map(|facts| &facts.kubeconfig) {
            Some(Ok(text)) => match text.take() {
                Some(text) => Some(self.checks.parse(text)),
                None => self.content(key),
            },
            Some(Err(why)) => Some(Err(KubeconfigProblem::new(why.clone()))),
            None => None,
        };
        let left = self.secrets.remove(key);
        if let (Some(profile), Some(content)) = (&profile, content) {
            self.secrets.insert(key, profile, content);
        }
        if let Some(left) = left.filter(|left| Some(left) != profile.as_ref()) {
            self.announce(&left, &mut changes);
        }
        if let Some(profile) = &profile {
            self.announce(profile, &mut changes);
        }
        changes
    }

    /// All ClusterProfiles that existed at the start are known. Only now is it known which of them are duplicates.
    pub(crate) fn profiles_synced(&mut self) -> Vec<Change> {
        self.synced.profiles = true;
        self.announce_all()
    }

    /// All Secrets that existed at the start are known. From now on one that is unknown is missing.
    pub(crate) fn secrets_synced(&mut self) -> Vec<Change> {
        self.synced.secrets = true;
        self.announce_all()
    }

    fn announce_all(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        let all: Vec<ObjectKey> = self.profiles.keys().cloned().collect();
        for key in &all {
            self.announce(key, &mut changes);
        }
        let secrets = self.synced.secrets || self.consumer.is_none();
        if self.synced.profiles && secrets && self.has_synced_decisions() && !self.synced.announced {
            self.synced.announced = true;
            changes.push(Change::Synced);
        }
        changes
    }

    fn remove(&mut self, key: &ObjectKey, changes: &mut Vec<Change>) {
        let known = self.profiles.remove(key);
        // An earlier discovery may have announced it.
        let earlier = self.memory.forget(key);
        if earlier
            || known
                .as_ref()
                .is_some_and(|known| !matches!(known.announced, Announced::Nothing))
        {
            changes.extend(self.name(key).map(Change::Remove));
        }
        let Some(known) = known else { return };
        if let Some(group) = Group::of(key, &known.facts) {
            self.duplicates.remove(&group, key, &known.facts);
            self.announce_group(&group, changes);
        }
    }

    fn announce_group(&mut self, group: &Group, changes: &mut Vec<Change>) {
        for key in self.duplicates.all(group) {
            self.announce(&key, changes);
        }
    }

    /// Announces what has changed.
    fn announce(&mut self, key: &ObjectKey, changes: &mut Vec<Change>) {
        let Some(name) = self.name(key) else { return };
        let Some(profile) = self.profiles.get(key) else {
            return;
        };
        let facts = profile.facts.clone();
        let engaged = self.memory.is_engaged(key);
        let Some(verdict) = self.verdict(key, profile, engaged) else {
            return;
        };
        let Some((announced, change)) = profile.announcement(name.clone(), &verdict) else {
            return;
        };
        let Some(profile) = self.profiles.get_mut(key) else {
            return;
        };
        match &verdict {
            Verdict::Good(_) => self.memory.announced(key, &facts, true),
            Verdict::Waiting(_) => self.memory.announced(key, &facts, false),
            // Without this, the fleet would go on to show why the cluster was suspended.
            Verdict::Broken(..)
                if matches!(profile.announced, Announced::Waiting(..)) && profile.unreadable.is_none() =>
            {
                match profile.last.clone() {
                    Some(last) => {
                        changes.push(Change::Upsert(profile.facts.spec(name, last)));
                        self.memory.announced(key, &facts, true);
                    }
                    None => changes.push(Change::Remove(name)),
                }
            }
            Verdict::Broken(..) => {}
        }
        changes.push(change);
        profile.announced = announced;
        if let Verdict::Good(access) = verdict {
            profile.last = Some(access);
        }
    }

    /// None if something is not known yet.
    fn verdict(&self, key: &ObjectKey, profile: &Profile, engaged: bool) -> Option<Verdict> {
        if let State::Unreadable(why) = &profile.facts.state {
            return Some(Verdict::Broken(object(key), why.clone()));
        }
        if let Some(why) = &profile.unreadable {
            return Some(Verdict::Broken(object(key), why.clone()));
        }
        if let Some(group) = Group::of(key, &profile.facts) {
            if !self.synced.profiles || !self.has_synced_decisions() {
                return None;
            }
            if let Some(first) = self.duplicates.first(&group).filter(|first| **first != key.name) {
                return Some(Verdict::Waiting(duplicate(first, &group).into()));
            }
        }
        match &profile.facts.state {
            State::Unready(why) => return Some(Verdict::Waiting(why.clone())),
            // The manager of the inventory has trouble, which takes nothing from a cluster that is engaged.
            State::Unknown(why) if !engaged => return Some(Verdict::Waiting(why.clone())),
            _ => {}
        }
        Some(match self.access(key, profile)? {
            Access::Good(access) => Verdict::Good(access),
            Access::Bad(object, why) => Verdict::Broken(object, why),
            Access::Nothing(why) if engaged => Verdict::Broken(object(key), why),
            Access::Nothing(why) => {
                Verdict::Waiting(format!("the cluster is ready, but can't be reached yet: {why}").into())
            }
        })
    }

    fn access(&self, key: &ObjectKey, profile: &Profile) -> Option<Access> {
        let of_profile = || format!("{}, status.accessProviders", object(key));
        Some(match &profile.facts.offer {
            Offer::Nothing(why) => Access::Nothing(why.clone()),
            Offer::Bad(why) => Access::Bad(of_profile(), why.clone()),
            Offer::Kubeconfig(offered) => match offered.parse(&self.checks) {
                Ok(access) => Access::Good(access),
                Err(problem) => Access::Bad(of_profile(), problem.text),
            },
            Offer::Secret => return self.secret_access(key),
        })
    }

    fn secret_access(&self, key: &ObjectKey) -> Option<Access> {
        let all = self.secrets.of_profile.get(key);
        // A second one may come yet.
        if !self.synced.secrets {
            return None;
        }
        let labels = || {
            format!(
                "the labels {CONSUMER_LABEL}={} and {PROFILE_LABEL}={}",
                self.consumer.as_deref().unwrap_or_default(),
                key.name
            )
        };
        let mut all = all.into_iter().flatten();
        Some(match (all.next(), all.next()) {
            (None, _) => {
                let namespace = key.namespace.as_deref().unwrap_or_default();
                Access::Nothing(format!("no Secret in namespace {namespace} has {}", labels()).into())
            }
            (Some((one, _)), Some((two, _))) => {
                let why = format!(
                    "the Secrets {} and {} both have {}; delete one",
                    one.name,
                    two.name,
                    labels()
                );
                Access::Bad(object(key), why.into())
            }
            (Some((_, Ok(kubeconfig))), None) => Access::Good(kubeconfig.clone()),
            (Some((secret, Err(problem))), None) => Access::Bad(
                format!("Secret {secret}, key {KUBECONFIG_KEY:?}"),
                problem.text.clone(),
            ),
        })
    }

    /// What is known of the content of a Secret.
    fn content(&self, key: &ObjectKey) -> Option<Content> {
        let profile = self.secrets.profiles.get(key)?;
        self.secrets.of_profile.get(profile)?.get(key).cloned()
    }

    fn name(&self, key: &ObjectKey) -> Option<ClusterName> {
        let name = match &key.namespace {
            Some(namespace) if self.qualified => ClusterName::new(format!("{namespace}/{}", key.name)),
            _ => ClusterName::new(&key.name),
        };
        if let Err(error) = &name {
            // No API server has such ClusterProfiles.
            tracing::warn!(profile = %key, %error, "left out: the name of the ClusterProfile can't be that of a cluster");
        }
        name.ok()
    }
}

fn is_invalid(facts: &Facts) -> bool {
    facts.member_id.as_deref() == Some("")
}

fn object(key: &ObjectKey) -> String {
    format!("ClusterProfile {key}")
}

fn duplicate(first: &str, group: &Group) -> String {
    format!(
        "ClusterProfile {first} is older and describes the same cluster: both have the label {MEMBER_ID_LABEL}={}. The fleet \
         has the cluster once, as {first}; to take this one, select it with `labels` or `managers`",
        group.member_id()
    )
}

#[cfg(test)]
mod tests;
