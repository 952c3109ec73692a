//! The clusters of a hub, and what was announced of them. No I/O.

use std::{
    collections::{HashMap, HashSet},
    mem::take,
    sync::Arc,
};

use parking_lot::Mutex;

use super::description::{Decoded, Described};
use crate::{
    access::Access,
    provider::{BrokenCluster, Change},
};
use mcr_access::{ClusterName, EndpointAccess, Fingerprint, Trust};
use mcr_store::ObjectKey;

/// What a provider decides about the cluster of an object.
#[derive(Debug)]
pub enum Verdict {
    /// The fleet can connect to the cluster.
    Good(EndpointAccess),
    /// The fleet should not connect to the cluster yet or any more, for this reason.
    Waiting(Arc<str>),
    /// The cluster is described in an unusable way. A cluster that is engaged stays so.
    Broken {
        /// The object at fault, for people: `Secret fleet/a, key "kubeconfig"`.
        object: String,
        /// What is wrong, and what to do about it.
        why: Arc<str>,
    },
    /// There is nothing where the description should be. The cluster leaves, and is shown as broken.
    Absent {
        /// The object at fault.
        object: String,
        /// What is missing.
        why: Arc<str>,
    },
}

/// The clusters that a provider has announced, over its discoveries.
///
/// The next discovery, after a failure, so does not take the connection from a cluster whose credentials are missing at that
/// moment, and notices that another object has the name of one before. `T` is what a provider keeps beside.
#[derive(Debug, Default)]
pub struct Memory<T = ()>(Mutex<HashMap<ObjectKey, Remembered<T>>>);

#[derive(Debug)]
struct Remembered<T> {
    name: ClusterName,
    uid: Option<Arc<str>>,
    engaged: bool,
    kept: T,
}

impl<T: Clone + Default> Memory<T> {
    /// Whether the cluster of the object was announced, good or waiting.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.0.lock().contains_key(key)
    }

    /// Whether the cluster of the object is engaged: it was announced as good, and not as waiting since.
    pub fn is_engaged(&self, key: &ObjectKey) -> bool {
        self.0.lock().get(key).is_some_and(|known| known.engaged)
    }

    /// What the provider has kept of the object.
    pub fn kept(&self, key: &ObjectKey) -> Option<T> {
        self.0.lock().get(key).map(|known| known.kept.clone())
    }

    /// Changes what is kept of the object, if its cluster was announced.
    pub fn keep(&self, key: &ObjectKey, change: impl FnOnce(&mut T)) {
        if let Some(known) = self.0.lock().get_mut(key) {
            change(&mut known.kept);
        }
    }

    fn announced(&self, key: &ObjectKey, name: &ClusterName, uid: Option<&Arc<str>>, engaged: bool) {
        let mut all = self.0.lock();
        let kept = all.remove(key).map(|known| known.kept).unwrap_or_default();
        let (name, uid) = (name.clone(), uid.cloned());
        let remembered = Remembered {
            name,
            uid,
            engaged,
            kept,
        };
        all.insert(key.clone(), remembered);
    }
}

/// What an [`Inventory`] knows of an object.
#[derive(Debug)]
pub struct Entry<F> {
    name: ClusterName,
    facts: Option<Arc<F>>,
    unreadable: Option<Arc<str>>,
    announced: Announced<F>,
    last: Option<EndpointAccess>,
    /// Whether the fleet uses `last`: not while the cluster is suspended.
    in_use: bool,
}

/// What was announced last.
#[derive(Debug)]
enum Announced<F> {
    Nothing,
    Waiting(Arc<F>, Arc<str>),
    Good(Arc<F>, Fingerprint),
    Broken(Arc<str>),
}

impl<F: Described> Announced<F> {
    fn is(&self, other: &Self) -> bool {
        let same = |a: &F, b: &F| a.description() == b.description();
        match (self, other) {
            (Self::Waiting(a, why), Self::Waiting(b, other)) => why == other && same(a, b),
            (Self::Good(a, access), Self::Good(b, other)) => access == other && same(a, b),
            (Self::Broken(why), Self::Broken(other)) => why == other,
            _ => false,
        }
    }
}

impl<F> Entry<F> {
    /// The name of the cluster.
    pub fn name(&self) -> &ClusterName {
        &self.name
    }

    /// The last facts that could be read. None if the object could never be decoded.
    pub fn facts(&self) -> Option<&Arc<F>> {
        self.facts.as_ref()
    }

    /// Whether the object can be decoded as it is now.
    pub fn is_readable(&self) -> bool {
        self.unreadable.is_none()
    }

