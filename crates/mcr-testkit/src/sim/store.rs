use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::task::Waker;

use super::error::SimError;
use super::kinds::Kinds;
use super::object::{ByKey, Object};

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Added,
    Modified,
    Deleted,
}

impl Change {
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One write in the history of a resource.
#[derive(Clone, Debug)]
pub struct Event {
    pub change: Change,
    /// The new state. For a deletion, the last state with the version of the deletion.
    pub object: Arc<Object>,
    /// The state before the write, for watches with a selector and lists of old versions.
    pub previous: Option<Arc<Object>>,
}

/// The objects of one resource and its latest history.
#[derive(Debug, Default)]
pub struct Table {
    objects: BTreeSet<ByKey>,
    log: VecDeque<Event>,
    /// The history up to this version has been dropped.
    forgotten: u64,
    /// The wakers of the watches that wait for a write, by the number of the watch.
    waiting: HashMap<u64, Waker>,
}

/// The data of a cluster. All writes are made under one lock, so versions are in order.
#[derive(Debug)]
pub struct Store {
    pub version: u64,
    kinds: Kinds,
    /// The kinds of each logical cluster that differs from `kinds`.
    kinds_of: HashMap<Arc<str>, Kinds>,
    tables: HashMap<Arc<str>, Table>,
    /// How many writes of each resource are kept in the history.
    window: usize,
    compacted: u64,
    /// The table and key of each write that was not read yet. `None` if nobody reads them.
    pub written: Option<Vec<(Arc<str>, Box<str>)>>,
    /// Watches to wake after the lock is released.
    pub wakes: Vec<Waker>,
}

impl Store {
    pub fn new(window: usize) -> Self {
        Self {
            version: 1,
            kinds: Kinds::default(),
            kinds_of: HashMap::new(),
            tables: HashMap::new(),
            window,
            compacted: 0,
            written: None,
            wakes: Vec::new(),
        }
    }

    /// A new store with the same objects, whose memory is shared. Its history is empty.
    pub fn fork(&self, window: usize) -> Self {
        let copy = |(resource, table): (&Arc<str>, &Table)| {
            let table = Table {
                objects: table.objects.clone(),
                forgotten: self.version,
                ..Table::default()
            };
            (resource.clone(), table)
        };
        Self {
            version: self.version,
            kinds: self.kinds.clone(),
            kinds_of: self.kinds_of.clone(),
            tables: self.tables.iter().map(copy).collect(),
            compacted: self.version,
            ..Self::new(window)
        }
    }

    /// A store for many logical clusters, each with these kinds. Records its writes in [`written`](Self::written).
    pub fn shared(window: usize, kinds: Kinds) -> Self {
        Self {
            kinds,
            written: Some(Vec::new()),
            ..Self::new(window)
        }
    }

    /// The kinds of a logical cluster, or of the server for the empty string.
    pub fn kinds(&self, cluster: &str) -> &Kinds {
        self.kinds_of.get(cluster).unwrap_or(&self.kinds)
    }

    pub fn kinds_mut(&mut self, cluster: &str) -> &mut Kinds {
        if cluster.is_empty() {
            return &mut self.kinds;
        }
        let common = &self.kinds;
        self.kinds_of
            .entry(cluster.into())
            .or_insert_with(|| common.clone())
    }

    /// Removes and returns the kinds that a logical cluster has of its own.
    pub fn take_kinds(&mut self, cluster: &str) -> Option<Kinds> {
        self.kinds_of.remove(cluster)
    }

    pub fn set_kinds(&mut self, cluster: &str, kinds: Kinds) {
        self.kinds_of.insert(cluster.into(), kinds);
    }

    pub fn get(&self, resource: &str, key: &str) -> Option<&Arc<Object>> {
        self.tables.get(resource)?.objects.get(key).map(|entry| &entry.0)
    }

    /// The version of the next write.
    pub fn next_version(&self) -> u64 {
        self.version + 1
    }

    /// Stores an object, which must have the [`next_version`](Self::next_version).
    pub fn put(&mut self, resource: &Arc<str>, object: Arc<Object>) {
        let table = self.table(resource);
        let previous = table.objects.replace(ByKey(object.clone())).map(|entry| entry.0);
        let change = if previous.is_some() {
            Change::Modified
        } else {
            Change::Added
        };
        self.record(
            resource,
            Event {
                change,
                object,
                previous,
            },
        );
    }

    pub fn remove(&mut self, resource: &Arc<str>, key: &str) {
        let version = self.next_version();
        let Some(ByKey(previous)) = self.table(resource).objects.take(key) else {
            return;
        };
        let event = Event {
            change: Change::Deleted,
            object: Arc::new(previous.at(version)),
            previous: Some(previous),
        };
        self.record(resource, event);
    }

