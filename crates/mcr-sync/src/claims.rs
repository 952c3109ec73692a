//! Objects that name a source and are in none of its places.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use mcr::{ClusterName, RequestKey};

/// Where objects that name a source were seen. The watch of the targets adds each of them, and a reconcile of the source removes
/// those that are in its places. So only objects that the sync did not make stay, such as a copy that somebody made of a target.
#[derive(Default)]
pub(crate) struct Claims(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// By source: its objects, each with the number of the look at which it was seen last.
    seen: HashMap<RequestKey, BTreeMap<RequestKey, u64>>,
    looks: u64,
}

impl Inner {
    fn remove_if(&mut self, source: &RequestKey, object: &RequestKey, is_it: impl FnOnce(u64) -> bool) {
        if let Some(objects) = self.seen.get_mut(source) {
            if objects.get(object).is_some_and(|look| is_it(*look)) {
                objects.remove(object);
            }
            if objects.is_empty() {
                self.seen.remove(source);
            }
        }
    }
}

impl Claims {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an object that names this source.
    pub(crate) fn add(&self, source: &RequestKey, object: RequestKey) {
        let mut inner = self.inner();
        inner.looks += 1;
        let look = inner.looks;
        inner.seen.entry(source.clone()).or_default().insert(object, look);
    }

    /// Forgets an object that is gone, or is in a place of the source.
    pub(crate) fn remove(&self, source: &RequestKey, object: &RequestKey) {
        self.inner().remove_if(source, object, |_| true);
    }

    /// Forgets an object that was gone when its server was asked, unless the watch has seen it again since `look`.
    pub(crate) fn remove_unless_seen_since(&self, source: &RequestKey, object: &RequestKey, look: u64) {
        self.inner().remove_if(source, object, |last| last == look);
    }

    /// The objects that name this source, as far as they were not removed, each with the number of the look at which it was seen
    /// last.
    pub(crate) fn of(&self, source: &RequestKey) -> Vec<(RequestKey, u64)> {
        let inner = self.inner();
        let objects = inner.seen.get(source).into_iter().flatten();
        objects.map(|(object, look)| (object.clone(), *look)).collect()
    }

    /// Forgets the objects in a cluster that has left. They are seen again when it is back.
    pub(crate) fn forget_cluster(&self, cluster: &ClusterName) {
        self.inner().seen.retain(|_, objects| {
            objects.retain(|object, _| object.cluster != *cluster);
            !objects.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use mcr::ObjectKey;

    use super::*;

    fn key(cluster: &str, name: &str) -> RequestKey {
        let cluster = ClusterName::new(cluster).unwrap();
        RequestKey::new(cluster, ObjectKey::namespaced("default", name))
    }

    #[test]
    fn a_claim_goes_with_its_object_and_with_the_cluster_of_the_object() {
        let (claims, source) = (Claims::default(), key("team-a", "db"));
        for object in [key("berlin", "x"), key("berlin", "y"), key("lyon", "x")] {
            claims.add(&source, object.clone());
            claims.add(&source, object);
        }
        assert_eq!(claims.of(&source).len(), 3);
        assert!(claims.of(&key("team-b", "db")).is_empty());
        claims.remove(&source, &key("berlin", "y"));
        claims.forget_cluster(&ClusterName::new("lyon").unwrap());
        let [(last, _)] = &*claims.of(&source) else {
            panic!("one is left");
        };
        assert_eq!(*last, key("berlin", "x"));
        claims.remove(&source, last);
        assert!(claims.inner().seen.is_empty());
    }

    #[test]
    fn a_late_answer_does_not_remove_an_object_that_was_made_anew() {
        let (claims, source, object) = (Claims::default(), key("team-a", "db"), key("berlin", "x"));
        claims.add(&source, object.clone());
        let (_, asked_at) = claims.of(&source)[0];
        claims.remove(&source, &object);
        claims.add(&source, object.clone());
        claims.remove_unless_seen_since(&source, &object, asked_at);
        let (_, seen_at) = claims.of(&source)[0];
        claims.remove_unless_seen_since(&source, &object, seen_at);
        assert!(claims.inner().seen.is_empty());
    }
}
