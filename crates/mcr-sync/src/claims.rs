//! Objects that name a source and are in none of its places.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use mcr::{ClusterName, RequestKey};

/// Where objects that name a source were seen. The watch of the targets adds each of them, and a reconcile of the source removes
/// those that are in its places. So only objects that the sync did not make stay, such as a copy that somebody made of a target.
#[derive(Default)]
pub(crate) struct Claims(Mutex<HashMap<RequestKey, BTreeSet<RequestKey>>>);

impl Claims {
    fn inner(&self) -> MutexGuard<'_, HashMap<RequestKey, BTreeSet<RequestKey>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an object that names this source.
    pub(crate) fn add(&self, source: &RequestKey, object: RequestKey) {
        self.inner().entry(source.clone()).or_default().insert(object);
    }

    /// Forgets an object that is gone, or is in a place of the source.
    pub(crate) fn remove(&self, source: &RequestKey, object: &RequestKey) {
        let mut inner = self.inner();
        if let Some(objects) = inner.get_mut(source) {
            objects.remove(object);
            if objects.is_empty() {
                inner.remove(source);
            }
        }
    }

    /// The objects that name this source, as far as they were not removed.
    pub(crate) fn of(&self, source: &RequestKey) -> Vec<RequestKey> {
        self.inner().get(source).into_iter().flatten().cloned().collect()
    }

    /// Forgets the objects in a cluster that has left. They are seen again when it is back.
    pub(crate) fn forget_cluster(&self, cluster: &ClusterName) {
        self.inner().retain(|_, objects| {
            objects.retain(|object| object.cluster != *cluster);
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
        assert_eq!(claims.of(&source), [key("berlin", "x")]);
        claims.remove(&source, &key("berlin", "x"));
        assert!(claims.inner().is_empty());
    }
}
