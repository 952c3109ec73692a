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

const OBJECTS: [&str; 2] = [
    "/apis/example.com/v1/namespaces/default/widgets",
    "/api/v1/namespaces/default/configmaps",
];

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
    /// A client of the cluster for a program.
    pub(crate) fn client(
        world: &Arc<Mutex<World>>,
        crashed: &Arc<Notify>,
        cluster: usize,
        program: u64,
    ) -> Client {
        let service = {
            let sim = &world.lock().unwrap().sims[cluster];
            sim.service().with_token(&sim.admin_token())
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
        let of_object = OBJECTS.iter().find_map(|objects| path.strip_prefix(objects));
        match of_object.map(|rest| {
            rest.trim_start_matches('/')
                .trim_end_matches("/status")
                .to_owned()
        }) {
            Some(name) if !name.is_empty() || request.method() != Method::GET => {
                self.object(name, request).await
            }
            of_object => {
                // A reconcile lists the origins in a namespace, and the copies of a source.
                let is_asked = request
                    .uri()
                    .query()
                    .is_some_and(|query| query.contains("source%3D"));
                self.list(request, of_object.is_some() || is_asked).await
            }
        }
    }

    /// Lists, watches and probes. Those of a reconcile don't lag.
    async fn list(self, request: Request<Body>, is_asked: bool) -> Result<Answer, BoxError> {
        if is_asked {
            self.travel().await;
            match self.with(|world| self.fate(world, false)) {
                Fate::Passes | Fate::LosesItsAnswer => {}
                Fate::IsLost => return Err("the request was lost".into()),
                Fate::Ends => pending().await,
            }
        }
        if self.is_cut() {
            return Err("the cluster is down".into());
        }
        let (head, body) = self.service.answer(request).await.into_parts();
        let frames = stream::unfold((self, body), move |(gate, mut body)| async move {
            let frame = body.frame().await?.ok()?;
            if is_asked {
                gate.travel().await;
            } else {
                gate.pause().await;
            }
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
        let body = body.collect().await?.to_bytes();
        let name = if name.is_empty() {
            let object: serde_json::Value = serde_json::from_slice(&body)?;
            object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
        } else {
            name
        };
        let is_write = head.method != Method::GET;
        self.travel().await;
        let fate = self.with(|world| self.fate(world, is_write));
        match fate {
            Fate::Passes | Fate::LosesItsAnswer => {}
            Fate::IsLost => return Err("the request was lost".into()),
            Fate::Ends => pending().await,
        }
        // Two programs that see the clusters differently write the status in turn, as fast as they get answers.
        if head.uri.path().ends_with("/status") && self.with(|world| world.is_shared()) {
            sleep(Duration::from_secs(2)).await;
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
                "  {}: {method} {} {name}: {}",
                self.program,
                CLUSTERS[self.cluster],
                answer.status().as_u16()
            ));
            world.last_asked = (self.cluster, name.clone());
            if is_write && is_done {
                world.written(
                    self.program,
                    method.as_str(),
                    self.cluster,
                    &name,
                    before.as_ref(),
                );
            } else if self.cluster < SOURCE_CLUSTERS
                && let Some(at) = NAMES.iter().position(|known| *known == name)
            {
                world.show(self.program, (self.cluster, at));
            }
        });
        self.travel().await;
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

    /// The way of a request or of its answer, which now and then takes long.
    async fn travel(&self) {
        let ms = self.with(|world| {
            let most = if world.random.below(8) == 0 { 200 } else { 4 };
            world.random.below(most)
        });
        sleep(Duration::from_millis(ms as u64)).await;
    }

    fn is_cut(&self) -> bool {
        self.with(|world| {
            !world.alive.contains(&self.program) || world.trouble[self.cluster] == Trouble::Down
        })
    }

    fn fate(&self, world: &mut World, is_write: bool) -> Fate {
        if is_write && world.crash_in == Some(0) && world.alive.remove(&self.program) {
            world.crash_in = None;
            self.crashed.notify_one();
        }
        if !world.alive.contains(&self.program) {
            return Fate::Ends;
        }
        if is_write && let Some(left) = &mut world.crash_in {
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
            let most = if world.lagging[self.program as usize % 2][self.cluster] {
                20_000
            } else {
                4
            };
            world.random.below(most)
        });
        if ms > 0 {
            sleep(Duration::from_millis(ms as u64)).await;
        }
    }
}
