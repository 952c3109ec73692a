//! A double of kcp with two shards in this process, on threads of its own.

use std::sync::Arc;

use anyhow::{Context, Result};
use mcr_kcp_double::{Kcp, KcpServer, KcpShard, KcpWorkspace};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::{objects, subject::message::Counts};

/// Workspaces that bind an API, in turns on two shards, and workspaces that are going to. Each has one ConfigMap.
pub(super) struct Double {
    server: Arc<KcpServer>,
    runtime: &'static Runtime,
    bound: Arc<[KcpWorkspace]>,
    unbound: Arc<[KcpWorkspace]>,
}

fn binding() -> Value {
    json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": { "name": Double::EXPORT },
        "spec": {
            "reference": { "export": { "path": "root:provider", "name": Double::EXPORT } },
            "permissionClaims": [{
                "group": "", "resource": "configmaps", "verbs": ["*"], "selector": { "matchAll": true },
                "state": "Accepted",
            }],
        },
    })
}

fn workspaces(kcp: &Kcp, name: &str, count: usize) -> Result<Vec<KcpWorkspace>> {
    let shards = kcp.shards();
    let made = |(number, shard): (usize, &KcpShard)| {
        let workspace = kcp.create_workspace_on(&format!("root:{name}{number:05}"), shard.name())?;
        workspace.create(objects::beat(0))?;
        Ok(workspace)
    };
    (0..count).zip(shards.iter().cycle()).map(made).collect()
}

impl Double {
    /// The name of its threads.
    pub(super) const THREADS: &str = "double";
    /// The name of the export, and of its endpoint slice.
    pub(super) const EXPORT: &str = "maps";
    /// How many kinds are watched: APIBindings and ConfigMaps.
    pub(super) const KINDS: u64 = 2;

    pub(super) async fn start(bound: usize, unbound: usize) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .thread_name(Self::THREADS)
            .enable_all()
            .build()?;
        // It lives as long as the process: a runtime can't be dropped within another one.
        let runtime: &Runtime = Box::leak(Box::new(runtime));
        // A history that is long enough for a watch that falls behind.
        let builder = Kcp::builder().shards(2).managed_fields(false).history(1_000_000);
        let server = runtime.spawn(builder.serve()).await??;
        let kcp = server.kcp().clone();
        let make = move || {
            let provider = kcp.create_workspace("root:provider")?;
            provider.create(json!({
                "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": { "name": Self::EXPORT },
                "spec": { "permissionClaims": [{ "group": "", "resource": "configmaps", "verbs": ["*"] }] },
            }))?;
            let all = workspaces(&kcp, "w", bound)?;
            for workspace in &all {
                workspace.create(binding())?;
            }
            anyhow::Ok((all, workspaces(&kcp, "x", unbound)?))
        };
        let (bound, unbound) = runtime.spawn_blocking(make).await??;
        Ok(Self {
            server: Arc::new(server),
            runtime,
            bound: bound.into(),
            unbound: unbound.into(),
        })
    }

    /// A kubeconfig for the workspace of the export.
    pub(super) fn kubeconfig(&self) -> String {
        self.server.kubeconfig("root:provider")
    }

    /// How many workspaces do not bind the API from the start on.
    pub(super) fn unbound(&self) -> usize {
        self.unbound.len()
    }

    /// The id of one of them.
    pub(super) fn unbound_id(&self, number: usize) -> Result<String> {
        let workspace = self.unbound.get(number).context("there are fewer")?;
        Ok(workspace.id().to_owned())
    }

    /// Makes one of them bind the API.
    pub(super) async fn bind(&self, number: usize) -> Result<()> {
        let workspaces = self.unbound.clone();
        let bind = move || -> Result<()> {
            workspaces
                .get(number)
                .context("there are fewer")?
                .create(binding())?;
            Ok(())
        };
        self.runtime.spawn_blocking(bind).await?
    }

    /// Writes the ConfigMap of this many workspaces, or of all if there are fewer. Returns their number.
    pub(super) async fn write(&self, count: usize, seq: u64) -> Result<usize> {
        let workspaces = self.bound.clone();
        let write = move || {
            let step = (workspaces.len() / count).max(1);
            let mut written = 0;
            for workspace in workspaces.iter().step_by(step).take(count) {
                workspace.apply(objects::beat(seq))?;
                written += 1;
            }
            anyhow::Ok(written)
        };
        self.runtime.spawn_blocking(write).await?
    }

    /// The requests of both shards for APIBindings and ConfigMaps of all workspaces.
    pub(super) fn asked(&self) -> Counts {
        let mut asked = Counts::default();
        for shard in self.server.kcp().shards() {
            let audit = shard.audit();
            for kind in ["apibindings", "configmaps"] {
                let of_all = |uri: &str| uri.contains("/clusters/*/");
                // A list may have several pages.
                let is_first = |uri: &str| of_all(uri) && !uri.contains("continue=");
                let lists = audit.count(|event| event.is_list(kind) && is_first(&event.uri));
                asked.lists += lists as u64;
                let watches = audit.count(|event| event.is_watch_start(kind) && of_all(&event.uri));
                asked.watches += watches as u64;
            }
        }
        asked
    }

    fn last_shard(&self) -> Option<KcpShard> {
        self.server.kcp().shards().pop()
    }

    /// The ids of the workspaces on the shard that [`lose`](Self::lose) stops.
    pub(super) fn on_last_shard(&self) -> std::collections::HashSet<&str> {
        let last = self.last_shard();
        let name = last.as_ref().map(KcpShard::name);
        let all = self.bound.iter().chain(self.unbound.iter());
        all.filter(|workspace| workspace.shard().as_deref() == name)
            .map(KcpWorkspace::id)
            .collect()
    }

    /// Stops the last shard.
    pub(super) fn lose(&self) {
        if let Some(shard) = self.last_shard() {
            self.server.stop_shard(shard.name());
        }
    }

    /// Starts it again, without its history.
    pub(super) async fn find_again(&self) -> Result<()> {
        let shard = self.last_shard().context("there are no shards")?;
        let server = self.server.clone();
        let start = async move {
            // No watch can go on from a version before this write.
            if let Some(workspace) = server.kcp().workspace("root:w00001") {
                workspace.apply(objects::beat(u64::MAX))?;
            }
            shard.compact(shard.resource_version());
            server.start_shard(shard.name()).await?;
            anyhow::Ok(())
        };
        self.runtime.spawn(start).await?
    }
}
