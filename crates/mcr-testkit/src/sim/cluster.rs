use std::sync::Arc;

use serde_json::{Value, json};

use super::auth::SimUser;
use super::error::SimError;
use super::kinds::{Kind, NAMESPACES};
use super::query::{ListOptions, Query};
use super::service::SimService;
use super::state::ClusterState;
use super::write::{Verb, Write};
use super::{list, object};
use crate::audit::AuditLog;

/// One simulated cluster: an API server that stores its data in memory.
///
/// Cheap to clone. Clones are the same cluster. It has no tasks and no sockets of its own.
#[derive(Clone)]
pub struct SimCluster {
    #[doc(hidden)]
    pub inner: Arc<ClusterState>,
}

impl SimCluster {
    /// The name of the cluster.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// A client of the user who may do everything, without sockets. Must be called within a Tokio runtime.
    pub fn client(&self) -> kube::Client {
        self.client_with_token(&self.admin_token())
    }

    /// A client of the user with this token; see [`set_user`](Self::set_user). Requests with an unknown token get 401.
    pub fn client_with_token(&self, token: &str) -> kube::Client {
        kube::Client::new(self.service().with_token(token), "default")
    }

    /// The API server as a tower service. Requests need a token, unless
    /// [`with_token`](SimService::with_token) adds it.
    pub fn service(&self) -> SimService {
        SimService::new(self.inner.clone())
    }

    /// The token of the user who may do everything.
    pub fn admin_token(&self) -> String {
        self.inner.users().token_of(ADMIN).unwrap_or_default()
    }

    /// Adds the user of a bearer token, or replaces it. Rules are checked when a request starts.
    pub fn set_user(&self, token: impl Into<String>, user: SimUser) {
        self.inner.users().tokens.insert(token.into(), Arc::new(user));
    }

    /// Makes the holder of a client certificate a user of this cluster; see
    /// [`SimTls::client_certificate`](super::SimTls::client_certificate).
    pub fn set_certificate_user(&self, certificate: &super::SimCertificate, user: SimUser) {
        let mut users = self.inner.users();
        users.certificates.insert(certificate.der.clone(), Arc::new(user));
    }

    /// Removes the user of a token: new requests get 401. Open watches continue, as in Kubernetes.
    pub fn remove_user(&self, token: &str) -> bool {
        self.inner.users().tokens.remove(token).is_some()
    }

    /// The UID of the kube-system namespace, which is the identity of the cluster.
    pub fn uid(&self) -> String {
        let store = self.inner.store();
        let object = store.get(NAMESPACES, "kube-system");
        object.map_or_else(String::new, |object| {
            object::text(&object.value(), "uid").to_owned()
        })
    }

    /// The resource version of the last write.
    pub fn resource_version(&self) -> u64 {
        self.inner.store().version
    }

    /// Drops the history up to a version, like a compaction of etcd. Watches, pages and lists from an older version
    /// get 410.
    pub fn compact(&self, version: u64) {
        self.inner.store().compact(version);
    }

    /// How many watches are open.
    pub fn watches(&self) -> usize {
        self.inner.open_watches()
    }

    /// The requests so far.
    pub fn audit(&self) -> AuditLog {
        self.inner.audit()
    }

    /// Ends all open watches, as a restart of the server would.
    pub fn end_watches(&self) {
        self.inner.end_watches();
    }

    /// Creates an object without a request: without authorisation, and without an entry in the audit log.
    ///
    /// # Errors
    ///
    /// With the error that an API server answers.
    pub fn create(&self, object: Value) -> Result<Value, SimError> {
        let kind = self.kind_of(&object)?;
        let namespace = self.namespace_of(&kind, &object);
        self.write(&kind, &namespace, "", Verb::Create(object))
    }

    /// Puts an object into the store without any check, as from a restored backup of etcd. The object must have its
    /// UID, times, status and `managedFields`. It gets a new version.
    ///
    /// ```
    /// # use mcr_testkit::sim::SimCluster;
    /// # use serde_json::json;
    /// let cluster = SimCluster::new();
    /// let pod = json!({
    ///     "apiVersion": "v1", "kind": "Pod",
    ///     "metadata": { "name": "a", "namespace": "default", "uid": "u-1", "creationTimestamp": "2026-01-02T03:04:05Z" },
    ///     "status": { "phase": "Running" },
    /// });
    /// cluster.restore(pod)?;
    /// # Ok::<(), mcr_testkit::sim::SimError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When no such kind is served.
    pub fn restore(&self, object: Value) -> Result<(), SimError> {
        let kind = self.kind_of(&object)?;
        let mut store = self.inner.store();
        let object = object::Object::new(&self.inner.part, object, store.next_version());
        store.put(&kind.table, Arc::new(object));
        Ok(())
    }

