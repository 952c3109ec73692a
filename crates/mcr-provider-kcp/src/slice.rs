//! Endpoint slices and WorkspaceTypes: which one serves the API, and its endpoints. No I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use kube::core::{ApiResource, GroupVersionKind};
use mcr_core::{Object, WatchRequest, hub::describe_json_error};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    condition::{Condition, find},
    stage::Stage,
};

/// Which workspaces become clusters: the consumers of an API, or those that wait for the initializer or terminator of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Api {
    Slice(Arc<str>),
    Export(Arc<str>),
    Type(Stage, Arc<str>),
}

impl Api {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Slice(name) | Self::Export(name) | Self::Type(_, name) => name,
        }
    }

    pub(crate) fn stage(&self) -> Option<Stage> {
        match self {
            Self::Slice(_) | Self::Export(_) => None,
            Self::Type(stage, _) => Some(*stage),
        }
    }

    /// The kind that has the endpoints.
    pub(crate) fn kind(&self) -> &'static str {
        self.stage().map_or("APIExportEndpointSlice", |_| "WorkspaceType")
    }

    /// The kind that has the endpoints, in words.
    pub(crate) fn kind_in_words(&self) -> &'static str {
        self.stage().map_or("endpoint slice", |_| "WorkspaceType")
    }

    /// The kind that is watched at the endpoints.
    pub(crate) fn watched(&self) -> &'static str {
        self.stage().map_or("APIBinding", |_| "LogicalCluster")
    }

    /// The resource that has the endpoints.
    pub(crate) fn with_endpoints(&self) -> ApiResource {
        let (group, plural) = match self.stage() {
            None => ("apis.kcp.io", "apiexportendpointslices"),
            Some(_) => ("tenancy.kcp.io", "workspacetypes"),
        };
        let kind = GroupVersionKind::gvk(group, "v1alpha1", self.kind());
        ApiResource::from_gvk_with_plural(&kind, plural)
    }

    /// The resource that is watched at the endpoints.
    pub(crate) fn members(&self) -> ApiResource {
        let (group, version, plural) = match self.stage() {
            None => ("apis.kcp.io", "v1alpha2", "apibindings"),
            Some(_) => ("core.kcp.io", "v1alpha1", "logicalclusters"),
        };
        let kind = GroupVersionKind::gvk(group, version, self.watched());
        ApiResource::from_gvk_with_plural(&kind, plural)
    }

    /// The request for the slices that may serve the API, or for the type.
    pub(crate) fn request(&self) -> WatchRequest {
        let request = WatchRequest::resource(&self.with_endpoints());
        match self {
            Self::Slice(name) | Self::Type(_, name) => request.fields(format!("metadata.name={name}")),
            Self::Export(_) => request,
        }
    }

    /// Chooses the slice that serves the API.
    ///
    /// # Errors
    /// Text with what to do, if there is none, or if there are several.
    pub(crate) fn choose<'s>(
        &self,
        slices: &'s BTreeMap<Arc<str>, Slice>,
    ) -> Result<(&'s Arc<str>, &'s Slice), String> {
        let serving = slices.iter().filter(|(name, slice)| match self {
            Self::Slice(wanted) | Self::Type(_, wanted) => *name == wanted,
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
            Self::Slice(_) | Self::Type(..) => format!("{self} does not exist; correct its name, or the workspace in the address"),
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
            Self::Slice(name) | Self::Type(_, name) => write!(f, "{} {name}", self.kind()),
            Self::Export(name) => write!(f, "APIExport {name}"),
        }
    }
}

/// The facts of an endpoint slice or a WorkspaceType.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slice {
    /// The name of the export, or of the initializer or terminator.
    pub(crate) export: Arc<str>,
    /// The path of the workspace with the export, if the slice names it.
    pub(crate) path: Option<Arc<str>>,
    pub(crate) urls: BTreeSet<Arc<str>>,
    /// Why the export is not valid, or why no workspace waits.
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
    path: Option<Arc<str>>,
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
    /// Reads a slice or a type. An error has text for people.
    pub(crate) fn read(object: &Object, stage: Option<Stage>) -> Result<Self, Arc<str>> {
        let value: Value = object.decode().map_err(|error| Arc::from(error.to_string()))?;
        Self::of(value, stage)
    }

    /// As [`read`](Self::read), of the JSON.
    pub(crate) fn of(value: Value, stage: Option<Stage>) -> Result<Self, Arc<str>> {
        let text = |error: serde_json::Error| Arc::from(describe_json_error(&error));
        match stage {
            None => serde_json::from_value::<Raw>(value).map(Self::from).map_err(text),
            Some(stage) => {
                let raw: RawType = serde_json::from_value(value).map_err(text)?;
                raw.of_stage(stage).ok_or_else(|| NO_CLUSTER.into())
            }
        }
    }
}