    fn record(&mut self, resource: &Arc<str>, event: Event) {
        self.version = event.object.version;
        if let Some(written) = &mut self.written {
            written.push((resource.clone(), event.object.key.clone()));
        }
        let window = self.window;
        let table = self.table(resource);
        table.log.push_back(event);
        while table.log.len() > window {
            table.forget_oldest();
        }
        self.wake_resource(resource);
    }

    fn table(&mut self, resource: &Arc<str>) -> &mut Table {
        let forgotten = self.compacted;
        self.tables.entry(resource.clone()).or_insert_with(|| Table {
            forgotten,
            ..Table::default()
        })
    }

    /// Drops the history up to a version. Requests for older versions get 410.
    pub fn compact(&mut self, version: u64) {
        let version = version.min(self.version);
        self.compacted = self.compacted.max(version);
        for table in self.tables.values_mut() {
            while table
                .log
                .front()
                .is_some_and(|event| event.object.version <= version)
            {
                table.forget_oldest();
            }
            table.forgotten = table.forgotten.max(version);
        }
        // Watches that are behind this version end with a 410.
        self.wake_all();
    }

    /// Drops the history of one resource.
    pub fn compact_resource(&mut self, resource: &Arc<str>, version: u64) {
        let table = self.table(resource);
        table.log = VecDeque::new();
        table.forgotten = version;
    }

    /// The current objects whose keys begin with `prefix`, in order. See [`prefix`](super::object::prefix).
    pub fn current<'a>(
        &'a self,
        resource: &str,
        prefix: &str,
        after: &str,
    ) -> impl Iterator<Item = &'a Arc<Object>> {
        let prefix = prefix.to_owned();
        let start = if after.is_empty() {
            Bound::Included(prefix.as_str())
        } else {
            Bound::Excluded(after)
        };
        let table = self.tables.get(resource);
        let range = table.map(|table| table.objects.range::<str, _>((start, Bound::Unbounded)));
        range
            .into_iter()
            .flatten()
            .map(|entry| &entry.0)
            .take_while(move |object| object.key.starts_with(&prefix))
    }

    /// The objects as they were at a version. Fails with 410 if the history does not go back that far.
    pub fn at(
        &self,
        resource: &str,
        prefix: &str,
        after: &str,
        version: u64,
    ) -> Result<Vec<Arc<Object>>, SimError> {
        if version < self.forgotten(resource) {
            return Err(SimError::expired(
                "The resourceVersion for the provided list is too old.",
            ));
        }
        let mut objects: BTreeSet<ByKey> = self
            .current(resource, prefix, after)
            .cloned()
            .map(ByKey)
            .collect();
        let log = self.tables.get(resource).map(|table| &table.log);
        // Undoes the writes from the newest to the oldest, so the state before the oldest of these writes remains.
        let newer = log.into_iter().flatten().rev();
        for event in newer.take_while(|event| event.object.version > version) {
            objects.remove(&*event.object.key);
            if let Some(previous) = &event.previous {
                objects.insert(ByKey(previous.clone()));
            }
        }
        let objects = objects.into_iter().map(|entry| entry.0);
        Ok(objects
            .filter(|object| object.key.starts_with(prefix) && (after.is_empty() || &*object.key > after))
            .collect())
    }

    pub fn forgotten(&self, resource: &str) -> u64 {
        self.tables
            .get(resource)
            .map_or(self.compacted, |table| table.forgotten)
    }

    /// The writes after a version, oldest first.
    pub fn since(&self, resource: &str, version: u64) -> impl Iterator<Item = &Event> {
        let log = self.tables.get(resource).map(|table| &table.log);
        let start = log.map_or(0, |log| {
            log.partition_point(|event| event.object.version <= version)
        });
        log.into_iter().flat_map(move |log| log.range(start..))
    }

    pub fn wait(&mut self, resource: &Arc<str>, watch: u64, waker: Waker) {
        self.table(resource).waiting.insert(watch, waker);
    }

    pub fn forget_watch(&mut self, resource: &str, watch: u64) {
        if let Some(table) = self.tables.get_mut(resource) {
            table.waiting.remove(&watch);
            if table.waiting.is_empty() {
                table.waiting.shrink_to_fit();
            }
        }
    }

    pub fn wake_resource(&mut self, resource: &Arc<str>) {
        if let Some(table) = self.tables.get_mut(resource) {
            self.wakes.extend(table.waiting.drain().map(|(_, waker)| waker));
        }
    }

    pub fn wake_all(&mut self) {
        for table in self.tables.values_mut() {
            self.wakes.extend(table.waiting.drain().map(|(_, waker)| waker));
        }
    }

    pub fn resources(&self) -> Vec<Arc<str>> {
        self.tables.keys().cloned().collect()
    }
}

impl Table {
    fn forget_oldest(&mut self) {
        if let Some(event) = self.log.pop_front() {
            self.forgotten = event.object.version;
        }
    }
}
