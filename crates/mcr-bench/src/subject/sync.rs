//! What the subjects of suite `sync` have in common, and the one with mcr-sync.
//!
//! Each ConfigMap with a counter in a source cluster becomes a ConfigMap in the first cluster of the kubeconfig.

use std::path::PathBuf;

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{ClusterName, ClusterSelector};
use mcr_sync::{NameTemplate, ObjectSync};

/// The name of the context of the target cluster.
pub const TARGET: &str = "cluster-00000";
/// The field of a source that is copied last, and by which sources are selected.
pub const COUNTER: &str = "counter";
/// How many reconciles each subject runs at once.
pub const CONCURRENCY: usize = 64;

/// The arguments of a subject of suite `sync`.
#[derive(clap::Args, Clone, Debug)]
pub struct SyncArgs {
    /// The file whose contexts are the clusters
    #[arg(long)]
    pub kubeconfig: PathBuf,
}

/// Runs a subject until it is killed, or until its stdin ends.
///
/// # Errors
///
/// When it can't start.
pub fn run<F>(args: SyncArgs, subject: impl FnOnce(PathBuf) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    // Only if `RUST_LOG` is set, because logging costs time.
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .init();
    }
    // A subject does not outlive a driver that was killed.
    std::thread::spawn(|| {
        std::io::stdin().lines().for_each(drop);
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(subject(args.kubeconfig))
}

/// The name of the target of a source.
pub fn target_name(cluster: &str, source: &str) -> String {
    format!("{cluster}-{source}")
}

/// Whether a ConfigMap is a source.
pub fn is_source(map: &ConfigMap) -> bool {
    map.data.as_ref().is_some_and(|data| data.contains_key(COUNTER))
}

/// The sync with mcr-sync.
///
/// # Errors
///
/// When the manager can't start, or fails.
pub async fn with_mcr(kubeconfig: PathBuf) -> Result<()> {
    let controller = ObjectSync::<ConfigMap, ConfigMap>::new("bench")
        .from(!ClusterSelector::name(TARGET))
        .to(ClusterName::new(TARGET)?)
        .name_by(NameTemplate::parse("{cluster}-{name}")?)
        .filter(is_source)
        .mirror()
        .build_with(|controller| controller.concurrency(CONCURRENCY))?;
    super::mcr::manage(kubeconfig, vec![controller]).await
}
