//! The clusters, and what happens to them.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::Context;
use examples::{Backend, export_kubeconfig};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use mcr_testkit::{control_plane::KubeconfigBuilder, faults::FaultProxy};
use serde_json::json;
use tempfile::TempDir;

use crate::backend::{ApiServer, NAMESPACE, Site};

/// The folder that the controller follows; kubeconfigs in it are its clusters.
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

/// A cluster.
pub(crate) struct Member {
    name: String,
    pub(crate) server: Box<dyn ApiServer>,
    /// What the controller's connections go through, if they do.
    proxy: Option<FaultProxy>,
}

/// All that was started. Its servers end when it is dropped.
pub(crate) struct World {
    pub(crate) members: Vec<Member>,
    site: Site,
}

impl World {
    /// Starts a cluster for each name, side by side.
    pub(crate) async fn start(backend: Backend, names: &[&str]) -> anyhow::Result<Self> {
        let site = Site::of(backend).await?;
        let members =
            futures::future::try_join_all(names.iter().map(|name| Member::start(&site, name))).await?;
        Ok(Self { members, site })
    }

    /// Adds a cluster that is reached through a proxy, which can fail.
    pub(crate) async fn add_behind_proxy(&mut self, name: &str) -> anyhow::Result<()> {
        let mut member = Member::start(&self.site, name).await?;
        // The account's tokens are passed on; a client certificate could not be.
        let proxy = FaultProxy::builder(member.server.upstream()).name(name);
        member.proxy = Some(proxy.start().await?);
        self.members.push(member);
        Ok(())
    }

    pub(crate) fn member(&mut self, name: &str) -> anyhow::Result<&mut Member> {
        let found = self.members.iter_mut().find(|member| member.name == name);
        found.with_context(|| format!("there is no cluster {name}"))
    }

    /// All clusters but these.
    pub(crate) fn others<'a>(&'a self, not: &'a [&str]) -> impl Iterator<Item = &'a Member> {
        self.members.iter().filter(|member| !not.contains(&member.name()))
    }

    /// What to try by oneself, as long as it runs.
    pub(crate) fn hint(&self, folder: &Folder, url: Option<&str>) -> String {
        let mut hint = "It goes on until Ctrl-C. Try, in another terminal (no line is printed for these, /clusters shows them):".to_owned();
        let export = self.export(folder);
        hint += &format!(
            "\n  {}",
            export.unwrap_or_else(|error| format!("# no kubeconfig: {error:#}"))
        );
        // Simulated API servers do not read what a typed `kubectl create` sends.
        hint += &format!(
            "\n  kubectl create configmap mine -n {NAMESPACE} --dry-run=client -o yaml | kubectl apply -f -"
        );
        if let Some(url) = url {
            hint += &format!("\n  curl {url}/clusters");
        }
        if let Some(last) = self.members.last() {
            hint += &format!("\n  rm {}", folder.file_of(last.name()).display());
        }
        hint
    }

    /// Writes the administrator's kubeconfig of all clusters, where the controller does not read it, and prints how to use it.
    fn export(&self, folder: &Folder) -> anyhow::Result<String> {
        let admin = folder.path().join("admin");
        std::fs::create_dir_all(&admin).with_context(|| format!("can't make {}", admin.display()))?;
        let members = self.members.iter();
        let kubeconfig = members.fold(KubeconfigBuilder::new(), |all, member| {
            member.server.admin_context(all)
        });
        export_kubeconfig(&admin.join("kubeconfig"), &kubeconfig)
    }
}

impl Member {
    async fn start(site: &Site, name: &str) -> anyhow::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            server: site.start(name).await?,
            proxy: None,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn proxy(&self) -> anyhow::Result<&FaultProxy> {
        let proxy = self.proxy.as_ref();
        proxy.with_context(|| format!("{} is not behind a proxy", self.name))
    }

    /// Writes a kubeconfig with a new token, which makes the cluster join or its credentials rotate. Returns when
    /// the file was written.
    pub(crate) async fn write_kubeconfig(&mut self, folder: &Folder) -> anyhow::Result<Instant> {
        let token = self.server.token().await?;
        let kubeconfig = match &self.proxy {
            Some(proxy) => proxy.kubeconfig_with_token(&token),
            None => self.server.kubeconfig(&token),
        };
        self.server.mark().await?;
        let written = Instant::now();
        folder.write(&self.name, &kubeconfig)?;
        Ok(written)
    }

    pub(crate) fn remove_kubeconfig(&self, folder: &Folder) -> anyhow::Result<Instant> {
        let removed = Instant::now();
        std::fs::remove_file(folder.file_of(&self.name))?;
        Ok(removed)
    }

    pub(crate) async fn create(&self, name: &str) -> anyhow::Result<Instant> {
        let object: ConfigMap =
            serde_json::from_value(json!({"metadata": {"name": name}, "data": {"value": "1"}}))?;
        let asked = Instant::now();
        maps(self.server.client())
            .create(&PostParams::default(), &object)
            .await?;
        Ok(asked)
    }
}

fn maps(client: Client) -> Api<ConfigMap> {
    Api::namespaced(client, NAMESPACE)
}

pub(crate) async fn change(client: Client, name: &str, value: &str) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({"data": {"value": value}}));
    maps(client).patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

pub(crate) async fn delete(client: Client, name: &str) -> anyhow::Result<()> {
    maps(client).delete(name, &DeleteParams::default()).await?;
    Ok(())
}
