//! The conformance suite (`mcr_testkit::conformance`) for workspaces that wait for an initializer or terminator, on a double
//! of kcp.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{collections::HashMap, sync::Arc};

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use mcr_core::{Access, ClusterName, Provider, Trust};
use mcr_provider_kcp::{
    InitializingWorkspaces, TerminatingWorkspaces, api::core::v1alpha1::LogicalCluster,
};
use mcr_testkit::{
    conformance::{Ability, Draft, Subject},
    kcp::{Kcp, KcpServer, KcpWorkspace},
};
use serde_json::json;

/// A kcp with a type, and a workspace for each cluster.
struct World<const TERMINATING: bool> {
    server: KcpServer,
    provider: Arc<dyn Provider>,
    /// The initializer or terminator.
    name: String,
    workspaces: HashMap<usize, KcpWorkspace>,
}

impl<const TERMINATING: bool> World<TERMINATING> {
    /// A second one keeps a workspace that is being deleted.
    async fn set(&self, workspace: &KcpWorkspace, waits: bool) {
        let list = if TERMINATING { "terminators" } else { "initializers" };
        let own = waits.then_some(&*self.name);
        let names: Vec<&str> = own.into_iter().chain(["root:another"]).collect();
        let api = Api::<LogicalCluster>::all(self.server.kcp().client(workspace.id()));
        let patch = Patch::Merge(json!({"status": {list: names}}));
        api.patch_status("cluster", &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
}

impl<const TERMINATING: bool> Subject for World<TERMINATING> {
    // A deletion is no change of a cluster here: it ends the first stage, and begins the second one.
    const CAN: &'static [Ability] = &[Ability::Add, Ability::Remove];

    async fn start() -> Self {
        let server = Kcp::builder().shards(2).serve().await.unwrap();
        let home = server.kcp().create_workspace("root:types").unwrap();
        home.create(json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": "managed"},
            "spec": {"initializer": !TERMINATING, "terminator": TERMINATING},
        }))
        .unwrap();
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
            name: format!("{}:managed", home.id()),
            workspaces: HashMap::new(),
        }
    }

    fn provider(&self) -> Arc<dyn Provider> {
        self.provider.clone()
    }

    async fn add(&mut self, draft: &Draft) -> ClusterName {
        let known = self.workspaces.get(&draft.number()).cloned();
        let workspace = match known {
            Some(workspace) => workspace,
            None => {
                let shard = ["root", "shard-1"][draft.number() % 2];
                let path = format!("root:{}", draft.name());
                let workspace = self.server.kcp().create_workspace_on(&path, shard).unwrap();
                if TERMINATING {
                    self.set(&workspace, false).await;
                    self.server.kcp().delete_workspace(&path).unwrap();
                }
                workspace
            }
        };
        self.set(&workspace, true).await;
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
