//! The servers whose clusters subjects work on: a real API server that stands for many clusters, simulated ones in a process of
//! their own, or those that someone brings.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::PartialObjectMeta,
};
use mcr_testkit::control_plane::{ControlPlane, KubeconfigBuilder};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::{Programs, Running};
use crate::{
    alone::Figures,
    kind::Kind,
    objects::{self, BEAT},
    proc::Usage,
    row::Row,
    simulator::SimArgs,
    subject::message::{Counts, Message, now},
};

/// The servers of some clusters.
pub struct Servers {
    /// The kubeconfig whose contexts are the clusters.
    pub kubeconfig: PathBuf,
    /// How many clusters there are.
    pub clusters: usize,
    /// The kinds that subjects watch, of which requests are counted.
    pub kinds: Vec<Kind>,
    /// How many objects of these kinds the clusters hold together.
    pub objects: usize,
    server: Server,
    _folder: Option<TempDir>,
}

enum Server {
    /// One for all contexts. Each is a user with a client certificate, and so has its own TLS session.
    Real(Box<ControlPlane>),
    Sim(Box<Running>),
    Brought,
}

fn folder() -> Result<(TempDir, PathBuf)> {
    let folder = tempfile::Builder::new().prefix("mcr-bench-").tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    Ok((folder, kubeconfig))
}

impl Servers {
    /// Starts a real API server with `each` objects of each of these kinds, including those that it makes itself, and `clusters`
    /// contexts.
    ///
    /// # Errors
    ///
    /// When the binaries are missing (`cargo xtask assets`) or the server does not start.
    pub async fn real(clusters: usize, each: usize, kinds: &[Kind]) -> Result<Self> {
        let plane = ControlPlane::start().await?;
        let mut objects = 0;
        for kind in kinds {
            let loaded = load(&plane.client(), *kind, each).await;
            objects += loaded.with_context(|| format!("creating {}", kind.plural()))?;
        }
        let (folder, kubeconfig) = folder()?;
        let mut contexts = KubeconfigBuilder::new();
        for number in 0..clusters {
            let name = format!("cluster-{number:05}");
            let user = plane.user(&name).groups(["system:masters"]).create().await?;
            contexts = contexts.context(&name, plane.url(), plane.ca_pem(), user.credentials());
        }
        std::fs::write(&kubeconfig, contexts.to_yaml())?;
        Ok(Self {
            kubeconfig,
            clusters,
            kinds: kinds.to_vec(),
            objects: clusters * objects,
            server: Server::Real(Box::new(plane)),
            _folder: Some(folder),
        })
    }

