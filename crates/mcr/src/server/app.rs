//! What is answered.

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

use crate::{ControllerHandle, FleetReport, metrics::Metrics};

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// How many answers that look at every cluster are made at once, and how long a request waits for its turn.
const AT_ONCE: usize = 2;
const TURN_WITHIN: Duration = Duration::from_secs(10);

/// What answers are made of.
pub(super) struct App {
    fleet: Fleet,
    controllers: Vec<ControllerHandle>,
    metrics: Metrics,
    stopping: CancellationToken,
    turns: Arc<Semaphore>,
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
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    pub(super) fn router(self) -> Router {
        Router::new()
            .route("/healthz", get(async || answer(StatusCode::OK, TEXT, "ok")))
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

fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
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

fn error(status: StatusCode, message: &str) -> Response {
    answer(status, JSON, json!({ "error": message }).to_string())
}

/// Makes an answer that looks at every cluster, off the threads that serve them, and only a few at once.
async fn made(
    app: Arc<App>,
    content_type: &'static str,
    make: impl FnOnce(&App) -> Option<Vec<u8>> + Send + 'static,
) -> Response {
    let turn = timeout(TURN_WITHIN, app.turns.clone().acquire_owned()).await;
    let Ok(Ok(turn)) = turn else {
        return error(StatusCode::SERVICE_UNAVAILABLE, "too many ask at once; try again");
    };
    let made = tokio::task::spawn_blocking(move || {
        let made = make(&app);
        drop(turn);
        made
    });
    match made.await {
        Ok(Some(body)) => answer(StatusCode::OK, content_type, body),
        _ => error(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be made"),
    }
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    made(app, Metrics::CONTENT_TYPE, |app| {
        Some(app.metrics.text().into_bytes())
    })
    .await
}

async fn clusters(State(app): State<Arc<App>>, RawQuery(query): RawQuery) -> Response {
    let wanted = match Wanted::parse(query.as_deref().unwrap_or_default()) {
        Ok(wanted) => wanted,
        Err(message) => return error(StatusCode::BAD_REQUEST, &message),
    };
    made(app, JSON, move |app| {
        let mut report = FleetReport::of(&app.fleet, &app.controllers);
        report
            .clusters
            .retain(|cluster| wanted.matches(cluster.status.name.as_str(), cluster.status.state));
        serde_json::to_vec(&report).ok()
    })
    .await
}

async fn ready(State(app): State<Arc<App>>) -> Response {
    match not_ready(&app) {
        None => answer(StatusCode::OK, JSON, json!({ "ready": true }).to_string()),
        Some(reason) => {
            let body = json!({ "ready": false, "reason": reason }).to_string();
            answer(StatusCode::SERVICE_UNAVAILABLE, JSON, body)
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

/// Which clusters are asked for.
#[derive(Debug, Default, PartialEq)]
struct Wanted {
    names: Vec<String>,
    states: Vec<&'static str>,
}

impl Wanted {
    fn parse(query: &str) -> Result<Self, String> {
        let mut wanted = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "name" => wanted.names.push(value.into_owned()),
                "state" => wanted.states.push(state(&value)?),
                _ => return Err("unknown parameter; there are name and state".to_owned()),
            }
        }
        Ok(wanted)
    }

    fn matches(&self, name: &str, state: &str) -> bool {
        (self.names.is_empty() || self.names.iter().any(|wanted| wanted == name))
            && (self.states.is_empty() || self.states.contains(&state))
    }
}

/// A mistyped state must not read as "no such clusters".
fn state(wanted: &str) -> Result<&'static str, String> {
    let states = || {
        ClusterState::NAMES
            .into_iter()
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
    fn filters_are_read_and_mistakes_are_told() {
        let wanted = Wanted::parse("name=a%2Fb&state=ready&name=c+d&state=Broken").unwrap();
        assert_eq!(wanted.names, ["a/b", "c d"]);
        assert_eq!(wanted.states, ["Ready", "Broken"]);
        assert!(wanted.matches("a/b", "Ready"));
        assert!(!wanted.matches("a/b", "Draining"));
        assert!(!wanted.matches("a", "Ready"));
        assert!(Wanted::parse("").unwrap().matches("anything", "Ready"));
        assert!(Wanted::parse("sate=Ready").is_err());
        let error = Wanted::parse("state=Redy").unwrap_err();
        assert!(
            error.contains("Unreachable, Suspended, Draining, Broken"),
            "{error}"
        );
    }
}
