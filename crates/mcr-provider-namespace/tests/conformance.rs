//! The conformance suite (`mcr_testkit::conformance`).

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use mcr_core::{ClusterName, Provider};
use mcr_provider_namespace::NamespaceProvider;
use mcr_testkit::{
    conformance::{Ability, Ability::*, Draft, Subject},
    sim::SimCluster,
};
use serde_json::{Value, json};

struct Host {
    cluster: SimCluster,
    provider: NamespaceProvider,
}

fn namespace(draft: &Draft) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": draft.name(), "labels": {"version": draft.label()}},
        "status": {"phase": "Active"},
    })
}

impl Host {
    fn get(&self, draft: &Draft) -> Value {
        self.cluster.get("namespaces", &draft.name()).unwrap()
    }
}

impl Subject for Host {
    const CAN: &'static [Ability] = &[Add, Change, Replace, Delete, Remove];

    async fn start() -> Self {
        let cluster = SimCluster::new();
        let provider = NamespaceProvider::builder()
            .client(cluster.client())
            .exclude(["kube-public", "kube-node-lease"])
            .filter(|name| name != "kube-system")
            .build()
            .unwrap();
        Self { cluster, provider }
    }

    fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(self.provider.clone())
    }

    fn fixed(&self) -> Vec<ClusterName> {
        vec![ClusterName::new("default").unwrap()]
    }

    async fn add(&mut self, draft: &Draft) -> ClusterName {
        self.cluster.create(namespace(draft)).unwrap();
        ClusterName::new(draft.name()).unwrap()
    }

    async fn change(&mut self, draft: &Draft) {
        let mut object = self.get(draft);
        object["metadata"]["labels"]["version"] = draft.label().into();
        // Nothing that is read of it.
        object["metadata"]["annotations"] = json!({"version": draft.label()});
        self.cluster.update(object).unwrap();
    }

    async fn replace(&mut self, draft: &Draft) {
        self.remove(draft).await;
        self.add(draft).await;
    }

    async fn begin_deletion(&mut self, draft: &Draft) {
        self.cluster.delete("namespaces", &draft.name()).unwrap();
        assert_eq!(self.get(draft)["status"]["phase"], "Terminating");
    }

    /// Removes the finalizer, as the namespace controller does at the end.
    async fn finish_deletion(&mut self, draft: &Draft) {
        let mut object = self.get(draft);
        object["spec"]["finalizers"] = json!([]);
        let request = http::Request::put(format!("/api/v1/namespaces/{}/finalize", draft.name()))
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())
            .unwrap();
        self.cluster.client().request_text(request).await.unwrap();
        assert_eq!(self.cluster.get("namespaces", &draft.name()), None);
    }

    async fn remove(&mut self, draft: &Draft) {
        self.begin_deletion(draft).await;
        self.finish_deletion(draft).await;
    }
}

mcr_testkit::provider_conformance!(Host);
