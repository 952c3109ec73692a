//! Stands between the program and its clusters: delays and loses requests, and shows each write to the world.

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
use mcr_testkit::sim::{SimBody, SimService};
use tokio::{sync::Notify, time::sleep};

use crate::world::{CLUSTERS, NAMES, SOURCE_CLUSTERS, Trouble, World};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) world: Arc<Mutex<World>>,
    pub(crate) crashed: Arc<Notify>,
    cluster: usize,
    program: u64,
    service: SimService,
}

enum Fate {
    Passes,
    IsLost,
    LosesItsAnswer,
    Ends,
}

impl Gate {
    /// A client of the cluster for the program that runs now.
    pub(crate) fn client(world: &Arc<Mutex<World>>, crashed: &Arc<Notify>, cluster: usize) -> Client {
        let (service, program) = {
            let world = world.lock().unwrap();
            let sim = &world.sims[cluster];
            (sim.service().with_token(&sim.admin_token()), world.program)
        };
        let gate = Self {
            world: world.clone(),
            crashed: crashed.clone(),
            cluster,
            program,
            service,
        };
        let service = tower::service_fn(move |request: Request<Body>| {
            let gate = gate.clone();
            async move { gate.answer(request).await }
        });
        Client::new(service, "default")
    }

    fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        act(&mut self.world.lock().unwrap())
    }

    async fn answer(self, request: Request<Body>) -> Result<Answer, BoxError> {
        let path = request.uri().path();
        let of_object = path.strip_prefix(WIDGETS).map(|rest| {
            let rest = rest.trim_start_matches('/');
            rest.trim_end_matches("/status").to_owned()
        });
        match of_object {
            Some(name) => self.object(name, request).await,
            None => self.other(request).await,
        }
    }

    /// Lists, watches and probes.
    async fn other(self, request: Request<Body>) -> Result<Answer, BoxError> {
        if self.is_cut() {
            return Err("the cluster is down".into());
        }
        let (head, body) = self.service.answer(request).await.into_parts();
        let frames = stream::unfold((self, body), async |(gate, mut body)| {
            let Ok(frame) = body.frame().await?;
            gate.pause().await;
            if gate.is_cut() {
                return Some((Err("the cluster is down".into()), (gate, body)));
            }
            Some((Ok::<_, BoxError>(frame), (gate, body)))
        });
        Ok(Response::from_parts(head, StreamBody::new(frames).boxed_unsync()))
    }

    /// A request for one object.
    async fn object(self, name: String, request: Request<Body>) -> Result<Answer, BoxError> {
        let (head, body) = request.into_parts();
        if head.method == Method::GET && name.is_empty() {
            return self.other(Request::from_parts(head, body)).await;
        }
        let body = body.collect().await?.to_bytes();
        let name = if name.is_empty() {
            let object: serde_json::Value = serde_json::from_slice(&body)?;
            object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
        } else {
            name
        };
        let is_write = head.method != Method::GET;
        sleep(self.with(|world| Duration::from_millis(world.random.below(4) as u64))).await;
        let fate = self.with(|world| self.fate(world, is_write));
        match fate {
            Fate::Passes | Fate::LosesItsAnswer => {}
            Fate::IsLost => return Err("the request was lost".into()),
            Fate::Ends => pending().await,
        }
        let method = head.method.clone();
        let before = self.with(|world| world.get(self.cluster, &name));
        let answer = self
            .service
            .answer(Request::from_parts(head, Full::from(body)))
            .await;
        let is_done = answer.status().is_success();
        self.with(|world| {
            world.note(format!(
                "  {method} {} {name}: {}",
                CLUSTERS[self.cluster],
                answer.status().as_u16()
            ));
            if is_write && is_done {
                world.written(method.as_str(), self.cluster, &name, before.as_ref());
            } else if self.cluster < SOURCE_CLUSTERS
                && let Some(at) = NAMES.iter().position(|known| *known == name)
            {
                world.show((self.cluster, at));
            }
        });
        sleep(self.with(|world| Duration::from_millis(world.random.below(4) as u64))).await;
        if matches!(fate, Fate::LosesItsAnswer) {
            return Err("the answer was lost".into());
        }
        let (head, body) = answer.into_parts();
        let body: SimBody = body;
        Ok(Response::from_parts(
            head,
            body.map_err(|never| match never {}).boxed_unsync(),
        ))
    }

    fn is_cut(&self) -> bool {
        self.with(|world| world.program != self.program || world.trouble[self.cluster] == Trouble::Down)
    }

    fn fate(&self, world: &mut World, is_write: bool) -> Fate {
        if world.program != self.program {
            return Fate::Ends;
        }
        if is_write && let Some(left) = &mut world.crash_in {
            if *left == 0 {
                self.crashed.notify_one();
                return Fate::Ends;
            }
            *left -= 1;
        }
        match (world.trouble[self.cluster], world.random.below(60)) {
            (Trouble::Down, _) | (Trouble::Refuses, ..30) => Fate::IsLost,
            (Trouble::DropsAnswers, ..30) if is_write => Fate::LosesItsAnswer,
            _ => Fate::Passes,
        }
    }

    /// Events come a little late, or much.
    async fn pause(&self) {
        let ms = self.with(|world| {
            let most = if world.lagging[self.cluster] { 20_000 } else { 4 };
            world.random.below(most)
        });
        if ms > 0 {
            sleep(Duration::from_millis(ms as u64)).await;
        }
    }
}
