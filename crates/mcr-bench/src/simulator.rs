//! `mcr-bench sim`: simulated API servers in a process of their own.
//!
//! Commands on stdin, each answered with one line:
//!
//! | command | what it does |
//! | --- | --- |
//! | `counts` | tells what was asked of all clusters together |
//! | `objects` | tells how many objects of the counted kinds each cluster has |
//! | `beat SEQ FROM TO` | writes the beat in the clusters of these numbers, TO excluded |
//! | `storm RATE KEYS` | from now on writes ConfigMaps of the first cluster, RATE times a second, KEYS different ones in turns; 0 ends it |
//! | `fault NAME` | has the clusters behind proxies fail in this way |
//! | `sync fill CLUSTERS OBJECTS` | creates so many sources of suite `sync` in each of these clusters but the first |
//! | `sync burst EDITS` | edits so many sources |
//! | `sync wait` | waits until the first cluster has the target of each source |
//! | `sync requests` | tells the requests for ConfigMaps |
//! | `contexts STABLE FROM TO` | writes the kubeconfig anew, with the first STABLE clusters and those of these numbers |

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use mcr_testkit::{
    control_plane::{Credentials, KubeconfigBuilder},
    faults::{Fault, FaultProxy},
    sim::{SimCluster, SimFleet, SimServer},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};

use crate::{
    alone::place,
    kind::Kind,
    objects,
    subject::{
        message::{Message, now},
        send,
    },
    sync_load::SyncLoad,
};

/// What the simulator is started with.
#[derive(clap::Args, Clone, Debug)]
pub struct SimArgs {
    /// How many clusters
    #[arg(long)]
    pub clusters: usize,
    /// How many objects of each kind in each
    #[arg(long)]
    pub objects: usize,
    /// Which kinds, of which requests are counted
    #[arg(long, value_enum, value_delimiter = ',', default_value = "configmaps")]
    pub kinds: Vec<Kind>,
    /// How many large Pods in each, which differ from cluster to cluster
    #[arg(long, default_value_t = 0)]
    pub large_pods: usize,
    /// How many of the clusters, the last ones, are behind proxies that can fail
    #[arg(long, default_value_t = 0)]
    pub proxied: usize,
    /// How many namespaces with one more ConfigMap there are in each
    #[arg(long, default_value_t = 0)]
    pub tenants: usize,
    /// How many requests each cluster remembers
    #[arg(long, default_value_t = 10_000)]
    pub audit: usize,
    /// Where to write their kubeconfig
    #[arg(long)]
    pub kubeconfig: PathBuf,
}

/// Serves until its stdin ends.
///
/// # Errors
///
/// When there is no free port, and on an unknown command.
pub fn run(args: SimArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut served = Served::start(&args).await?;
        served.write_kubeconfig(&args.kubeconfig, 0..args.clusters)?;
        send(&Message::Serving);
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Some(line) = lines.next_line().await? {
            let answer = served.obey(&line, &args.kubeconfig).await;
            send(&answer.with_context(|| format!("the simulator was told {line:?}"))?);
        }
        Ok(())
    })
}

/// The address of a cluster.
struct Address {
    url: String,
    ca: String,
    token: String,
}

/// How many writes of a kind each cluster remembers: so many that a storm or a burst of them does not cause lists.
const HISTORY: usize = 100_000;

struct Served {
    clusters: Vec<SimCluster>,
    kinds: Vec<Kind>,
    addresses: Vec<Address>,
    proxies: Vec<FaultProxy>,
    storm: Option<JoinHandle<()>>,
    sync: SyncLoad,
    // Kept, because dropping them closes the servers.
    _fleet: SimFleet,
    _servers: Vec<SimServer>,
}

