//! The conformance suite (`mcr_testkit::conformance`), on a double of kcp.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[allow(dead_code, unused_imports, reason = "the tests of a fleet use the rest")]
#[path = "fleet/stages.rs"]
mod stages;
#[allow(dead_code, unused_imports, reason = "the tests of a fleet use the rest")]
#[path = "fleet/world.rs"]
mod world;

use std::{collections::HashMap, sync::Arc};

use futures::StreamExt;
use mcr_core::{Availability, BoxError, Change, ClusterName, Discovery, DiscoverySettings, Provider};
use mcr_kcp_double::{Kcp, KcpWorkspace};
use mcr_provider_kcp::{KcpProvider, Readiness};
use mcr_testkit::conformance::{Ability, Ability::*, Draft, Subject};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    stages::Stages,
    world::{BINDINGS, OrFail, WIDGETS, World, bind, unbind},
};

const SHARDS: [&str; 2] = ["root", "shard-1"];

/// A kcp with an export, and a workspace for each cluster.
struct Bound {
    world: World,
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

impl Bound {
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

impl Subject for Bound {
    const CAN: &'static [Ability] = &[Add, Delete, Remove];

    async fn start() -> Self {
        let world = World::with_shards(SHARDS.len()).await;
        // Before the claims are applied, a workspace that is ready may be announced with its claims withheld.
        let readiness = Readiness::PermissionClaimsApplied;
        let provider = world.builder().readiness(readiness).build().or_fail();
        Self {
            world,
            provider,
            workspaces: HashMap::new(),
        }
    }

    fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(OnlyReady(self.provider.clone()))
    }

    async fn add(&mut self, draft: &Draft) -> ClusterName {
        let (kcp, path) = (self.world.server.kcp(), format!("root:{}", draft.name()));
        let shard = SHARDS[draft.number() % 2];
        let known = kcp.workspace(&path);
        let workspace = known.unwrap_or_else(|| kcp.create_workspace_on(&path, shard).or_fail());
        bind(&workspace);
        let name = ClusterName::new(workspace.id()).or_fail();
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
        unbind(self.of(draft));
    }
}

mcr_testkit::provider_conformance!(Bound);

/// A kcp with a type, and a workspace for each cluster, which waits for the initializer or the terminator of the type.
struct Waiting<const TERMINATING: bool> {
    stages: Stages,
    provider: Arc<dyn Provider>,
    workspaces: HashMap<usize, KcpWorkspace>,
}

impl<const TERMINATING: bool> Waiting<TERMINATING> {
    /// Sets, as somebody else, whether the workspace waits. It waits for the type `another` all the time: otherwise it would
    /// be ready, or gone, and never wait again.
    async fn set(&self, workspace: &KcpWorkspace, waits: bool) {
        let list = if TERMINATING {
            "terminators"
        } else {
            "initializers"
        };
        let own = waits.then_some("managed");
        let names: Vec<String> = ["another"]
            .into_iter()
            .chain(own)
            .map(|of_type| self.stages.name_of(of_type))
            .collect();
        self.stages.set(workspace, list, &names).await;
    }
}

impl<const TERMINATING: bool> Subject for Waiting<TERMINATING> {
    // A deletion is no change of a cluster here: it ends the first stage, and begins the second one.
    const CAN: &'static [Ability] = &[Add, Remove];

    async fn start() -> Self {
        let stages = Stages::start(Kcp::builder().shards(SHARDS.len())).await;
        let spec = json!({"initializer": !TERMINATING, "terminator": TERMINATING});
        stages.of_type("another", spec.clone());
        let mut extended = spec;
        extended["extend"] = json!({"with": [{"name": "another", "path": "root:types"}]});
        stages.of_type("managed", extended);
        let provider: Arc<dyn Provider> = if TERMINATING {
            Arc::new(stages.terminating().build().or_fail())
        } else {
            Arc::new(stages.initializing().build().or_fail())
        };
        Self {
            stages,
            provider,
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
            None => {
                let workspace = self.stages.workspace(&draft.name(), SHARDS[draft.number() % 2]);
                if TERMINATING {
                    self.stages.delete(&workspace);
                }
                workspace
            }
        };
        let name = ClusterName::new(workspace.id()).or_fail();
        self.workspaces.insert(draft.number(), workspace);
        name
    }

    async fn remove(&mut self, draft: &Draft) {
        self.set(&self.workspaces[&draft.number()], false).await;
    }
}

mod initializing {
    use super::Waiting;
    mcr_testkit::provider_conformance!(Waiting<false>);
}

mod terminating {
    use super::Waiting;
    mcr_testkit::provider_conformance!(Waiting<true>);
}
