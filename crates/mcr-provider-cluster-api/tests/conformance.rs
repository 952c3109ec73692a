//! What every provider must do; see `mcr_testkit::conformance`. The hub is a simulated API server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::sync::Arc;

use mcr_core::{ClusterName, Provider};
use mcr_testkit::{
    conformance::{Ability, Ability::*, Draft, Subject},
    sim::SimCluster,
};
use serde_json::{Value, json};
use support::{CLUSTERS, builder, hub, object};

/// With `KEEP`, clusters stay while their Clusters are being deleted. Without it they leave at once.
struct Clusters<const ALL: bool, const KEEP: bool>(SimCluster);

impl<const ALL: bool, const KEEP: bool> Clusters<ALL, KEEP> {
    fn key(draft: &Draft) -> String {
        format!("default/{}", draft.name())
    }

    fn name(draft: &Draft) -> ClusterName {
        ClusterName::new(if ALL { Self::key(draft) } else { draft.name() }).unwrap()
    }

    fn put_cluster(&self, draft: &Draft) {
        let label = json!({"metadata": {"labels": {"version": draft.label()}}});
        let wanted = object(&format!("ready {}", draft.name()), label);
        self.0.apply(wanted).unwrap();
    }

    fn put_secret(&self, draft: &Draft, kubeconfig: &str) {
        let content = json!({"stringData": {"value": kubeconfig}});
        let secret = object(&format!("secret {}", draft.name()), content);
        self.0.apply(secret).unwrap();
    }

    fn finalizers(&self, draft: &Draft, finalizers: Value) {
        let mut there = self.0.get(CLUSTERS, &Self::key(draft)).unwrap();
        there["metadata"]["finalizers"] = finalizers;
        self.0.update(there).unwrap();
    }

    fn delete(&self, draft: &Draft) {
        self.0.delete(CLUSTERS, &Self::key(draft)).unwrap();
    }
}

impl<const ALL: bool, const KEEP: bool> Subject for Clusters<ALL, KEEP> {
    const CAN: &'static [Ability] = if KEEP {
        &[Add, Change, Rotate, Replace, Break, Delete, Remove]
    } else {
        &[Add, Change, Rotate, Replace, Break, Remove]
    };

    async fn start() -> Self {
        Self(hub(SimCluster::builder()))
    }

    fn provider(&self) -> Arc<dyn Provider> {
        let mut builder = builder(self.0.client());
        if ALL {
            builder = builder.all_namespaces();
        }
        if KEEP {
            builder = builder.keep_while(|_| true);
        }
        Arc::new(builder.build().unwrap())
    }

    async fn put(&mut self, draft: &Draft) {
        self.put_secret(draft, &draft.kubeconfig());
        self.put_cluster(draft);
    }

    async fn add(&mut self, draft: &Draft) -> ClusterName {
        self.put(draft).await;
        Self::name(draft)
    }

    async fn replace(&mut self, draft: &Draft) {
        self.delete(draft);
        self.put(draft).await;
    }

    async fn break_it(&mut self, draft: &Draft) -> ClusterName {
        self.put_secret(draft, &draft.kubeconfig_cut_short());
        self.put_cluster(draft);
        Self::name(draft)
    }

    async fn begin_deletion(&mut self, draft: &Draft) {
        self.finalizers(draft, json!(["cluster.cluster.x-k8s.io"]));
        self.delete(draft);
        let there = self.0.get(CLUSTERS, &Self::key(draft)).unwrap();
        assert!(there["metadata"]["deletionTimestamp"].is_string());
    }

    async fn finish_deletion(&mut self, draft: &Draft) {
        self.finalizers(draft, json!([]));
    }

    async fn remove(&mut self, draft: &Draft) {
        self.delete(draft);
    }
}

mod one_namespace {
    type OneNamespace = super::Clusters<false, false>;
    mcr_testkit::provider_conformance!(OneNamespace);
}

mod all_namespaces {
    type AllNamespacesAndKept = super::Clusters<true, true>;
    mcr_testkit::provider_conformance!(AllNamespacesAndKept);
}
