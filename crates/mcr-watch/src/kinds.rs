//! Tables by kind that the watches of many clusters share: templates of objects, and registered indexes.

use std::{convert::Infallible, sync::Arc};

use mcr_access::internal::WeakCache;
use mcr_store::{Indexer, TemplateRegistry};
use parking_lot::Mutex;

use crate::request::WatchRequest;

/// The templates and the registered indexes of each kind.
#[derive(Default)]
pub struct KindTables {
    /// A registry lives as long as a watch uses it.
    templates: WeakCache<TemplateRegistry, WatchRequest>,
    indexes: Mutex<Vec<RegisteredIndex>>,
}

struct RegisteredIndex {
    kind: WatchRequest,
    name: Arc<str>,
    indexer: Indexer,
}

impl KindTables {
    /// The templates of the objects of a kind.
    pub fn templates(&self, request: &WatchRequest) -> Arc<TemplateRegistry> {
        let make = || Ok::<_, Infallible>(Arc::new(TemplateRegistry::new(request.encoding())));
        let Ok(templates) = self.templates.get_or_try_insert(request.whole_kind(), make);
        templates
    }

    /// Registers an index for the watches that start from now on. It replaces an index of the same kind and name.
    pub fn register_index(&self, kind: &WatchRequest, name: &Arc<str>, indexer: &Indexer) {
        let mut indexes = self.indexes.lock();
        indexes.retain(|known| known.name != *name || !known.kind.same_kind(kind));
        indexes.push(RegisteredIndex {
            kind: kind.clone(),
            name: name.clone(),
            indexer: indexer.clone(),
        });
    }

    /// The indexes that are registered for a kind, with their names.
    pub fn indexers(&self, kind: &WatchRequest) -> Vec<(Arc<str>, Indexer)> {
        self.indexes
            .lock()
            .iter()
            .filter(|index| index.kind.same_kind(kind))
            .map(|index| (index.name.clone(), index.indexer.clone()))
            .collect()
    }
}
