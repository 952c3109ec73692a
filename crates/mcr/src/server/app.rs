//! The routes of the server and their responses.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{RawQuery, State},
    response::Response,
    routing::get,
};
use http::StatusCode;
use mcr_core::{ClusterState, Fleet};
use serde_json::json;
use tokio::{sync::Semaphore, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    answer::{JSON, TEXT, error, respond},
    checks::{Check, Failed, failures},
};
use crate::{
    controller::ControllerHandle,
    metrics::Metrics,
    report::{ClusterReport, FleetReport, leadership},
};

/// How many reports of all clusters are made at once. Further requests wait.
const REPORTS: usize = 2;
/// How long a request waits for a permit to make its report.
const PERMIT_WAIT: Duration = Duration::from_secs(10);

/// The state behind the routes.
pub(super) struct App {
    pub(super) fleet: Fleet,
    pub(super) controllers: Vec<ControllerHandle>,
    pub(super) metrics: Metrics,
    pub(super) stopping: CancellationToken,
    pub(super) permits: Arc<Semaphore>,
    pub(super) health: Vec<Arc<Check>>,
    pub(super) readiness: Vec<Arc<Check>>,
    /// Whether probes, which anybody may send, are answered with the texts of errors. Those can have addresses in them.
    pub(super) shows_errors: bool,
}

impl App {
    /// The permits for [`permits`](Self::permits).
    pub(super) fn permits() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(REPORTS))
    }

    /// The routes, and those of the program for all other paths.
    pub(super) fn router(self, own: Option<Router>) -> Router {
        let router = Router::new()
            .route("/healthz", get(healthy))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .route("/clusters", get(clusters))
            .with_state(Arc::new(self));
        match own {
            Some(own) => router.fallback_service(own),
            None => router.fallback(async || {
                error(
                    StatusCode::NOT_FOUND,
                    "no such path; there are /clusters, /metrics, /healthz and /readyz",
                )
            }),
        }
    }

    fn describe(&self, failed: Failed<'_>) -> String {
        let Failed { name, error } = failed;
        if self.shows_errors {
            format!("the check {name} fails: {error}")
        } else {
            format!("the check {name} fails; the log has the reason")
        }
    }
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

async fn healthy(State(app): State<Arc<App>>) -> Response {
    match failures(&app.health).await.into_iter().next() {
        None => respond(StatusCode::OK, TEXT, "ok"),
        Some(failed) => respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, app.describe(failed)),
    }
}

async fn ready(State(app): State<Arc<App>>) -> Response {
    let reason = match not_ready(&app) {
        Some(reason) => Some(reason),
        None => failures(&app.readiness)
            .await
            .into_iter()
            .next()
            .map(|failed| app.describe(failed)),
    };
    match reason {
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
            Some(error) if app.shows_errors => format!("{} (its discovery fails: {error})", provider.name),
            Some(_) => format!(
                "{} (its discovery fails; /clusters has the reason)",
                provider.name
            ),
            None => provider.name.to_string(),
        })
        .collect();
    let list = waiting.join(", ");
    (!waiting.is_empty()).then(|| format!("not every provider has announced all its clusters: {list}"))
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
