//! The conformance suite (`mcr_testkit::conformance`), on a double of kcp.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{collections::HashMap, sync::Arc};

use futures::StreamExt;
use mcr_core::{
    Access, Availability, BoxError, Change, ClusterName, Discovery, DiscoverySettings, Provider, Trust,
};
use mcr_kcp_double::{Kcp, KcpServer, KcpWorkspace};
use mcr_provider_kcp::KcpProvider;
use mcr_testkit::conformance::{Ability, Ability::*, Draft, Subject};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// A kcp with an export, and a workspace for each cluster.
struct World {
    server: KcpServer,
    provider: KcpProvider,
    workspaces: HashMap<usize, KcpWorkspace>,
}

/// The provider without the workspaces that are not ready yet. kcp binds an API in several steps and each of them is announced,
/// while the suite expects one announcement of a new cluster.
struct OnlyReady(KcpProvider);

impl Provider for OnlyReady {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn searched(&self) -> String {
        self.0.searched()
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let is_ready = |change: &Result<Change, BoxError>| {
            let unready =
                matches!(change, Ok(Change::Upsert(spec)) if spec.availability != Availability::Available);
            std::future::ready(!unready)
        };
        self.0.discover_with(stop, settings).filter(is_ready).boxed()
    }
}

const BINDINGS: &str = "apibindings.apis.kcp.io";
const WIDGETS: &str = "widgets.example.io";

impl World {
    fn of(&self, draft: &Draft) -> &KcpWorkspace {
        &self.workspaces[&draft.number()]
    }
}

fn widget(finalizers: &[&str]) -> serde_json::Value {
    json!({
        "apiVersion": "example.io/v1", "kind": "Widget",
        "metadata": {"name": "w", "namespace": "default", "finalizers": finalizers},
    })
}

impl Subject for World {
    const CAN: &'static [Ability] = &[Add, Delete, Remove];

    async fn start() -> Self {
        let server = Kcp::builder().shards(2).serve().await.unwrap();
        let workspace = server.kcp().create_workspace("root:provider").unwrap();
        for object in [
            json!({
                "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
                "metadata": {"name": "v1.widgets.example.io"},
                "spec": {
                    "group": "example.io", "scope": "Namespaced",
                    "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
                    "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"type": "object"}}],
                },
            }),
            json!({
                "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "widgets"},
                "spec": {"resources": [{"name": "widgets", "group": "example.io", "schema": "v1.widgets.example.io"}]},
            }),
        ] {
            workspace.create(object).unwrap();
        }
        let access = Access::kubeconfig(server.kubeconfig("root:provider"), Trust::Trusted);
        let provider = KcpProvider::builder()
            .access(access)
            .slice("widgets")
            .build()
            .unwrap();
        Self {
            server,
            provider,
            workspaces: HashMap::new(),
        }
    }

    fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(OnlyReady(self.provider.clone()))
    }

    async fn add(&mut self, draft: &Draft) -> ClusterName {
        let shard = ["root", "shard-1"][draft.number() % 2];
        let kcp = self.server.kcp();
        let path = format!("root:{}", draft.name());
        let known = kcp.workspace(&path);
        let workspace = known.unwrap_or_else(|| kcp.create_workspace_on(&path, shard).unwrap());
        workspace
            .create(json!({
                "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "widgets"},
                "spec": {"reference": {"export": {"path": "root:provider", "name": "widgets"}}},
            }))
            .unwrap();
        let name = ClusterName::new(workspace.id()).unwrap();
        self.workspaces.insert(draft.number(), workspace);
        name
    }

    /// A finalizer of an object of the export keeps the binding.
    async fn begin_deletion(&mut self, draft: &Draft) {
        let workspace = self.of(draft);
        workspace.apply(widget(&["example.io/held"])).unwrap();
        self.remove(draft).await;
        assert!(
            self.of(draft).get(BINDINGS, "widgets").unwrap()["metadata"]["deletionTimestamp"].is_string()
        );
    }

    async fn finish_deletion(&mut self, draft: &Draft) {
        let mut object = self.of(draft).get(WIDGETS, "default/w").unwrap();
        object["metadata"]["finalizers"] = json!([]);
        self.of(draft).update(object).unwrap();
        assert_eq!(self.of(draft).get(BINDINGS, "widgets"), None);
    }

    async fn remove(&mut self, draft: &Draft) {
        self.of(draft).delete(BINDINGS, "widgets").unwrap();
    }
}

mcr_testkit::provider_conformance!(World);
