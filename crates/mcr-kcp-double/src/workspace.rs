use std::sync::Arc;

use serde_json::Value;

use super::directory::Entry;
use super::inner::Inner;
use super::missing::no_workspace;
use mcr_testkit::sim::{SimCluster, SimError};

/// A workspace: one logical cluster. Cheap to clone.
#[derive(Clone, Debug)]
pub struct KcpWorkspace {
    inner: Arc<Inner>,
    entry: Entry,
}

impl KcpWorkspace {
    pub(super) fn new(inner: Arc<Inner>, entry: Entry) -> Self {
        Self { inner, entry }
    }

    /// The id of the logical cluster: 16 characters, or `root`.
    pub fn id(&self) -> &str {
        &self.entry.id
    }

    /// The path, `root:org:team`.
    pub fn path(&self) -> &str {
        &self.entry.path
    }

    /// The name of the shard that the workspace is on, if it still exists.
    pub fn shard(&self) -> Option<String> {
        let entry = self.inner.directory.by_id(&self.entry.id)?;
        let shard = self.inner.shard_of(&entry)?;
        Some(shard.name.to_string())
    }

    /// Creates an object without a request: without authorisation, and without an entry in the audit log. The control
    /// plane reacts to it.
    ///
    /// # Errors
    ///
    /// With the error that kcp answers.
    pub fn create(&self, object: Value) -> Result<Value, SimError> {
        self.change(|cluster| cluster.create(object))
    }

    /// Replaces an object. An object without `resourceVersion` replaces the newest state.
    ///
    /// # Errors
    ///
    /// With the error that kcp answers.
    pub fn update(&self, object: Value) -> Result<Value, SimError> {
        self.change(|cluster| cluster.update(object))
    }

    /// Applies an object by force. Creates the object, or changes the fields that are in `object`.
    ///
    /// # Errors
    ///
    /// With the error that kcp answers.
    pub fn apply(&self, object: Value) -> Result<Value, SimError> {
        self.change(|cluster| cluster.apply(object))
    }

    /// Deletes an object by resource (`configmaps`, `widgets.example.com`) and key (`namespace/name` or `name`). An
    /// object with finalizers is only marked as deleted.
    ///
    /// # Errors
    ///
    /// With the error that kcp answers.
    pub fn delete(&self, resource: &str, key: &str) -> Result<(), SimError> {
        self.change(|cluster| cluster.delete(resource, key))
    }

    /// An object by resource and key.
    pub fn get(&self, resource: &str, key: &str) -> Option<Value> {
        self.cluster().ok()?.get(resource, key)
    }

    /// All objects of a resource in a namespace, or in all namespaces for `""`.
    pub fn list(&self, resource: &str, namespace: &str) -> Vec<Value> {
        self.cluster()
            .map(|cluster| cluster.list(resource, namespace))
            .unwrap_or_default()
    }

    fn change<T>(&self, write: impl FnOnce(SimCluster) -> Result<T, SimError>) -> Result<T, SimError> {
        let done = write(self.cluster()?)?;
        self.inner.reconcile();
        Ok(done)
    }

    fn cluster(&self) -> Result<SimCluster, SimError> {
        let entry = self.inner.directory.by_id(&self.entry.id);
        let shard = entry.as_ref().and_then(|entry| self.inner.shard_of(entry));
        let shard = shard.ok_or_else(|| no_workspace(&self.entry.path))?;
        Ok(SimCluster {
            inner: shard.view(&self.entry.id),
        })
    }
}
