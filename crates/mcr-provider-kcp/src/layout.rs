//! Workspaces as places of a scope.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use kube::client::Body;
use mcr_core::{
    AnswerBody, BoxError, Capabilities, ObjectMetadata, Placement, ScopeLayout, ScopeRefusal, Upstream,
    WatchRequest,
};
use serde_json::json;

use crate::{config::ExportName, stage::Stage, url::ALL};

/// The annotation with the id of the logical cluster.
pub(crate) const CLUSTER: &str = "kcp.io/cluster";

/// The layout of the workspaces behind an endpoint of an APIExport, or of a stage.
pub(crate) struct Layout {
    name: Arc<str>,
    export: ExportName,
    allow_apply: bool,
    stage: Option<Stage>,
    without_cluster: WithoutCluster,
}

impl Layout {
    pub(crate) fn new(name: Arc<str>, export: ExportName, allow_apply: bool, stage: Option<Stage>) -> Self {
        Self {
            export,
            without_cluster: WithoutCluster::new(name.clone()),
            name,
            allow_apply,
            stage,
        }
    }
}

/// Logs objects that belong to no workspace: the first, the second, the fourth, and so on.
pub(crate) struct WithoutCluster {
    provider: Arc<str>,
    seen: AtomicU64,
}

impl WithoutCluster {
    pub(crate) fn new(provider: Arc<str>) -> Self {
        Self {
            provider,
            seen: AtomicU64::new(0),
        }
    }

    pub(crate) fn log(&self, object: &ObjectMetadata<'_>) {
        let seen = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        if seen.is_power_of_two() {
            tracing::warn!(
                provider = &*self.provider,
                name = object.name().as_deref(),
                namespace = object.namespace().as_deref(),
                seen,
                "an object has no annotation {CLUSTER} with the id of a logical cluster and is left out; kcp sets it on every \
                 object, so check what changes the answers of kcp on their way, such as a proxy"
            );
        }
    }
}

impl ScopeLayout for Layout {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        let capabilities = Capabilities::default().without_streaming_lists();
        match self.stage {
            // Requests for the content of a workspace are sent on to the workspace.
            Some(_) => capabilities,
            None => capabilities.without_server_side_apply(),
        }
    }

    // A revoked permission claim, or the removal of an initializer, removes objects from a watch as well.
    fn deletions_are_certain(&self) -> bool {
        false
    }

    fn watch_prefix(&self) -> &str {
        ALL
    }

    fn watch(&self, wanted: &WatchRequest) -> Result<WatchRequest, ScopeRefusal> {
        if let Some(stage) = self.stage
            && wanted.resource_name() != LOGICAL_CLUSTERS
        {
            return Err(ScopeRefusal::new(only_logical_clusters(stage, wanted)));
        }
        // kcp would answer with an empty list.
        if wanted
            .field_selector()
            .is_some_and(|fields| fields.contains("metadata.namespace"))
        {
            return Err(ScopeRefusal::new(
                "one watch serves all workspaces, and kcp has no field selector metadata.namespace there; name the namespace \
                 in the watch, in place of the field selector",
            ));
        }
        if self.stage.is_some() {
            return Ok(wanted.clone().all_namespaces());
        }
        // The first watch comes after the first endpoint, so after the slice, which names the export.
        let export = self
            .export
            .lock()
            .as_ref()
            .map(|name| format!(" {name}"))
            .unwrap_or_default();
        Ok(wanted.clone().all_namespaces().if_not_served(format!(
            "APIExport{export} neither exports nor claims {}; add it to spec.resources or to spec.permissionClaims of the \
             export, or correct group, version and plural",
            wanted.resource_name()
        )))
    }

    fn place<'o>(&self, object: &ObjectMetadata<'o>) -> Option<Placement<'o>> {
        let place = object.annotation(CLUSTER);
        if place.is_none() {
            self.without_cluster.log(object);
        }
        place.map(Placement::new)
    }

    fn send(
        &self,
        place: Arc<str>,
        request: Request<Body>,
        upstream: Upstream,
    ) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>> {
        let refused = !self.allow_apply && is_apply(request.method(), request.headers());
        Box::pin(async move {
            if refused {
                return Ok(refusal());
            }
            upstream.send_below(&format!("/clusters/{place}"), request).await
        })
    }
}

