//! The conformance suite (`mcr_testkit::conformance`) for workspaces that wait for an initializer or terminator, on a double
//! of kcp.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{collections::HashMap, sync::Arc};

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use mcr_core::{Access, ClusterName, Provider, Trust};
use mcr_kcp_double::{Kcp, KcpServer, KcpWorkspace};
use mcr_provider_kcp::{InitializingWorkspaces, LogicalCluster, TerminatingWorkspaces};
use mcr_testkit::conformance::{Ability, Ability::*, Draft, Subject};
use serde_json::json;

/// A kcp with a type, and a workspace for each cluster.
struct World<const TERMINATING: bool> {
    server: KcpServer,
    provider: Arc<dyn Provider>,
    /// The id of the workspace that has the types.
    home: String,
    workspaces: HashMap<usize, KcpWorkspace>,
}

impl<const TERMINATING: bool> World<TERMINATING> {
    /// Says, as somebody else, whether the workspace waits. It waits for the type `another` all the time: otherwise it would
    /// be ready, or gone, and never wait again.
    async fn set(&self, workspace: &KcpWorkspace, waits: bool) {
        let list = if TERMINATING {
            "terminators"
        } else {
            "initializers"
        };
        let own = waits.then(|| self.name_of("managed"));
        let names: Vec<String> = [self.name_of("another")].into_iter().chain(own).collect();
        let api = Api::<LogicalCluster>::all(self.server.kcp().client(workspace.id()));
        let patch = Patch::Merge(json!({"status": {list: names}}));
        api.patch_status("cluster", &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// The initializer or terminator of a type.
    fn name_of(&self, of_type: &str) -> String {
        format!("{}:{of_type}", self.home)
    }

    /// A new workspace that waits.
    fn workspace(&self, draft: &Draft) -> KcpWorkspace {
        let kcp = self.server.kcp();
        let shard = ["root", "shard-1"][draft.number() % 2];
        let root = kcp.workspace("root").unwrap();
        root.create(json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": draft.name()},
            "spec": {
                "type": {"name": "managed", "path": "root:types"},
                "location": {"selector": {"matchLabels": {"name": shard}}},
            },
        }))
        .unwrap();
        let path = format!("root:{}", draft.name());
        if TERMINATING {
            kcp.delete_workspace(&path).unwrap();
        }
        kcp.workspace(&path).unwrap()
    }
}

impl<const TERMINATING: bool> Subject for World<TERMINATING> {
    // A deletion is no change of a cluster here: it ends the first stage, and begins the second one.
    const CAN: &'static [Ability] = &[Add, Remove];

    async fn start() -> Self {
        let server = Kcp::builder().shards(2).serve().await.unwrap();
        let home = server.kcp().create_workspace("root:types").unwrap();
        for (name, extended) in [("another", &[][..]), ("managed", &["another"])] {
            let extended: Vec<_> = extended
                .iter()
                .map(|name| json!({"name": name, "path": "root:types"}))
                .collect();
            home.create(json!({
                "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": name},
                "spec": {"initializer": !TERMINATING, "terminator": TERMINATING, "extend": {"with": extended}},
            }))
            .unwrap();
        }
        let access = Access::kubeconfig(server.kubeconfig("root:types"), Trust::Trusted);
        let provider: Arc<dyn Provider> = if TERMINATING {
            let builder = TerminatingWorkspaces::builder().access(access);
            Arc::new(builder.workspace_type("managed").build().unwrap())
        } else {
            let builder = InitializingWorkspaces::builder().access(access);
            Arc::new(builder.workspace_type("managed").build().unwrap())
        };
        Self {
            server,
            provider,
            home: home.id().to_owned(),
            workspaces: HashMap::new(),
        }
    }

    fn provider(&self) -> Arc<dyn Provider> {
        self.provider.clone()
    }

    async fn add(&mut self, draft: &Draft) -> ClusterName {
        let workspace = match self.workspaces.get(&draft.number()).cloned() {
            Some(known) => {
                self.set(&known, true).await;
                known
            }
            None => self.workspace(draft),
        };
        let name = ClusterName::new(workspace.id()).unwrap();
        self.workspaces.insert(draft.number(), workspace);
        name
    }

    async fn remove(&mut self, draft: &Draft) {
        self.set(&self.workspaces[&draft.number()], false).await;
    }
}

mod initializing {
    use super::World;

    mcr_testkit::provider_conformance!(World<false>);
}

mod terminating {
    use super::World;

    mcr_testkit::provider_conformance!(World<true>);
}
