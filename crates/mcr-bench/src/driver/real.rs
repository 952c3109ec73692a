//! One real API server that stands for many clusters. Each cluster is a context with its own user and client
//! certificate, and so has its own TLS session.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use mcr_testkit::control_plane::{ControlPlane, KubeconfigBuilder};
use serde_json::json;
use tempfile::TempDir;

use super::Counts;
use crate::{
    kind::Kind,
    objects::{self, BEAT},
    subject::message::now,
};

/// A real API server with objects, and a kubeconfig whose contexts all name this server.
pub struct Real {
    plane: ControlPlane,
    clusters: usize,
    kinds: Vec<Kind>,
    objects: usize,
    kubeconfig: PathBuf,
    _folder: TempDir,
}

impl Real {
    /// Starts an API server with `objects` ConfigMaps, including those that the server makes itself, and `clusters`
    /// contexts.
    ///
    /// # Errors
    ///
    /// When the binaries are missing (`cargo xtask assets`) or the server does not start.
    pub async fn start(clusters: usize, objects: usize) -> Result<Self> {
        Self::with_kinds(clusters, objects, &[Kind::ConfigMaps]).await
    }

    /// The same with `each` objects of each of these kinds.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub async fn with_kinds(clusters: usize, each: usize, kinds: &[Kind]) -> Result<Self> {
        let plane = ControlPlane::start().await?;
        let mut objects = 0;
        for kind in kinds {
            objects += load(&plane.client(), *kind, each)
                .await
                .with_context(|| format!("creating {}", kind.plural()))?;
        }
        let folder = tempfile::Builder::new().prefix("mcr-bench-").tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let mut contexts = KubeconfigBuilder::new();
        for number in 0..clusters {
            let name = format!("cluster-{number:05}");
            let user = plane.user(&name).groups(["system:masters"]).create().await?;
            contexts = contexts.context(&name, plane.url(), plane.ca_pem(), user.credentials());
        }
        std::fs::write(&kubeconfig, contexts.to_yaml())?;
        Ok(Self {
            plane,
            clusters,
            kinds: kinds.to_vec(),
            objects,
            kubeconfig,
            _folder: folder,
        })
    }

    pub(super) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub(super) fn client(&self) -> Client {
        self.plane.client()
    }

    /// The number of contexts.
    pub fn clusters(&self) -> usize {
        self.clusters
    }

    /// The kinds of its objects.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// The number of objects of these kinds.
    pub fn objects(&self) -> usize {
        self.objects
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.plane.pid()
    }

    /// Writes a beat. Returns the time of the server's answer.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub async fn beat(&self, seq: u64) -> Result<u64> {
        let maps = Api::<ConfigMap>::namespaced(self.plane.client(), "default");
        let patch = Patch::Merge(json!({ "data": { "seq": seq.to_string() } }));
        maps.patch(BEAT, &PatchParams::default(), &patch).await?;
        Ok(now())
    }

    pub(super) async fn counts(&self) -> Result<Counts> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = self.plane.client().request_text(request).await?;
        let of = |metric, verb| {
            let of_kind = |kind: &Kind| sum(&text, metric, &[("verb", verb), ("resource", &kind.plural())]);
            self.kinds.iter().map(of_kind).sum()
        };
        // A watch is counted as a request when it has ended.
        let open = of("apiserver_longrunning_requests", "WATCH");
        Ok(Counts {
            lists: of("apiserver_request_total", "LIST"),
            watches: of("apiserver_request_total", "WATCH") + open,
            open,
        })
    }
}

/// Creates objects of a kind until there are so many, and returns how many there are.
async fn load(client: &Client, kind: Kind, wanted: usize) -> Result<usize> {
    let resource = kind.resource();
    let all = Api::<DynamicObject>::all_with(client.clone(), &resource);
    let place = if kind.is_namespaced() {
        Api::default_namespaced_with(client.clone(), &resource)
    } else {
        all.clone()
    };
    let create = |object| {
        let place = place.clone();
        async move {
            let object: DynamicObject = serde_json::from_value(object)?;
            place.create(&PostParams::default(), &object).await?;
            anyhow::Ok(())
        }
    };
    if kind == Kind::ConfigMaps {
        create(objects::beat(0))
            .await
            .context("creating the ConfigMap that is written to")?;
    }
    let there = all.list(&ListParams::default()).await?.items.len();
    stream::iter((there..wanted).map(|number| create(kind.object(number))))
        .buffer_unordered(16)
        .try_collect::<Vec<_>>()
        .await?;
    Ok(all.list(&ListParams::default()).await?.items.len())
}

/// The sum of a metric's series that have these labels.
fn sum(text: &str, metric: &str, labels: &[(&str, &str)]) -> u64 {
    let series = text
        .lines()
        .filter_map(|line| line.strip_prefix(metric)?.strip_prefix('{'));
    let wanted = series.filter_map(|series| {
        let (has, value) = series.rsplit_once('}')?;
        let fits = labels.iter().all(|(name, value)| {
            let label = format!("{name}=\"{value}\"");
            has.split(',').any(|has| has == label)
        });
        fits.then(|| value.split_whitespace().next()?.parse::<f64>().ok())?
    });
    wanted.sum::<f64>() as u64
}

#[cfg(test)]
mod tests {
    use super::sum;

    #[test]
    fn a_metric_is_summed_over_the_labels_that_are_not_asked_for() {
        let text = "# TYPE r counter\n\
                    r{code=\"200\",resource=\"configmaps\",verb=\"LIST\"} 3\n\
                    r{code=\"500\",resource=\"configmaps\",verb=\"LIST\"} 1\n\
                    r{code=\"200\",resource=\"configmaps\",verb=\"WATCH\"} 7\n\
                    r{code=\"200\",resource=\"secrets\",verb=\"LIST\"} 9\n\
                    r_more{code=\"200\",resource=\"configmaps\",verb=\"LIST\"} 5\n";
        assert_eq!(sum(text, "r", &[("resource", "configmaps"), ("verb", "LIST")]), 4);
        assert_eq!(sum(text, "r", &[("resource", "nodes")]), 0);
    }
}
