//! What to watch.

use std::fmt;

use kube::{Resource, core::ApiResource};

use crate::store::Form;

/// What to watch in a cluster: a kind, where, which of its objects, and how much of each.
///
/// Two controllers that ask for the same share one watch and one store.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mcr_core::WatchRequest;
///
/// let request = WatchRequest::of::<ConfigMap>().namespace("team-a").labels("app=web");
/// assert_eq!(request.to_string(), "configmaps in namespace team-a with labels app=web");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WatchRequest {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) metadata_only: bool,
    pub(crate) namespace: Option<String>,
    pub(crate) labels: Option<String>,
    pub(crate) fields: Option<String>,
}

impl WatchRequest {
    /// All objects of a kind known at compile time; metadata only for `PartialObjectMeta<K>`.
    pub fn of<K: Resource<DynamicType = ()>>() -> Self {
        Self::with::<K>(&())
    }

    /// All objects of a kind described by its dynamic type.
    pub fn with<K: Resource>(dynamic: &K::DynamicType) -> Self {
        Self {
            group: K::group(dynamic).into_owned(),
            version: K::version(dynamic).into_owned(),
            kind: K::kind(dynamic).into_owned(),
            plural: K::plural(dynamic).into_owned(),
            metadata_only: K::metadata_api(),
            namespace: None,
            labels: None,
            fields: None,
        }
    }

    /// All objects of a kind known at run time.
    pub fn resource(resource: &ApiResource) -> Self {
        Self {
            group: resource.group.clone(),
            version: resource.version.clone(),
            kind: resource.kind.clone(),
            plural: resource.plural.clone(),
            metadata_only: false,
            namespace: None,
            labels: None,
            fields: None,
        }
    }

    /// Only the objects of one namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// The objects of all namespaces, as in the beginning.
    #[must_use]
    pub fn all_namespaces(mut self) -> Self {
        self.namespace = None;
        self
    }

    /// Only objects that match a label selector; the API server applies it.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Only objects that match a field selector; the API server applies it.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    /// Only the metadata of each object. A metadata-only watch has a store of its own, read as
    /// `PartialObjectMeta<K>`.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// Without a field selector.
    #[must_use]
    pub fn without_fields(mut self) -> Self {
        self.fields = None;
        self
    }

    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The version of the API group.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The resource's name in paths.
    pub fn plural(&self) -> &str {
        &self.plural
    }

    /// The only namespace that is watched, if it is only one.
    pub fn namespace_wanted(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The label selector.
    pub fn label_selector(&self) -> Option<&str> {
        self.labels.as_deref()
    }

    /// The field selector.
    pub fn field_selector(&self) -> Option<&str> {
        self.fields.as_deref()
    }

    /// The kind's name, for people.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// `<plural>` or `<plural>.<group>`.
    pub fn resource_name(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The same kind in the same wire form, whichever of its objects are selected.
    pub(crate) fn same_kind(&self, other: &Self) -> bool {
        self.group == other.group
            && self.version == other.version
            && self.plural == other.plural
            && self.metadata_only == other.metadata_only
    }

    /// The same kind in the same wire form, all of its objects.
    #[cfg(feature = "packed")]
    pub(crate) fn whole_kind(&self) -> Self {
        self.clone().all_namespaces().without_fields().without_labels()
    }

    #[cfg(feature = "packed")]
    fn without_labels(mut self) -> Self {
        self.labels = None;
        self
    }

    pub(crate) fn form(&self) -> Form {
        if self.metadata_only {
            Form::new("meta.k8s.io/v1", "PartialObjectMetadata")
        } else {
            Form::new(&self.api_version(), &self.kind)
        }
    }

    pub(crate) fn path(&self) -> String {
        let root = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        match &self.namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{}", self.plural),
        }
    }

    pub(crate) fn accept_list(&self) -> &'static str {
        if self.metadata_only {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        } else {
            "application/json"
        }
    }

    pub(crate) fn accept_watch(&self) -> &'static str {
        if self.metadata_only {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        } else {
            "application/json"
        }
    }
}

impl fmt::Display for WatchRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource_name())?;
        if self.metadata_only {
            f.write_str(" (metadata only)")?;
        }
        if let Some(namespace) = &self.namespace {
            write!(f, " in namespace {namespace}")?;
        }
        if let Some(labels) = &self.labels {
            write!(f, " with labels {labels}")?;
        }
        if let Some(fields) = &self.fields {
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
