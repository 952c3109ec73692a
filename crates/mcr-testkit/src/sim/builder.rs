use std::time::Duration;

use serde_json::Value;

use super::auth::SimUser;
use super::cluster::{Settings, SimCluster};
use super::error::SimError;

/// Describes a [`SimCluster`].
#[derive(Debug)]
#[must_use = "build() makes the cluster"]
pub struct SimBuilder {
    pub(super) name: Option<String>,
    pub(super) seed: Option<u64>,
    pub(super) template: Option<SimCluster>,
    pub(super) admin_token: Option<String>,
    pub(super) users: Vec<(String, SimUser)>,
    pub(super) anonymous: bool,
    pub(super) settings: Settings,
}

impl Default for SimBuilder {
    fn default() -> Self {
        Self {
            name: None,
            seed: None,
            template: None,
            admin_token: None,
            users: Vec::new(),
            anonymous: true,
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

impl SimBuilder {
    /// The name that its kubeconfig and errors show.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Makes UIDs and generated names the same in each run.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts with the objects, CRDs and versions of another cluster. Memory is shared until an object
    /// is written to: a thousand copies cost little more than one. The namespaces of every cluster are
    /// made anew, so that each has its own identity; history, users and audit log start empty.
    pub fn template(mut self, cluster: &SimCluster) -> Self {
        self.template = Some(cluster.clone());
        self
    }

    /// The bearer token of the user who may do everything. Without this it is made up.
    pub fn admin_token(mut self, token: impl Into<String>) -> Self {
        self.admin_token = Some(token.into());
        self
    }

    /// Adds a user with a bearer token.
    pub fn user(mut self, token: impl Into<String>, user: SimUser) -> Self {
        self.users.push((token.into(), user));
        self
    }

    /// Whether requests without credentials are `system:anonymous`, who may see `/version` and the
    /// health paths and gets 403 else, as in Kubernetes by default; or get 401.
    pub fn anonymous(mut self, allowed: bool) -> Self {
        self.anonymous = allowed;
        self
    }

    /// How many writes of each resource are remembered, for watches to go on from and pages and old
    /// lists to be made of: 1000 by default. What is older answers 410.
    pub fn history(mut self, writes: usize) -> Self {
        self.settings.window = writes;
        self
    }

    /// How often a watch that wants bookmarks gets one: each minute by default.
    pub fn bookmark_interval(mut self, interval: Duration) -> Self {
        self.settings.bookmark_interval = interval;
        self
    }

    /// When a watch ends that names no `timeoutSeconds`: after half an hour by default.
    pub fn watch_timeout(mut self, timeout: Duration) -> Self {
        self.settings.watch_timeout = timeout;
        self
    }

    /// How many requests the audit log remembers: 10,000 by default, 0 for no log.
    pub fn audit_limit(mut self, requests: usize) -> Self {
        self.settings.audit_limit = requests;
        self
    }

    /// Whether writes are tracked in `managedFields`, as in Kubernetes; on by default. Off saves some
    /// memory. Applied objects have them in any case.
    pub fn managed_fields(mut self, on: bool) -> Self {
        self.settings.managed_fields = on;
        self
    }

    /// Whether a deleted namespace is emptied and removed at once, as if a controller did it. Off by
    /// default: like an API server without controllers it stays `Terminating` until its `finalize`
    /// subresource is written.
    pub fn finish_namespaces(mut self, on: bool) -> Self {
        self.settings.finish_namespaces = on;
        self
    }

    /// Makes the cluster.
    pub fn build(self) -> SimCluster {
        SimCluster::make(self)
    }

    /// Makes the cluster with these objects in it, CRDs first.
    ///
    /// # Errors
    ///
    /// As [`SimCluster::create`].
    pub fn build_with(self, objects: impl IntoIterator<Item = Value>) -> Result<SimCluster, SimError> {
        let cluster = self.build();
        for object in objects {
            cluster.create(object)?;
        }
        Ok(cluster)
    }
}
