//! Endpoint slices: which one serves the API, and its endpoints. No I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use kube::core::{ApiResource, GroupVersionKind};
use mcr_core::{Object, WatchRequest};
use serde::Deserialize;

use crate::api::{Condition, find};

/// The API whose consumers become clusters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Api {
    Slice(Arc<str>),
    Export(Arc<str>),
}

impl Api {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Slice(name) | Self::Export(name) => name,
        }
    }

    /// The request for the slices that may serve the API.
    pub(crate) fn request(&self) -> WatchRequest {
        let kind = GroupVersionKind::gvk("apis.kcp.io", "v1alpha1", "APIExportEndpointSlice");
        let request = WatchRequest::resource(&ApiResource::from_gvk_with_plural(
            &kind,
            "apiexportendpointslices",
        ));
        match self {
            Self::Slice(name) => request.fields(format!("metadata.name={name}")),
            Self::Export(_) => request,
        }
    }

    /// Chooses the slice that serves the API.
    ///
    /// # Errors
    /// Text that says what to do, if there is none, or if there are several.
    pub(crate) fn choose<'s>(
        &self,
        slices: &'s BTreeMap<Arc<str>, Slice>,
    ) -> Result<(&'s Arc<str>, &'s Slice), String> {
        let serving = slices.iter().filter(|(name, slice)| match self {
            Self::Slice(wanted) => *name == wanted,
            Self::Export(export) => slice.export == *export,
        });
        let mut serving: Vec<_> = serving.collect();
        if serving.len() > 1 {
            serving.sort_by_key(|(name, _)| &***name != self.name());
            if &**serving[0].0 != self.name() {
                let names: Vec<&str> = serving.iter().map(|(name, _)| &***name).collect();
                return Err(format!(
                    "{self} has several endpoint slices: {}; choose one with `slice`",
                    names.join(", ")
                ));
            }
        }
        serving.first().copied().ok_or_else(|| match self {
            Self::Slice(_) => format!("{self} does not exist; correct its name, or the workspace in the address"),
            Self::Export(_) => format!(
                "{self} has no APIExportEndpointSlice; correct the name of the export or the workspace in the address, or \
                 create a slice, which kcp does not do for an export with the annotation \
                 apiexports.apis.kcp.io/skip-endpointslice"
            ),
        })
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slice(name) => write!(f, "APIExportEndpointSlice {name}"),
            Self::Export(name) => write!(f, "APIExport {name}"),
        }
    }
}

/// The facts of an endpoint slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) export: Arc<str>,
    pub(crate) urls: BTreeSet<Arc<str>>,
    /// Why the export is not valid.
    pub(crate) invalid: Option<Arc<str>>,
}

#[derive(Deserialize)]
struct Raw {
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Spec {
    export: Export,
}

#[derive(Deserialize)]
struct Export {
    name: Arc<str>,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    endpoints: Vec<Endpoint>,
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Endpoint {
    url: Arc<str>,
}

impl Slice {
    /// Reads a slice. An error has text for people.
    pub(crate) fn read(object: &Object) -> Result<Self, Arc<str>> {
        let raw: Raw = object.decode().map_err(|error| Arc::from(error.to_string()))?;
        Ok(raw.into())
    }
}

impl From<Raw> for Slice {
    fn from(raw: Raw) -> Self {
        let invalid = ["APIExportValid", "PartitionValid"]
            .into_iter()
            .find_map(|type_| {
                let condition =
                    find(&raw.status.conditions, type_).filter(|condition| condition.status == "False")?;
                let message = condition.message.as_ref().or(condition.reason.as_ref());
                Some(
                    format!(
                        "{type_} is False: {}",
                        message.map_or("no message", String::as_str)
                    )
                    .into(),
                )
            });
        Self {
            export: raw.spec.export.name,
            urls: raw
                .status
                .endpoints
                .into_iter()
                .map(|endpoint| endpoint.url)
                .collect(),
            invalid,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(export: &str) -> Slice {
        Slice {
            export: export.into(),
            urls: BTreeSet::new(),
            invalid: None,
        }
    }

    fn slices(of: &[(&str, &str)]) -> BTreeMap<Arc<str>, Slice> {
        of.iter()
            .map(|(name, export)| (Arc::from(*name), slice(export)))
            .collect()
    }

    #[test]
    fn the_slice_of_the_export_is_found() {
        let chosen =
            |api: Api, of: &[(&str, &str)]| api.choose(&slices(of)).map(|(name, _)| name.to_string());
        let export = || Api::Export("e".into());
        let all = [("other", "x"), ("eu", "e"), ("e", "e")];
        assert_eq!(chosen(export(), &all).unwrap(), "e");
        assert_eq!(chosen(export(), &all[..2]).unwrap(), "eu");
        assert_eq!(chosen(Api::Slice("eu".into()), &all).unwrap(), "eu");
        assert!(chosen(Api::Slice("wrong".into()), &all[..1]).is_err());
        let last = [("a", "z"), ("z", "z")];
        assert_eq!(chosen(Api::Export("z".into()), &last).unwrap(), "z");
        assert_eq!(
            chosen(export(), &[("eu", "e"), ("us", "e")]).unwrap_err(),
            "APIExport e has several endpoint slices: eu, us; choose one with `slice`"
        );
        assert!(
            chosen(export(), &all[..1])
                .unwrap_err()
                .contains("has no APIExportEndpointSlice")
        );
        assert_eq!(
            chosen(Api::Slice("e".into()), &[]).unwrap_err(),
            "APIExportEndpointSlice e does not exist; correct its name, or the workspace in the address"
        );
    }

    /// The right to read one slice is enough.
    #[test]
    fn a_slice_is_requested_by_its_name() {
        let request = Api::Slice("e".into()).request();
        assert_eq!(request.field_selector(), Some("metadata.name=e"));
        assert_eq!(Api::Export("e".into()).request().field_selector(), None);
    }

    #[test]
    fn a_slice_without_a_status_has_no_endpoints() {
        let read = |value| Slice::from(serde_json::from_value::<Raw>(value).unwrap());
        assert_eq!(read(json!({"spec": {"export": {"name": "e"}}})), slice("e"));
        let fixture = include_str!("../tests/fixtures/apiexportendpointslice.json");
        let slice = read(serde_json::from_str(fixture).unwrap());
        assert_eq!(
            (&*slice.export, slice.urls.len(), slice.invalid),
            ("mongodb", 2, None)
        );
        let invalid = read(json!({
            "spec": {"export": {"name": "e"}},
            "status": {"conditions": [{"type": "APIExportValid", "status": "False", "message": "gone"}]},
        }));
        assert_eq!(invalid.invalid.as_deref(), Some("APIExportValid is False: gone"));
        let invalid = read(json!({
            "spec": {"export": {"name": "e"}},
            "status": {"conditions": [
                {"type": "APIExportValid", "status": "True"},
                {"type": "PartitionValid", "status": "False", "reason": "NotFound"},
            ]},
        }));
        assert_eq!(
            invalid.invalid.as_deref(),
            Some("PartitionValid is False: NotFound")
        );
    }
}
