use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;

use super::auth::{SimUser, Users};
use super::clock;
use super::cluster::{ADMIN, SimCluster};
use super::kinds::NAMESPACES;
use super::object::Object;
use super::state::{ClusterState, Settings};
use super::store::Store;

/// Describes a [`SimCluster`].
#[derive(Debug)]
#[must_use = "build() makes the cluster"]
pub struct SimBuilder {
    name: Option<String>,
    seed: Option<u64>,
    template: Option<SimCluster>,
    admin_token: Option<String>,
    users: Vec<(String, SimUser)>,
    settings: Settings,
}

impl Default for SimBuilder {
    fn default() -> Self {
        Self {
            name: None,
            seed: None,
            template: None,
            admin_token: None,
            users: Vec::new(),
            settings: Settings {
                window: 1000,
                bookmark_interval: Duration::from_secs(60),
                watch_timeout: Duration::from_secs(1800),
                audit_limit: 10_000,
                managed_fields: true,
                finish_namespaces: false,
            },
        }
    }
}

impl Default for SimCluster {
    fn default() -> Self {
        Self::new()
    }
}

impl SimCluster {
    /// A cluster with all defaults: the four namespaces of a new Kubernetes cluster, the built-in kinds, and one user
    /// who may do everything.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Describes a cluster.
    pub fn builder() -> SimBuilder {
        SimBuilder::default()
    }
}

impl SimBuilder {
    /// Sets the name of the cluster in kubeconfigs and errors.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Makes UIDs and generated names from this seed, so that they are the same in each run.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts with the objects, CRDs and versions of another cluster. An object's memory is shared until the object is
    /// written: a thousand copies cost little more than one. The four initial namespaces are created again, so that
    /// each cluster has its own identity. History, users and audit log start empty.
    pub fn template(mut self, cluster: &SimCluster) -> Self {
        self.template = Some(cluster.clone());
        self
    }

    /// Sets the bearer token of the user who may do everything. Default: a random token.
    pub fn admin_token(mut self, token: impl Into<String>) -> Self {
        self.admin_token = Some(token.into());
        self
    }

    /// Adds a user with a bearer token.
    pub fn user(mut self, token: impl Into<String>, user: SimUser) -> Self {
        self.users.push((token.into(), user));
        self
    }

    /// Sets how many writes of each resource are kept in the history. Watches, pages and lists of old versions read
    /// the history. Default: 1000. Requests for older versions get 410.
    pub fn history(mut self, writes: usize) -> Self {
        self.settings.window = writes;
        self
    }

    /// Sets how often a watch with bookmarks gets one. Default: each minute.
    pub fn bookmark_interval(mut self, interval: Duration) -> Self {
        self.settings.bookmark_interval = interval;
        self
    }

    /// Sets how many requests the audit log keeps. Default: 10,000; 0 for no log.
    pub fn audit_limit(mut self, requests: usize) -> Self {
        self.settings.audit_limit = requests;
        self
    }

    /// Sets whether writes are tracked in `managedFields`, as in Kubernetes. Default: yes. Without tracking, objects
    /// take less memory. Objects that were applied always have `managedFields`.
    pub fn managed_fields(mut self, on: bool) -> Self {
        self.settings.managed_fields = on;
        self
    }

    /// Sets whether a deleted namespace is emptied and removed at once, as if a controller did it. Default: no. Then a
    /// deleted namespace stays `Terminating` until its `finalize` subresource is written, as in an API server without
    /// controllers.
    pub fn finish_namespaces(mut self, on: bool) -> Self {
        self.settings.finish_namespaces = on;
        self
    }

    /// Makes the cluster.
    pub fn build(self) -> SimCluster {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let seed = self.seed.unwrap_or_else(|| RandomState::new().hash_one(number));
        let window = self.settings.window;
        let store = match &self.template {
            Some(template) => template.inner.store().fork(window),
            None => Store::new(window),
        };
        let mut users = Users::default();
        let token = self.admin_token.unwrap_or_else(|| format!("admin-{seed:016x}"));
        let admin = (token, SimUser::new(ADMIN).group("system:masters"));
        let all = std::iter::once(admin).chain(self.users);
        users
            .tokens
            .extend(all.map(|(token, user)| (token, Arc::new(user))));
        let name = self.name.unwrap_or_else(|| format!("sim-{number}"));
        let state = ClusterState::new(name.into(), seed, self.settings, store, users);
        make_namespaces(&state);
        SimCluster {
            inner: Arc::new(state),
        }
    }
}

/// Creates the four namespaces of every cluster, without history. A copy of another cluster gets them with new UIDs,
/// because the UID of kube-system is the identity of a cluster.
fn make_namespaces(state: &ClusterState) {
    let resource: Arc<str> = NAMESPACES.into();
    let now = clock::now();
    let mut store = state.store();
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        let namespace = json!({
            "metadata": {
                "name": name, "uid": state.uid(), "creationTimestamp": now,
                "labels": { "kubernetes.io/metadata.name": name },
            },
            "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" },
        });
        let object = Arc::new(Object::new("", namespace, store.next_version()));
        store.put(&resource, object);
    }
    let version = store.version;
    store.compact_resource(&resource, version);
}
