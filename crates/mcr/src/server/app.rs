//! The routes of the server and their responses.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{RawQuery, State},
    response::Response,
    routing::get,
};
use http::{HeaderValue, StatusCode, header};
use mcr_core::{ClusterState, Fleet};
use serde_json::json;
use tokio::{sync::Semaphore, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    controller::ControllerHandle,
    metrics::Metrics,
    report::{ClusterReport, FleetReport, leadership},
};

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// How many reports of all clusters are made at once. Further requests wait.
const REPORTS: usize = 2;
/// How long a request waits for a permit to make its report.
const PERMIT_WAIT: Duration = Duration::from_secs(10);

/// The state behind the routes.
pub(super) struct App {
    fleet: Fleet,
    controllers: Vec<ControllerHandle>,
    metrics: Metrics,
    stopping: CancellationToken,
    permits: Arc<Semaphore>,
}

impl App {
    pub(super) fn new(
        fleet: Fleet,
        controllers: Vec<ControllerHandle>,
        metrics: Metrics,
        stopping: CancellationToken,
    ) -> Self {
        Self {
            fleet,
            controllers,
            metrics,
            stopping,
            permits: Arc::new(Semaphore::new(REPORTS)),
        }
    }

    pub(super) fn router(self) -> Router {
        Router::new()
            .route("/healthz", get(async || respond(StatusCode::OK, TEXT, "ok")))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .route("/clusters", get(clusters))
            .fallback(async || {
                error(
                    StatusCode::NOT_FOUND,
                    "no such path; there are /clusters, /metrics, /healthz and /readyz",
                )
            })
            .with_state(Arc::new(self))
    }
}

fn respond(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

pub(super) fn error(status: StatusCode, message: &str) -> Response {
    respond(status, JSON, json!({ "error": message }).to_string())
}

/// Responds with a report of all clusters. Makes it on a blocking thread, and only a few reports at once.
async fn report(
    app: Arc<App>,
    content_type: &'static str,
    make: impl FnOnce(&App) -> Option<Vec<u8>> + Send + 'static,
) -> Response {
    let permit = timeout(PERMIT_WAIT, app.permits.clone().acquire_owned()).await;
    let Ok(Ok(permit)) = permit else {
        return error(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many requests at once; try again",
        );
    };
    let body = tokio::task::spawn_blocking(move || {
        let body = make(&app);
        drop(permit);
        body
    });
    match body.await {
        Ok(Some(body)) => respond(StatusCode::OK, content_type, body),
        _ => error(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the response could not be made",
        ),
    }
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    report(app, Metrics::CONTENT_TYPE, |app| {
        Some(app.metrics.text().into_bytes())
    })
    .await
}

async fn clusters(State(app): State<Arc<App>>, RawQuery(query): RawQuery) -> Response {
    let filter = match ClusterFilter::parse(query.as_deref().unwrap_or_default()) {
        Ok(filter) => filter,
        Err(message) => return error(StatusCode::BAD_REQUEST, &message),
    };
    report(app, JSON, move |app| {
        let mut report = FleetReport::of(&app.fleet, &app.controllers);
        report.clusters.retain(|cluster| filter.matches(cluster));
        serde_json::to_vec(&report).ok()
    })
    .await
}

async fn ready(State(app): State<Arc<App>>) -> Response {
    match not_ready(&app) {
        None => {
            let mut body = json!({ "ready": true });
            if let Some(leadership) = leadership(&app.controllers) {
                body["role"] = leadership.status().role.as_str().into();
            }
            respond(StatusCode::OK, JSON, body.to_string())
        }
        Some(reason) => {
            let body = json!({ "ready": false, "reason": reason }).to_string();
            respond(StatusCode::SERVICE_UNAVAILABLE, JSON, body)
        }
    }
}

fn not_ready(app: &App) -> Option<String> {
    if app.stopping.is_cancelled() {
        return Some("the manager is stopping".to_owned());
    }
    let providers = app.fleet.providers();
    let waiting: Vec<String> = providers
        .iter()
        .filter(|provider| !provider.synced)
        .map(|provider| match &provider.last_error {
            Some(error) => format!("{} (its discovery fails: {error})", provider.name),
            None => provider.name.to_string(),
        })
        .collect();
    let list = waiting.join(", ");
    (!waiting.is_empty()).then(|| format!("not every provider has said which clusters there are: {list}"))
}

/// The clusters that a query selects: with one of these names or display names, and in one of these states. Empty lists select all.
#[derive(Debug, Default, PartialEq)]
struct ClusterFilter {
    names: Vec<String>,
    states: Vec<&'static str>,
}

impl ClusterFilter {
    fn parse(query: &str) -> Result<Self, String> {
        let mut filter = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "name" => filter.names.push(value.into_owned()),
                "state" => filter.states.push(state(&value)?),
                _ => return Err("unknown parameter; there are name and state".to_owned()),
            }
        }
        Ok(filter)
    }

    fn matches(&self, cluster: &ClusterReport) -> bool {
        self.selects(
            cluster.status.name.as_str(),
            cluster.display_name.as_deref(),
            cluster.status.state,
        )
    }

    fn selects(&self, name: &str, display_name: Option<&str>, state: &str) -> bool {
        let is_one = |wanted: &String| wanted == name || Some(wanted.as_str()) == display_name;
        (self.names.is_empty() || self.names.iter().any(is_one))
            && (self.states.is_empty() || self.states.contains(&state))
    }
}

/// Parses a state. A mistyped state must be an error, and not select no clusters.
fn state(wanted: &str) -> Result<&'static str, String> {
    let states = || {
        ClusterState::NAMES
            .iter()
            .copied()
            .filter(|state| *state != "Gone")
            .chain(["Broken"])
    };
    states()
        .find(|state| state.eq_ignore_ascii_case(wanted))
        .ok_or_else(|| {
            let states: Vec<_> = states().collect();
            format!("unknown state; there are {}", states.join(", "))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read_and_mistakes_are_reported() {
        let filter = ClusterFilter::parse("name=a%2Fb&state=ready&name=c+d&state=Broken").unwrap();
        assert_eq!(filter.names, ["a/b", "c d"]);
        assert_eq!(filter.states, ["Ready", "Broken"]);
        assert!(filter.selects("a/b", None, "Ready"));
        assert!(filter.selects("id", Some("a/b"), "Ready"));
        assert!(!filter.selects("a/b", None, "Draining"));
        assert!(!filter.selects("a", Some("b"), "Ready"));
        assert!(
            ClusterFilter::parse("")
                .unwrap()
                .selects("anything", None, "Ready")
        );
        assert!(ClusterFilter::parse("sate=Ready").is_err());
        let error = ClusterFilter::parse("state=Redy").unwrap_err();
        assert!(
            error.contains("Unreachable, Suspended, Draining, Broken"),
            "{error}"
        );
    }
}
