//! Real [kind](https://kind.sigs.k8s.io) clusters, which `cargo xtask e2e` makes for a test and removes afterwards.
//!
//! A test requests the clusters first, and returns if there are none:
//!
//! ```no_run
//! use mcr_testkit::e2e::{E2e, E2eCluster};
//!
//! # async fn test() {
//! let Some(e2e) = E2e::from_env() else { return };
//! let namespace = e2e.namespace(E2eCluster::Hub, "rotation").await;
//! let hub = e2e.client(E2eCluster::Hub).await;
//! // …
//! namespace.remove().await;
//! # }
//! ```
//!
//! All tests share the clusters. Each test makes its objects in its own namespaces, and no test stops or deletes a
//! cluster. Nothing here returns errors: a fault of the environment is a panic with its cause, because the test could
//! not continue.

mod namespace;

pub use namespace::{E2eNamespace, answer};

use std::env;
use std::fmt;
use std::io::Write;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// How long a test waits for a result. This is much longer than any result takes, even on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The variable with the folder of the kubeconfigs. If it is not set, there are no clusters.
const FOLDER: &str = "MCR_E2E";

/// One of the clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum E2eCluster {
    /// A member of the fleet.
    Alpha,
    /// Another member of the fleet.
    Beta,
    /// The hub: the cluster with the objects that describe a fleet.
    Hub,
}

impl E2eCluster {
    /// All clusters.
    pub const ALL: [Self; 3] = [Self::Alpha, Self::Beta, Self::Hub];

    /// The name of the cluster in kind.
    pub fn name(self) -> &'static str {
        self.context().trim_start_matches("kind-")
    }

    /// The context in the kubeconfig of the cluster.
    pub const fn context(self) -> &'static str {
        match self {
            Self::Alpha => "kind-fleet-alpha",
            Self::Beta => "kind-fleet-beta",
            Self::Hub => "kind-fleet-hub",
        }
    }
}

impl fmt::Display for E2eCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The clusters, and the settings of the environment for them.
#[derive(Debug, Clone)]
pub struct E2e {
    folder: PathBuf,
}

impl E2e {
    /// The clusters. `None` if `MCR_E2E` is not set; a line on standard error then reports that the test is skipped.
    ///
    /// # Panics
    ///
    /// If `MCR_E2E` is set and a kubeconfig is missing in that folder.
    #[track_caller]
    pub fn from_env() -> Option<Self> {
        let Some(folder) = env::var_os(FOLDER) else {
            skipped(&test_name(), "run it with cargo xtask e2e");
            return None;
        };
        let e2e = Self {
            folder: folder.into(),
        };
        let files = E2eCluster::ALL.map(|cluster| e2e.kubeconfig(cluster));
        for file in files.iter().chain([&e2e.all_kubeconfig()]) {
            assert!(
                file.is_file(),
                "{FOLDER} is {}, and there is no {} in it: `cargo xtask e2e` makes the folder and the clusters",
                e2e.folder.display(),
                file.file_name().unwrap_or_default().display(),
            );
        }
        Some(e2e)
    }

    /// The administrator's kubeconfig of a cluster.
    pub fn kubeconfig(&self, cluster: E2eCluster) -> PathBuf {
        self.folder.join(format!("{cluster}.kubeconfig"))
    }

    /// A kubeconfig with a context for each member of the fleet, without the hub.
    pub fn all_kubeconfig(&self) -> PathBuf {
        self.folder.join("all.kubeconfig")
    }

    /// A client of a cluster, as its administrator.
    ///
    /// # Panics
    ///
    /// If its kubeconfig is not usable.
    pub async fn client(&self, cluster: E2eCluster) -> Client {
        let file = self.kubeconfig(cluster);
        client(&file).await.unwrap_or_else(|why| {
            panic!(
                "{} does not work: {why}. `cargo xtask e2e` creates it again",
                file.display()
            )
        })
    }

    /// Whether Pods run on the nodes. They don't if the node image only contains a control plane.
    pub fn pods_can_run(&self) -> bool {
        env::var_os("MCR_E2E_PODS").is_some_and(|value| value == "1")
    }

    /// The `kubectl` of the test binaries, else the one on `PATH`.
    pub fn kubectl(&self) -> PathBuf {
        env::var_os("KUBEBUILDER_ASSETS")
            .map(|folder| Path::new(&folder).join("kubectl"))
            .filter(|program| program.is_file())
            .unwrap_or_else(|| "kubectl".into())
    }

    /// The settings of kind, for a test that makes its own clusters.
    ///
    /// # Panics
    ///
    /// If `MCR_KIND` is not set.
    pub fn kind(&self) -> E2eKind {
        let Some(program) = env::var_os("MCR_KIND") else {
            panic!("MCR_KIND is not set: `cargo xtask e2e` sets it to kind's program");
        };
        E2eKind {
            program: program.into(),
            node_image: env::var("MCR_NODE_IMAGE").ok(),
            engine: env::var("KIND_EXPERIMENTAL_PROVIDER").unwrap_or_else(|_| "docker".to_owned()),
            control: env::var_os("MCR_ENGINE").map(PathBuf::from),
            prefix: env::var("MCR_E2E_PREFIX").unwrap_or_else(|_| format!("mcr-e2e-{}-", std::process::id())),
        }
    }
}

/// The programs and settings to make kind clusters with.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct E2eKind {
    /// kind's program.
    pub program: PathBuf,
    /// The node image. `None`: the default image of kind.
    pub node_image: Option<String>,
    /// The engine's program: `docker`, `podman` or `nerdctl`.
    pub engine: String,
    /// A script that stops (`halt`) and starts (`start`) the engine. Set only if nobody else uses the engine.
    pub control: Option<PathBuf>,
    /// The required prefix of the names of clusters. A test removes its clusters at the end. `cargo xtask e2e` finds
    /// the clusters of a killed test by this prefix.
    pub prefix: String,
}

/// Prints that a test did not run, and why. `cargo xtask e2e` then counts the test as skipped. For a part of a test,
/// use [`skipped_in_part`], which is not counted.
pub fn skipped(what: &str, why: &str) {
    print(&format!("SKIPPED {what}: {why}"));
}

/// Prints that a part of a test did not run, and why.
pub fn skipped_in_part(what: &str, why: &str) {
    print(&format!("SKIPPED in part {what}: {why}"));
}

/// Writes to the real stderr, because libtest hides what a passing test prints with `eprintln!`.
fn print(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The name of the running test. libtest gives it to the thread of the test, unless all tests run in the main thread;
/// then this is the place of the call.
#[track_caller]
fn test_name() -> String {
    let caller = Location::caller();
    match std::thread::current().name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => caller.to_string(),
    }
}

async fn client(kubeconfig: &Path) -> Result<Client, Box<dyn std::error::Error>> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    mcr_access::crypto::install_default()?;
    Ok(Client::try_from(config)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_named_by_its_thread() {
        let name = std::thread::Builder::new()
            .name("module::a_case".to_owned())
            .spawn(test_name);
        assert_eq!(name.unwrap().join().unwrap(), "module::a_case");
    }
}
