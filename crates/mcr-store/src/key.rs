//! The names of objects.

use std::{fmt, sync::Arc};

/// The name of an object inside one cluster, with its namespace if its kind has one.
///
/// A clone copies two pointers and no text.
///
/// ```
/// use mcr_store::ObjectKey;
///
/// assert_eq!(ObjectKey::namespaced("default", "web").to_string(), "default/web");
/// assert_eq!(ObjectKey::cluster_scoped("node-1").to_string(), "node-1");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The namespace. `None` for kinds that are cluster-scoped.
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

    /// The key of an object whose kind is cluster-scoped.
    pub fn cluster_scoped(name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: None,
            name: name.into(),
        }
    }

    /// The key of a typed object. `None` if the object has no name yet.
    ///
    /// ```
    /// use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
    /// use mcr_store::ObjectKey;
    ///
    /// let mut map = ConfigMap::default();
    /// assert_eq!(ObjectKey::of(&map), None);
    ///
    /// map.metadata = ObjectMeta {
    ///     name: Some("web".to_owned()),
    ///     namespace: Some("default".to_owned()),
    ///     ..ObjectMeta::default()
    /// };
    /// assert_eq!(ObjectKey::of(&map), Some(ObjectKey::namespaced("default", "web")));
    /// ```
    #[cfg(feature = "kube")]
    #[cfg_attr(docsrs, doc(cfg(feature = "kube")))]
    pub fn of<K: kube_core::Resource>(object: &K) -> Option<Self> {
        let meta = object.meta();
        Some(Self {
            namespace: meta.namespace.as_deref().map(Arc::from),
            name: meta.name.as_deref().map(Arc::from)?,
        })
    }
}

/// Writes `namespace/name`, or the name alone where there is no namespace.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}