const NO_CLUSTER: &str = "it has no annotation kcp.io/cluster with the id of its workspace; kcp sets it on every object, so check \
                          what changes the answers of kcp on their way, such as a proxy";

/// The fields that are read of a WorkspaceType.
#[derive(Deserialize)]
struct RawType {
    metadata: TypeMetadata,
    #[serde(default)]
    spec: TypeSpec,
    #[serde(default)]
    status: TypeStatus,
}

#[derive(Deserialize)]
struct TypeMetadata {
    name: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypeSpec {
    initializer: bool,
    terminator: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TypeStatus {
    virtual_workspaces: Vec<TypeEndpoint>,
}

#[derive(Deserialize)]
struct TypeEndpoint {
    url: Arc<str>,
    #[serde(rename = "type", default)]
    stage: String,
}

impl RawType {
    /// None if the object does not name its workspace.
    fn of_stage(self, stage: Stage) -> Option<Slice> {
        let cluster = self.metadata.annotations.get("kcp.io/cluster")?;
        let is_set = match stage {
            Stage::Initializing => self.spec.initializer,
            Stage::Terminating => self.spec.terminator,
        };
        let word = stage.word();
        let endpoints = self.status.virtual_workspaces.into_iter();
        Some(Slice {
            export: format!("{cluster}:{}", self.metadata.name).into(),
            path: None,
            urls: endpoints
                .filter(|endpoint| endpoint.stage == stage.of_endpoint())
                .map(|endpoint| endpoint.url)
                .collect(),
            invalid: (!is_set).then(|| {
                format!(
                    "it has no {word}, so new workspaces wait for none; set spec.{word} of the type to true"
                )
                .into()
            }),
        })
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
                        mcr_core::reason(message.map_or("no message", String::as_str))
                    )
                    .into(),
                )
            });
        Self {
            export: raw.spec.export.name,
            path: raw.spec.export.path,
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
            path: None,
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

    #[test]
    fn a_slice_without_a_status_has_no_endpoints() {
        let read = |value| Slice::of(value, None).unwrap();
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

    #[test]
    fn a_type_has_endpoints_for_each_stage() {
        let read = |of: &dyn Fn(&mut serde_json::Value), stage| {
            let fixture = include_str!("../tests/fixtures/workspacetype.json");
            let mut value = serde_json::from_str(fixture).unwrap();
            of(&mut value);
            Slice::of(value, Some(stage))
        };
        let initializing = read(&|_| (), Stage::Initializing).unwrap();
        assert_eq!(
            (&*initializing.export, initializing.invalid),
            ("1rlzadlzb44i0g5n:managed", None)
        );
        let urls: Vec<&str> = initializing.urls.iter().map(|url| &**url).collect();
        assert_eq!(
            urls,
            ["https://127.0.0.1:6443/services/initializingworkspaces/1rlzadlzb44i0g5n:managed"]
        );
        let terminating = read(&|_| (), Stage::Terminating).unwrap();
        assert_eq!(terminating.urls.len(), 1);
        assert!(terminating.urls.is_disjoint(&initializing.urls));
        let invalid = terminating.invalid.unwrap();
        assert!(
            invalid.ends_with("set spec.terminator of the type to true"),
            "{invalid}"
        );
        let new = |value: &mut serde_json::Value| value["status"] = json!({});
        assert!(read(&new, Stage::Initializing).unwrap().urls.is_empty());
        let nowhere = |value: &mut serde_json::Value| value["metadata"]["annotations"] = json!({});
        assert_eq!(read(&nowhere, Stage::Initializing), Err(NO_CLUSTER.into()));
        let request = Api::Type(Stage::Initializing, "managed".into()).request();
        assert_eq!(
            (&*request.resource_name(), request.field_selector()),
            ("workspacetypes.tenancy.kcp.io", Some("metadata.name=managed"))
        );
    }
}
