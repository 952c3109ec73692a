use std::time::Duration;

use http::Request;
use mcr_core::{
    Cluster, ClusterName, WatchError, WatchRequest, explain_error,
    hub::{Backoff, describe_json_error},
    reason,
};
use serde::Deserialize;

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Why [`wait_until_served`] has ended without success.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum NotServed {
    /// The kind was not served within the limit.
    #[error("cluster {cluster} does not serve {kind} after {} s: {reason}", waited.as_secs_f32())]
    TimedOut {
        /// The cluster.
        cluster: ClusterName,
        /// The kind: `<plural>` or `<plural>.<group>`.
        kind: String,
        /// The limit.
        waited: Duration,
        /// Why the last attempt failed, and what to do.
        reason: String,
    },
    /// The cluster has left the fleet.
    #[error("cluster {cluster} has left the fleet before it served {kind}")]
    Gone {
        /// The cluster.
        cluster: ClusterName,
        /// The kind: `<plural>` or `<plural>.<group>`.
        kind: String,
    },
    /// The kind can't be that of an API.
    #[error(transparent)]
    InvalidRequest(std::sync::Arc<WatchError>),
}

/// Waits until a workspace serves a kind, so that objects of the kind can be created there.
///
/// An APIBinding is Bound a moment before its workspace serves the kinds. A request before that fails with 404. A workspace
/// that is ready to be read need not be ready to be written, because one watch reads all workspaces of a shard.
///
/// Lists at most one object for each attempt. Of `kind` only the kind matters, not its selectors. Cancel safe.
///
/// ```no_run
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::api::PostParams;
/// use mcr_core::{Cluster, WatchRequest};
/// use mcr_provider_kcp::wait_until_served;
///
/// async fn first_object(workspace: &Cluster, config: &ConfigMap) -> Result<(), Box<dyn std::error::Error>> {
///     wait_until_served(workspace, &WatchRequest::of::<ConfigMap>(), Duration::from_secs(30)).await?;
///     workspace.namespaced::<ConfigMap>("default").create(&PostParams::default(), config).await?;
///     Ok(())
/// }
/// ```
///
/// # Errors
/// [`NotServed::TimedOut`] after `limit`, with the reason; [`NotServed::Gone`] if the cluster leaves meanwhile;
/// [`NotServed::InvalidRequest`] at once if there can be no such kind.
///
/// # Panics
/// If called outside of a tokio runtime.
pub async fn wait_until_served(
    cluster: &Cluster,
    kind: &WatchRequest,
    limit: Duration,
) -> Result<(), NotServed> {
    let request = kind.whole_kind();
    request
        .check()
        .map_err(|error| NotServed::InvalidRequest(error.into()))?;
    let (name, kind) = (cluster.name().clone(), request.resource_name());
    let mut reason = "no answer came".to_owned();
    let served = async {
        let mut backoff = Backoff::new(Duration::from_millis(50), LONGEST_PAUSE);
        while let Err(error) = list_one(cluster, &request).await {
            reason = error;
            tokio::time::sleep(backoff.pause()).await;
        }
    };
    tokio::select! {
        biased;
        () = cluster.token().cancelled() => Err(NotServed::Gone { cluster: name, kind }),
        served = tokio::time::timeout(limit, served) => served.map_err(|_| NotServed::TimedOut {
            cluster: name,
            kind,
            waited: limit,
            reason,
        }),
    }
}

/// Whether a list has a resource version: of a kind that it does not serve yet, kcp sends an empty list without one.
///
/// # Errors
/// Text for people.
async fn list_one(cluster: &Cluster, request: &WatchRequest) -> Result<(), String> {
    #[derive(Deserialize)]
    struct List {
        #[serde(default)]
        metadata: Metadata,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Metadata {
        resource_version: String,
    }
    let list = Request::get(format!("{}?limit=1", request.path())).body(Vec::new());
    let list = list.map_err(|error| error.to_string())?;
    let answer = cluster.client().request_text(list).await;
    let text = answer.map_err(|error| match error {
        kube::Error::Api(status) if status.code == 404 => {
            "it has no such kind (404); check that the APIExport has the kind, and that the APIBinding is Bound".to_owned()
        }
        kube::Error::Api(status) if status.code == 403 => format!(
            "forbidden: {}. Check that the APIBinding is Bound, and that it accepts the permission claim on the kind",
            reason(&status.message)
        ),
        error => explain_error(&error),
    })?;
    let list: List = serde_json::from_str(&text).map_err(|error| describe_json_error(&error))?;
    if list.metadata.resource_version.is_empty() {
        return Err("kcp does not serve the kind there yet; if this lasts, check that the workspace has bound the APIExport that \
                    the kind belongs to"
            .to_owned());
    }
    Ok(())
}
