//! An admission webhook before a cluster.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use mcr::{Access, ClusterSpec};
use mcr_testkit::sim::{SimCluster, SimService};
use serde_json::{Value, json};
use tokio::time::Instant;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// Refuses writes of objects of one name.
#[derive(Clone, Default)]
pub(crate) struct Webhook {
    /// The name, and the code and the reason of the answer. `None` lets all through.
    refuses: Arc<Mutex<Option<(String, u16, String)>>>,
    refused: Arc<Mutex<Vec<Instant>>>,
}

impl Webhook {
    pub(crate) fn refuse(&self, name: &str, code: u16, reason: &str) {
        *self.refuses.lock().unwrap() = Some((name.to_owned(), code, reason.to_owned()));
        self.refused.lock().unwrap().clear();
    }

    pub(crate) fn allow(&self) {
        *self.refuses.lock().unwrap() = None;
    }

    /// When writes were refused.
    pub(crate) fn refused(&self) -> Vec<Instant> {
        self.refused.lock().unwrap().clone()
    }

    /// The cluster behind this webhook.
    pub(crate) fn before(&self, cluster: &SimCluster, role: &str) -> ClusterSpec {
        let (webhook, service) = (self.clone(), cluster.service().with_token(&cluster.admin_token()));
        let answer = tower::service_fn(move |request| webhook.clone().answer(service.clone(), request));
        let access = Access::from(Client::new(answer, "default"));
        ClusterSpec::named(cluster.name(), access)
            .unwrap()
            .label("role", role)
    }

    async fn answer(self, service: SimService, request: Request<Body>) -> Result<Answer, BoxError> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let object: Value = serde_json::from_slice(&body).unwrap_or_default();
        let refusal = self.refuses.lock().unwrap().clone();
        if let Some((name, code, reason)) = refusal
            && head.method == Method::POST
            && object["metadata"]["name"] == name
        {
            self.refused.lock().unwrap().push(Instant::now());
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
                "message": "admission webhook \"sizes.example.com\" denied the request: the team has no budget",
            });
            let body = Full::from(status.to_string()).map_err(|never| match never {});
            return Ok(Response::builder()
                .status(code)
                .header("content-type", "application/json")
                .body(body.boxed_unsync())?);
        }
        let (head, body) = service
            .answer(Request::from_parts(head, Full::from(body)))
            .await
            .into_parts();
        Ok(Response::from_parts(
            head,
            body.map_err(|never| match never {}).boxed_unsync(),
        ))
    }
}
