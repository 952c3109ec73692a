//! What the tests share: a garden and a seed on simulated API servers.

#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    reason = "each test file uses its part"
)]

use std::{
    sync::LazyLock,
    time::{Duration, SystemTime},
};

use mcr_core::{Fleet, FleetSettings};
use mcr_garden_double::{Garden, Issued};
use mcr_provider_gardener::{GardenerProvider, GardenerProviderBuilder};
pub(crate) use mcr_testkit::{discovery::loopback_policy, steps::kubeconfig};
use mcr_testkit::{sim::SimCluster, steps::Templates, waiting::Background};
use serde_json::{Value, json};

pub(crate) static GARDEN: LazyLock<Templates> =
    LazyLock::new(|| Templates::of(include_str!("../garden.yaml")));
pub(crate) static SEED: LazyLock<Templates> = LazyLock::new(|| Templates::of(include_str!("../seed.yaml")));
pub(crate) const SHOOTS: &str = "shoots.core.gardener.cloud";

/// An object of `garden.yaml` or `seed.yaml`, with a merge patch.
pub(crate) fn object(file: &Templates, named: &str, more: Value) -> Value {
    file.object(named, &more)
}

/// The API server of a garden or a seed.
pub(crate) fn server(file: &Templates) -> SimCluster {
    let server = SimCluster::builder()
        .history(100_000)
        .audit_limit(100_000)
        .build();
    file.prepare(&server);
    server
}

/// A garden and the API server behind it.
pub(crate) struct World {
    pub(crate) server: SimCluster,
    pub(crate) garden: Garden,
}

impl World {
    /// A world with the Shoot `dev/a`.
    pub(crate) fn of(garden: Garden) -> Self {
        let world = Self {
            server: server(&GARDEN),
            garden,
        };
        world.add("a", json!({}));
        world
    }

    pub(crate) fn add(&self, name: &str, more: Value) {
        let shoot = object(&GARDEN, &format!("shoot garden-dev/{name}"), more);
        self.server.create(shoot).unwrap();
    }

    pub(crate) fn merge(&self, name: &str, patch: &Value) {
        let mut there = self.server.get(SHOOTS, &format!("garden-dev/{name}")).unwrap();
        for (field, value) in patch.as_object().unwrap() {
            for (inner, value) in value.as_object().unwrap() {
                there[field][inner] = value.clone();
            }
        }
        self.server.update(there).unwrap();
    }

    pub(crate) fn builder(&self) -> GardenerProviderBuilder {
        GardenerProvider::builder()
            .client(self.garden.client(self.server.client()))
            .namespace("garden-dev")
            .access_policy(loopback_policy())
    }
}

/// A running fleet over a provider.
pub(crate) fn fleet_of(
    provider: GardenerProvider,
    change: impl FnOnce(&mut FleetSettings),
) -> (Fleet, Background<()>) {
    let settings = |settings: &mut FleetSettings| {
        settings.access_policy = loopback_policy();
        change(settings);
    };
    let fleet = Fleet::builder().provider(provider).settings(settings).build();
    let runs = fleet.clone();
    let running = Background::start(|stop| async move { runs.run(stop).await });
    (fleet, running)
}

pub(crate) fn hour(kubeconfig: impl Into<String>) -> Issued {
    Issued::kubeconfig(kubeconfig, Duration::from_secs(3600))
}

/// The Secret of a Shoot in a seed, whose token Gardener renews in an hour.
pub(crate) fn secret(name: &str, kubeconfig: &str) -> Value {
    let renew = SystemTime::now() + Duration::from_secs(3600);
    Garden::secret(&format!("shoot--dev--{name}"), kubeconfig, renew)
}
