//! The objects of one watch, and what changes in them.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use super::{Object, ObjectKey, table::Table};

/// What happened to one object.
///
/// "Deleted" is only ever said because the API server said so, or because a complete list did not have the
/// object; never because something was not listed, forbidden or unreadable.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ObjectChange {
    /// The object before; none if it is new.
    pub old: Option<Arc<Object>>,
    /// The object now; none if it is deleted.
    pub new: Option<Arc<Object>>,
    /// Whether this comes from a listing rather than from a live event.
    pub initial: bool,
}

impl ObjectChange {
    /// The object's name and namespace.
    ///
    /// A change always has an old or a new object.
    pub fn key(&self) -> Option<&ObjectKey> {
        self.new.as_ref().or(self.old.as_ref()).map(|object| object.key())
    }

    /// Whether the object is gone.
    pub fn is_delete(&self) -> bool {
        self.new.is_none()
    }

    pub(crate) fn added(new: Arc<Object>, initial: bool) -> Self {
        Self {
            old: None,
            new: Some(new),
            initial,
        }
    }

    pub(crate) fn deleted(old: Arc<Object>, initial: bool) -> Self {
        Self {
            old: Some(old),
            new: None,
            initial,
        }
    }
}

/// What putting in one object has changed.
#[derive(Debug)]
pub(crate) struct Changes(Option<ObjectChange>, Option<ObjectChange>);

impl IntoIterator for Changes {
    type Item = ObjectChange;
    type IntoIter =
        std::iter::Chain<std::option::IntoIter<ObjectChange>, std::option::IntoIter<ObjectChange>>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().chain(self.1)
    }
}

/// Computes the values an object is found by in one index; none if the object can't be decoded.
pub(crate) type Indexer = Arc<dyn Fn(&Object) -> Option<Vec<String>> + Send + Sync>;

/// The objects of one watch with their indexes.
#[derive(Default)]
pub(crate) struct StoreCore {
    inner: RwLock<Inner>,
}

#[derive(Default)]
struct Inner {
    objects: Table,
    indexes: HashMap<Arc<str>, Index>,
    bytes: usize,
    held_bytes: usize,
    /// What was not seen yet in the listing under way; none outside of a listing.
    unseen: Option<Table>,
}

struct Index {
    indexer: Indexer,
    by_value: HashMap<String, BTreeSet<ObjectKey>>,
}