impl Served {
    async fn start(args: &SimArgs) -> Result<Self> {
        let template = template(args)?;
        let made = |number| {
            let builder = SimCluster::builder().name(format!("cluster-{number:05}"));
            let builder = builder.history(HISTORY).audit_limit(args.audit);
            builder.template(&template).build()
        };
        let clusters: Vec<SimCluster> = (0..args.clusters).map(made).collect();
        for (number, cluster) in clusters.iter().enumerate() {
            let first = number * args.large_pods;
            for number in first..first + args.large_pods {
                cluster.restore(objects::large_pod(number))?;
            }
        }
        let direct = args.clusters.saturating_sub(args.proxied);
        let fleet = SimFleet::serve(clusters.iter().take(direct).cloned()).await?;
        let (mut addresses, mut proxies, mut servers) = (Vec::new(), Vec::new(), Vec::new());
        for cluster in clusters.iter().take(direct) {
            addresses.push(Address {
                url: fleet.url(cluster.name()),
                ca: fleet.ca_pem(),
                token: cluster.admin_token(),
            });
        }
        for cluster in clusters.iter().skip(direct) {
            let server = cluster.serve().await?;
            let proxy = FaultProxy::start(&server).await?;
            addresses.push(Address {
                url: proxy.url(),
                ca: proxy.ca_pem(),
                token: cluster.admin_token(),
            });
            proxies.push(proxy);
            servers.push(server);
        }
        Ok(Self {
            clusters,
            kinds: args.kinds.clone(),
            addresses,
            proxies,
            storm: None,
            sync: SyncLoad::default(),
            _fleet: fleet,
            _servers: servers,
        })
    }

    fn write_kubeconfig(&self, path: &Path, numbers: impl IntoIterator<Item = usize>) -> Result<()> {
        let numbered: Result<Vec<(String, &Address)>> = numbers
            .into_iter()
            .map(|number| {
                let address = self.addresses.get(number).context("there are fewer clusters")?;
                Ok((format!("cluster-{number:05}"), address))
            })
            .collect();
        let text = kubeconfig(&numbered?);
        // Writes a new file and renames it, so that no half-written file is read.
        let half = path.with_extension("new");
        std::fs::write(&half, text)?;
        Ok(std::fs::rename(half, path)?)
    }

    async fn obey(&mut self, line: &str, kubeconfig: &Path) -> Result<Message> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| word.parse::<usize>().context("a number");
        match words.as_slice() {
            ["counts"] => return Ok(self.counts()),
            ["objects"] => {
                let first = self.clusters.first().context("there is no cluster")?;
                let of = |kind: &Kind| count(first, *kind) as u64;
                let count = self.kinds.iter().map(of).sum();
                return Ok(Message::Seen { count });
            }
            ["beat", seq, from, to] => {
                let (from, to) = (number(from)?, number(to)?);
                for cluster in self.clusters.get(from..to).context("there are fewer clusters")? {
                    cluster.update(objects::beat(seq.parse()?))?;
                }
            }
            ["storm", rate, keys] => {
                if let Some(storm) = self.storm.take() {
                    storm.abort();
                }
                let (rate, keys) = (number(rate)?, number(keys)?);
                let first = self.clusters.first().context("there is no cluster")?;
                self.storm = (rate > 0).then(|| tokio::spawn(storm(first.clone(), rate, keys)));
            }
            ["fault", name] => {
                let fault = fault(name)?;
                for proxy in &self.proxies {
                    proxy.set(fault.clone()).await;
                }
            }
            ["sync", "fill", clusters, objects] => {
                let clusters = self
                    .clusters
                    .get(..number(clusters)?)
                    .context("there are fewer clusters")?;
                self.sync.fill(clusters, number(objects)?)?;
            }
            ["sync", "burst", edits] => self.sync.burst(&self.clusters, number(edits)?).await?,
            ["sync", "wait"] => self.sync.converged(&self.clusters).await?,
            ["sync", "requests"] => {
                let figures = SyncLoad::requests(&self.clusters);
                return Ok(Message::Figures { figures });
            }
            ["contexts", stable, from, to] => {
                let numbers = (0..number(stable)?).chain(number(from)?..number(to)?);
                self.write_kubeconfig(kubeconfig, numbers)?;
            }
            _ => bail!("there is no such command"),
        }
        Ok(Message::Done { at: now() })
    }

    fn counts(&self) -> Message {
        let (mut lists, mut watches, mut open) = (0, 0, 0);
        for cluster in &self.clusters {
            let audit = cluster.audit();
            for kind in &self.kinds {
                let resource = kind.plural();
                lists += audit.count(|event| event.is_list(&resource)) as u64;
                watches += audit.count(|event| event.is_watch_start(&resource)) as u64;
            }
            open += cluster.watches() as u64;
        }
        Message::Counts { lists, watches, open }
    }
}

