//! Changes of objects.

use std::{iter, option, sync::Arc};

use crate::{codec::Object, key::ObjectKey};

/// A change of one object: added, modified or deleted.
///
/// An object counts as deleted only if a watch event deletes it or if a complete list lacks it. An object that
/// could not be read, or that was not listed for another reason, is never reported as deleted.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ObjectChange {
    /// The object before the change. `None` if the object is new.
    pub old: Option<Arc<Object>>,
    /// The object after the change. `None` if the object is deleted.
    pub new: Option<Arc<Object>>,
    /// Whether the change comes from a list instead of a watch event.
    pub initial: bool,
}

impl ObjectChange {
    /// The object's name and namespace.
    ///
    /// Every change that [`ObjectStore`](crate::ObjectStore) makes has a key, because it has an old or a new object.
    pub fn key(&self) -> Option<&ObjectKey> {
        self.new.as_ref().or(self.old.as_ref()).map(|object| object.key())
    }

    /// Whether the object is deleted.
    pub fn is_delete(&self) -> bool {
        self.new.is_none()
    }

    /// A new object.
    pub fn added(new: Arc<Object>, initial: bool) -> Self {
        Self {
            old: None,
            new: Some(new),
            initial,
        }
    }

    /// An object that is gone.
    pub fn deleted(old: Arc<Object>, initial: bool) -> Self {
        Self {
            old: Some(old),
            new: None,
            initial,
        }
    }
}

/// The changes that one [`ObjectStore::upsert`](crate::ObjectStore::upsert) made, to iterate over.
/// There are no changes if the store already held the object with the same content. There are two if the store held
/// another object of the same name: that object is deleted, then the new one is added. Otherwise there is one change.
#[derive(Debug)]
pub struct ObjectChanges(pub(super) Option<ObjectChange>, pub(super) Option<ObjectChange>);

impl IntoIterator for ObjectChanges {
    type Item = ObjectChange;
    type IntoIter = iter::Chain<option::IntoIter<ObjectChange>, option::IntoIter<ObjectChange>>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().chain(self.1)
    }
}