impl StoreCore {
    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        // A panic while the lock was held can only come from an index function; the maps stay usable.
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<Object>> {
        self.read().objects.get(key).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Object>> {
        self.read().objects.values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.read().objects.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.read().bytes
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.read().held_bytes
    }

    /// The objects found under a value of an index; none if there is no such index.
    pub(crate) fn by_index(&self, index: &str, value: &str) -> Option<Vec<Arc<Object>>> {
        let inner = self.read();
        let keys = inner.indexes.get(index)?.by_value.get(value);
        Some(
            keys.into_iter()
                .flatten()
                .filter_map(|key| inner.objects.get(key).cloned())
                .collect(),
        )
    }

    /// Adds an index over what is and will be there; an index of the same name is replaced.
    pub(crate) fn add_index(&self, name: Arc<str>, indexer: Indexer) {
        let mut inner = self.write();
        let mut index = Index {
            indexer,
            by_value: HashMap::new(),
        };
        for object in inner.objects.values() {
            index.insert(object);
        }
        inner.indexes.insert(name, index);
    }

    /// Puts an object in. None if nothing changed.
    ///
    /// An object that is older than the one held can't come from a list or watch of one API server, but two
    /// servers with unrelated resource versions can stand behind one cluster: the last word counts.
    pub(crate) fn upsert(&self, new: Arc<Object>, initial: bool) -> Changes {
        let mut inner = self.write();
        if let Some(unseen) = &mut inner.unseen {
            unseen.remove(new.key());
        }
        match inner.insert(new.clone()) {
            Some(old) if old.same_uid(&new) && old.resource_version() == new.resource_version() => {
                Changes(None, None)
            }
            Some(old) if !old.same_uid(&new) => Changes(
                Some(ObjectChange::deleted(old, initial)),
                Some(ObjectChange::added(new, initial)),
            ),
            old => Changes(
                Some(ObjectChange {
                    old,
                    new: Some(new),
                    initial,
                }),
                None,
            ),
        }
    }

    /// Takes an object out; the last state is the one the delete came with.
    pub(crate) fn delete(&self, object: Arc<Object>) -> Option<ObjectChange> {
        let mut inner = self.write();
        let old = inner.remove(object.key())?;
        drop(old);
        Some(ObjectChange::deleted(object, false))
    }

    /// Another store of the same objects, with the same indexes.
    pub(crate) fn copy(&self) -> Self {
        let from = self.read();
        let copy = Self::default();
        {
            let mut inner = copy.write();
            inner.objects.clone_from(&from.objects);
            inner.bytes = from.bytes;
            inner.held_bytes = from.held_bytes;
        }
        for (name, index) in &from.indexes {
            copy.add_index(name.clone(), index.indexer.clone());
        }
        copy
    }

    /// What would have to change for this store to hold what the other one does.
    pub(crate) fn difference(&self, other: &Self) -> Vec<ObjectChange> {
        let (old, new) = (self.read(), other.read());
        let mut changes = Vec::new();
        for object in old.objects.values() {
            if new.objects.get(object.key()).is_none() {
                changes.push(ObjectChange::deleted(object.clone(), true));
            }
        }
        for object in new.objects.values() {
            match old.objects.get(object.key()) {
                Some(known) if known.same_uid(object) => {
                    if known.resource_version() != object.resource_version() {
                        changes.push(ObjectChange {
                            old: Some(known.clone()),
                            new: Some(object.clone()),
                            initial: true,
                        });
                    }
                }
                known => {
                    changes.extend(known.map(|known| ObjectChange::deleted(known.clone(), true)));
                    changes.push(ObjectChange::added(object.clone(), true));
                }
            }
        }
        changes
    }

    /// Begins a listing: until [`finish_listing`](Self::finish_listing), what is not put in is held as unseen.
    pub(crate) fn begin_listing(&self) {
        let mut inner = self.write();
        inner.unseen = Some(inner.objects.clone());
    }

    /// Says that an object was in the list though it could not be read, so that it is not taken for deleted.
    pub(crate) fn saw(&self, key: &ObjectKey) {
        if let Some(unseen) = &mut self.write().unseen {
            unseen.remove(key);
        }
    }

    /// Ends a listing. With `complete`, what was not seen is deleted.
    pub(crate) fn finish_listing(&self, complete: bool) -> Vec<ObjectChange> {
        let mut inner = self.write();
        let unseen = inner.unseen.take().unwrap_or_default();
        if !complete {
            return Vec::new();
        }
        unseen
            .values()
            .filter_map(|object| inner.remove(object.key()))
            .map(|old| ObjectChange::deleted(old, true))
            .collect()
    }
}

impl Inner {
    fn insert(&mut self, new: Arc<Object>) -> Option<Arc<Object>> {
        self.bytes += new.bytes();
        self.held_bytes += new.held_bytes();
        for index in self.indexes.values_mut() {
            index.insert(&new);
        }
        let old = self.objects.insert(new.clone())?;
        self.bytes -= old.bytes();
        self.held_bytes -= old.held_bytes();
        for index in self.indexes.values_mut() {
            index.replace(&old, &new);
        }
        Some(old)
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Object>> {
        let old = self.objects.remove(key)?;
        self.bytes -= old.bytes();
        self.held_bytes -= old.held_bytes();
        for index in self.indexes.values_mut() {
            index.remove(&old);
        }
        Some(old)
    }
}

impl Index {
    fn values(&self, object: &Object) -> Vec<String> {
        // Runs while the store is being changed, which must not stop half way.
        let values = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (self.indexer)(object)));
        values.ok().flatten().unwrap_or_default()
    }

    fn insert(&mut self, object: &Object) {
        for value in self.values(object) {
            self.by_value
                .entry(value)
                .or_default()
                .insert(object.key().clone());
        }
    }

    /// Forgets the values that only the old object had.
    fn replace(&mut self, old: &Object, new: &Object) {
        let kept: HashSet<String> = self.values(new).into_iter().collect();
        for value in self.values(old) {
            if !kept.contains(&value) {
                self.forget(&value, old.key());
            }
        }
    }

    fn remove(&mut self, object: &Object) {
        for value in self.values(object) {
            self.forget(&value, object.key());
        }
    }

