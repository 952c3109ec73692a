use std::{fmt, sync::Arc};

use mcr_core::Provider;

use crate::{ChildStatus, MultiError, registry::Registry, split_cluster_name};

/// Adds and removes the children of a [`MultiProvider`](crate::MultiProvider), and tells how they are.
///
/// Clones share their children. Every method works before, while and after a discovery runs, returns at once and
/// needs no runtime.
#[derive(Clone)]
pub struct MultiHandle(pub(crate) Arc<Registry>);

impl MultiHandle {
    /// Adds a child under its provider's own name. It is started at once if a discovery runs.
    ///
    /// # Errors
    /// [`MultiError`] if the name is taken, or can't be part of cluster names.
    pub fn add(&self, provider: impl Provider) -> Result<(), MultiError> {
        let name: Arc<str> = provider.name().into();
        self.add_as(name, provider)
    }

    /// Adds a child under another name.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_as(&self, name: impl Into<Arc<str>>, provider: impl Provider) -> Result<(), MultiError> {
        self.0.add(name.into(), Arc::new(provider))
    }

    /// Removes a child and all of its clusters, without a grace. Returns whether there was one of that name.
    ///
    /// The name is free at once. If another child takes it, all clusters of the old one leave before the first of
    /// the new one joins.
    pub fn remove(&self, name: &str) -> bool {
        self.0.remove(name)
    }

    /// Lets those clusters of a child go that it no longer names, but that were held because they are most of its
    /// clusters. Returns whether there is a child of that name.
    pub fn release_held(&self, name: &str) -> bool {
        self.0.release_held(name)
    }

    /// The names of all children, sorted.
    pub fn names(&self) -> Vec<Arc<str>> {
        self.0.names()
    }

    /// Whether there is a child of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// How a child is.
    pub fn status(&self, name: &str) -> Option<ChildStatus> {
        self.0.status(name)
    }

    /// How all children are, in the order of their names.
    pub fn statuses(&self) -> Vec<ChildStatus> {
        self.0.statuses()
    }

    /// Splits the name of a cluster into that of its child and that which the child gave it; see
    /// [`split_cluster_name`].
    pub fn split<'a>(&self, cluster: &'a str) -> Option<(&'a str, &'a str)> {
        split_cluster_name(cluster, &self.0.options.separator)
    }
}

impl fmt::Debug for MultiHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiHandle")
            .field("names", &self.names())
            .finish()
    }
}
