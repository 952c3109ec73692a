//! The Clusters of the hub and their Secrets, and what was announced of them. It decides what to announce and to read next. No
//! I/O.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use mcr_core::{
    Change, ClusterName, ObjectKey,
    internal::{KubeconfigProblem, Notice},
};

use crate::{
    facts::{Facts, State},
    member::{Announced, Content, ContentKind, Member, Read, Reading},
    memory::Memory,
    secret::{ReadSecret, Stamp},
};

/// What an inventory knows. The watches of the hub share the memory of it.
#[derive(Debug)]
pub(crate) struct Inventory {
    /// Whether names have the namespace in them.
    qualified: bool,
    memory: Arc<Memory>,
    clusters: HashMap<ObjectKey, Member>,
    secrets: HashMap<ObjectKey, Secret>,
    synced: Synced,
    /// Clusters about which nothing was said because their Secret is being read. Used until all has been said.
    unread: HashSet<ObjectKey>,
    reads: u64,
}

#[derive(Debug, Default)]
struct Synced {
    clusters: bool,
    secrets: bool,
    announced: bool,
}

/// A Secret with the label, or one that a Cluster needs.
#[derive(Debug, Default)]
struct Secret {
    /// None if it is not there.
    stamp: Option<Arc<Stamp>>,
    /// The Clusters whose kubeconfig it has. Nearly always one.
    clusters: Vec<ObjectKey>,
}

/// The end of a read.
#[derive(Debug)]
pub(crate) enum Answer {
    Read(Box<ReadSecret>),
    Gone,
    /// It is to be tried again.
    Failed(KubeconfigProblem),
}

/// The changes to announce, the Secrets to read and the notices that follow from an event.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) changes: Vec<Change>,
    pub(crate) reads: Vec<Read>,
    pub(crate) notices: Vec<Notice>,
}

impl Inventory {
    pub(crate) fn new(qualified: bool, memory: Arc<Memory>) -> Self {
        Self {
            qualified,
            memory,
            clusters: HashMap::new(),
            secrets: HashMap::new(),
            synced: Synced::default(),
            unread: HashSet::new(),
            reads: 0,
        }
    }

    /// A Cluster was created or changed, or joined the selection.
    pub(crate) fn cluster(&mut self, key: &ObjectKey, facts: Arc<Facts>) -> Outcome {
        let mut outcome = Outcome::default();
        let name = facts.secret_name(&key.name);
        let secret = ObjectKey {
            namespace: key.namespace.clone(),
            name,
        };
        if let State::Unreadable(why) = &facts.state
            && let Some(member) = self.clusters.get_mut(key)
        {
            member.unreadable = Some(why.clone());
            self.announce(key, &mut outcome);
            self.announce_synced(&mut outcome);
            return outcome;
        }
        let another = match self.clusters.get(key) {
            Some(member) => member.facts.is_readable() && member.facts.uid != facts.uid,
            None => facts.is_readable() && self.memory.is_another(key, facts.uid.as_ref()),
        };
        if another {
            self.remove(key, &mut outcome);
        }
        let ready = facts.state == State::Ready || self.memory.is_engaged(key, facts.uid.as_ref());
        if let Some(member) = self.clusters.get_mut(key) {
            member.unreadable = None;
            member.ready |= ready;
            let moved = member.secret != secret || member.facts.secret_key() != facts.secret_key();
            member.facts = facts;
            if moved {
                member.content = None;
                member.reading = None;
                let from = std::mem::replace(&mut member.secret, secret.clone());
                self.unlink(&from, key);
                self.link(&secret, key);
            }
        } else {
            let unreadable = match &facts.state {
                State::Unreadable(why) => Some(why.clone()),
                _ => None,
            };
            let member = Member {
                facts,
                unreadable,
                secret: secret.clone(),
                ready,
                content: None,
                reading: None,
                announced: Announced::Nothing,
            };
            self.clusters.insert(key.clone(), member);
            self.link(&secret, key);
        }
        self.announce(key, &mut outcome);
        self.announce_synced(&mut outcome);
        outcome
    }

    /// A Cluster was deleted, or left the selection.
    pub(crate) fn cluster_gone(&mut self, key: &ObjectKey) -> Outcome {
        let mut outcome = Outcome::default();
        self.remove(key, &mut outcome);
        self.announce_synced(&mut outcome);
        outcome
    }

    /// A Secret was created or changed. None: it was deleted, or lost its label.
    pub(crate) fn secret(&mut self, key: &ObjectKey, stamp: Option<Arc<Stamp>>) -> Outcome {
        let mut outcome = Outcome::default();
        let secret = self.secrets.entry(key.clone()).or_default();
        secret.stamp = stamp;
        let clusters = secret.clusters.clone();
        let gone = secret.stamp.is_none();
        if gone {
            outcome.notices.push(Notice::gone(key));
            if clusters.is_empty() {
                self.secrets.remove(key);
            }
        }
        for cluster in &clusters {
            if let Some(member) = self.clusters.get_mut(cluster).filter(|_| gone) {
                member.secret_gone();
            }
            self.announce(cluster, &mut outcome);
        }
        self.announce_synced(&mut outcome);
        outcome
    }

    /// All Clusters that existed at the start are known.
    pub(crate) fn clusters_synced(&mut self) -> Outcome {
        let mut outcome = Outcome::default();
        self.synced.clusters = true;
        self.announce_synced(&mut outcome);
        outcome
    }

    /// All Secrets that existed at the start are known. From now on one that is unknown is missing.
    pub(crate) fn secrets_synced(&mut self) -> Outcome {
        let mut outcome = Outcome::default();
        self.synced.secrets = true;
        let clusters: Vec<ObjectKey> = self.clusters.keys().cloned().collect();
        for cluster in &clusters {
            self.announce(cluster, &mut outcome);
        }
        self.announce_synced(&mut outcome);
        outcome
    }

