//! What every provider must do; see `mcr_testkit::conformance`. The garden is a stand-in on a simulated API server, the seed is one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::sync::Arc;

use mcr_core::{ClusterName, Provider};
use mcr_garden_double::Garden;
use mcr_provider_gardener::{GardenerProvider, Topology};
use mcr_testkit::conformance::{Ability, Ability::*, Draft, Subject};
use serde_json::json;
use support::{SHOOTS, World, hour, locally, seed::SeedWorld};

/// With `KEEP`, clusters stay while their Shoots are being deleted. Without it they leave at once.
struct Shoots<const ALL: bool, const KEEP: bool>(World);

impl<const ALL: bool, const KEEP: bool> Shoots<ALL, KEEP> {
    fn name(draft: &Draft) -> ClusterName {
        ClusterName::new(format!("dev/{}", draft.name())).unwrap()
    }

    /// The garden issues this from now on. The phase of the rotation makes the provider ask for it.
    fn put_as(&self, draft: &Draft, kubeconfig: &str, phase: &str) {
        self.0.answers(&draft.name(), hour(kubeconfig));
        let mut shoot = Garden::shoot("garden-dev", &draft.name());
        shoot["metadata"]["labels"] = json!({"version": draft.label()});
        let phase = format!("{phase} {}", draft.token());
        shoot["status"]["credentials"] = json!({"rotation": {"certificateAuthorities": {"phase": phase}}});
        self.0.server.apply(shoot).unwrap();
    }

    fn finalizers(&self, draft: &Draft, finalizers: serde_json::Value) {
        self.0.change(&draft.name(), |shoot| {
            shoot["metadata"]["finalizers"] = finalizers
        });
    }
}

impl<const ALL: bool, const KEEP: bool> Subject for Shoots<ALL, KEEP> {
    const CAN: &'static [Ability] = if KEEP {
        &[Add, Change, Rotate, Replace, Break, Suspend, Delete, Remove]
    } else {
        &[Add, Change, Rotate, Replace, Break, Suspend, Remove]
    };

    async fn start() -> Self {
        Self(World::new())
    }

    fn provider(&self) -> Arc<dyn Provider> {
        let client = self.0.garden.client(self.0.server.client());
        let mut builder = GardenerProvider::builder()
            .client(client)
            .access_policy(locally());
        builder = match ALL {
            true => builder.all_namespaces(),
            false => builder.namespace("garden-dev"),
        };
        if KEEP {
            builder = builder.keep_while(|_| true);
        }
        Arc::new(builder.build().unwrap())
    }

    async fn put(&mut self, draft: &Draft) {
        self.put_as(draft, &draft.kubeconfig(), &draft.label());
    }

    async fn add(&mut self, draft: &Draft) -> ClusterName {
        self.put(draft).await;
        Self::name(draft)
    }

    async fn replace(&mut self, draft: &Draft) {
        self.0.delete(&draft.name());
        self.put(draft).await;
    }

    async fn break_it(&mut self, draft: &Draft) -> ClusterName {
        self.put_as(draft, &draft.kubeconfig_cut_short(), "broken");
        Self::name(draft)
    }

    async fn suspend(&mut self, draft: &Draft) {
        self.0.change(&draft.name(), |shoot| {
            shoot["spec"]["hibernation"] = json!({"enabled": true});
        });
    }

    async fn resume(&mut self, draft: &Draft) {
        self.0.change(&draft.name(), |shoot| {
            shoot["spec"]["hibernation"] = json!({"enabled": false});
        });
    }

    async fn begin_deletion(&mut self, draft: &Draft) {
        self.finalizers(draft, json!(["gardener"]));
        self.0.delete(&draft.name());
        let there = self
            .0
            .server
            .get(SHOOTS, &format!("garden-dev/{}", draft.name()))
            .unwrap();
        assert!(there["metadata"]["deletionTimestamp"].is_string());
    }

    async fn finish_deletion(&mut self, draft: &Draft) {
        self.finalizers(draft, json!([]));
    }

    async fn remove(&mut self, draft: &Draft) {
        self.0.delete(&draft.name());
    }
}

/// The Shoots of a seed. With `KEEP`, clusters stay while their Shoots are being deleted.
struct InSeed<const KEEP: bool>(SeedWorld);

impl<const KEEP: bool> InSeed<KEEP> {
    fn put_as(&self, draft: &Draft, kubeconfig: &str) {
        self.0.kubeconfig(&draft.name(), kubeconfig);
        self.0.shoot(&draft.name(), |shoot| {
            shoot["metadata"]["uid"] = draft.uid().into();
            shoot["metadata"]["labels"] = json!({"version": draft.label()});
        });
    }

    fn hibernate(&self, draft: &Draft, enabled: bool) {
        self.0.shoot(&draft.name(), |shoot| {
            shoot["spec"]["hibernation"] = json!({"enabled": enabled});
        });
    }
}

impl<const KEEP: bool> Subject for InSeed<KEEP> {
    const CAN: &'static [Ability] = Shoots::<false, KEEP>::CAN;

    async fn start() -> Self {
        Self(SeedWorld::new())
    }

    fn provider(&self) -> Arc<dyn Provider> {
        let mut builder = GardenerProvider::builder()
            .client(self.0.0.client())
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
        Shoots::<false, KEEP>::name(draft)
    }

    async fn replace(&mut self, draft: &Draft) {
        self.0.delete(&draft.name());
        self.put(draft).await;
    }

    async fn break_it(&mut self, draft: &Draft) -> ClusterName {
        self.put_as(draft, &draft.kubeconfig_cut_short());
        Shoots::<false, KEEP>::name(draft)
    }

    async fn suspend(&mut self, draft: &Draft) {
        self.hibernate(draft, true);
    }

    async fn resume(&mut self, draft: &Draft) {
        self.hibernate(draft, false);
    }

    async fn begin_deletion(&mut self, draft: &Draft) {
        self.0.shoot(&draft.name(), |shoot| {
            shoot["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        });
    }

    async fn finish_deletion(&mut self, draft: &Draft) {
        self.0.delete(&draft.name());
    }

    async fn remove(&mut self, draft: &Draft) {
        self.0.delete(&draft.name());
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
