//! `mcr-bench sim`: simulated API servers in a process of their own.
//!
//! Commands on stdin, each answered with one line:
//!
//! | command | what it does |
//! | --- | --- |
//! | `counts` | reports the sum of the requests to all clusters |
//! | `beat SEQ FROM TO` | writes SEQ into the ConfigMap `beat` of the clusters from number FROM to before number TO |
//! | `storm RATE KEYS` | writes KEYS ConfigMaps of the first cluster in turns, RATE times a second; RATE 0 ends it |
//! | `fault NAME` | sets this fault in all proxies |
//! | `sync fill CLUSTERS OBJECTS` | creates OBJECTS sources in each cluster from number 1 to before CLUSTERS |
//! | `sync burst EDITS` | makes EDITS edits of sources |
//! | `sync wait` | waits until the first cluster has the target of each source |
//! | `sync requests` | reports the requests for ConfigMaps |
//! | `contexts STABLE FROM TO` | writes a new kubeconfig: the first STABLE clusters, and FROM to before TO |

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use mcr_testkit::{
    control_plane::{Credentials, KubeconfigBuilder},
    faults::{Fault, FaultProxy},
    sim::{SimCluster, SimFleet, SimServer},
};
use serde_json::json;
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
        message::{Counts, Message, now},
        send,
    },
    sync_load::SyncLoad,
};

/// The arguments of the simulator.
#[derive(clap::Args, Clone, Debug)]
pub struct SimArgs {
    /// How many clusters
    #[arg(long)]
    pub clusters: usize,
    /// How many objects of each kind in each cluster
    #[arg(long)]
    pub objects: usize,
    /// The kinds of the objects; the simulator counts the requests for these kinds
    #[arg(long, value_enum, value_delimiter = ',')]
    pub kinds: Vec<Kind>,
    /// How many large Pods in each cluster; the Pods differ from cluster to cluster
    #[arg(long)]
    pub large_pods: usize,
    /// How many clusters are behind proxies that can fail: the last ones
    #[arg(long)]
    pub proxied: usize,
    /// How many namespaces with one ConfigMap each cluster has in addition
    #[arg(long)]
    pub tenants: usize,
    /// How many requests each cluster remembers
    #[arg(long)]
    pub audit: usize,
    /// Where to write the kubeconfig of the clusters
    #[arg(long)]
    pub kubeconfig: PathBuf,
}

impl SimArgs {
    /// This number of clusters, each with `objects` ConfigMaps.
    pub fn new(clusters: usize, objects: usize) -> Self {
        Self {
            clusters,
            objects,
            kinds: vec![Kind::ConfigMaps],
            large_pods: 0,
            proxied: 0,
            tenants: 0,
            audit: 10_000,
            kubeconfig: PathBuf::new(),
        }
    }

    /// The command line that starts the simulator with these arguments, but with this kubeconfig.
    pub(crate) fn command(&self, kubeconfig: &Path) -> Vec<String> {
        vec![
            "sim".to_owned(),
            format!("--clusters={}", self.clusters),
            format!("--objects={}", self.objects),
            format!("--kinds={}", Kind::list(&self.kinds)),
            format!("--large-pods={}", self.large_pods),
            format!("--proxied={}", self.proxied),
            format!("--tenants={}", self.tenants),
            format!("--audit={}", self.audit),
            format!("--kubeconfig={}", kubeconfig.display()),
        ]
    }
}

/// Serves the clusters until stdin ends.
///
/// # Errors
///
/// When there is no free port, and on an unknown command.
pub fn run(args: SimArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut served = Served::start(&args).await?;
        served.write_kubeconfig(&args.kubeconfig, 0..args.clusters)?;
        let count = served.objects()?;
        send(&Message::Seen { count });
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Some(line) = lines.next_line().await? {
            let answer = served.obey(&line, &args.kubeconfig).await;
            send(&answer.with_context(|| format!("the command {line:?} of the simulator"))?);
        }
        Ok(())
    })
}

/// What a kubeconfig needs to reach a cluster.
struct Address {
    url: String,
    ca: String,
    token: String,
}

/// How many clusters are behind one address. Each watch of them is a connection, and there are 28,000 ports for the connections to
/// one address.
const AT_ONE_ADDRESS: usize = 2_500;

/// How many writes of a kind each cluster remembers. If a storm or a burst had more writes, watches would have to list
/// again.
const HISTORY: usize = 100_000;

