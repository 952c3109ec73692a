//! What the tests share: a garden on a simulated API server.

#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "each test file uses its part"
)]

pub(crate) mod seed;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use mcr_core::{Fleet, FleetSettings, WatchSettings};
use mcr_garden_double::{Garden, Issued};
use mcr_provider_gardener::{GardenerProvider, GardenerProviderBuilder};
pub(crate) use mcr_testkit::discovery::{Followed as Received, line, locally};
use mcr_testkit::{sim::SimCluster, waiting::Background};
use serde_json::{Value, json};

pub(crate) const SHOOTS: &str = "shoots.core.gardener.cloud";

/// What never comes is given up after this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A garden that has forbidden something for so long is believed.
pub(crate) const BLOCKED_FOR: Duration = Duration::from_millis(200);

/// A garden that answers for each Shoot as it was told last.
pub(crate) struct World {
    pub(crate) server: SimCluster,
    pub(crate) garden: Garden,
    answers: Arc<Mutex<HashMap<String, Issued>>>,
}

impl World {
    pub(crate) fn new() -> Self {
        let answers = Arc::<Mutex<HashMap<String, Issued>>>::default();
        let known = answers.clone();
        let garden = Garden::new(move |ask| {
            let answer = known.lock().unwrap().get(&ask.name).cloned();
            async move { answer.unwrap_or_else(|| Issued::refused(500, "nothing is known of this Shoot")) }
        });
        Self {
            answers,
            ..Self::of(garden)
        }
    }

    /// A world with this garden, which answers by itself.
    pub(crate) fn of(garden: Garden) -> Self {
        let server = SimCluster::builder()
            .history(100_000)
            .audit_limit(200_000)
            .build();
        server.create(Garden::crd()).unwrap();
        let world = Self {
            server,
            garden,
            answers: Arc::default(),
        };
        world.namespace("garden-dev", Some("dev"));
        world
    }

    pub(crate) fn namespace(&self, name: &str, project: Option<&str>) {
        let mut namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        if let Some(project) = project {
            namespace["metadata"]["labels"] = json!({"project.gardener.cloud/name": project});
        }
        self.server.create(namespace).unwrap();
    }

    /// Sets the answer to all further requests for the Shoots of this name.
    pub(crate) fn answers(&self, name: &str, answer: Issued) {
        self.answers.lock().unwrap().insert(name.to_owned(), answer);
    }

    /// Adds a Shoot in the namespace `garden-dev` whose kubeconfigs live for an hour.
    pub(crate) fn add(&self, name: &str) {
        self.answers(name, hour(&kubeconfig(name)));
        self.server.create(Garden::shoot("garden-dev", name)).unwrap();
    }

    pub(crate) fn change(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut there = self.server.get(SHOOTS, &format!("garden-dev/{name}")).unwrap();
        change(&mut there);
        self.server.update(there).unwrap();
    }

    pub(crate) fn delete(&self, name: &str) {
        self.server.delete(SHOOTS, &format!("garden-dev/{name}")).unwrap();
    }

    /// A provider whose pauses are short.
    pub(crate) fn builder(&self) -> GardenerProviderBuilder {
        let mut watch = WatchSettings::default();
        watch.retry_cap = Duration::from_millis(200);
        GardenerProvider::builder()
            .client(self.garden.client(self.server.client()))
            .namespace("garden-dev")
            .access_policy(locally())
            .times(
                watch,
                BLOCKED_FOR,
                (PATIENCE, PATIENCE),
                Duration::from_millis(20),
            )
    }

    pub(crate) fn received(&self) -> Received {
        Received::of(&self.builder().build().unwrap())
    }
}

/// A running fleet over a provider.
pub(crate) fn fleet_of(
    provider: GardenerProvider,
    change: impl FnOnce(&mut FleetSettings),
) -> (Fleet, Background<()>) {
    let settings = |settings: &mut FleetSettings| {
        settings.access_policy = locally();
        change(settings);
    };
    let fleet = Fleet::builder().provider(provider).settings(settings).build();
    let runs = fleet.clone();
    (
        fleet,
        Background::start(|stop| async move { runs.run(stop).await }),
    )
}

pub(crate) fn hour(kubeconfig: &str) -> Issued {
    Issued::kubeconfig(kubeconfig, Duration::from_secs(3600))
}

/// A kubeconfig of a cluster where nothing answers.
pub(crate) fn kubeconfig(token: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": token}}],
    })
    .to_string()
}

/// What the fleet does when the API server of a cluster refuses the credential.
pub(crate) async fn refuse(spec: &mcr_core::ClusterSpec) {
    let mcr_core::Access::Endpoint(access) = &spec.access else {
        panic!("{:?}", spec.access);
    };
    let why = mcr_core::Refresh::Unauthorized;
    access.credentials.credential(why).await.unwrap();
}