    /// Starts the simulator with these arguments.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub async fn sim(programs: &Programs, args: SimArgs) -> Result<Self> {
        let (folder, kubeconfig) = folder()?;
        let command = args.command(&kubeconfig);
        let mut process = Running::start("the simulator", &programs.bench, &command)?;
        let objects = match process.next(Duration::from_secs(300)).await? {
            Message::Seen { count } => usize::try_from(count)?,
            other => bail!("the simulator sent {other:?}"),
        };
        Ok(Self {
            kubeconfig,
            clusters: args.clusters,
            kinds: args.kinds,
            objects: args.clusters * objects,
            server: Server::Sim(Box::new(process)),
            _folder: Some(folder),
        })
    }

    /// Clusters that someone brings: their ConfigMaps are counted.
    ///
    /// # Errors
    ///
    /// When the file can't be read or a cluster does not answer.
    pub async fn brought(kubeconfig: &Path) -> Result<Self> {
        let clients = clients(kubeconfig).await?;
        let mut objects = 0;
        for (name, client) in &clients {
            let maps = Api::<PartialObjectMeta<ConfigMap>>::all(client.clone());
            let listed = maps.list(&ListParams::default()).await;
            objects += listed
                .with_context(|| format!("listing the ConfigMaps of {name}"))?
                .items
                .len();
        }
        Ok(Self {
            kubeconfig: kubeconfig.to_owned(),
            clusters: clients.len(),
            kinds: vec![Kind::ConfigMaps],
            objects,
            server: Server::Brought,
            _folder: None,
        })
    }

    /// The variant of rows.
    pub fn variant(&self) -> &'static str {
        match self.server {
            Server::Real(_) => "",
            Server::Sim(_) => "sim",
            Server::Brought => "brought",
        }
    }

    /// A row of these clusters, without a subject.
    pub fn row(&self, suite: &str) -> Row {
        Row::new(suite, "", self.clusters, self.objects / self.clusters.max(1))
    }

    /// A client of the real API server.
    pub fn client(&self) -> Option<Client> {
        match &self.server {
            Server::Real(plane) => Some(plane.client()),
            Server::Sim(_) | Server::Brought => None,
        }
    }

    /// Writes a beat to the real API server. Returns the time of its answer.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub async fn beat(&self, seq: u64) -> Result<u64> {
        let client = self.client().context("not a real API server")?;
        let patch = Patch::Merge(json!({ "data": { "seq": seq.to_string() } }));
        let maps = Api::<ConfigMap>::namespaced(client, "default");
        maps.patch(BEAT, &PatchParams::default(), &patch).await?;
        Ok(now())
    }

    /// Starts the real API server again. It remembers no change from before.
    ///
    /// # Errors
    ///
    /// When there is none, or it does not start.
    pub async fn restart(&self) -> Result<()> {
        match &self.server {
            Server::Real(plane) => Ok(plane.restart().await?),
            Server::Sim(_) | Server::Brought => bail!("not a real API server"),
        }
    }

    /// Sends a command of the [`simulator`](crate::simulator). Returns the time at which it was done.
    ///
    /// # Errors
    ///
    /// When it does not answer within a minute.
    pub async fn command(&mut self, line: &str) -> Result<u64> {
        self.command_for(line, Duration::from_secs(60)).await
    }

    /// As [`command`](Self::command), with a limit of the caller.
    ///
    /// # Errors
    ///
    /// When it does not answer within `limit`.
    pub async fn command_for(&mut self, line: &str, limit: Duration) -> Result<u64> {
        let simulator = self.simulator()?;
        match simulator.ask_for(line, limit).await? {
            Message::Done { at } => Ok(at),
            other => bail!("the simulator answered {other:?}"),
        }
    }

    /// Asks the simulator for figures.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub async fn figures(&mut self, line: &str) -> Result<Figures> {
        match self.simulator()?.ask(line).await? {
            Message::Figures { figures } => Ok(figures),
            other => bail!("the simulator answered {other:?}"),
        }
    }

    fn simulator(&mut self) -> Result<&mut Running> {
        match &mut self.server {
            Server::Sim(process) => Ok(process),
            Server::Real(_) | Server::Brought => bail!("only simulated servers take commands"),
        }
    }

    /// The requests that the servers have counted so far. `None` if they can't be read.
    ///
    /// # Errors
    ///
    /// When the server does not answer.
    pub async fn counts(&mut self) -> Result<Option<Counts>> {
        let plane = match &mut self.server {
            Server::Real(plane) => plane,
            Server::Sim(process) => match process.ask("counts").await? {
                Message::Counts(counts) => return Ok(Some(counts)),
                other => bail!("the simulator answered {other:?}"),
            },
            Server::Brought => return Ok(None),
        };
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = plane.client().request_text(request).await?;
        let of = |metric, verb| {
            let of_kind = |kind: &Kind| sum(&text, metric, &[("verb", verb), ("resource", &kind.plural())]);
            self.kinds.iter().map(of_kind).sum()
        };
        // A watch is counted as a request when it has ended.
        let open = of("apiserver_longrunning_requests", "WATCH");
        Ok(Some(Counts {
            lists: of("apiserver_request_total", "LIST"),
            watches: of("apiserver_request_total", "WATCH") + open,
            open,
        }))
    }

    /// How many watches are open; 0 if that can't be known.
    ///
    /// # Errors
    ///
    /// When the server does not answer.
    pub async fn open(&mut self) -> Result<u64> {
        Ok(self.counts().await?.map_or(0, |counts| counts.open))
    }

    /// The CPU time of the real API server so far. `None` if it can't be read.
    pub fn server_cpu(&self) -> Option<Duration> {
        let Server::Real(plane) = &self.server else {
            return None;
        };
        Some(Usage::of(plane.pid()?).ok()?.cpu)
    }

    /// Waits until a subject has opened a watch of each kind of every cluster, beside the `open` ones that were there before it.
    /// Returns the requests until then, if they can be read.
    ///
    /// A subject has seen every object when its lists are read, and some open their watches only then.
    ///
    /// # Errors
    ///
    /// When fewer watches are open after a minute.
    pub async fn watched(&mut self, open: u64) -> Result<Option<Counts>> {
        let (kinds, clusters) = (self.kinds.len(), self.clusters);
        let wanted = open + (clusters * kinds) as u64;
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Some(counts) = self.counts().await? {
            if counts.open >= wanted {
                // Once more: the last watch may have begun after the requests were counted.
                return self.counts().await;
            }
            if Instant::now() >= deadline {
                let open = counts.open.saturating_sub(open);
                bail!(
                    "after a minute the subject has {open} watches of {kinds} kinds in {clusters} clusters open"
                )
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(None)
    }

    /// Waits until no subject is connected any more, so that the next one finds the server as the last one did.
    ///
    /// # Errors
    ///
    /// When watches are still open after a minute.
    pub async fn quiet(&mut self, open: u64) -> Result<()> {
        for _ in 0..300 {
            if self.open().await? <= open {
                return Ok(());
            }
            sleep(Duration::from_millis(200)).await;
        }
        bail!("watches of a process that has ended are still open after a minute")
    }
}

/// A client of each context of a kubeconfig, by its name.
pub(super) async fn clients(kubeconfig: &Path) -> Result<Vec<(String, Client)>> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut clients = Vec::new();
    for context in &kubeconfig.contexts {
        let options = KubeConfigOptions {
            context: Some(context.name.clone()),
            ..KubeConfigOptions::default()
        };
        let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await?;
        clients.push((context.name.clone(), Client::try_from(config)?));
    }
    Ok(clients)
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
    let create = async |object| {
        let object: DynamicObject = serde_json::from_value(object)?;
        place.create(&PostParams::default(), &object).await?;
        anyhow::Ok(())
    };
    if kind == Kind::ConfigMaps {
        let beat = create(objects::beat(0)).await;
        beat.context("creating the ConfigMap that is written to")?;
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
                    r_more{code=\"200\",resource=\"configmaps\",verb=\"LIST\"} 5\n";
        assert_eq!(sum(text, "r", &[("resource", "configmaps"), ("verb", "LIST")]), 4);
        assert_eq!(sum(text, "r", &[("resource", "nodes")]), 0);
    }
}
