//! Where kcp is: the double of mcr-testkit in this process, or a real one.

use std::{
    env,
    sync::atomic::{AtomicUsize, Ordering},
};

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use kube::config::Kubeconfig;
use mcr_kcp_double::{Kcp, KcpServer, KcpUser};
use mcr_testkit::sim::SimRule;
use serde_json::{Value, json};

use super::server::{Kind, SECRET, Server, Workspace, context, objects, until};

/// The variable with the kubeconfig of the admin of a real kcp.
pub(crate) const REAL: &str = "MCR_KCP_KUBECONFIG";
const WORKSPACE: Kind = ("tenancy.kcp.io", "v1alpha1", "Workspace", "workspaces");
const SHARD: Kind = ("core.kcp.io", "v1alpha1", "Shard", "shards");
const RBAC: &str = include_str!("../rbac.yaml");
/// The user of the manifest, and its Secret with a token.
const ROLE: &str = "mongodb-controller";
const TOKEN: &str = "default/mongodb-controller-token";

pub(crate) struct Home {
    /// Of the admin.
    admin: Kubeconfig,
    double: Option<KcpServer>,
    /// The shards, if there is more than one.
    shards: Vec<String>,
    /// The end of the names of workspaces: a real kcp may have those of earlier runs.
    suffix: String,
}

impl Home {
    /// The double with so many shards, unless the environment names a real kcp.
    pub(crate) async fn find(shards: usize) -> Result<Self> {
        if let Some(path) = env::var_os(REAL) {
            let admin = Kubeconfig::read_from(path).context(REAL)?;
            static HOMES: AtomicUsize = AtomicUsize::new(0);
            let home = HOMES.fetch_add(1, Ordering::Relaxed);
            let mut found = Self {
                admin,
                double: None,
                shards: Vec::new(),
                suffix: format!("-{}-{home}", std::process::id()),
            };
            for shard in found.at("root").await?.list(SHARD, "").await? {
                found
                    .shards
                    .extend(shard["metadata"]["name"].as_str().map(str::to_owned));
            }
            return Ok(found);
        }
        let double = Kcp::builder().shards(shards).serve().await?;
        let names = double.kcp().shards();
        Ok(Self {
            admin: Kubeconfig::from_yaml(&double.kubeconfig("root"))?,
            double: Some(double),
            shards: names.iter().map(|shard| shard.name().to_owned()).collect(),
            suffix: String::new(),
        })
    }

    pub(crate) fn double(&self) -> Option<&KcpServer> {
        self.double.as_ref()
    }

    /// The kubeconfig for a workspace: of the admin, or of the user of a token.
    pub(crate) fn kubeconfig(&self, path: &str, token: Option<&str>) -> Result<Kubeconfig> {
        let all = context(&self.admin, None, None)?;
        let cluster = all.clusters.first().and_then(|named| named.cluster.as_ref());
        let server = cluster
            .and_then(|cluster| cluster.server.as_deref())
            .unwrap_or_default();
        let base = server.split("/clusters/").next().unwrap_or_default();
        context(&all, Some(format!("{base}/clusters/{path}")), token)
    }

    async fn at(&self, path: &str) -> Result<Server> {
        Server::of(self.kubeconfig(path, None)?).await
    }

    /// Makes a workspace. If there are several shards, `number` selects one.
    pub(crate) async fn workspace(&self, mut object: Value, number: usize) -> Result<Workspace> {
        let root = self.at("root").await?;
        let name = object["metadata"]["name"]
            .as_str()
            .context("a workspace without a name")?;
        let name = format!("{name}{}", self.suffix);
        object["metadata"]["name"] = name.clone().into();
        if self.shards.len() > 1 {
            let shard = &self.shards[number % self.shards.len()];
            object["spec"] = json!({"location": {"selector": {"matchLabels": {"name": shard}}}});
        }
        root.apply(object).await?;
        let workspace = until(&format!("the workspace {name}"), async || {
            let workspace = root.get(WORKSPACE, &name).await?;
            Ok(workspace.filter(|workspace| workspace["status"]["phase"] == "Ready"))
        })
        .await?;
        let path = format!("root:{name}");
        Ok(Workspace {
            server: self.at(&path).await?,
            id: workspace["spec"]["cluster"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            path,
        })
    }

    /// Deletes a workspace of a real kcp. The double goes with this process.
    pub(crate) async fn remove(&self, workspace: &Workspace) -> Result<()> {
        if self.double.is_some() {
            return Ok(());
        }
        let name = workspace.path.rsplit(':').next().unwrap_or_default();
        self.at("root").await?.delete(WORKSPACE, name).await
    }

    /// A token of the user of the manifest in the workspace of the API. kcp issues it; the double gets the rights.
    pub(crate) async fn token(&self, workspace: &Workspace) -> Result<String> {
        if let Some(double) = &self.double {
            let mut user = KcpUser::new("controller");
            for rule in rules()? {
                let granted = rule_of(&rule).names(texts(&rule["resourceNames"]));
                user = user.rule(&workspace.id, granted);
            }
            double.kcp().set_user("least", user);
            return Ok("least".into());
        }
        let token = until("a token", async || {
            let secret = workspace.server.get(SECRET, TOKEN).await?;
            Ok(secret.and_then(|secret| secret["data"].get("token").cloned()))
        })
        .await?;
        let token: ByteString = serde_json::from_value(token)?;
        Ok(String::from_utf8(token.0)?)
    }
}

/// The rules of the controller in kcp.
pub(crate) fn rules() -> Result<Vec<Value>> {
    let is_role = |object: &Value| object["kind"] == "ClusterRole" && object["metadata"]["name"] == ROLE;
    let role = objects(RBAC)?.into_iter().find(is_role).context(ROLE)?;
    Ok(role["rules"].as_array().cloned().unwrap_or_default())
}

fn rule_of(rule: &Value) -> SimRule {
    SimRule::new(
        texts(&rule["apiGroups"]),
        texts(&rule["resources"]),
        texts(&rule["verbs"]),
    )
}

fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|text| text.as_str().map(str::to_owned)).collect()
}