struct Served {
    clusters: Vec<SimCluster>,
    kinds: Vec<Kind>,
    addresses: Vec<Address>,
    proxies: Vec<FaultProxy>,
    storm: Option<JoinHandle<()>>,
    sync: SyncLoad,
    // Kept, because dropping them closes the servers.
    _fleets: Vec<SimFleet>,
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
        let mut fleets = Vec::new();
        for part in clusters.get(..direct).unwrap_or_default().chunks(AT_ONE_ADDRESS) {
            fleets.push(SimFleet::serve(part.iter().cloned()).await?);
        }
        let (mut addresses, mut proxies, mut servers) = (Vec::new(), Vec::new(), Vec::new());
        for (number, cluster) in clusters.iter().enumerate() {
            let fleet = fleets.get(number / AT_ONE_ADDRESS).filter(|_| number < direct);
            let (url, ca) = match fleet {
                Some(fleet) => (fleet.url(cluster.name()), fleet.ca_pem()),
                None => {
                    let server = cluster.serve().await?;
                    let proxy = FaultProxy::start(&server).await?;
                    let address = (proxy.url(), proxy.ca_pem());
                    proxies.push(proxy);
                    servers.push(server);
                    address
                }
            };
            let token = cluster.admin_token();
            addresses.push(Address { url, ca, token });
        }
        Ok(Self {
            clusters,
            kinds: args.kinds.clone(),
            addresses,
            proxies,
            storm: None,
            sync: SyncLoad::default(),
            _fleets: fleets,
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
        // A subject that reads the kubeconfig at this moment must not get a part of it.
        let unfinished = path.with_extension("new");
        std::fs::write(&unfinished, text)?;
        Ok(std::fs::rename(unfinished, path)?)
    }

    async fn obey(&mut self, line: &str, kubeconfig: &Path) -> Result<Message> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| word.parse::<usize>().context("a number");
        match words.as_slice() {
            ["counts"] => return Ok(self.counts()),
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
                let fault = FAULTS.into_iter().find(|(known, _)| known == name);
                let (_, fault) = fault.context("there is no such fault")?;
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

    /// How many objects of the counted kinds each cluster has.
    fn objects(&self) -> Result<u64> {
        let first = self.clusters.first().context("there is no cluster")?;
        Ok(self.kinds.iter().map(|kind| count(first, *kind) as u64).sum())
    }

    fn counts(&self) -> Message {
        let mut counts = Counts::default();
        for cluster in &self.clusters {
            let audit = cluster.audit();
            for kind in &self.kinds {
                let resource = kind.plural();
                counts.lists += audit.count(|event| event.is_list(&resource)) as u64;
                counts.watches += audit.count(|event| event.is_watch_start(&resource)) as u64;
            }
            counts.open += cluster.watches() as u64;
        }
        Message::Counts(counts)
    }
}

fn kubeconfig(contexts: &[(String, &Address)]) -> String {
    let add = |builder: KubeconfigBuilder, (name, address): &(String, &Address)| {
        let token = Credentials::Token(address.token.clone());
        builder.context(name, &address.url, &address.ca, token)
    };
    contexts.iter().fold(KubeconfigBuilder::new(), add).to_yaml()
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

/// Writes `keys` ConfigMaps in turns, `rate` writes a second, until the task is aborted.
async fn storm(cluster: SimCluster, rate: usize, keys: usize) {
    const TICKS_PER_SECOND: usize = 100;
    let mut ticks = interval(Duration::from_secs(1) / TICKS_PER_SECOND as u32);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut written = 0;
    for due in (0..).map(|tick| tick * rate / TICKS_PER_SECOND) {
        ticks.tick().await;
        while written < due {
            let mut map = objects::config_map(100_000 + written % keys.max(1));
            map["data"]["written"] = written.to_string().into();
            // The write can't fail, because there is no other writer.
            let _ = cluster.apply(map);
            written += 1;
        }
    }
}

/// The faults that suite `isolation` measures, each with the name that its rows use.
pub const FAULTS: [(&str, Fault); 7] = [
    ("refused", Fault::Refuse),
    ("black-hole", Fault::BlackHole),
    ("silent", Fault::Silent),
    (
        "slow",
        Fault::Slow {
            first_byte: Duration::from_secs(5),
            bytes_per_second: Some(1024),
        },
    ),
    ("unauthorized", Fault::Unauthorized),
    ("forbidden", Fault::Forbidden),
    ("wrong-ca", Fault::WrongCa),
];
