//! The objects of suite `work`, on the servers: those that are watched, and the copies that subjects apply.

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::servers::{Servers, clients};
use crate::{
    objects,
    subject::work::{ROUND, SOURCE, is_copy},
};

/// How many requests run at once.
const AT_ONCE: usize = 16;

/// The objects that subjects watch, in a namespace of each server, and a namespace of each cluster for what they apply.
pub struct Work {
    /// A client of each server.
    servers: Vec<Client>,
    /// The namespace of each cluster, which has its name, and a client of its server.
    clusters: Vec<(String, Client)>,
    objects: usize,
}

impl Work {
    /// Creates the objects on these servers.
    ///
    /// # Errors
    ///
    /// When a server refuses an object.
    pub async fn on(servers: &Servers, objects: usize) -> Result<Self> {
        let mut clusters = clients(&servers.kubeconfig).await?;
        let servers = match servers.client() {
            Some(shared) => {
                clusters
                    .iter_mut()
                    .for_each(|(_, client)| *client = shared.clone());
                vec![shared]
            }
            None => clusters.iter().map(|(_, client)| client.clone()).collect(),
        };
        let work = Self {
            servers,
            clusters,
            objects,
        };
        work.create().await?;
        Ok(work)
    }

    /// How many objects there are in all clusters together.
    pub fn objects(&self) -> usize {
        self.clusters.len() * self.objects
    }

    async fn create(&self) -> Result<()> {
        let sources = self.servers.iter().map(|client| (SOURCE, client));
        let own = self.clusters.iter().map(|(name, client)| (name.as_str(), client));
        let namespaces = sources.chain(own).map(|(name, client)| async move {
            let namespace = serde_json::from_value::<Namespace>(json!({ "metadata": { "name": name } }))?;
            let namespaces = Api::<Namespace>::all(client.clone());
            let made = namespaces.create(&PostParams::default(), &namespace).await;
            made.map(drop)
                .with_context(|| format!("creating namespace {name}"))
        });
        all(namespaces).await?;
        let sources = self.servers.iter().flat_map(|client| {
            (0..self.objects).map(move |number| async move {
                let mut map = objects::config_map(number);
                map["metadata"]["namespace"] = SOURCE.into();
                map["data"][ROUND] = "0".into();
                let map: ConfigMap = serde_json::from_value(map)?;
                let made = Api::namespaced(client.clone(), SOURCE);
                made.create(&PostParams::default(), &map).await.map(drop)?;
                Ok(())
            })
        });
        all(sources)
            .await
            .context("creating the objects that are watched")
    }

    /// Writes each watched object with this round, after which it is due.
    ///
    /// # Errors
    ///
    /// When a server refuses.
    pub async fn write(&self, round: u64) -> Result<()> {
        let mut writes = Vec::new();
        for (maps, sources) in self.sources().await? {
            for source in sources {
                let (maps, name) = (maps.clone(), source.metadata.name.unwrap_or_default());
                writes.push(async move {
                    let patch = Patch::Merge(json!({ "data": { ROUND: round.to_string() } }));
                    maps.patch(&name, &PatchParams::default(), &patch)
                        .await
                        .map(drop)?;
                    Ok(())
                });
            }
        }
        all(writes).await.context("writing the objects that are watched")
    }

    /// How many copies are missing on the servers, or differ from their objects.
    ///
    /// # Errors
    ///
    /// When a server does not answer.
    pub async fn wrong(&self) -> Result<usize> {
        let sources = self.sources().await?;
        let right = self.clusters.iter().enumerate().map(|(number, (name, client))| {
            // One server of all clusters, or one of each.
            let of = sources.get(number).or(sources.first());
            async move {
                let maps = Api::<ConfigMap>::namespaced(client.clone(), name);
                let copies = maps.list(&ListParams::default()).await?.items;
                let (_, of) = of.context("there is no server")?;
                let found = |source: &&ConfigMap| copies.iter().any(|copy| is_copy(copy, source));
                anyhow::Ok(of.iter().filter(found).count())
            }
        });
        let right: Vec<usize> = stream::iter(right)
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
            .context("reading what was applied")?;
        Ok(self.objects().saturating_sub(right.iter().sum()))
    }

    /// Deletes the copies, so that the next subject finds the servers as the last one did.
    ///
    /// # Errors
    ///
    /// When a server refuses.
    pub async fn clear(&self) -> Result<()> {
        let deletes = self.clusters.iter().map(|(name, client)| async move {
            let maps = Api::<ConfigMap>::namespaced(client.clone(), name);
            maps.delete_collection(&DeleteParams::default(), &ListParams::default())
                .await
                .map(drop)?;
            Ok(())
        });
        all(deletes).await.context("deleting what was applied")
    }

    /// The watched objects of each server.
    async fn sources(&self) -> Result<Vec<(Api<ConfigMap>, Vec<ConfigMap>)>> {
        let mut all = Vec::new();
        for client in &self.servers {
            let maps = Api::<ConfigMap>::namespaced(client.clone(), SOURCE);
            let sources = maps.list(&ListParams::default()).await?.items;
            ensure!(
                sources.len() == self.objects,
                "{SOURCE} has {} objects",
                sources.len()
            );
            all.push((maps, sources));
        }
        Ok(all)
    }
}

async fn all(requests: impl IntoIterator<Item = impl Future<Output = Result<()>>>) -> Result<()> {
    stream::iter(requests)
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}
