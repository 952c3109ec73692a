//! What stands before a cluster: an admission webhook, slow lists, a watch that lags, and silence.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use mcr::{Access, ClusterSpec};
use mcr_testkit::sim::{SimCluster, SimService};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::world::USER;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// Refuses creations of objects of one name, and delays lists and the events of watches.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    /// The name, and the code and the reason of the answer. `None` lets all through.
    refuses: Arc<Mutex<Option<(String, u16, String)>>>,
    refused: Arc<Mutex<Vec<Instant>>>,
    /// The pause before each event of a watch.
    lag: Arc<Mutex<Duration>>,
    /// The pause before each list of Widgets.
    slowness: Arc<Mutex<Duration>>,
    /// What happens once, before a read of a path with this end is answered.
    meanwhile: Arc<Mutex<Option<(&'static str, Happening)>>>,
    /// What happens before each patch, so after the read that it follows from. One for each.
    collisions: Arc<Mutex<Vec<Happening>>>,
    silence: Arc<Mutex<Silence>>,
    /// How many requests were not answered.
    unanswered: Arc<AtomicUsize>,
}

/// Which requests get no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Silence {
    #[default]
    None,
    Writes,
    All,
}

type Happening = Box<dyn FnOnce() + Send>;

impl Gate {
    pub(crate) fn refuse(&self, name: &str, code: u16, reason: &str) {
        *self.refuses.lock().unwrap() = Some((name.to_owned(), code, reason.to_owned()));
        self.refused.lock().unwrap().clear();
    }

    /// From now on, each event of a watch comes this much after the one before it.
    pub(crate) fn lag(&self, pause: Duration) {
        *self.lag.lock().unwrap() = pause;
    }

    /// From now on, each list of Widgets takes this long.
    pub(crate) fn slow_lists(&self, pause: Duration) {
        *self.slowness.lock().unwrap() = pause;
    }

    /// Once, before a read of a path with this end is answered, this happens.
    pub(crate) fn meanwhile(&self, end: &'static str, happens: impl FnOnce() + Send + 'static) {
        *self.meanwhile.lock().unwrap() = Some((end, Box::new(happens)));
    }

    /// Whether what was to happen has happened.
    pub(crate) fn has_happened(&self) -> bool {
        self.meanwhile.lock().unwrap().is_none()
    }

    /// Before the next patch reaches the cluster, this happens. More of them happen before more patches.
    pub(crate) fn collide(&self, happens: impl FnOnce() + Send + 'static) {
        self.collisions.lock().unwrap().push(Box::new(happens));
    }

    /// How many collisions are still to come.
    pub(crate) fn collisions(&self) -> usize {
        self.collisions.lock().unwrap().len()
    }

    /// From now on, these requests are not answered.
    pub(crate) fn silence(&self, silence: Silence) {
        *self.silence.lock().unwrap() = silence;
    }

    /// How many requests were not answered since the last call.
    pub(crate) fn unanswered(&self) -> usize {
        self.unanswered.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn allow(&self) {
        *self.refuses.lock().unwrap() = None;
    }

    /// When writes were refused.
    pub(crate) fn refused(&self) -> Vec<Instant> {
        self.refused.lock().unwrap().clone()
    }

    /// The cluster behind this gate.
    pub(crate) fn before(&self, cluster: &SimCluster, role: &str) -> ClusterSpec {
        let (gate, service) = (self.clone(), cluster.service().with_token(USER));
        let answer = tower::service_fn(move |request| gate.clone().answer(service.clone(), request));
        let access = Access::from(Client::new(answer, "default"));
        ClusterSpec::named(cluster.name(), access)
            .unwrap()
            .label("role", role)
    }

    async fn answer(self, service: SimService, request: Request<Body>) -> Result<Answer, BoxError> {
        let is_watch = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch="));
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
                "message": format!(
                    "admission webhook \"sizes.example.com\" denied the request: the team has no budget (request {})",
                    self.refused().len(),
                ),
            });
            let body = Full::from(status.to_string()).map_err(|never| match never {});
            return Ok(Response::builder()
                .status(code)
                .header("content-type", "application/json")
                .body(body.boxed_unsync())?);
        }
        let read =
            |(end, _): &mut (&str, Happening)| head.method == Method::GET && head.uri.path().ends_with(*end);
        let happening = self.meanwhile.lock().unwrap().take_if(read);
        if let Some((_, happens)) = happening {
            happens();
            sleep(Duration::from_secs(1)).await;
        }
        if head.method == Method::PATCH {
            let collision = self.collisions.lock().unwrap().pop();
            collision.into_iter().for_each(|happens| happens());
        }
        let silence = *self.silence.lock().unwrap();
        if silence == Silence::All || silence == Silence::Writes && head.method != Method::GET {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
            std::future::pending().await
        }
        let is_list = head.method == Method::GET && head.uri.path().ends_with("/widgets") && !is_watch;
        let pause = *self.slowness.lock().unwrap();
        if is_list && !pause.is_zero() {
            sleep(pause).await;
        }
        let (head, body) = service
            .answer(Request::from_parts(head, Full::from(body)))
            .await
            .into_parts();
        let frames = stream::unfold((self, body), move |(gate, mut body)| async move {
            let Ok(frame) = body.frame().await?;
            let pause = *gate.lag.lock().unwrap();
            if is_watch && !pause.is_zero() {
                sleep(pause).await;
            }
            Some((Ok::<_, BoxError>(frame), (gate, body)))
        });
        Ok(Response::from_parts(head, StreamBody::new(frames).boxed_unsync()))
    }
}
