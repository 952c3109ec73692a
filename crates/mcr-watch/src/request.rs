//! The request for a watch.

use std::{fmt, sync::Arc};

use kube::{Resource, core::ApiResource};
use mcr_access::internal::namespace as namespaces;
use mcr_store::Encoding;

use crate::error::WatchError;

/// What to watch in a cluster: a kind, a namespace or all, selectors, full objects or metadata only.
///
/// Two controllers with equal requests share one watch and one store. Clones share their memory.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mcr_watch::WatchRequest;
///
/// let request = WatchRequest::of::<ConfigMap>().namespace("team-a").labels("app=web");
/// assert_eq!(request.to_string(), "configmaps in namespace team-a with labels app=web");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WatchRequest(Arc<Inner>);

/// Shared by the watches of all clusters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Inner {
    group: String,
    version: String,
    kind: String,
    plural: String,
    metadata_only: bool,
    namespace: Option<String>,
    labels: Option<String>,
    fields: Option<String>,
    if_not_served: Option<String>,
}

impl WatchRequest {
    /// Requests all objects of a kind known at compile time; metadata only for `PartialObjectMeta<K>`.
    pub fn of<K: Resource<DynamicType = ()>>() -> Self {
        Self::with::<K>(&())
    }

    /// Requests all objects of a kind described by its dynamic type.
    pub fn with<K: Resource>(dynamic: &K::DynamicType) -> Self {
        let mut request = Self::resource(&ApiResource::erase::<K>(dynamic));
        request.change().metadata_only = K::metadata_api();
        request
    }

    /// Requests all objects of a kind known at run time.
    pub fn resource(resource: &ApiResource) -> Self {
        Self(Arc::new(Inner {
            group: resource.group.clone(),
            version: resource.version.clone(),
            kind: resource.kind.clone(),
            plural: resource.plural.clone(),
            metadata_only: false,
            namespace: None,
            labels: None,
            fields: None,
            if_not_served: None,
        }))
    }

    fn change(&mut self) -> &mut Inner {
        Arc::make_mut(&mut self.0)
    }

    /// Selects the objects of one namespace. If the name can't be that of a namespace, the watch fails with
    /// [`WatchError::InvalidRequest`].
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.change().namespace = Some(namespace.into());
        self
    }

    /// Selects the objects of all namespaces. This is the default.
    #[must_use]
    pub fn all_namespaces(mut self) -> Self {
        self.change().namespace = None;
        self
    }

    /// Selects objects with a label selector, which the API server applies.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.change().labels = Some(selector.into());
        self
    }

    /// Selects objects with a field selector, which the API server applies.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.change().fields = Some(selector.into());
        self
    }

    /// Requests only the metadata of each object. A metadata-only watch has a store of its own, which returns
    /// `PartialObjectMeta<K>`.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.change().metadata_only = true;
        self
    }

    /// Sets the text to show if the API server does not serve the kind (404), in place of the advice to install its CRD. For
    /// layouts of scopes, whose clusters get their kinds in other ways.
    #[must_use]
    pub fn if_not_served(mut self, explanation: impl Into<String>) -> Self {
        self.change().if_not_served = Some(explanation.into());
        self
    }

    /// The error to show for an error of the API server.
    pub(crate) fn explain(&self, error: WatchError) -> WatchError {
        match (error, &self.0.if_not_served) {
            (WatchError::NotServed, Some(explanation)) => WatchError::NotInScope {
                message: explanation.clone(),
            },
            (error, _) => error,
        }
    }

    /// Removes the field selector.
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

    /// The plural name of the kind, as in paths.
    pub fn plural(&self) -> &str {
        &self.0.plural
    }

    /// The namespace; none for all namespaces.
    pub fn namespace_name(&self) -> Option<&str> {
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

    /// The name of the kind, such as `ConfigMap`.
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

    #[doc(hidden)]
    pub fn api_version(&self) -> String {
        if self.0.group.is_empty() {
            self.0.version.clone()
        } else {
            format!("{}/{}", self.0.group, self.0.version)
        }
    }

    /// Whether both are for the same kind, and both for full objects or both for metadata. Selectors don't matter.
    #[doc(hidden)]
    pub fn same_kind(&self, other: &Self) -> bool {
        self.0.group == other.0.group
            && self.0.version == other.0.version
            && self.0.plural == other.0.plural
            && self.0.metadata_only == other.0.metadata_only
    }

    /// The request for all objects of the same kind.
    #[doc(hidden)]
    pub fn whole_kind(&self) -> Self {
        self.clone().all_namespaces().without_fields().without_labels()
    }

    fn without_labels(mut self) -> Self {
        self.change().labels = None;
        self
    }

    #[doc(hidden)]
    pub fn encoding(&self) -> Encoding {
        if self.0.metadata_only {
            Encoding::new("meta.k8s.io/v1", "PartialObjectMetadata")
        } else {
            Encoding::new(&self.api_version(), &self.0.kind)
        }
    }

    /// Checks the parts of the [path](Self::path): with a namespace `a/secrets?` it would be the path of another kind.
    ///
    /// # Errors
    /// [`WatchError::InvalidRequest`], with the wrong part.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), WatchError> {
        let Inner {
            group,
            version,
            plural,
            namespace,
            ..
        } = &*self.0;
        let namespace = namespace.as_deref();
        let parts = [
            (
                group.as_str(),
                group.is_empty() || is_segment(group),
                "an API group",
            ),
            (version, is_segment(version), "the version of an API group"),
            (plural, is_segment(plural), "the plural name of a kind"),
            (
                namespace.unwrap_or_default(),
                namespace.is_none_or(namespaces::is_valid),
                "the name of a namespace, which has at most 63 lower-case letters, digits and hyphens and begins and ends with a \
                 letter or digit",
            ),
        ];
        match parts.into_iter().find(|(_, valid, _)| !valid) {
            None => Ok(()),
            Some((value, _, meant)) => Err(WatchError::InvalidRequest {
                value: value.chars().take(80).collect(),
                meant,
            }),
        }
    }

    /// The path of the list and the watch. Only for requests that have been [checked](Self::check).
    #[doc(hidden)]
    pub fn path(&self) -> String {
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

    /// The request without selectors, which may make a list of one object expensive. One object by its name is cheap, and RBAC
    /// may allow nothing else.
    pub(crate) fn unselected(&self) -> Self {
        let mut all = self.clone();
        let inner = all.change();
        inner.labels = None;
        inner
            .fields
            .take_if(|fields| !fields.starts_with("metadata.name="));
        all
    }

    #[doc(hidden)]
    pub fn accept_list(&self) -> &'static str {
        if self.0.metadata_only {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        } else {
            "application/json"
        }
    }

    #[doc(hidden)]
    pub fn accept_watch(&self) -> &'static str {
        if self.0.metadata_only {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        } else {
            "application/json"
        }
    }
}

