//! Real [kind](https://kind.sigs.k8s.io) clusters, which `cargo xtask e2e` makes for a test and removes afterwards.
//!
//! A test asks for them first, and is done where there are none:
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
//! The clusters are shared by all tests: each makes its objects in namespaces of its own, and none stops or deletes a cluster.
//! Nothing here returns errors. What is wrong with the environment is a panic that names it, for it is nothing a test could go on after.

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

/// How long a test waits for anything at most: far longer than it takes, even on a machine that is busy with other things.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The folder of the kubeconfigs. Where it is not set there are no clusters.
const FOLDER: &str = "MCR_E2E";

/// One of the clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum E2eCluster {
    /// A member of the fleet.
    Alpha,
    /// Another one.
    Beta,
    /// Where things that describe a fleet belong.
    Hub,
}

impl E2eCluster {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Alpha, Self::Beta, Self::Hub];

    /// Its name in kind.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alpha => "fleet-alpha",
            Self::Beta => "fleet-beta",
            Self::Hub => "fleet-hub",
        }
    }

    /// The context of its kubeconfig.
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

/// The clusters, and what the environment says about them.
#[derive(Debug, Clone)]
pub struct E2e {
    folder: PathBuf,
}

impl E2e {
    /// The clusters; none where `MCR_E2E` is not set, and then that is said on stderr.
    ///
    /// # Panics
    ///
    /// If it is set and a kubeconfig is missing there.
    #[track_caller]
    pub fn from_env() -> Option<Self> {
        let Some(folder) = env::var_os(FOLDER) else {
            skipped(&test(), "run it with cargo xtask e2e");
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
                "{} is no kubeconfig that works: {why}. `cargo xtask e2e` makes it anew",
                file.display()
            )
        })
    }

    /// Whether Pods run on the nodes. They don't where the node image has a control plane only.
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

    /// kind, for a test that makes clusters of its own.
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

/// How to make clusters.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct E2eKind {
    /// kind's program.
    pub program: PathBuf,
    /// The node image; none: kind's own.
    pub node_image: Option<String>,
    /// The engine's program: `docker`, `podman` or `nerdctl`.
    pub engine: String,
    /// A script that ends (`halt`) and starts (`start`) the engine. Only where that harms nobody else.
    pub control: Option<PathBuf>,
    /// What the names of clusters have to begin with. A test removes those it makes; what it leaves, because it was killed, is found
    /// by this.
    pub prefix: String,
}

/// Says visibly that something did not run, and why. A line that begins with this makes the case a skipped one for
/// `cargo xtask e2e`; where only a part of a test was left out, [`skipped_in_part`] does not.
pub fn skipped(what: &str, why: &str) {
    say(&format!("SKIPPED {what}: {why}"));
}

/// Says visibly that a part of a test did not run, and why.
pub fn skipped_in_part(what: &str, why: &str) {
    say(&format!("SKIPPED in part {what}: {why}"));
}

/// On the real stderr: libtest hides what a test that passes prints with `eprintln!`.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// libtest names a test's thread after it, unless all run in the first one.
#[track_caller]
fn test() -> String {
    let caller = Location::caller();
    match std::thread::current().name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => caller.to_string(),
    }
}

async fn client(kubeconfig: &Path) -> Result<Client, Box<dyn std::error::Error>> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_named_as_kind_names_them() {
        for cluster in E2eCluster::ALL {
            assert_eq!(cluster.context(), format!("kind-{cluster}"));
        }
    }

    #[test]
    fn a_test_is_named_by_its_thread() {
        let name = std::thread::Builder::new()
            .name("module::a_case".to_owned())
            .spawn(test);
        assert_eq!(name.unwrap().join().unwrap(), "module::a_case");
    }
}