    fn forget(&mut self, value: &str, key: &ObjectKey) {
        if let Some(keys) = self.by_value.get_mut(value) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_value.remove(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::{json, value::to_raw_value};

    use super::*;
    use crate::store::{Form, Interner};

    fn object(name: &str, uid: u8, rv: u32, label: &str) -> Arc<Object> {
        let json = json!({"metadata": {"name": name, "namespace": "n", "uid": format!("{uid:032x}"), "resourceVersion": rv.to_string(), "labels": {"l": label, "app.kubernetes.io/managed-by": "something that is said of all of them"}}});
        let raw = to_raw_value(&json).unwrap();
        Object::parse(&raw, &mut Interner::plain(Form::new("v1", "ConfigMap")))
            .unwrap()
            .into()
    }

    fn by_label() -> Indexer {
        Arc::new(|object| {
            let map: k8s_openapi::api::core::v1::ConfigMap = object.decode().ok()?;
            Some(
                map.metadata
                    .labels
                    .unwrap_or_default()
                    .remove("l")
                    .into_iter()
                    .collect(),
            )
        })
    }

    #[test]
    fn a_relist_deletes_what_is_gone_and_says_nothing_of_what_stayed() {
        let store = StoreCore::default();
        store.upsert(object("a", 1, 1, "x"), true);
        store.upsert(object("b", 2, 2, "x"), true);
        store.begin_listing();
        assert_eq!(store.upsert(object("a", 1, 1, "x"), true).into_iter().count(), 0);
        let gone = store.finish_listing(true);
        assert_eq!(gone.len(), 1);
        assert!(gone[0].is_delete());
        assert_eq!(gone[0].key().unwrap().to_string(), "n/b");
    }

    #[test]
    fn an_incomplete_or_partly_unreadable_list_deletes_nothing_it_did_not_see() {
        let store = StoreCore::default();
        store.upsert(object("a", 1, 1, "x"), true);
        store.upsert(object("b", 2, 2, "x"), true);
        store.begin_listing();
        assert!(store.finish_listing(false).is_empty());
        store.begin_listing();
        store.saw(&ObjectKey::namespaced("n", "a"));
        assert_eq!(store.finish_listing(true).len(), 1);
        assert_eq!(store.len(), 1);
    }

    #[test]
    fn another_uid_under_the_same_name_is_a_delete_and_an_add() {
        let store = StoreCore::default();
        store.upsert(object("a", 1, 1, "x"), true);
        let changes: Vec<_> = store.upsert(object("a", 9, 2, "x"), false).into_iter().collect();
        assert!(changes[0].is_delete() && changes[1].old.is_none());
    }

    #[test]
    fn an_index_that_comes_late_finds_what_is_there() {
        let store = StoreCore::default();
        store.upsert(object("a", 1, 1, "x"), true);
        assert!(store.by_index("label", "x").is_none());
        store.add_index("label".into(), by_label());
        assert_eq!(store.by_index("label", "x").unwrap().len(), 1);
        assert!(store.by_index("label", "y").unwrap().is_empty());
    }

    #[derive(Debug, Clone)]
    enum Op {
        Upsert(u8, u8, u8),
        Delete(u8),
        Relist(Vec<(u8, u8, u8)>),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0..5u8, 0..3u8, 0..3u8).prop_map(|(n, u, l)| Op::Upsert(n, u, l)),
            (0..5u8).prop_map(Op::Delete),
            proptest::collection::vec((0..5u8, 0..3u8, 0..3u8), 0..6).prop_map(Op::Relist),
        ]
    }

    proptest! {
        #[test]
        fn the_store_equals_a_map(ops in proptest::collection::vec(op(), 1..40)) {
            equals_a_map(ops)?;
        }
    }

    /// The store, its indexes, its byte count and the changes it announces agree with a plain map.
    fn equals_a_map(ops: Vec<Op>) -> Result<(), TestCaseError> {
        let store = StoreCore::default();
        store.add_index("label".into(), by_label());
        let mut model = BTreeMap::<String, (u8, u32, u8)>::new();
        let mut replayed = BTreeMap::<String, String>::new();
        let mut rv = 0;
        for op in ops {
            rv += 1;
            let mut changes = Vec::new();
            match op {
                Op::Upsert(n, u, l) => {
                    model.insert(n.to_string(), (u, rv, l));
                    changes.extend(store.upsert(object(&n.to_string(), u, rv, &l.to_string()), false));
                }
                Op::Delete(n) => {
                    let old = model.remove(&n.to_string());
                    let (u, _, l) = old.unwrap_or_default();
                    let change = store.delete(object(&n.to_string(), u, rv, &l.to_string()));
                    prop_assert_eq!(change.is_some(), old.is_some());
                    changes.extend(change);
                }
                Op::Relist(items) => {
                    model.clear();
                    store.begin_listing();
                    for (n, u, l) in items {
                        rv += 1;
                        model.insert(n.to_string(), (u, rv, l));
                        changes.extend(store.upsert(object(&n.to_string(), u, rv, &l.to_string()), true));
                    }
                    changes.extend(store.finish_listing(true));
                }
            }
            for change in changes {
                let name = change.key().unwrap().name.to_string();
                match &change.new {
                    Some(new) => {
                        prop_assert_eq!(change.old.is_some(), replayed.contains_key(&name));
                        replayed.insert(name, new.resource_version().to_owned());
                    }
                    None => prop_assert!(replayed.remove(&name).is_some()),
                }
            }
            let expected: BTreeMap<String, String> = model
                .iter()
                .map(|(n, (_, rv, _))| (n.clone(), rv.to_string()))
                .collect();
            let held: BTreeMap<String, String> = store
                .all()
                .iter()
                .map(|o| (o.key().name.to_string(), o.resource_version().to_owned()))
                .collect();
            prop_assert_eq!(&held, &expected);
            prop_assert_eq!(&replayed, &expected);
            prop_assert_eq!(
                store.bytes(),
                store.all().iter().map(|o| o.bytes()).sum::<usize>()
            );
            prop_assert_eq!(
                store.held_bytes(),
                store.all().iter().map(|o| o.held_bytes()).sum::<usize>()
            );
            for label in 0..3u8 {
                let mut found: Vec<String> = store
                    .by_index("label", &label.to_string())
                    .unwrap()
                    .iter()
                    .map(|o| o.key().name.to_string())
                    .collect();
                found.sort();
                let expected: Vec<String> = model
                    .iter()
                    .filter(|(_, (_, _, l))| *l == label)
                    .map(|(n, _)| n.clone())
                    .collect();
                prop_assert_eq!(found, expected);
            }
        }
        Ok(())
    }
}
