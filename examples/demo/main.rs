//! One controller, several clusters that come, change, fail and go: starts the clusters itself and shows what the
//! controller makes of it. `cargo xtask demo` is the short way to run it.

mod backend;
mod json;
mod lines;
mod live;
mod measure;
mod real;
mod script;
mod seen;
mod show;
mod sim;
mod world;

use std::{
    io::IsTerminal,
    net::{SocketAddr, TcpListener},
    process::ExitCode,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Parser;
use examples::{Choice, Format, stop_at_signal};
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Controller, FleetSettings, Manager, core::TransportSettings};
use mcr_provider_file::FileProvider;
use seen::Seen;
use show::Show;
use world::Folder;

const EXAMPLES: &str = "\
Examples:
  cargo xtask demo
  cargo xtask demo --once --format json
  cargo xtask demo --backend sim --serve 127.0.0.1:8080";

/// Watch one controller reconcile ConfigMaps in several clusters while clusters join, change, fail and leave.
///
/// Starts an etcd and API servers (each a cluster of its own), and a controller that knows them from kubeconfig files
/// in a folder. Then writes objects, adds a cluster, rotates a token, lets the network of one cluster swallow
/// everything, stops an API server and starts it again, and removes a cluster. Prints how long the controller took
/// each time, and removes everything at the end. Without the binaries of Kubernetes, the API servers are simulated.
#[derive(Parser)]
#[command(name = "demo", after_long_help = EXAMPLES)]
struct Args {
    /// End after the last step instead of running until Ctrl-C; the exit code is 1 if a step fails or takes too long
    #[arg(long)]
    once: bool,
    /// The output format: text is a live table on a terminal, and else a line for each step; json is an object for each
    /// step and one at the end
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Whether API servers are real or simulated
    #[arg(long, value_enum, default_value_t, overrides_with = "backend")]
    backend: Choice,
    /// Where to serve /clusters and /metrics while it runs, or `off`; port 0 is a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    serve: Serve,
    /// For tests on a busy machine: the controller looks after a silent cluster and goes over to a new token within seconds, and
    /// a step may take ten times as long before it has failed
    #[arg(long, hide = true)]
    patient: bool,
}

#[derive(Clone, Copy)]
enum Serve {
    At(SocketAddr),
    Off,
}

impl FromStr for Serve {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            _ => text
                .parse()
                .map(Self::At)
                .map_err(|_| "not an address such as 127.0.0.1:8080, nor off".to_owned()),
        }
    }
}

impl Serve {
    /// Listens, and returns where: the port may be one that the system chose.
    fn listen(self) -> anyhow::Result<Option<(TcpListener, String)>> {
        let Self::At(address) = self else { return Ok(None) };
        let listener = TcpListener::bind(address).with_context(|| format!("--serve {address}"))?;
        let url = format!("http://{}", listener.local_addr()?);
        Ok(Some((listener, url)))
    }
}

/// What takes half a minute takes seconds.
fn hasty(settings: &mut FleetSettings) {
    settings.probe_after = Duration::from_secs(2);
    settings.probe_timeout = Duration::from_secs(5);
    settings.reconnect_cap = Duration::from_secs(2);
    let mut transport = TransportSettings::default();
    transport.rotation_spread = Duration::from_secs(2);
    settings.transport = transport.into();
}

async fn run(args: Args) -> anyhow::Result<()> {
    let stop = stop_at_signal(None)?;
    let show: Arc<dyn Show> = match args.format {
        Format::Json => Arc::new(json::Json),
        Format::Text if std::io::stdout().is_terminal() => Arc::new(live::Live::default()),
        Format::Text => Arc::new(lines::Lines),
    };
    let backend = args.backend.decide()?;
    let (listener, url) = args.serve.listen()?.unzip();
    let folder = Folder::new()?;
    show.intro(backend::text(backend));
    if let Some(url) = &url {
        show.intro(&format!(
            "The controller's view of them: {url}/clusters and {url}/metrics"
        ));
    }

    // The whole controller: kubeconfig files in, reconciles out.
    let seen = Arc::new(Seen::new(if args.patient { 10 } else { 1 }));
    let controller = Controller::<ConfigMap>::new("demo").build(seen::reconcile, seen.clone());
    let mut manager = Manager::builder()
        .provider(FileProvider::builder().dir(folder.path()).build()?)
        .controller(controller)
        .shutdown_grace(Duration::from_secs(5));
    if args.patient {
        manager = manager.settings(hasty);
    }
    if let Some(listener) = listener {
        manager = manager.serve(listener);
    }
    let manager = manager.build()?;
    let fleet = manager.fleet().clone();
    let managing = tokio::spawn(manager.run_until(stop.clone()));

    let drawing = tokio::spawn(show::redraw(
        show.clone(),
        fleet.clone(),
        seen.clone(),
        stop.clone(),
    ));
    let ended = stop
        .run_until_cancelled(script::run(
            backend,
            url.as_deref(),
            &folder,
            &fleet,
            &seen,
            &*show,
        ))
        .await;
    let (world, summary) = ended.unzip();
    if let Some(summary) = &summary {
        show.clusters(&show::rows(&fleet, &seen));
        show.summary(summary);
        if let Some(Some(world)) = &world
            && summary.ok
            && !args.once
        {
            show.hint(&world.hint(&folder, url.as_deref()));
            stop.cancelled().await;
        }
    }
    // The clusters live until here, and nobody is shown how they all become unreachable.
    stop.cancel();
    let _ = drawing.await;
    managing.await??;
    drop(world);
    match summary {
        Some(summary) if !summary.ok => bail!("the demo failed at: {}", summary.failed()),
        _ => Ok(()),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    // What happens to the clusters is what the demo shows; as a log it would tear the table.
    mcr::args::LogArgs::default().init_log_with("error");
    examples::exit(run(args).await)
}
