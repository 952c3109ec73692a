use std::sync::Arc;

use mcr_core::Provider;

use crate::{error::MultiError, names::split_cluster_name, registry::Registry, status::ChildStatus};

/// Adds and removes the children of a [`MultiProvider`](crate::MultiProvider), and shows their state.
///
/// Clones share their children. Every method can be called before, during and after a discovery, returns at once, and
/// needs no runtime.
#[derive(Clone, Debug)]
pub struct MultiHandle(pub(crate) Arc<Registry>);

impl MultiHandle {
    /// Adds a child under the name of its provider. The child starts at once if a discovery runs.
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
    /// As in [`add`](Self::add).
    pub fn add_as(&self, name: impl Into<Arc<str>>, provider: impl Provider) -> Result<(), MultiError> {
        self.0.add(name.into(), Arc::new(provider))
    }

    /// Removes a child and all its clusters at once, without a grace period. Returns whether there was a child of that
    /// name.
    ///
    /// The name is free at once. If another child takes the name, all clusters of the old child leave before the first
    /// cluster of the new child joins.
    pub fn remove(&self, name: &str) -> bool {
        self.0.remove(name)
    }

    /// Removes the held clusters of a child. These are clusters that the child no longer announces, but that stay
    /// because they are most of its clusters. Returns whether there is a child of that name.
    pub fn release_held(&self, name: &str) -> bool {
        self.0.release_held(name)
    }

    /// The names of all children, sorted.
    pub fn names(&self) -> Vec<Arc<str>> {
        self.0.names()
    }

    /// Whether there is a child of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.0.children.borrow().contains_key(name)
    }

    /// The status of a child. `None` if there is no child of that name.
    pub fn status(&self, name: &str) -> Option<ChildStatus> {
        let mut statuses = self.0.statuses().into_iter();
        statuses.find(|status| &*status.name == name)
    }

    /// The status of each child, sorted by name.
    pub fn statuses(&self) -> Vec<ChildStatus> {
        self.0.statuses()
    }

    /// Splits the name of a cluster into the name of its child and the name that the child announced; see
    /// [`split_cluster_name`].
    pub fn split<'a>(&self, cluster: &'a str) -> Option<(&'a str, &'a str)> {
        split_cluster_name(cluster, &self.0.options.separator)
    }
}