    /// Whether the cluster was announced last as one that waits.
    pub fn is_waiting(&self) -> bool {
        matches!(self.announced, Announced::Waiting(..))
    }

    /// Whether this discovery has announced an access of the cluster that is still in use.
    pub fn is_in_use(&self) -> bool {
        self.in_use
    }
}

/// The objects of a hub that describe clusters, and what was announced of each.
///
/// A provider feeds it with the events of its watches, and for each object that an event concerns with a [`Verdict`]. The inventory
/// announces what is new, and nothing else. `F` are the facts of an object that its provider needs; what `F` gives as its
/// [`Description`](super::Description) is announced.
///
/// - Objects with another UID are other clusters: the cluster that had the name before is removed.
/// - An object that can't be decoded is broken, and its cluster stays as it is. Renewed credentials are announced all the same.
/// - [`Change::Synced`] is announced once all watches have listed their objects, and each object has its first verdict.
#[derive(Debug)]
pub struct Inventory<F, T = ()> {
    kind: &'static str,
    memory: Arc<Memory<T>>,
    entries: HashMap<ObjectKey, Entry<F>>,
    pending: HashSet<ObjectKey>,
    unlisted: usize,
    synced: bool,
    changes: Vec<Change>,
}

impl<F: Described, T: Clone + Default> Inventory<F, T> {
    /// An empty inventory of objects of this kind, which a discovery fills with this many watches.
    pub fn new(kind: &'static str, watches: usize, memory: Arc<Memory<T>>) -> Self {
        Self {
            kind,
            memory,
            entries: HashMap::new(),
            pending: HashSet::new(),
            unlisted: watches,
            synced: false,
            changes: Vec::new(),
        }
    }

    /// An object was created or changed. [`announce`](Self::announce) has to follow. Returns true if the object is new here, or has
    /// taken the name of another one. If its cluster gets another name, the cluster of the former name is removed.
    pub fn applied(&mut self, key: &ObjectKey, name: ClusterName, facts: Decoded<F>) -> bool {
        if let Ok(facts) = &facts {
            let uid = facts.description().uid.as_ref();
            let before = self.entries.get(key).and_then(|entry| entry.facts.as_ref());
            let is_another = match before {
                Some(before) => before.description().uid.as_ref() != uid,
                None => {
                    let remembered = self.memory.0.lock();
                    remembered.get(key).is_some_and(|known| known.uid.as_ref() != uid)
                }
            };
            if is_another {
                self.deleted(key);
            }
        }
        if self.entries.get(key).is_some_and(|entry| entry.name != name) {
            self.deleted(key);
        }
        let is_new = !self.entries.contains_key(key);
        let entry = self.entries.entry(key.clone()).or_insert_with(|| Entry {
            name,
            facts: None,
            unreadable: None,
            announced: Announced::Nothing,
            last: None,
            in_use: false,
        });
        match facts {
            Ok(facts) => (entry.facts, entry.unreadable) = (Some(facts), None),
            Err(why) => entry.unreadable = Some(why),
        }
        is_new
    }

    /// An object was deleted, or is not selected any more. Its cluster is removed if it was announced, also by an earlier discovery.
    pub fn deleted(&mut self, key: &ObjectKey) {
        self.pending.remove(key);
        let earlier = self.memory.0.lock().remove(key).map(|known| known.name);
        let known = self.entries.remove(key);
        let known = known.filter(|entry| !matches!(entry.announced, Announced::Nothing));
        let name = known.map(|entry| entry.name).or(earlier);
        self.changes.extend(name.map(Change::Remove));
    }

    /// A watch has listed all objects that existed at the start.
    pub fn listed(&mut self) {
        self.unlisted = self.unlisted.saturating_sub(1);
    }

    /// Whether all watches have listed their objects. From then on an object that is unknown is missing.
    pub fn is_listed(&self) -> bool {
        self.unlisted == 0
    }

    /// Whether [`Change::Synced`] was announced.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Delays [`Change::Synced`] until there is a verdict on this object, or it is deleted.
    pub fn hold(&mut self, key: &ObjectKey) {
        if !self.synced {
            self.pending.insert(key.clone());
        }
    }

    /// Does not wait for a verdict on this object any more.
    pub fn release(&mut self, key: &ObjectKey) {
        self.pending.remove(key);
    }

    /// What is known of an object.
    pub fn get(&self, key: &ObjectKey) -> Option<&Entry<F>> {
        self.entries.get(key)
    }

