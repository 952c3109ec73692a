//! The names of objects.

use std::{fmt, sync::Arc};

/// The name of an object inside one cluster, with its namespace if its kind has one.
///
/// ```
/// use mcr_core::ObjectKey;
///
/// assert_eq!(ObjectKey::namespaced("default", "web").to_string(), "default/web");
/// assert_eq!(ObjectKey::cluster_scoped("node-1").to_string(), "node-1");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The namespace; none for cluster-scoped kinds.
    pub namespace: Option<Arc<str>>,
    /// The name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of an object in a namespace.
    pub fn namespaced(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: Some(namespace.into()),
            name: name.into(),
        }
    }

    /// The key of an object of a cluster-scoped kind.
    pub fn cluster_scoped(name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: None,
            name: name.into(),
        }
    }

    /// The key of an object; none if it has no name yet.
    pub fn of<K: kube::Resource>(object: &K) -> Option<Self> {
        let meta = object.meta();
        Some(Self {
            namespace: meta.namespace.as_deref().map(Arc::from),
            name: meta.name.as_deref().map(Arc::from)?,
        })
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}
