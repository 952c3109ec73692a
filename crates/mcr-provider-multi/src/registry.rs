//! The children of a provider, as its handles change them. Discoveries follow these changes.

use std::{
    collections::btree_map::Entry,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::{StreamExt, TryStreamExt};
use mcr_core::{
    Change, Discovery, DiscoverySettings, Provider, ProviderId,
    layer::{self, Prefix},
};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    children::{Child, Children, Options},
    engine::Engine,
    error::MultiError,
    names,
    status::ChildStatus,
};

pub(crate) struct Registry {
    pub(crate) options: Options,
    pub(crate) children: watch::Sender<Children>,
    next_id: AtomicU64,
    /// The engines of all discoveries, the newest last. A new discovery uses the newest idle engine, so there are
    /// never more engines than simultaneous discoveries.
    engines: Mutex<Vec<Arc<Engine>>>,
}

impl Registry {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            children: watch::Sender::default(),
            next_id: AtomicU64::new(0),
            engines: Mutex::default(),
        }
    }

    pub(crate) fn add(&self, name: Arc<str>, provider: Arc<dyn Provider>) -> Result<(), MultiError> {
        let separator = &self.options.separator;
        names::check_child(&name, separator)?;
        let child = Child {
            id: ProviderId(self.next_id.fetch_add(1, Ordering::Relaxed)),
            provider: Arc::new(Named {
                inner: layer::prefix(format!("{name}{separator}"), provider),
                name: name.clone(),
            }),
        };
        let added = self
            .children
            .send_if_modified(|children| match children.entry(name.clone()) {
                Entry::Occupied(_) => false,
                Entry::Vacant(place) => {
                    place.insert(child);
                    true
                }
            });
        if added {
            Ok(())
        } else {
            Err(MultiError::NameTaken(name.to_string()))
        }
    }

    pub(crate) fn remove(&self, name: &str) -> bool {
        let mut removed = None;
        self.children.send_if_modified(|children| {
            removed = children.remove(name);
            removed.is_some()
        });
        // Dropped after the lock is released, because dropping a provider runs user code.
        removed.is_some()
    }

    pub(crate) fn release_held(&self, name: &str) -> bool {
        let id = self.children.borrow().get(name).map(|child| child.id);
        // The lock is released first, because dropping the released clusters runs user code.
        let engines = self.engines.lock().clone();
        for engine in engines.iter().filter(|_| id.is_some()) {
            engine.set.release_held(id);
        }
        id.is_some()
    }

    /// Returns an engine for a new discovery.
    pub(crate) fn begin(&self) -> Arc<Engine> {
        let mut engines = self.engines.lock();
        let idle = engines.iter().rposition(|engine| engine.begin());
        let engine = idle.map(|idle| engines.remove(idle)).unwrap_or_else(|| {
            let engine = Arc::new(Engine::new(&self.options));
            engine.begin();
            engine
        });
        engines.push(engine.clone());
        engine
    }

    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        self.children.borrow().keys().cloned().collect()
    }

    pub(crate) fn statuses(&self) -> Vec<ChildStatus> {
        let children = self.children.borrow().clone();
        let engine = self.engines.lock().last().cloned();
        let status = |(name, child): (&Arc<str>, &Child)| {
            let known = engine.as_ref().and_then(|engine| engine.status(name, child.id));
            known.unwrap_or_else(|| ChildStatus::new(name.clone()))
        };
        children.iter().map(status).collect()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("options", &self.options)
            .field("children", &self.names())
            .finish()
    }
}

/// A provider under the name of a child. The name is also the prefix of its clusters' names.
struct Named {
    name: Arc<str>,
    inner: Prefix<Arc<dyn Provider>>,
}

impl Provider for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn searched(&self) -> String {
        self.inner.searched()
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let name = self.name.clone();
        let discovery = self.inner.discover_with(stop, settings);
        discovery
            .map_ok(move |mut change| {
                if let Change::Upsert(spec) = &mut change {
                    spec.announced_by.get_or_insert_with(|| name.clone());
                }
                change
            })
            .boxed()
    }
}
