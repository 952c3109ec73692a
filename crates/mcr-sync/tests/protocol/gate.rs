//! Stands between the programs and their clusters: delays and loses requests, and shows each write to the world.

use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use mcr_testkit::sim::SimService;
use serde_json::Value;
use tokio::{sync::Notify, time::sleep};

use crate::world::{CLUSTERS, Trouble, World};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[derive(Clone)]
pub struct Gate {
    world: Arc<Mutex<World>>,
    crashed: Arc<Notify>,
    cluster: usize,
    program: u64,
    service: SimService,
}

impl Gate {
    /// A client of the cluster for a program.
    pub fn client(world: &Arc<Mutex<World>>, crashed: &Arc<Notify>, cluster: usize, program: u64) -> Client {
        let sim = world.lock().unwrap().sims[cluster].clone();
        let gate = Self {
            world: world.clone(),
            crashed: crashed.clone(),
            cluster,
            program,
            service: sim.service().with_token(&sim.admin_token()),
        };
        let service = tower::service_fn(move |request: Request<Body>| gate.clone().answer(request));
        Client::new(service, "default")
    }

    fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        act(&mut self.world.lock().unwrap())
    }

    async fn answer(self, request: Request<Body>) -> Result<Answer, BoxError> {
        let path = request.uri().path();
        let rest = path.strip_prefix(WIDGETS).or_else(|| path.strip_prefix(MAPS));
        let name = rest.map(|rest| rest.trim_matches('/').trim_end_matches("/status").to_owned());
        let is_list = request.method() == Method::GET && name.as_ref().is_none_or(String::is_empty);
        // A reconcile lists the origins in a namespace, and the copies of a source.
        let is_asked = name.is_some() || request.uri().query().is_some_and(|it| it.contains("source%3D"));
        match name {
            Some(name) if !is_list => self.object(name, request).await,
            _ => self.list(request, is_asked).await,
        }
    }

    /// Lists, watches and probes. Those that a reconcile asks for don't lag.
    async fn list(self, request: Request<Body>, is_asked: bool) -> Result<Answer, BoxError> {
        if is_asked {
            self.pass(false).await?;
        }
        if self.is_cut() {
            return Err("the cluster is down".into());
        }
        let (head, body) = self.service.answer(request).await.into_parts();
        let frames = stream::unfold((self, body), move |(gate, mut body)| async move {
            let frame = body.frame().await?.map_err(|never| match never {});
            // Events come a little late, or much.
            let lag = |world: &mut World| world.lagging[gate.program as usize % 2][gate.cluster];
            let most = |world: &mut World| [4, 20_000][usize::from(!is_asked && lag(world))];
            gate.wait(most).await;
            let down = gate.is_cut().then(|| Err("the cluster is down".into()));
            Some((down.unwrap_or(frame), (gate, body)))
        });
        Ok(Response::from_parts(head, StreamBody::new(frames).boxed_unsync()))
    }

    /// A request for one object.
    async fn object(self, mut name: String, request: Request<Body>) -> Result<Answer, BoxError> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        if name.is_empty() {
            let object: Value = serde_json::from_slice(&body)?;
            name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        }
        // Two programs that see the clusters differently write the status in turn, as fast as they get answers.
        if head.uri.path().ends_with("/status") && self.with(|world| world.is_shared()) {
            sleep(Duration::from_secs(2)).await;
        }
        let (method, is_write) = (head.method.clone(), head.method != Method::GET);
        let known = self.with(|world| world.known_by(self.program));
        let loses_answer = self.pass(is_write).await?;
        let before = self.with(|world| world.get(self.cluster, &name));
        let request = Request::from_parts(head, Full::from(body));
        let answer = self.service.answer(request).await;
        let (status, by) = (answer.status(), self.program);
        let source = World::source_at(&(self.cluster, name.clone()));
        let shown = self.with(|world| {
            let at = CLUSTERS[self.cluster];
            world.note(format!("  {by}: {method} {at} {name}: {}", status.as_u16()));
            let place = (self.cluster, name);
            world.last_asked = place.clone();
            if is_write && status.is_success() {
                world.written(by, method.as_str(), place, before.as_ref(), &known);
            }
            source.map(|source| (source, world.source(source)))
        });
        self.travel().await;
        if loses_answer {
            return Err("the answer was lost".into());
        }
        if let Some((source, shown)) = shown {
            self.with(|world| world.show(by, source, shown));
        }
        Ok(answer.map(|body| body.map_err(|never| match never {}).boxed_unsync()))
    }

    /// Brings a request to its server. Returns whether the answer gets lost.
    async fn pass(&self, is_write: bool) -> Result<bool, BoxError> {
        self.travel().await;
        match self.with(|world| self.fate(world, is_write)) {
            Some(fate) => fate,
            None => pending().await,
        }
    }

    /// The way of a request or of its answer, which now and then takes long.
    async fn travel(&self) {
        let most = |world: &mut World| [200, 4][world.random.below(8).min(1)];
        self.wait(most).await;
    }

    async fn wait(&self, most: impl FnOnce(&mut World) -> usize) {
        let ms = self.with(|world| {
            let most = most(world);
            world.random.below(most)
        });
        sleep(Duration::from_millis(ms as u64)).await;
    }

    fn is_cut(&self) -> bool {
        let is_down = |world: &World| world.trouble[self.cluster] == Trouble::Down;
        self.with(|world| is_down(world) || !world.alive.contains(&self.program))
    }

    /// Whether the request is lost, or its answer. `None` if the program ends.
    fn fate(&self, world: &mut World, is_write: bool) -> Option<Result<bool, BoxError>> {
        if is_write && world.crash_in == Some(0) && world.alive.remove(&self.program) {
            world.crash_in = None;
            self.crashed.notify_one();
        }
        if !world.alive.contains(&self.program) {
            return None;
        }
        world.crash_in = world.crash_in.map(|left| left - usize::from(is_write));
        Some(match (world.trouble[self.cluster], world.random.below(60)) {
            (Trouble::Down, _) | (Trouble::Refuses, ..30) => Err("the request was lost".into()),
            (Trouble::DropsAnswers, ..30) => Ok(is_write),
            _ => Ok(false),
        })
    }
}
