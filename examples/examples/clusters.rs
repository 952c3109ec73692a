//! Starts API servers on this machine and keeps them until Ctrl-C, for trying a controller without a cluster.
//! `cargo xtask clusters` is the short way to run it.

use std::{io::Write, process::ExitCode};

use anyhow::{Context, anyhow, ensure};
use clap::Parser;
use examples::{Backend, Choice, export_kubeconfig, stop_at_signal};
use futures::future::try_join_all;
use mcr_testkit::{
    control_plane::{Binaries, ControlPlane, Credentials, Etcd, KubeconfigBuilder},
    sim::{SimCluster, SimServer, SimTls},
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

/// How many kube-apiservers are started at most: each takes about 300 MB.
const MOST_REAL: u16 = 100;
const MOST_SIMULATED: i64 = 5_000;

const EXAMPLES: &str = "\
Examples:
  cargo xtask clusters 3
  cargo xtask clusters 500 --backend sim";

/// Start API servers on this machine, each a cluster of its own, and keep them until Ctrl-C.
///
/// Prints one line on stdout: `export KUBECONFIG=…`, and on stderr what to try with it. The file has a context for each cluster, cluster-1, cluster-2
/// and so on, whose user has all rights. Ctrl-C ends the servers and removes the file and all data. No Pod runs in
/// these clusters. Without the binaries of Kubernetes, the API servers are simulated.
#[derive(Parser)]
#[command(name = "clusters", after_long_help = EXAMPLES)]
struct Args {
    /// How many clusters: up to 100 real ones, up to 5000 simulated ones
    #[arg(value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MOST_SIMULATED))]
    count: u16,
    /// What the clusters are
    #[arg(long, value_enum, default_value_t, overrides_with = "backend")]
    backend: Choice,
}

/// The API servers. They end when this is dropped.
enum Servers {
    Real(Vec<ControlPlane>),
    Sim(Vec<SimServer>),
}

impl Servers {
    async fn start(backend: Backend, count: u16) -> anyhow::Result<Self> {
        let names = (1..=count).map(|number| format!("cluster-{number}"));
        if backend == Backend::Sim {
            raise_open_files();
            let tls = SimTls::new()?;
            let mut servers = Vec::new();
            for name in names {
                let cluster = SimCluster::builder().name(name).finish_namespaces(true).build();
                // As in every real cluster, so that a controller of ConfigMaps has something to reconcile.
                let authority = json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": "kube-root-ca.crt", "namespace": "default"},
                    "data": {"ca.crt": tls.ca_pem()},
                });
                cluster.create(authority).map_err(|error| anyhow!("{error}"))?;
                let serving = cluster.serve_at(0, &tls).await;
                servers.push(serving.context(
                    "each cluster needs a port and an open file: start fewer, or raise ulimit -n",
                )?);
            }
            return Ok(Self::Sim(servers));
        }
        // It removes deleted namespaces, and the objects whose owner is gone; envtest's binaries are without it.
        let collects = Binaries::find()?
            .folder()
            .join("kube-controller-manager")
            .is_file();
        let etcd = Etcd::start().await?;
        let starting = names.map(|name| {
            let plane = ControlPlane::builder().name(name).etcd(&etcd);
            if collects {
                plane.with_controller_manager()
            } else {
                plane
            }
            .start()
        });
        Ok(Self::Real(try_join_all(starting).await?))
    }

    /// With a context for each cluster.
    fn kubeconfig(&self) -> KubeconfigBuilder {
        let none = KubeconfigBuilder::new();
        match self {
            Self::Real(planes) => planes.iter().fold(none, |all, plane| {
                all.context(
                    plane.name(),
                    plane.url(),
                    plane.ca_pem(),
                    plane.admin_credentials(),
                )
            }),
            Self::Sim(servers) => servers.iter().fold(none, |all, server| {
                let admin = Credentials::Token(server.cluster().admin_token());
                all.context(server.cluster().name(), server.url(), server.ca_pem(), admin)
            }),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Real(planes) => format!("{} real API servers over one etcd are ready", planes.len()),
            Self::Sim(servers) => format!("{} simulated API servers are ready", servers.len()),
        }
    }
}

/// Below the line for the shell: the contexts, kubectl where it came with the binaries, and a first command.
fn next_steps(count: u16) -> String {
    let contexts = match count {
        1 => "Its context is cluster-1.".to_owned(),
        2 => "The contexts are cluster-1 and cluster-2.".to_owned(),
        3 => "The contexts are cluster-1, cluster-2 and cluster-3.".to_owned(),
        count => format!("The contexts are cluster-1 to cluster-{count}."),
    };
    let kubectl = Binaries::find().map(|binaries| binaries.folder().join("kubectl"));
    let kubectl = match kubectl {
        Ok(kubectl) if kubectl.is_file() => format!("\nA kubectl is at {}", kubectl.display()),
        _ => String::new(),
    };
    format!(
        "{contexts}{kubectl}\nTo see the ConfigMaps of all of them, type there: cargo run -p examples --example configmaps"
    )
}

/// Each simulated server listens, and each of its connections is an open file, too.
fn raise_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If the limit stays as it is, it may still be enough; else serving fails with an error.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    );
}

async fn run(args: Args) -> anyhow::Result<()> {
    let stop = stop_at_signal(None)?;
    let backend = args.backend.decide()?;
    ensure!(
        backend == Backend::Sim || args.count <= MOST_REAL,
        "{} are too many real API servers, of which each takes about 300 MB: start at most {MOST_REAL}, \
         or up to {MOST_SIMULATED} simulated ones with --backend sim",
        args.count
    );
    let Some(started) = stop
        .run_until_cancelled(Servers::start(backend, args.count))
        .await
    else {
        return Ok(());
    };
    let servers = started?;
    let folder = tempfile::Builder::new().prefix("mcr-clusters-").tempdir();
    let folder = folder.context("can't make a temporary folder")?;
    let export = export_kubeconfig(&folder.path().join("kubeconfig"), &servers.kubeconfig())?;
    eprintln!(
        "{}. They run until Ctrl-C. To use them, type in another terminal:",
        servers.text()
    );
    writeln!(std::io::stdout(), "{export}").context("can't print")?;
    eprintln!("{}", next_steps(args.count));
    stop.cancelled().await;
    folder.close().context("can't remove the kubeconfig")
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    mcr::args::LogArgs::default().init_log_with("error");
    examples::exit(run(args).await)
}
