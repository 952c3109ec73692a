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

use std::env;
use std::fmt;
use std::io::Write;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource};

/// How long a test waits for anything at most: far longer than it takes, even on a machine that is busy with other things.
pub const DEADLINE: Duration = Duration::from_secs(60);

const ASKED: &str = "mcr-e2e";
const ANSWERED: &str = "cluster";

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

    /// Makes a namespace that nobody else has. `purpose` is part of its name.
    ///
    /// # Panics
    ///
    /// If the cluster does not answer, and if it refuses the name.
    pub async fn namespace(&self, cluster: E2eCluster, purpose: &str) -> E2eNamespace {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("e2e-{purpose}-{}-{count}", std::process::id());
        let namespaces = Api::<Namespace>::all(self.client(cluster).await);
        let object = Namespace {
            metadata: named(&name),
            ..Namespace::default()
        };
        let made = match namespaces.create(&PostParams::default(), &object).await {
            Ok(made) => made,
            Err(error) => panic!("the namespace {name} can't be made in {cluster}: {error}"),
        };
        E2eNamespace {
            name,
            owner: made.owner_ref(&()),
            asked: format!("{purpose}-{}", std::process::id()),
            namespaces,
            kubeconfig: self.kubeconfig(cluster),
            kubectl: self.kubectl(),
            removed: false,
        }
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

/// A namespace of a test. [`remove`](Self::remove) it at the end; dropped, as after a panic, it is removed if possible.
#[derive(Debug)]
pub struct E2eNamespace {
    name: String,
    /// What the ConfigMaps of the test are labelled with, in all its namespaces.
    asked: String,
    /// For what is not in it and has to go with it.
    owner: Option<OwnerReference>,
    namespaces: Api<Namespace>,
    kubeconfig: PathBuf,
    kubectl: PathBuf,
    removed: bool,
}

impl E2eNamespace {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Selects the ConfigMaps of [`ask`](Self::ask), in this and all other namespaces that were made for the same purpose.
    pub fn selector(&self) -> String {
        format!("{ASKED}={}", self.asked)
    }

    /// Makes a ConfigMap that waits for an [`answer`], or makes it wait for another one.
    ///
    /// # Panics
    ///
    /// If the cluster does not take it.
    pub async fn ask(&self, name: &str) {
        let map = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {ASKED: self.asked}},
            "data": {ANSWERED: ""},
        });
        let params = PatchParams::apply("mcr-e2e").force();
        if let Err(error) = self.maps().patch(name, &params, &Patch::Apply(map)).await {
            panic!("the ConfigMap {}/{name} can't be made: {error}", self.name);
        }
    }

    /// Waits until a ConfigMap was answered by the cluster of this name.
    ///
    /// # Panics
    ///
    /// If it is not within the [`DEADLINE`].
    pub async fn answered(&self, name: &str, by: &str) {
        let maps = self.maps();
        let started = tokio::time::Instant::now();
        let mut last = String::from("nothing");
        while started.elapsed() < DEADLINE {
            match maps.get(name).await {
                Ok(map) => match map.data.unwrap_or_default().remove(ANSWERED) {
                    Some(answer) if answer == by => return,
                    answer => last = format!("{answer:?}"),
                },
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!(
            "the ConfigMap {}/{name} is not answered by {by} within {DEADLINE:?}: {last}",
            self.name
        );
    }

    /// Makes a ServiceAccount that has a ClusterRole in the whole cluster. It loses that with the namespace.
    ///
    /// # Panics
    ///
    /// If the cluster does not take it.
    pub async fn account(&self, name: &str, cluster_role: &str) {
        let account = ServiceAccount {
            metadata: named(name),
            ..ServiceAccount::default()
        };
        let binding = ClusterRoleBinding {
            metadata: ObjectMeta {
                owner_references: self.owner.clone().map(|owner| vec![owner]),
                ..named(&format!("{}-{name}", self.name))
            },
            role_ref: RoleRef {
                api_group: Some("rbac.authorization.k8s.io".to_owned()),
                kind: "ClusterRole".to_owned(),
                name: cluster_role.to_owned(),
            },
            subjects: Some(vec![self.subject(name)]),
        };
        let accounts = self.api::<ServiceAccount>();
        let bindings = Api::<ClusterRoleBinding>::all(self.namespaces.clone().into_client());
        let made = match accounts.create(&PostParams::default(), &account).await {
            Ok(_) => bindings.create(&PostParams::default(), &binding).await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = made {
            panic!(
                "the ServiceAccount {}/{name} can't be made a {cluster_role}: {error}",
                self.name
            );
        }
    }

    /// A ServiceAccount that is in it, as bindings name it.
    pub fn subject(&self, account: &str) -> Subject {
        Subject {
            kind: "ServiceAccount".to_owned(),
            name: account.to_owned(),
            namespace: Some(self.name.clone()),
            ..Subject::default()
        }
    }

    /// A kubeconfig with a new token of a ServiceAccount that is in it, good for an hour.
    ///
    /// # Panics
    ///
    /// If the cluster gives none, or its own kubeconfig is not usable.
    pub async fn kubeconfig(&self, account: &str) -> String {
        let accounts = self.api::<ServiceAccount>();
        let (params, request) = (PostParams::default(), TokenRequest::default());
        let answer = accounts.create_token_request(account, &params, &request).await;
        let token = match answer {
            Ok(answer) => answer.status.unwrap_or_default().token,
            Err(error) => panic!("no token for the ServiceAccount {}/{account}: {error}", self.name),
        };
        let clusters = match Kubeconfig::read_from(&self.kubeconfig) {
            Ok(kubeconfig) => kubeconfig.clusters,
            Err(error) => panic!("{}: {error}", self.kubeconfig.display()),
        };
        let cluster = clusters.first().map(|cluster| &cluster.name);
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": account,
            "clusters": clusters,
            "contexts": [{"name": account, "context": {"cluster": cluster, "user": account, "namespace": self.name}}],
            "users": [{"name": account, "user": {"token": token}}],
        });
        kubeconfig.to_string()
    }

    /// An API of what is in it, with the administrator's rights.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.namespaces.clone().into_client(), &self.name)
    }

    fn maps(&self) -> Api<ConfigMap> {
        self.api()
    }

    /// Has it deleted with all that is in it, and does not wait for that.
    ///
    /// # Panics
    ///
    /// If the cluster does not do it.
    pub async fn remove(mut self) {
        self.removed = true;
        let deleted = self.namespaces.delete(&self.name, &DeleteParams::default()).await;
        if let Err(error) = deleted
            && !matches!(&error, kube::Error::Api(status) if status.code == 404)
        {
            panic!("the namespace {} can't be deleted: {error}", self.name);
        }
    }
}

impl Drop for E2eNamespace {
    fn drop(&mut self) {
        if self.removed {
            return;
        }
        // The runtime of the client may be gone, and nothing can be awaited here.
        let deleted = Command::new(&self.kubectl)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["delete", "namespace", &self.name])
            .args(["--wait=false", "--ignore-not-found", "--request-timeout=10s"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !deleted.is_ok_and(|status| status.success()) {
            say(&format!("the namespace {} stays", self.name));
        }
    }
}

/// What a reconciler under test does with a ConfigMap of [`E2eNamespace::ask`]: it writes down which cluster it found it in.
///
/// # Errors
///
/// What the API server says.
pub async fn answer(maps: &Api<ConfigMap>, name: &str, cluster: &str) -> Result<(), kube::Error> {
    let patch = Patch::Merge(serde_json::json!({"data": {ANSWERED: cluster}}));
    maps.patch(name, &PatchParams::default(), &patch).await.map(drop)
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

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
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