    /// A read has ended.
    pub(crate) fn answered(&mut self, mut read: Read, answer: Answer) -> Outcome {
        let mut outcome = Outcome::default();
        let Some(member) = self.clusters.get_mut(&read.cluster) else {
            return outcome;
        };
        // Something else has happened since.
        let Some(reading) = member.reading.take_if(|reading| reading.number == read.number) else {
            return outcome;
        };
        let at = reading.at.clone();
        match answer {
            Answer::Read(secret) if secret.is_of(member.facts.uid.as_deref()) => {
                let ReadSecret { stamp, content, .. } = *secret;
                let of = at
                    .clone()
                    .filter(|at| **at == stamp)
                    .unwrap_or_else(|| stamp.into());
                let uid = of.uid.clone().unwrap_or_default();
                let (kind, notice) = match content {
                    Ok(new) => {
                        // What was parsed before is shared with the fleet.
                        let known = member.content.take().and_then(|content| content.kind.good());
                        let same = known.filter(|known| known.fingerprint() == new.fingerprint());
                        let kind = ContentKind::Good(same.unwrap_or(new));
                        (kind, Notice::well(&member.secret, uid))
                    }
                    Err(problem) => {
                        let notice = Notice::broken(&member.secret, uid, problem.public.clone());
                        (ContentKind::Bad(problem), notice)
                    }
                };
                outcome.notices.push(notice);
                member.content = Some(Content { at, of, kind });
            }
            // Also if the Secret has no label, or is that of an earlier Cluster of this name.
            Answer::Read(_) | Answer::Gone => {
                let kind = ContentKind::Gone;
                let of = at.clone().unwrap_or_default();
                member.content = Some(Content { at, of, kind });
            }
            Answer::Failed(problem) => {
                read.failures = read.failures.saturating_add(1);
                member.reading = Some(Reading {
                    failed: Some(problem),
                    ..reading
                });
                outcome.reads.push(read.clone());
            }
        }
        self.announce(&read.cluster, &mut outcome);
        self.announce_synced(&mut outcome);
        outcome
    }

    fn link(&mut self, secret: &ObjectKey, cluster: &ObjectKey) {
        self.secrets
            .entry(secret.clone())
            .or_default()
            .clusters
            .push(cluster.clone());
    }

    fn unlink(&mut self, secret: &ObjectKey, cluster: &ObjectKey) {
        if let Some(there) = self.secrets.get_mut(secret) {
            there.clusters.retain(|known| known != cluster);
            if there.clusters.is_empty() && there.stamp.is_none() {
                self.secrets.remove(secret);
            }
        }
    }

    fn remove(&mut self, key: &ObjectKey, outcome: &mut Outcome) {
        let known = self.clusters.remove(key);
        if let Some(member) = &known {
            self.unlink(&member.secret, key);
        }
        self.unread.remove(key);
        // An earlier discovery may have announced it.
        let earlier = self.memory.forget(key);
        if earlier || known.is_some_and(|member| !matches!(member.announced, Announced::Nothing)) {
            outcome.changes.extend(self.name(key).map(Change::Remove));
        }
    }

    fn announce_synced(&mut self, outcome: &mut Outcome) {
        let Synced {
            clusters,
            secrets,
            announced,
        } = self.synced;
        if clusters && secrets && !announced && self.unread.is_empty() {
            self.synced.announced = true;
            outcome.changes.push(Change::Synced);
        }
    }

    /// Asks for what has to be read, and announces what has changed.
    fn announce(&mut self, key: &ObjectKey, outcome: &mut Outcome) {
        let Some(name) = self.name(key) else { return };
        let Some(member) = self.clusters.get_mut(key) else {
            return;
        };
        let known = self
            .secrets
            .get(&member.secret)
            .and_then(|secret| secret.stamp.clone());
        let of_another = known
            .as_ref()
            .is_some_and(|stamp| !stamp.may_be_of(member.facts.uid.as_deref()));
        let stamp = known.filter(|_| !of_another);
        let engaged = self.memory.is_engaged(key, member.facts.uid.as_ref());
        let ask = self.synced.announced && !engaged && !of_another;
        if let Some(read) = member.next_read(key, stamp.as_ref(), ask, self.reads) {
            self.reads += 1;
            outcome.reads.push(read);
        }
        let verdict = member.verdict(key, stamp.as_ref(), of_another, self.synced.secrets, engaged);
        if let Some((announced, change)) = verdict.and_then(|verdict| member.announcement(name, verdict)) {
            if matches!(announced, Announced::Good(..)) {
                self.memory.engaged(key, member.facts.uid.as_ref());
            }
            // Without this, the fleet would go on to show why the cluster was suspended.
            if let (Announced::Waiting(..), Change::Broken(broken), true) =
                (&member.announced, &change, member.ready)
            {
                outcome.changes.push(Change::Remove(broken.name.clone()));
            }
            member.announced = announced;
            outcome.changes.push(change);
        }
        if member.reading.is_some()
            && matches!(member.announced, Announced::Nothing)
            && !self.synced.announced
        {
            self.unread.insert(key.clone());
        } else {
            self.unread.remove(key);
        }
    }

    fn name(&self, key: &ObjectKey) -> Option<ClusterName> {
        let name = match &key.namespace {
            Some(namespace) if self.qualified => ClusterName::new(format!("{namespace}/{}", key.name)),
            _ => ClusterName::new(&key.name),
        };
        if let Err(error) = &name {
            // No API server has such Clusters.
            tracing::warn!(cluster = %key, %error, "left out: the name of the Cluster can't be that of a cluster");
        }
        name.ok()
    }
}

#[cfg(test)]
mod tests;
