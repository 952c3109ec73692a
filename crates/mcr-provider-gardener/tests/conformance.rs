//! What every provider must do; see `mcr_testkit::conformance`. The garden is a stand-in on a simulated API server, the seed is one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use mcr_core::{ClusterName, Provider};
use mcr_provider_gardener::{GardenerProvider, Topology};
use mcr_testkit::{
    conformance::{Ability, Ability::*, Draft, Subject},
    garden::Garden,
    sim::SimCluster,
};
use serde_json::{Value, json};
use support::{GARDEN, SEED, SHOOTS, hour, locally, object, secret, server};

/// The Shoots of a garden, and the kubeconfigs that it issues. With `KEEP`, clusters stay while their Shoots are being deleted.
/// Without it they leave at once.
struct Shoots<const ALL: bool, const KEEP: bool> {
    server: SimCluster,
    garden: Garden,
    issue: Arc<Mutex<HashMap<String, String>>>,
}

fn name(draft: &Draft) -> ClusterName {
    ClusterName::new(format!("dev/{}", draft.name())).unwrap()
}

impl<const ALL: bool, const KEEP: bool> Shoots<ALL, KEEP> {
    fn key(draft: &Draft) -> String {
        format!("garden-dev/{}", draft.name())
    }

    /// The garden issues this from now on. The phase of the rotation makes the provider ask for it.
    fn put_as(&self, draft: &Draft, kubeconfig: String, phase: &str) {
        self.issue.lock().unwrap().insert(draft.name(), kubeconfig);
        let phase = format!("{phase} {}", draft.token());
        let more = json!({
            "metadata": {"labels": {"version": draft.label()}},
            "status": {"credentials": {"rotation": {"certificateAuthorities": {"phase": phase}}}},
        });
        let shoot = object(GARDEN, &format!("shoot {}", Self::key(draft)), more);
        self.server.apply(shoot).unwrap();
    }

    fn set(&self, draft: &Draft, field: [&str; 2], value: Value) {
        let mut there = self.server.get(SHOOTS, &Self::key(draft)).unwrap();
        there[field[0]][field[1]] = value;
        self.server.update(there).unwrap();
    }

    fn delete(&self, draft: &Draft) {
        self.server.delete(SHOOTS, &Self::key(draft)).unwrap();
    }
}

impl<const ALL: bool, const KEEP: bool> Subject for Shoots<ALL, KEEP> {
    const CAN: &'static [Ability] = if KEEP {
        &[Add, Change, Rotate, Replace, Break, Suspend, Delete, Remove]
    } else {
        &[Add, Change, Rotate, Replace, Break, Suspend, Remove]
    };

    async fn start() -> Self {
        let issue = Arc::<Mutex<HashMap<String, String>>>::default();
        let known = issue.clone();
        let garden = Garden::new(move |ask| {
            let answer = hour(known.lock().unwrap()[&ask.name].clone());
            async move { answer }
        });
        Self {
            server: server(GARDEN),
            garden,
            issue,
        }
    }

    fn provider(&self) -> Arc<dyn Provider> {
        let client = self.garden.client(self.server.client());
        let mut builder = GardenerProvider::builder()
            .client(client)
            .access_policy(locally());
        builder = if ALL {
            builder.all_namespaces()
        } else {
            builder.namespace("garden-dev")
        };
        if KEEP {
            builder = builder.keep_while(|_| true);
        }
        Arc::new(builder.build().unwrap())
    }

    async fn put(&mut self, draft: &Draft) {
        self.put_as(draft, draft.kubeconfig(), &draft.label());
    }

    async fn add(&mut self, draft: &Draft) -> ClusterName {
        self.put(draft).await;
        name(draft)
    }

    async fn replace(&mut self, draft: &Draft) {
        self.delete(draft);
        self.put(draft).await;
    }

    async fn break_it(&mut self, draft: &Draft) -> ClusterName {
        self.put_as(draft, draft.kubeconfig_cut_short(), "broken");
        name(draft)
    }

    async fn suspend(&mut self, draft: &Draft) {
        self.set(draft, ["spec", "hibernation"], json!({"enabled": true}));
    }

    async fn resume(&mut self, draft: &Draft) {
        self.set(draft, ["spec", "hibernation"], json!({"enabled": false}));
    }

    async fn begin_deletion(&mut self, draft: &Draft) {
        self.set(draft, ["metadata", "finalizers"], json!(["gardener"]));
        self.delete(draft);
    }

    async fn finish_deletion(&mut self, draft: &Draft) {
        self.set(draft, ["metadata", "finalizers"], json!([]));
    }

    async fn remove(&mut self, draft: &Draft) {
        self.delete(draft);
    }
}

