//! What every provider must do; see `mcr_testkit::conformance`. The hub is a simulated API server; `tests/real.rs` has real
//! ones.
//!
//! `Replace` is not declared: which cluster a kubeconfig leads to is not for this provider to know. A fleet finds out when it
//! connects, and the suite's clusters are at an address where nobody answers. P-21 in `tests/real.rs` is about that.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::sync::Arc;

use mcr_core::{ClusterName, Provider};
use mcr_provider_kubeconfig::KubeconfigProvider;
use mcr_testkit::{
    conformance::{Ability, Ability::*, Draft, Subject},
    sim::SimCluster,
};
use serde_json::{Value, json};
use support::{locally, secret};

struct Secrets<const ALL: bool>(SimCluster);

impl<const ALL: bool> Secrets<ALL> {
    fn key(draft: &Draft) -> String {
        format!("default/{}", draft.name())
    }

    fn name(draft: &Draft) -> ClusterName {
        ClusterName::new(if ALL { Self::key(draft) } else { draft.name() }).unwrap()
    }

    fn write(&self, draft: &Draft, kubeconfig: &str) {
        let mut wanted = secret("default", &draft.name(), kubeconfig);
        wanted["metadata"]["labels"]["version"] = draft.label().into();
        // As they were, or this would lift them.
        if let Some(there) = self.0.get("secrets", &Self::key(draft)) {
            wanted["metadata"]["finalizers"] = there["metadata"]["finalizers"].clone();
        }
        self.0.apply(wanted).unwrap();
    }

    fn finalizers(&self, draft: &Draft, finalizers: Value) {
        let mut there = self.0.get("secrets", &Self::key(draft)).unwrap();
        there["metadata"]["finalizers"] = finalizers;
        self.0.update(there).unwrap();
    }
}

impl<const ALL: bool> Subject for Secrets<ALL> {
    const CAN: &'static [Ability] = &[Add, Change, Rotate, Break, Delete, Remove];

    async fn start() -> Self {
        Self(SimCluster::new())
    }

    fn provider(&self) -> Arc<dyn Provider> {
        let mut builder = KubeconfigProvider::builder()
            .client(self.0.client())
            .access_policy(locally());
        if ALL {
            builder = builder.all_namespaces();
        }
        Arc::new(builder.build().unwrap())
    }

    async fn put(&mut self, draft: &Draft) {
        self.write(draft, &draft.kubeconfig());
    }

    async fn add(&mut self, draft: &Draft) -> ClusterName {
        self.put(draft).await;
        Self::name(draft)
    }

    async fn break_it(&mut self, draft: &Draft) -> ClusterName {
        self.write(draft, &draft.kubeconfig_cut_short());
        Self::name(draft)
    }

    async fn begin_deletion(&mut self, draft: &Draft) {
        self.finalizers(draft, json!(["example.com/keep"]));
        self.0.delete("secrets", &Self::key(draft)).unwrap();
        let there = self.0.get("secrets", &Self::key(draft)).unwrap();
        assert!(there["metadata"]["deletionTimestamp"].is_string());
    }

    async fn finish_deletion(&mut self, draft: &Draft) {
        self.finalizers(draft, json!([]));
    }

    async fn remove(&mut self, draft: &Draft) {
        self.0.delete("secrets", &Self::key(draft)).unwrap();
    }
}

mod one_namespace {
    type OneNamespace = super::Secrets<false>;
    mcr_testkit::provider_conformance!(OneNamespace);
}

mod all_namespaces {
    type AllNamespaces = super::Secrets<true>;
    mcr_testkit::provider_conformance!(AllNamespaces);
}
