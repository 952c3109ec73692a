//! A kcp with WorkspaceTypes, and what the tests of initializing and terminating workspaces share.

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use mcr_core::{Access, Availability, Change, Discovery, Provider, Trust};
use mcr_kcp_double::{Kcp, KcpBuilder, KcpServer, KcpWorkspace};
use mcr_provider_kcp::{InitializingWorkspaces, LifecycleBuilder, LogicalCluster, TerminatingWorkspaces};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::world::*;

pub(crate) const LOGICAL_CLUSTERS: &str = "logicalclusters.core.kcp.io";

/// A kcp with the workspace `root:types`, which has types of workspaces.
pub(crate) struct Stages {
    pub(crate) server: KcpServer,
    pub(crate) home: KcpWorkspace,
}

impl Stages {
    pub(crate) async fn start(builder: KcpBuilder) -> Self {
        let server = builder.serve().await.or_fail();
        let home = server.kcp().create_workspace("root:types").or_fail();
        Self { server, home }
    }

    /// With the type `managed`.
    pub(crate) async fn with_shards(shards: usize, spec: Value) -> Self {
        let stages = Self::start(Kcp::builder().shards(shards)).await;
        stages.of_type("managed", spec);
        stages
    }

    pub(crate) fn of_type(&self, name: &str, spec: Value) {
        self.home
            .create(json!({
                "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": name}, "spec": spec,
            }))
            .or_fail();
    }

    /// A workspace of the type `managed`.
    pub(crate) fn workspace(&self, name: &str, shard: &str) -> KcpWorkspace {
        let root = self.server.kcp().workspace("root").expect("there is a root");
        root.create(json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name},
            "spec": {
                "type": {"name": "managed", "path": "root:types"},
                "location": {"selector": {"matchLabels": {"name": shard}}},
            },
        }))
        .or_fail();
        let workspace = self.server.kcp().workspace(&format!("root:{name}"));
        workspace.expect("it is made at once")
    }

    pub(crate) fn delete(&self, workspace: &KcpWorkspace) {
        self.server.kcp().delete_workspace(workspace.path()).or_fail();
    }

    /// The name of the initializer or terminator of a type.
    pub(crate) fn name_of(&self, of_type: &str) -> String {
        format!("{}:{of_type}", self.home.id())
    }

    /// Sets the initializers or terminators that have not finished, as somebody else.
    pub(crate) async fn set(&self, workspace: &KcpWorkspace, list: &str, names: &[String]) {
        let api = Api::<LogicalCluster>::all(self.server.kcp().client(workspace.id()));
        let patch = Patch::Merge(json!({"status": {list: names}}));
        api.patch_status("cluster", &PatchParams::default(), &patch)
            .await
            .or_fail();
    }

    fn access(&self) -> Access {
        Access::kubeconfig(self.server.kubeconfig("root:types"), Trust::Trusted)
    }

    pub(crate) fn initializing(&self) -> LifecycleBuilder<InitializingWorkspaces> {
        let builder = InitializingWorkspaces::builder().access(self.access());
        builder.workspace_type("managed")
    }

    pub(crate) fn terminating(&self) -> LifecycleBuilder<TerminatingWorkspaces> {
        let builder = TerminatingWorkspaces::builder().access(self.access());
        builder.workspace_type("managed")
    }

    /// A client of the user of a token, in the virtual workspace of a stage.
    pub(crate) fn client_at(&self, service: &str, of_type: &str, id: &str, token: &str) -> kube::Client {
        let kcp = self.server.kcp();
        let workspace = kcp.workspace(id).expect("it exists");
        let shard = workspace
            .shard()
            .and_then(|name| kcp.shard(&name))
            .expect("it has a shard");
        let url = format!(
            "{}/services/{service}/{}/clusters/{id}",
            shard.url(),
            self.name_of(of_type)
        );
        kcp.client_at(&url, token).expect("a URL of this kcp")
    }
}

/// What a discovery announces, in words.
pub(crate) struct Received {
    stream: Discovery,
    _stop: DropGuard,
}

impl Received {
    pub(crate) fn of(provider: &impl Provider) -> Self {
        let stop = CancellationToken::new();
        Self {
            stream: provider.discover(stop.clone()),
            _stop: stop.drop_guard(),
        }
    }

    /// `+<cluster>`, `?<cluster>` of one that is suspended, `-<cluster>`, `synced`, or `!<error>`.
    pub(crate) async fn next(&mut self) -> String {
        let next = tokio::time::timeout(PATIENCE, self.stream.next()).await.or_fail();
        match next.expect("it goes on") {
            Ok(Change::Upsert(spec)) if spec.availability == Availability::Available => {
                format!("+{}", spec.name)
            }
            Ok(Change::Upsert(spec)) => format!("?{}", spec.name),
            Ok(Change::Remove(name)) => format!("-{name}"),
            Ok(Change::Synced) => "synced".to_owned(),
            Ok(other) => format!("{other:?}"),
            Err(error) => format!("!{error}"),
        }
    }

    /// Fails unless the discovery announces this next.
    pub(crate) async fn receives(&mut self, expected: &[String]) {
        for expected in expected {
            assert_eq!(self.next().await, *expected);
        }
    }
}

pub(crate) fn synced() -> String {
    "synced".to_owned()
}

pub(crate) fn comes(workspace: &KcpWorkspace) -> String {
    format!("+{}", workspace.id())
}

pub(crate) fn leaves(workspace: &KcpWorkspace) -> String {
    format!("-{}", workspace.id())
}

pub(crate) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}})
}

/// Writes to a workspace with the client of its cluster, and reads it back.
pub(crate) async fn use_content(client: kube::Client) {
    let maps = Api::<ConfigMap>::namespaced(client, "default");
    let map: ConfigMap = serde_json::from_value(config_map("created")).unwrap();
    maps.create(&PostParams::default(), &map).await.or_fail();
    let applied = Patch::Apply(config_map("applied"));
    let by = PatchParams::apply("test");
    maps.patch("applied", &by, &applied).await.or_fail();
    let listed = maps.list(&Default::default()).await.or_fail();
    let names: Vec<&str> = listed
        .iter()
        .filter_map(|map| map.metadata.name.as_deref())
        .collect();
    for name in ["applied", "created"] {
        assert!(names.contains(&name), "{names:?}");
        maps.delete(name, &Default::default()).await.or_fail();
    }
}
