//! The whole database service in one command: kcp, a service cluster, the controller and the operator, step by step.
//! `cargo xtask demo --kcp` is the short way to run it.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, bail};
use clap::Parser;
use examples::{Backend, Format, print, stop_at_signal};
use mcr_testkit::control_plane::ControlPlane;

#[path = "../main.rs"]
#[allow(dead_code, reason = "the main function and its flags")]
mod controller;
#[path = "../operator.rs"]
#[allow(dead_code, reason = "the main function and its flags")]
mod operator;
mod steps;
#[allow(dead_code, reason = "the tests use more of it")]
mod world;

use steps::Script;
use world::home::{Home, REAL};

const EXAMPLES: &str = "\
Examples:
  cargo xtask demo --kcp
  cargo xtask demo --kcp --format json
  MCR_KCP_KUBECONFIG=.kcp/admin.kubeconfig cargo xtask demo --kcp
  cargo run -p examples --features demo,kcp --example kcp-mongodb-demo -- --service-kubeconfig kind.kubeconfig";

/// Watch a database service for kcp workspaces, from the first binding to the last.
///
/// Starts a kube-apiserver as the service cluster, with a simulated operator of MongoDB, and a double of kcp with two shards.
/// Then publishes the API, binds it in two workspaces, orders databases, changes and breaks things, and gives everything
/// back. Prints how long each step took, and removes everything at the end. The exit code is 1 if a step fails.
///
/// With the variable MCR_KCP_KUBECONFIG, kcp is the one that this kubeconfig of its admin names.
#[derive(Parser)]
#[command(name = "kcp-mongodb-demo", after_long_help = EXAMPLES)]
struct Args {
    /// The output format: text is a line for each step and a table; json is an object for each step and one at the end
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// A cluster that runs already, to be the service cluster: the kubeconfig of its admin. It must not have the real operator
    #[arg(long, value_name = "PATH")]
    service_kubeconfig: Option<PathBuf>,
}

async fn run(args: Args) -> anyhow::Result<()> {
    let stop = stop_at_signal(None)?;
    // It ends when it is dropped.
    let (kubeconfig, _plane) = match &args.service_kubeconfig {
        Some(path) => {
            let text = std::fs::read_to_string(path);
            (
                text.with_context(|| format!("--service-kubeconfig {}", path.display()))?,
                None,
            )
        }
        None => {
            let plane = ControlPlane::builder().name("service").start().await?;
            (plane.kubeconfig(), Some(plane))
        }
    };
    let home = Home::find(2).await?;
    let (backend, kcp) = match home.double() {
        Some(_) => (Backend::Sim, "a double with two shards".to_owned()),
        None => (Backend::Real, format!("the one of {REAL}")),
    };
    if args.format == Format::Text {
        print(&format!("kcp: {kcp}. The service cluster: a kube-apiserver\n"));
    }
    let script = Script {
        format: args.format,
        backend,
        steps: Vec::new(),
    };
    let Some(summary) = stop.run_until_cancelled(script.run(home, &kubeconfig)).await else {
        return Ok(());
    };
    print(&match args.format {
        Format::Text => summary.text(),
        Format::Json => summary.json(),
    });
    if !summary.ok {
        bail!("the demo failed at: {}", summary.failed());
    }
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    // What happens to the clusters is what the demo shows.
    mcr::args::LogArgs::default().init_log_with("error");
    examples::exit(run(args).await)
}