/// The most contexts in YAML. A larger kubeconfig is JSON, which is valid YAML: some parsers refuse more than 250,000 YAML
/// nodes.
const MOST_IN_YAML: usize = 5_000;

fn kubeconfig(contexts: &[(String, &Address)]) -> String {
    if contexts.len() <= MOST_IN_YAML {
        let add = |builder: KubeconfigBuilder, (name, address): &(String, &Address)| {
            builder.context(
                name,
                &address.url,
                &address.ca,
                Credentials::Token(address.token.clone()),
            )
        };
        return contexts.iter().fold(KubeconfigBuilder::new(), add).to_yaml();
    }
    let all = |make: &dyn Fn(&str, &Address) -> Value| -> Vec<Value> {
        contexts
            .iter()
            .map(|(name, address)| make(name, address))
            .collect()
    };
    let ca = |address: &Address| STANDARD.encode(&address.ca);
    json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": all(&|name, address| json!({ "name": name, "cluster": { "server": address.url, "certificate-authority-data": ca(address) } })),
        "users": all(&|name, address| json!({ "name": name, "user": { "token": address.token } })),
        "contexts": all(&|name, _| json!({ "name": name, "context": { "cluster": name, "user": name } })),
    })
    .to_string()
}

fn template(args: &SimArgs) -> Result<SimCluster> {
    let template = SimCluster::builder().history(HISTORY).build();
    for kind in &args.kinds {
        if *kind == Kind::ConfigMaps && args.objects > 0 {
            template.create(objects::beat(0))?;
        }
        for number in count(&template, *kind)..args.objects {
            template.create(kind.object(number))?;
        }
    }
    for number in 0..args.tenants {
        let namespace = place(number);
        template
            .create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }))?;
        let mut map = objects::config_map(number);
        map["metadata"]["namespace"] = namespace.into();
        template.create(map)?;
    }
    Ok(template)
}

fn count(cluster: &SimCluster, kind: Kind) -> usize {
    let kind = kind.resource();
    let resource = match kind.group.as_str() {
        "" => kind.plural,
        group => format!("{}.{group}", kind.plural),
    };
    cluster.list(&resource, "").len()
}

/// Writes until the task is aborted. Ten times a second it makes the writes that are due.
async fn storm(cluster: SimCluster, rate: usize, keys: usize) {
    const TICKS: usize = 100;
    let mut ticks = interval(Duration::from_secs(1) / TICKS as u32);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut written = 0;
    for due in (0..).map(|tick| tick * rate / TICKS) {
        ticks.tick().await;
        while written < due {
            let mut map = objects::config_map(100_000 + written % keys.max(1));
            map["data"]["written"] = written.to_string().into();
            // Can't fail: there is no other writer.
            let _ = cluster.apply(map);
            written += 1;
        }
    }
}

/// The faults of `isolation`, by the names of its rows.
pub const FAULTS: [&str; 7] = [
    "refused",
    "black-hole",
    "silent",
    "slow",
    "unauthorized",
    "forbidden",
    "wrong-ca",
];

fn fault(name: &str) -> Result<Fault> {
    Ok(match name {
        "refused" => Fault::Refuse,
        "black-hole" => Fault::BlackHole,
        "silent" => Fault::Silent,
        "slow" => Fault::Slow {
            first_byte: Duration::from_secs(5),
            bytes_per_second: Some(1024),
        },
        "unauthorized" => Fault::Unauthorized,
        "forbidden" => Fault::Forbidden,
        "wrong-ca" => Fault::WrongCa,
        _ => bail!("no such fault: {FAULTS:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_that_rows_name_is_one_and_no_other() {
        for name in FAULTS {
            fault(name).unwrap();
        }
        assert!(fault("sunny").is_err());
    }
}
