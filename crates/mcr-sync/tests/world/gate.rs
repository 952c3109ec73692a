//! What stands before a cluster: an admission webhook, slow lists, a watch that lags, and silence.

use std::{
    error::Error,
    sync::{MutexGuard, PoisonError},
};

use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE, header::HeaderValue};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use mcr::Access;
use mcr_testkit::sim::SimService;
use tokio::sync::Semaphore;

use super::widgets::*;

pub const WEBHOOK: &str = "admission webhook \"sizes.example.com\" denied the request: no budget";

type Failure = Box<dyn Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, Failure>>;

/// Refuses creations of objects of one name, and delays lists and the events of watches.
#[derive(Clone, Default)]
pub struct Gate(Arc<Mutex<State>>);

#[derive(Default)]
pub struct State {
    /// The name of the object whose creation is refused, and the code and the reason of the answer.
    pub refuses: Option<(&'static str, u16, &'static str)>,
    refused: usize,
    /// The pause before each event of a watch.
    pub lag: Duration,
    /// The pause before each list of Widgets.
    pub slowness: Duration,
    /// The pause before each list of ConfigMaps.
    pub slow_maps: Duration,
    /// What happens once, before a read of a path with this end is answered.
    meanwhile: Option<(&'static str, Happening)>,
    /// What happens before each patch, so after what the patch follows from was observed. One for each.
    pub collisions: Vec<Happening>,
    pub silence: Silence,
    /// How many requests were not answered.
    pub unanswered: usize,
    /// How many requests are worked on at once, each for 10 ms. The others wait in the order in which they came.
    pub workers: Option<Arc<Semaphore>>,
}

/// Which requests get no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Silence {
    #[default]
    None,
    Writes,
    All,
}

pub type Happening = Box<dyn FnOnce() + Send>;

impl Gate {
    pub fn now(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Once, before a read of a path with this end is answered, this happens.
    pub fn meanwhile(&self, end: &'static str, happens: impl FnOnce() + Send + 'static) {
        self.now().meanwhile = Some((end, Box::new(happens)));
    }

    /// Waits until what was to happen has happened.
    pub async fn has_happened(&self) {
        until("the read", || self.now().meanwhile.is_none()).await;
    }

    /// The cluster behind this gate.
    pub fn before(&self, cluster: &SimCluster, role: &str) -> ClusterSpec {
        let (gate, service) = (self.clone(), cluster.service().with_token(&cluster.admin_token()));
        let answer = tower::service_fn(move |request| gate.clone().answer(service.clone(), request));
        let mut spec = spec(cluster, role);
        spec.access = Access::from(Client::new(answer, "default"));
        spec
    }

    /// The answer of the webhook, if it refuses this creation.
    fn refusal(&self, body: &[u8]) -> Option<Answer> {
        let mut gate = self.now();
        let (name, code, reason) = gate.refuses?;
        let object: Value = serde_json::from_slice(body).unwrap_or_default();
        if object["metadata"]["name"] != name {
            return None;
        }
        gate.refused += 1;
        let message = format!("{WEBHOOK} (code {code}, request {})", gate.refused);
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
            "message": message});
        let body = Full::from(status.to_string()).map_err(|never| match never {});
        let mut answer = Response::new(body.boxed_unsync());
        *answer.status_mut() = StatusCode::from_u16(code).unwrap();
        let json = HeaderValue::from_static("application/json");
        answer.headers_mut().insert(CONTENT_TYPE, json);
        Some(answer)
    }

    async fn answer(self, service: SimService, request: Request<Body>) -> Result<Answer, Failure> {
        let is_watch = request.uri().to_string().contains("watch=");
        let (head, body) = request.into_parts();
        let (is_read, path) = (head.method == Method::GET, head.uri.path().to_owned());
        let body = body.collect().await?.to_bytes();
        if head.method == Method::POST
            && let Some(refusal) = self.refusal(&body)
        {
            return Ok(refusal);
        }
        let is_it = |(end, _): &mut (&str, _)| is_read && path.ends_with(*end);
        let meanwhile = self.now().meanwhile.take_if(is_it);
        if let Some((_, happens)) = meanwhile {
            happens();
            sleep(secs(1)).await;
        }
        if head.method == Method::PATCH {
            let collision = self.now().collisions.pop();
            collision.into_iter().for_each(|happens| happens());
        }
        let silence = self.now().silence;
        if silence == Silence::All || silence == Silence::Writes && !is_read {
            self.now().unanswered += 1;
            std::future::pending().await
        }
        let workers = self.now().workers.clone().filter(|_| !is_watch);
        if let Some(workers) = workers {
            let _worker = workers.acquire().await?;
            sleep(Duration::from_millis(10)).await;
        }
        let slowness = match path.rsplit('/').next() {
            Some("widgets") => self.now().slowness,
            Some("configmaps") => self.now().slow_maps,
            _ => Duration::ZERO,
        };
        if is_read && !is_watch {
            sleep(slowness).await;
        }
        let answer = service.answer(Request::from_parts(head, Full::from(body))).await;
        let (head, body) = answer.into_parts();
        let frames = stream::unfold((self, body), move |(gate, mut body)| async move {
            let Ok(frame) = body.frame().await?;
            let lag = gate.now().lag;
            if is_watch && !lag.is_zero() {
                sleep(lag).await;
            }
            Some((Ok::<_, Failure>(frame), (gate, body)))
        });
        Ok(Response::from_parts(head, StreamBody::new(frames).boxed_unsync()))
    }
}
