//! What to watch.

use std::{fmt, sync::Arc};

use kube::{Resource, core::ApiResource};

use crate::store::Form;

/// What to watch in a cluster: a kind, where, which of its objects, and how much of each.
///
/// Two controllers that ask for the same share one watch and one store. Clones share their memory.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mcr_core::WatchRequest;
///
/// let request = WatchRequest::of::<ConfigMap>().namespace("team-a").labels("app=web");
/// assert_eq!(request.to_string(), "configmaps in namespace team-a with labels app=web");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WatchRequest(Arc<Asked>);

/// In one place for all the clusters that are asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Asked {
    group: String,
    version: String,
    kind: String,
    plural: String,
    metadata_only: bool,
    namespace: Option<String>,
    labels: Option<String>,
    fields: Option<String>,
}

impl WatchRequest {
    /// All objects of a kind known at compile time; metadata only for `PartialObjectMeta<K>`.
    pub fn of<K: Resource<DynamicType = ()>>() -> Self {
        Self::with::<K>(&())
    }

    /// All objects of a kind described by its dynamic type.
    pub fn with<K: Resource>(dynamic: &K::DynamicType) -> Self {
        Self(Arc::new(Asked {
            group: K::group(dynamic).into_owned(),
            version: K::version(dynamic).into_owned(),
            kind: K::kind(dynamic).into_owned(),
            plural: K::plural(dynamic).into_owned(),
            metadata_only: K::metadata_api(),
            namespace: None,
            labels: None,
            fields: None,
        }))
    }

    /// All objects of a kind known at run time.
    pub fn resource(resource: &ApiResource) -> Self {
        Self(Arc::new(Asked {
            group: resource.group.clone(),
            version: resource.version.clone(),
            kind: resource.kind.clone(),
            plural: resource.plural.clone(),
            metadata_only: false,
            namespace: None,
            labels: None,
            fields: None,
        }))
    }

    fn change(&mut self) -> &mut Asked {
        Arc::make_mut(&mut self.0)
    }

    /// Only the objects of one namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.change().namespace = Some(namespace.into());
        self
    }

    /// The objects of all namespaces, as in the beginning.
    #[must_use]
    pub fn all_namespaces(mut self) -> Self {
        self.change().namespace = None;
        self
    }

    /// Only objects that match a label selector; the API server applies it.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.change().labels = Some(selector.into());
        self
    }

    /// Only objects that match a field selector; the API server applies it.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.change().fields = Some(selector.into());
        self
    }

    /// Only the metadata of each object. A metadata-only watch has a store of its own, read as
    /// `PartialObjectMeta<K>`.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.change().metadata_only = true;
        self
    }

    /// Without a field selector.
    #[must_use]
    pub fn without_fields(mut self) -> Self {
        self.change().fields = None;
        self
    }

    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        &self.0.group
    }

    /// The version of the API group.
    pub fn version(&self) -> &str {
        &self.0.version
    }

    /// The resource's name in paths.
    pub fn plural(&self) -> &str {
        &self.0.plural
    }

    /// The only namespace that is watched, if it is only one.
    pub fn namespace_wanted(&self) -> Option<&str> {
        self.0.namespace.as_deref()
    }

    /// The label selector.
    pub fn label_selector(&self) -> Option<&str> {
        self.0.labels.as_deref()
    }

    /// The field selector.
    pub fn field_selector(&self) -> Option<&str> {
        self.0.fields.as_deref()
    }

    /// The kind's name, for people.
    pub fn kind(&self) -> &str {
        &self.0.kind
    }

    /// `<plural>` or `<plural>.<group>`.
    pub fn resource_name(&self) -> String {
        if self.0.group.is_empty() {
            self.0.plural.clone()
        } else {
            format!("{}.{}", self.0.plural, self.0.group)
        }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.0.group.is_empty() {
            self.0.version.clone()
        } else {
            format!("{}/{}", self.0.group, self.0.version)
        }
    }

    /// The same kind in the same wire form, whichever of its objects are selected.
    pub(crate) fn same_kind(&self, other: &Self) -> bool {
        self.0.group == other.0.group
            && self.0.version == other.0.version
            && self.0.plural == other.0.plural
            && self.0.metadata_only == other.0.metadata_only
    }

    /// The same kind in the same wire form, all of its objects.
    pub(crate) fn whole_kind(&self) -> Self {
        self.clone().all_namespaces().without_fields().without_labels()
    }

    fn without_labels(mut self) -> Self {
        self.change().labels = None;
        self
    }

    pub(crate) fn form(&self) -> Form {
        if self.0.metadata_only {
            Form::new("meta.k8s.io/v1", "PartialObjectMetadata")
        } else {
            Form::new(&self.api_version(), &self.0.kind)
        }
    }

    pub(crate) fn path(&self) -> String {
        let root = if self.0.group.is_empty() {
            format!("/api/{}", self.0.version)
        } else {
            format!("/apis/{}/{}", self.0.group, self.0.version)
        };
        match &self.0.namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.0.plural),
            None => format!("{root}/{}", self.0.plural),
        }
    }

    pub(crate) fn accept_list(&self) -> &'static str {
        if self.0.metadata_only {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        } else {
            "application/json"
        }
    }

    pub(crate) fn accept_watch(&self) -> &'static str {
        if self.0.metadata_only {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        } else {
            "application/json"
        }
    }
}

impl fmt::Display for WatchRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource_name())?;
        if self.0.metadata_only {
            f.write_str(" (metadata only)")?;
        }
        if let Some(namespace) = &self.0.namespace {
            write!(f, " in namespace {namespace}")?;
        }
        if let Some(labels) = &self.0.labels {
            write!(f, " with labels {labels}")?;
        }
        if let Some(fields) = &self.0.fields {
            write!(f, " with fields {fields}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
    use kube::core::PartialObjectMeta;

    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        assert_eq!(WatchRequest::of::<ConfigMap>().path(), "/api/v1/configmaps");
        assert_eq!(
            WatchRequest::of::<Deployment>().namespace("a").path(),
            "/apis/apps/v1/namespaces/a/deployments"
        );
    }

    #[test]
    fn metadata_only_is_asked_for_by_type_or_by_hand() {
        let by_type = WatchRequest::of::<PartialObjectMeta<ConfigMap>>();
        assert_eq!(by_type, WatchRequest::of::<ConfigMap>().metadata_only());
        assert_ne!(by_type, WatchRequest::of::<ConfigMap>());
        assert!(by_type.accept_list().contains("PartialObjectMetadataList"));
    }
}