/// The Shoots of a seed. With `KEEP`, clusters stay while their Shoots are being deleted.
struct InSeed<const KEEP: bool>(SimCluster);

impl<const KEEP: bool> InSeed<KEEP> {
    fn put_as(&self, draft: &Draft, kubeconfig: &str) {
        let namespace = object(
            SEED,
            &format!("namespace shoot--dev--{}", draft.name()),
            json!({}),
        );
        self.0.apply(namespace).unwrap();
        self.0.apply(secret(&draft.name(), kubeconfig)).unwrap();
        self.shoot(draft, json!({}));
    }

    fn shoot(&self, draft: &Draft, mut more: Value) {
        more["metadata"]["uid"] = draft.uid().into();
        more["metadata"]["labels"] = json!({"version": draft.label()});
        let cluster = object(
            SEED,
            &format!("cluster {}", draft.name()),
            json!({"spec": {"shoot": more}}),
        );
        self.0.apply(cluster).unwrap();
    }

    fn delete(&self, draft: &Draft) {
        let key = format!("shoot--dev--{}", draft.name());
        self.0.delete("clusters.extensions.gardener.cloud", &key).unwrap();
    }
}

impl<const KEEP: bool> Subject for InSeed<KEEP> {
    const CAN: &'static [Ability] = Shoots::<false, KEEP>::CAN;

    async fn start() -> Self {
        Self(server(SEED))
    }

    fn provider(&self) -> Arc<dyn Provider> {
        let mut builder = GardenerProvider::builder()
            .client(self.0.client())
            .topology(Topology::Seed)
            .access_policy(locally());
        if KEEP {
            builder = builder.keep_while(|_| true);
        }
        Arc::new(builder.build().unwrap())
    }

    async fn put(&mut self, draft: &Draft) {
        self.put_as(draft, &draft.kubeconfig());
    }

    async fn add(&mut self, draft: &Draft) -> ClusterName {
        self.put(draft).await;
        name(draft)
    }

    async fn replace(&mut self, draft: &Draft) {
        self.delete(draft);
        self.put(draft).await;
    }

    async fn break_it(&mut self, draft: &Draft) -> ClusterName {
        self.put_as(draft, &draft.kubeconfig_cut_short());
        name(draft)
    }

    async fn suspend(&mut self, draft: &Draft) {
        self.shoot(draft, json!({"spec": {"hibernation": {"enabled": true}}}));
    }

    async fn resume(&mut self, draft: &Draft) {
        self.shoot(draft, json!({"spec": {"hibernation": {"enabled": false}}}));
    }

    async fn begin_deletion(&mut self, draft: &Draft) {
        self.shoot(
            draft,
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        );
    }

    async fn finish_deletion(&mut self, draft: &Draft) {
        self.delete(draft);
    }

    async fn remove(&mut self, draft: &Draft) {
        self.delete(draft);
    }
}

mod in_seed {
    type InSeed = super::InSeed<false>;
    mcr_testkit::provider_conformance!(InSeed);
}

mod in_seed_and_kept {
    type InSeedAndKept = super::InSeed<true>;
    mcr_testkit::provider_conformance!(InSeedAndKept);
}

mod one_namespace {
    type OneNamespace = super::Shoots<false, false>;
    mcr_testkit::provider_conformance!(OneNamespace);
}

mod all_namespaces {
    type AllNamespacesAndKept = super::Shoots<true, true>;
    mcr_testkit::provider_conformance!(AllNamespacesAndKept);
}