    /// The keys of all objects.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.entries.keys().cloned().collect()
    }

    /// What is kept over discoveries.
    pub fn memory(&self) -> &Memory<T> {
        &self.memory
    }

    /// Announces what is new about the cluster of an object. None: something is not known yet, and nothing is announced.
    pub fn announce(&mut self, key: &ObjectKey, verdict: Option<Verdict>) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let first = match entry.unreadable.clone() {
            None => verdict,
            Some(why) => {
                // A fleet keeps the last good description of a broken cluster.
                let renewed = match verdict {
                    Some(Verdict::Good(access)) if entry.is_in_use() => Some(Verdict::Good(access)),
                    _ => None,
                };
                let news = |access: &EndpointAccess| {
                    entry.last.as_ref().map(EndpointAccess::fingerprint) != Some(access.fingerprint())
                };
                if let Some(renewed) =
                    renewed.filter(|verdict| matches!(verdict, Verdict::Good(access) if news(access)))
                {
                    entry.announce(key, renewed, &self.memory, &mut self.changes);
                }
                let object = format!("{} {key}", self.kind);
                Some(Verdict::Broken { object, why })
            }
        };
        match first {
            Some(verdict) => entry.announce(key, verdict, &self.memory, &mut self.changes),
            None if matches!(entry.announced, Announced::Nothing) => return self.hold(key),
            None => {}
        }
        self.pending.remove(key);
    }

    /// Takes the changes to announce, with [`Change::Synced`] when it is due.
    pub fn take_changes(&mut self) -> Vec<Change> {
        if !self.synced && self.is_listed() && self.pending.is_empty() {
            self.synced = true;
            // No watch reports those that were deleted while no discovery ran.
            let entries = &self.entries;
            self.memory.0.lock().retain(|key, _| entries.contains_key(key));
            self.changes.push(Change::Synced);
        }
        take(&mut self.changes)
    }
}

impl<F: Described> Entry<F> {
    fn announce<T: Clone + Default>(
        &mut self,
        key: &ObjectKey,
        verdict: Verdict,
        memory: &Memory<T>,
        changes: &mut Vec<Change>,
    ) {
        let announced = match (&verdict, &self.facts) {
            (Verdict::Good(access), Some(facts)) => Announced::Good(facts.clone(), access.fingerprint()),
            (Verdict::Waiting(why), Some(facts)) => Announced::Waiting(facts.clone(), why.clone()),
            (Verdict::Broken { why, .. } | Verdict::Absent { why, .. }, _) => Announced::Broken(why.clone()),
            (_, None) => return,
        };
        if announced.is(&self.announced) {
            return;
        }
        let name = self.name.clone();
        let facts = self.facts.as_deref();
        let uid = facts.and_then(|facts| facts.description().uid.as_ref());
        let spec = |access: Access| facts.map(|facts| facts.spec(name.clone(), access));
        let broken = |object, why: &Arc<str>| Change::Broken(BrokenCluster::new(name.clone(), object, why));
        match verdict {
            Verdict::Good(access) => {
                memory.announced(key, &name, uid, true);
                changes.extend(spec(access.clone().into()).map(Change::Upsert));
                self.last = Some(access);
                self.in_use = true;
            }
            Verdict::Waiting(why) => {
                memory.announced(key, &name, uid, false);
                // The fleet keeps what it knows of a suspended cluster while the access is the same.
                let nowhere = || Access::kubeconfig("", Trust::Untrusted);
                let access = self.last.clone().map_or_else(nowhere, Into::into);
                changes.extend(spec(access).map(|spec| Change::Upsert(spec.suspended(why))));
                self.in_use = false;
            }
            Verdict::Broken { object, why } => {
                // Without this, the fleet would go on to show why the cluster was suspended.
                if matches!(self.announced, Announced::Waiting(..)) && self.unreadable.is_none() {
                    changes.extend(match self.last.clone() {
                        Some(last) => {
                            memory.announced(key, &name, uid, true);
                            self.in_use = true;
                            spec(last.into()).map(Change::Upsert)
                        }
                        None => Some(Change::Remove(name.clone())),
                    });
                }
                changes.push(broken(object, &why));
            }
            Verdict::Absent { object, why } => {
                // Also if this discovery has announced no cluster: an earlier one may have.
                changes.push(Change::Remove(name.clone()));
                changes.push(broken(object, &why));
                memory.announced(key, &name, uid, false);
                (self.last, self.in_use) = (None, false);
            }
        }
        self.announced = announced;
    }
}
