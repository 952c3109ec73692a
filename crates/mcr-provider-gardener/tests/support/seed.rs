//! A seed on a simulated API server.

use std::time::{Duration, SystemTime};

use mcr_core::WatchSettings;
use mcr_garden_double::Garden;
use mcr_provider_gardener::{GardenerProvider, GardenerProviderBuilder, Topology};
use mcr_testkit::sim::{SimBuilder, SimCluster};
use serde_json::{Value, json};

use super::{PATIENCE, Received, kubeconfig, locally};

pub(crate) const CLUSTERS: &str = "clusters.extensions.gardener.cloud";

/// The namespace of a control plane in the project `dev`.
pub(crate) fn control_plane(name: &str) -> String {
    format!("shoot--dev--{name}")
}

/// A seed with its Clusters and Secrets.
pub(crate) struct SeedWorld(pub(crate) SimCluster);

impl SeedWorld {
    pub(crate) fn new() -> Self {
        Self::of(SimCluster::builder().history(100_000))
    }

    pub(crate) fn of(builder: SimBuilder) -> Self {
        let server = builder.build();
        server.create(Garden::cluster_crd()).unwrap();
        Self(server)
    }

    /// Sets the Shoot that a Cluster describes.
    pub(crate) fn shoot(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let there = self.0.get(CLUSTERS, &control_plane(name));
        let (mut cluster, there) = match there {
            Some(cluster) => (cluster, true),
            None => {
                let mut shoot = Garden::shoot("garden-dev", name);
                shoot["metadata"]["uid"] = format!("uid-of-{name}").into();
                (Garden::cluster(&shoot), false)
            }
        };
        change(&mut cluster["spec"]["shoot"]);
        match there {
            true => self.0.update(cluster).unwrap(),
            false => self.0.create(cluster).unwrap(),
        };
    }

    /// Sets the kubeconfig of a Shoot. Gardener renews it in an hour.
    pub(crate) fn kubeconfig(&self, name: &str, kubeconfig: &str) {
        self.kubeconfig_until(name, kubeconfig, Duration::from_secs(3600));
    }

    pub(crate) fn kubeconfig_until(&self, name: &str, kubeconfig: &str, renew: Duration) {
        let namespace = control_plane(name);
        if self.0.get("namespaces", &namespace).is_none() {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            self.0.create(namespace).unwrap();
        }
        let secret = Garden::secret(&namespace, kubeconfig, SystemTime::now() + renew);
        self.0.apply(secret).unwrap();
    }

    /// Adds a Shoot with its kubeconfig.
    pub(crate) fn add(&self, name: &str) {
        self.kubeconfig(name, &kubeconfig(name));
        self.shoot(name, |_| {});
    }

    pub(crate) fn delete_secret(&self, name: &str) {
        let key = format!("{}/gardener", control_plane(name));
        self.0.delete("secrets", &key).unwrap();
    }

    pub(crate) fn delete(&self, name: &str) {
        self.0.delete(CLUSTERS, &control_plane(name)).unwrap();
    }

    /// How often the Secret of a Shoot was read.
    pub(crate) fn gets(&self) -> usize {
        self.0
            .audit()
            .count(|event| event.verb == "get" && event.resource == "secrets" && event.is_start())
    }

    pub(crate) fn builder(&self) -> GardenerProviderBuilder {
        let mut watch = WatchSettings::default();
        watch.retry_cap = Duration::from_millis(200);
        GardenerProvider::builder()
            .client(self.0.client())
            .topology(Topology::Seed)
            .access_policy(locally())
            .times(watch, PATIENCE, (PATIENCE, PATIENCE), Duration::from_millis(20))
    }

    pub(crate) fn received(&self) -> Received {
        Received::of(&self.builder().build().unwrap())
    }
}