/// Whether the text is one segment of a path, without escapes.
fn is_segment(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !text.is_empty() && text.bytes().all(plain) && !matches!(text, "." | "..")
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
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::{GroupVersionKind, PartialObjectMeta};

    use super::*;

    #[test]
    fn what_would_lead_to_another_path_is_refused_with_its_name() {
        let refused = |request: &WatchRequest| request.check().map_err(|error| error.to_string());
        let maps = WatchRequest::of::<ConfigMap>();
        assert_eq!(refused(&maps), Ok(()));
        let longest = "a".repeat(63);
        for namespace in ["a", "0", "team-a", "a--b", "1a", longest.as_str()] {
            assert_eq!(refused(&maps.clone().namespace(namespace)), Ok(()), "{namespace}");
        }
        let too_long = "a".repeat(64);
        let wrong = [
            "", "a/b", "a?x=y", "a#b", "a%2fb", "a b", "a\nb", "a.b", "A", "-a", "a-", "-", ".", "..", "ü",
        ];
        for namespace in wrong.into_iter().chain(["../secrets", &too_long]) {
            let error = refused(&maps.clone().namespace(namespace)).unwrap_err();
            let expected = format!("{namespace:?} can't be the name of a namespace");
            assert!(error.contains(&expected), "{error}");
        }
        let endless = "a/".repeat(10_000);
        assert!(refused(&maps.namespace(endless)).unwrap_err().len() < 400);

        let good =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("a.example", "v1", "Kind"), "kinds");
        assert_eq!(refused(&WatchRequest::resource(&good)), Ok(()));
        type Part = fn(&mut ApiResource) -> &mut String;
        let parts: [(Part, &str); 3] = [
            (|resource| &mut resource.group, "an API group"),
            (|resource| &mut resource.version, "the version"),
            (|resource| &mut resource.plural, "the plural name"),
        ];
        for (part, meant) in parts {
            for wrong in ["", "../secrets", "a/b", "a?x=y", "..", "a b", "ü"] {
                let mut resource = good.clone();
                wrong.clone_into(part(&mut resource));
                let error = refused(&WatchRequest::resource(&resource)).err();
                let expected = format!("{wrong:?} can't be {meant}");
                // The core group has no name.
                let is_fine = wrong.is_empty() && meant == "an API group";
                assert_eq!(error.is_none(), is_fine, "{wrong:?} as {meant}");
                assert!(error.is_none_or(|error| error.contains(&expected)));
            }
        }
    }

    #[test]
    fn metadata_only_is_asked_for_by_type_or_by_hand() {
        let by_type = WatchRequest::of::<PartialObjectMeta<ConfigMap>>();
        assert_eq!(by_type, WatchRequest::of::<ConfigMap>().metadata_only());
        assert_ne!(by_type, WatchRequest::of::<ConfigMap>());
        assert!(by_type.accept_list().contains("PartialObjectMetadataList"));
    }
}
