//! The clusters, and what happens to them.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::Context;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use mcr_testkit::control_plane::{AuditMark, ControlPlane, Etcd, ServiceAccountUser, policy_rule};
use serde_json::json;
use tempfile::TempDir;

/// Where the demo's objects and the controller's service accounts are.
pub(crate) const NAMESPACE: &str = "demo";

/// The folder that the controller is told of; kubeconfigs in it are its clusters.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("mcr-demo-").tempdir();
        Ok(Self(folder.context("can't make a temporary folder")?))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    fn file_of(&self, cluster: &str) -> PathBuf {
        self.path().join(format!("{cluster}.kubeconfig"))
    }

    /// Adds a file or replaces it, whole at once.
    fn write(&self, cluster: &str, kubeconfig: &str) -> anyhow::Result<()> {
        let new = self.path().join("new");
        std::fs::write(&new, kubeconfig)?;
        Ok(std::fs::rename(new, self.file_of(cluster))?)
    }
}

/// A cluster and the account that the controller has in it.
pub(crate) struct Member {
    pub(crate) plane: ControlPlane,
    account: ServiceAccountUser,
    /// The end of the audit log when the last token was written.
    rotated: AuditMark,
}

/// All that was started. Its servers end when it is dropped.
pub(crate) struct World {
    pub(crate) members: Vec<Member>,
    etcd: Etcd,
    folder: PathBuf,
}

impl World {
    /// Starts an etcd and a cluster for each name, side by side.
    pub(crate) async fn start(folder: &Folder, names: &[&str]) -> anyhow::Result<Self> {
        let etcd = Etcd::start().await?;
        let members =
            futures::future::try_join_all(names.iter().map(|name| Member::start(&etcd, name))).await?;
        Ok(Self {
            members,
            etcd,
            folder: folder.path().to_owned(),
        })
    }

    pub(crate) async fn add(&mut self, name: &str) -> anyhow::Result<()> {
        let member = Member::start(&self.etcd, name).await?;
        self.members.push(member);
        Ok(())
    }

    pub(crate) fn member(&mut self, name: &str) -> anyhow::Result<&mut Member> {
        let found = self.members.iter_mut().find(|member| member.plane.name() == name);
        found.with_context(|| format!("there is no cluster {name}"))
    }

    /// What to try by oneself, as long as it runs.
    pub(crate) fn hint(&self) -> String {
        let admin = self.folder.join("admin");
        let written = std::fs::create_dir_all(&admin).and_then(|()| {
            self.members.iter().try_for_each(|member| {
                std::fs::write(admin.join(member.plane.name()), member.plane.kubeconfig())
            })
        });
        let first = self.members.first().map_or("", |member| member.plane.name());
        match written {
            Ok(()) => format!(
                "It goes on until Ctrl-C. Try, in another terminal:\n  kubectl --kubeconfig {} create configmap mine -n {NAMESPACE}",
                admin.join(first).display()
            ),
            Err(_) => "It goes on until Ctrl-C.".to_owned(),
        }
    }
}

impl Member {
    async fn start(etcd: &Etcd, name: &str) -> anyhow::Result<Self> {
        let plane = ControlPlane::builder()
            .name(name)
            .etcd(etcd)
            .audit(true)
            .start()
            .await?;
        // All that the controller needs: its watch, and the UID of kube-system to know the cluster by.
        let rules = [
            policy_rule([""], ["configmaps"], ["get", "list", "watch"]),
            policy_rule([""], ["namespaces"], ["get"]),
        ];
        let account = plane
            .service_account(NAMESPACE, "controller")
            .cluster_rules(rules)
            .create()
            .await?;
        Ok(Self {
            plane,
            account,
            rotated: AuditMark::default(),
        })
    }

    /// Writes a kubeconfig with a new token, which makes the cluster join or its credentials rotate. Returns when
    /// the file was written.
    pub(crate) async fn write_kubeconfig(&mut self, folder: &Folder) -> anyhow::Result<Instant> {
        let kubeconfig = self.account.kubeconfig(self.account.token().await?);
        self.rotated = self.plane.audit().await?.mark();
        let written = Instant::now();
        folder.write(self.plane.name(), &kubeconfig)?;
        Ok(written)
    }

    pub(crate) fn remove_kubeconfig(&self, folder: &Folder) -> anyhow::Result<Instant> {
        let removed = Instant::now();
        std::fs::remove_file(folder.file_of(self.plane.name()))?;
        Ok(removed)
    }

    /// What the controller's account asked for since the token was written.
    pub(crate) async fn since_rotation(&self) -> anyhow::Result<Asked> {
        let log = self.plane.audit_since(self.rotated).await?;
        let of_account = || log.events().filter(|event| event.user == self.account.name());
        Ok(Asked {
            tried: of_account().any(|event| event.resource == "selfsubjectreviews"),
            watches: of_account()
                .filter(|event| event.is_watch_start("configmaps"))
                .count(),
            lists: of_account().filter(|event| event.is_list("configmaps")).count(),
        })
    }

    pub(crate) async fn create(&self, name: &str) -> anyhow::Result<Instant> {
        let object: ConfigMap =
            serde_json::from_value(json!({"metadata": {"name": name}, "data": {"value": "1"}}))?;
        let asked = Instant::now();
        maps(&self.plane).create(&PostParams::default(), &object).await?;
        Ok(asked)
    }

    /// A second API server of the same cluster, that the controller does not know of.
    pub(crate) async fn replica(&self) -> anyhow::Result<ControlPlane> {
        let name = format!("{}-2", self.plane.name());
        Ok(ControlPlane::builder()
            .name(name)
            .replica_of(&self.plane)
            .start()
            .await?)
    }
}

/// What was asked of an API server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) tried: bool,
    pub(crate) watches: usize,
    pub(crate) lists: usize,
}

fn maps(plane: &ControlPlane) -> Api<ConfigMap> {
    Api::namespaced(plane.client(), NAMESPACE)
}

pub(crate) async fn change(plane: &ControlPlane, name: &str, value: &str) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({"data": {"value": value}}));
    maps(plane).patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

pub(crate) async fn delete(plane: &ControlPlane, name: &str) -> anyhow::Result<()> {
    maps(plane).delete(name, &DeleteParams::default()).await?;
    Ok(())
}