/// The kind that kcp shows across the workspaces of a stage.
const LOGICAL_CLUSTERS: &str = "logicalclusters.core.kcp.io";

fn only_logical_clusters(stage: Stage, wanted: &WatchRequest) -> String {
    format!(
        "across {} workspaces kcp shows {LOGICAL_CLUSTERS} only; watch those, and read {} of a workspace with the client of \
         its cluster",
        stage.of_endpoint(),
        wanted.resource_name()
    )
}

/// Whether a request is a server-side apply.
fn is_apply(method: &Method, headers: &HeaderMap) -> bool {
    let type_ = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    method == Method::PATCH
        && type_.is_some_and(|type_| type_.trim_start().starts_with("application/apply-patch+"))
}

const NO_APPLY: &str = "server-side apply is refused: kcp merges it into the object and sends the result as an update, \
                        so a field that a later apply leaves out stays. Send a merge patch with null for each field to \
                        remove, or a PUT; KcpProviderBuilder::allow_lossy_apply allows it all the same";

/// The answer of an API server that does not support this type of patch.
fn refusal() -> Response<AnswerBody> {
    let code = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": NO_APPLY, "reason": "UnsupportedMediaType", "code": code.as_u16(),
    });
    let mut response = Response::new(AnswerBody::new(Full::from(status.to_string())));
    *response.status_mut() = code;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn layout() -> Layout {
        Layout::new("kcp".into(), ExportName::default(), false, None)
    }

    #[test]
    fn only_logical_clusters_are_watched_across_the_workspaces_of_a_stage() {
        let layout = Layout::new(
            "kcp".into(),
            ExportName::default(),
            true,
            Some(Stage::Terminating),
        );
        let refusal = layout
            .watch(&WatchRequest::of::<ConfigMap>())
            .unwrap_err()
            .to_string();
        assert!(
            refusal.contains("terminating workspaces")
                && refusal.contains("read configmaps of a workspace with the client"),
            "{refusal}"
        );
        let wanted = WatchRequest::of::<crate::logical_cluster::LogicalCluster>();
        assert!(layout.watch(&wanted).is_ok());
        let capabilities = layout.capabilities();
        assert!(capabilities.server_side_apply() && !capabilities.streaming_lists());
        assert!(!layout.deletions_are_certain());
    }

    #[test]
    fn one_watch_covers_all_namespaces_and_no_selector_names_one() {
        let wanted = WatchRequest::of::<ConfigMap>()
            .namespace("default")
            .fields("metadata.name=a");
        let query = layout().watch(&wanted).unwrap();
        assert_eq!(
            (query.namespace_name(), query.field_selector()),
            (None, Some("metadata.name=a"))
        );
        let wanted = WatchRequest::of::<ConfigMap>().fields("metadata.name=a,metadata.namespace=default");
        assert!(
            layout()
                .watch(&wanted)
                .unwrap_err()
                .to_string()
                .contains("name the namespace in the watch")
        );
    }

    /// `tests/fleet/writes.rs` has the refusal.
    #[test]
    fn only_server_side_apply_is_refused() {
        let is = |method: Method, type_: &'static str| {
            let type_ = (header::CONTENT_TYPE, http::HeaderValue::from_static(type_));
            is_apply(&method, &HeaderMap::from_iter([type_]))
        };
        for type_ in ["application/apply-patch+yaml", "application/apply-patch+cbor"] {
            assert!(is(Method::PATCH, type_), "{type_}");
        }
        for other in ["application/merge-patch+json", "application/json-patch+json"] {
            assert!(!is(Method::PATCH, other), "{other}");
        }
        assert!(!is(Method::PUT, "application/json"));
    }
}