    /// Replaces an object. An object without `resourceVersion` replaces the newest state, for every kind.
    ///
    /// # Errors
    ///
    /// With the error that an API server answers.
    pub fn update(&self, mut object: Value) -> Result<Value, SimError> {
        let kind = self.kind_of(&object)?;
        let namespace = self.namespace_of(&kind, &object);
        let name = object::text(&object, "name").to_owned();
        if object::text(&object, "resourceVersion").is_empty() {
            let key = self.inner.key(&namespace, &name);
            if let Some(live) = self.inner.store().get(&kind.table, &key) {
                let version = live.version.to_string();
                object::metadata_mut(&mut object).insert("resourceVersion".to_owned(), version.into());
            }
        }
        self.write(&kind, &namespace, &name, Verb::Update(object))
    }

    /// Applies an object by force, as the field manager `sim`. Creates the object, or changes the fields that are in
    /// `object`.
    ///
    /// # Errors
    ///
    /// With the error that an API server answers.
    pub fn apply(&self, object: Value) -> Result<Value, SimError> {
        let kind = self.kind_of(&object)?;
        let namespace = self.namespace_of(&kind, &object);
        let name = object::text(&object, "name").to_owned();
        self.write(&kind, &namespace, &name, Verb::Apply { object, force: true })
    }

    /// Deletes an object by resource (`configmaps`, `widgets.example.com`) and key (`namespace/name` or `name`). An
    /// object with finalizers is only marked as deleted.
    ///
    /// # Errors
    ///
    /// With the error that an API server answers.
    pub fn delete(&self, resource: &str, key: &str) -> Result<(), SimError> {
        let kind = self.kind_named(resource)?;
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        self.write(&kind, namespace, name, Verb::Delete(json!({})))
            .map(drop)
    }

    /// An object by resource and key.
    pub fn get(&self, resource: &str, key: &str) -> Option<Value> {
        let kind = self.kind_named(resource).ok()?;
        let store = self.inner.store();
        store
            .get(&kind.table, &format!("{}{key}", self.inner.prefix("")))
            .map(|object| object.value_as(&kind))
    }

    /// All objects of a resource in a namespace, or in all namespaces for `""`, in the order of a list.
    pub fn list(&self, resource: &str, namespace: &str) -> Vec<Value> {
        let Ok(kind) = self.kind_named(resource) else {
            return Vec::new();
        };
        let store = self.inner.store();
        let Ok(options) = ListOptions::parse(&kind, &Query::default()) else {
            return Vec::new();
        };
        let page = list::list(&store, &kind, &self.inner.prefix(namespace), &options);
        page.map(|page| page.objects.iter().map(|object| object.value_as(&kind)).collect())
            .unwrap_or_default()
    }

    fn write(&self, kind: &Arc<Kind>, namespace: &str, name: &str, verb: Verb) -> Result<Value, SimError> {
        let done = Write::new(&self.inner, kind, namespace, name, "sim").run(verb)?;
        Ok(done.object.value_as(kind))
    }

    fn kind_of(&self, object: &Value) -> Result<Arc<Kind>, SimError> {
        let word = |field: &str| object[field].as_str().unwrap_or_default();
        let kinds = self.inner.kinds(&self.inner.store());
        let found = kinds.of_object(word("apiVersion"), word("kind"));
        found.ok_or_else(SimError::no_such_resource)
    }

    fn kind_named(&self, resource: &str) -> Result<Arc<Kind>, SimError> {
        let found = self.inner.kinds(&self.inner.store()).of_resource(resource);
        found.ok_or_else(SimError::no_such_resource)
    }

    fn namespace_of(&self, kind: &Kind, object: &Value) -> String {
        match object::text(object, "namespace") {
            _ if !kind.namespaced => String::new(),
            "" => "default".to_owned(),
            namespace => namespace.to_owned(),
        }
    }
}

pub(super) const ADMIN: &str = "admin";

impl std::fmt::Debug for SimCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.inner, f)
    }
}
