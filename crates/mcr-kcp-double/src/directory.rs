use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The path and the shard number of each logical cluster. While its lock is held, no other lock is taken.
#[derive(Debug, Default)]
pub(super) struct Directory(Mutex<Maps>);

#[derive(Debug, Default)]
struct Maps {
    by_id: HashMap<Arc<str>, Entry>,
    by_path: HashMap<Arc<str>, Arc<str>>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) id: Arc<str>,
    pub(super) path: Arc<str>,
    pub(super) shard: usize,
}

impl Directory {
    pub(super) fn add(&self, id: Arc<str>, path: Arc<str>, shard: usize) {
        let mut maps = self.0.lock();
        maps.by_path.insert(path.clone(), id.clone());
        maps.by_id.insert(id.clone(), Entry { id, path, shard });
    }

    pub(super) fn remove(&self, id: &str) {
        let mut maps = self.0.lock();
        let Some(entry) = maps.by_id.remove(id) else {
            return;
        };
        // A new workspace may have taken the path already.
        if maps
            .by_path
            .get(&entry.path)
            .is_some_and(|there| *there == entry.id)
        {
            maps.by_path.remove(&entry.path);
        }
    }

    pub(super) fn set_shard(&self, id: &str, shard: usize) {
        if let Some(entry) = self.0.lock().by_id.get_mut(id) {
            entry.shard = shard;
        }
    }

    pub(super) fn by_id(&self, id: &str) -> Option<Entry> {
        self.0.lock().by_id.get(id).cloned()
    }

    /// Finds a logical cluster by its id, by its path, or by a path that begins with the id of another logical
    /// cluster.
    pub(super) fn find(&self, name: &str) -> Option<Entry> {
        let maps = self.0.lock();
        if let Some(entry) = maps.by_id.get(name) {
            return Some(entry.clone());
        }
        let path = match name.split_once(':') {
            Some((first, rest)) => match maps.by_id.get(first) {
                Some(entry) => format!("{}:{rest}", entry.path),
                None => name.to_owned(),
            },
            None => name.to_owned(),
        };
        let id = maps.by_path.get(&*path)?;
        maps.by_id.get(id).cloned()
    }
}
