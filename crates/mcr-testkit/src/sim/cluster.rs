use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::audit::{COMPLETE, Pending, SimAuditEvent, SimAuditLog};
use super::auth::{SimUser, Users};
use super::builder::SimBuilder;
use super::error::SimError;
use super::kinds::{Kind, NAMESPACES};
use super::list;
use super::object::{self, Object};
use super::query::{ListOptions, Query};
use super::store::Store;
use super::write::{Verb, Write};
use super::{clock, service};

/// One simulated cluster: an API server over memory.
///
/// Cheap to clone; clones are the same cluster. It has no task and no socket of its own.
#[derive(Clone)]
pub struct SimCluster {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) name: Arc<str>,
    pub(super) settings: Settings,
    store: Mutex<Store>,
    users: Mutex<Users>,
    audit: Mutex<SimAuditLog>,
    ids: Ids,
    watches: AtomicUsize,
    watch_numbers: AtomicU64,
    /// Watches of an older one end.
    epoch: AtomicU64,
}

/// What a builder sets.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) window: usize,
    pub(super) bookmark_interval: Duration,
    pub(super) watch_timeout: Duration,
    pub(super) audit_limit: usize,
    pub(super) managed_fields: bool,
    pub(super) finish_namespaces: bool,
}

/// Makes UIDs and suffixes of names.
#[derive(Debug)]
struct Ids {
    seed: u64,
    count: AtomicU64,
}

impl Ids {
    fn next(&self) -> u64 {
        // splitmix64: well spread, and the same again for the same seed.
        let count = self.count.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let mut mixed = self.seed.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// The lock of a cluster's data. Watches that a write woke are told once it is free.
pub(super) struct StoreGuard<'a>(Option<MutexGuard<'a, Store>>);

impl std::ops::Deref for StoreGuard<'_> {
    type Target = Store;
    fn deref(&self) -> &Store {
        match &self.0 {
            Some(store) => store,
            None => unreachable!("taken in drop only"),
        }
    }
}

impl std::ops::DerefMut for StoreGuard<'_> {
    fn deref_mut(&mut self) -> &mut Store {
        match &mut self.0 {
            Some(store) => store,
            None => unreachable!("taken in drop only"),
        }
    }
}

impl Drop for StoreGuard<'_> {
    fn drop(&mut self) {
        let Some(mut store) = self.0.take() else { return };
        let wakes = std::mem::take(&mut store.wakes);
        drop(store);
        for waker in wakes {
            waker.wake();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Writes to a store are made at their end, in one step: a panic before spoils nothing.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    pub(super) fn store(&self) -> StoreGuard<'_> {
        StoreGuard(Some(lock(&self.store)))
    }

    pub(super) fn users(&self) -> MutexGuard<'_, Users> {
        lock(&self.users)
    }

    pub(super) fn next_watch(&self) -> u64 {
        self.watches.fetch_add(1, Ordering::Relaxed);
        self.watch_numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn watch_ended(&self) {
        self.watches.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(super) fn audit_push(&self, event: SimAuditEvent) {
        lock(&self.audit).push(event, self.settings.audit_limit);
    }

    pub(super) fn audit_end(&self, Pending(mut event): Pending) {
        event.stage = COMPLETE;
        self.audit_push(*event);
    }

    pub(super) fn uid(&self) -> String {
        let (high, low) = (self.ids.next(), self.ids.next());
        let low = (low & 0x3fff_ffff_ffff_ffff) | 0x8000_0000_0000_0000;
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
    }

    /// Five characters as `generateName` adds them.
    pub(super) fn suffix(&self) -> String {
        const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut random = self.ids.next();
        let letters = std::iter::from_fn(|| {
            let index = usize::try_from(random % 27).ok()?;
            random /= 27;
            LETTERS.get(index).map(|letter| char::from(*letter))
        });
        letters.take(5).collect()
    }
}

impl Default for SimCluster {
    fn default() -> Self {
        Self::new()
    }
}

impl SimCluster {
    /// A cluster with all defaults: the four namespaces of a fresh Kubernetes, the built-in kinds,
    /// one user who may do everything.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Describes a cluster.
    pub fn builder() -> SimBuilder {
        SimBuilder::default()
    }

    pub(super) fn make(builder: SimBuilder) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let seed = builder
            .seed
            .unwrap_or_else(|| RandomState::new().hash_one(number));
        let window = builder.settings.window;
        let store = match &builder.template {
            Some(template) => template.inner.store().fork(window),
            None => Store::new(window),
        };
        let mut users = Users::default();
        users.anonymous = builder.anonymous;
        let token = builder
            .admin_token
            .unwrap_or_else(|| format!("admin-{seed:016x}"));
        users.set_token(token, SimUser::new(ADMIN).group("system:masters"));
        for (token, user) in builder.users {
            users.set_token(token, user);
        }
        let name = builder.name.unwrap_or_else(|| format!("sim-{number}"));
        let inner = Inner {
            name: name.into(),
            settings: builder.settings,
            store: Mutex::new(store),
            users: Mutex::new(users),
            audit: Mutex::default(),
            ids: Ids {
                seed,
                count: AtomicU64::new(0),
            },
            watches: AtomicUsize::new(0),
            watch_numbers: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
        };
        let cluster = Self {
            inner: Arc::new(inner),
        };
        cluster.make_namespaces();
        cluster
    }

    /// The namespaces that make it a cluster; they have no history. Also in a copy of another
    /// cluster, where they get UIDs of their own: the one of kube-system tells clusters apart.
    fn make_namespaces(&self) {
        let resource: Arc<str> = NAMESPACES.into();
        let now = clock::now();
        let mut store = self.inner.store();
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let namespace = json!({
                "metadata": {
                    "name": name, "uid": self.inner.uid(), "creationTimestamp": now,
                    "labels": { "kubernetes.io/metadata.name": name },
                },
                "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" },
            });
            let object = Arc::new(Object::new(namespace, store.next_version()));
            store.put(&resource, object);
        }
        let version = store.version;
        store.compact_resource(&resource, version);
    }

    /// The name it was given.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// A client of the user who may do everything, without sockets. It must be made within a Tokio
    /// runtime.
    pub fn client(&self) -> kube::Client {
        self.client_with_token(&self.admin_token())
    }

    /// A client of the user of a token; see [`set_user`](Self::set_user). An unknown token gets 401.
    pub fn client_with_token(&self, token: &str) -> kube::Client {
        kube::Client::new(self.service().with_token(token), "default")
    }

    /// The API server as a tower service. Requests need a token, unless
    /// [`with_token`](service::SimService::with_token) adds it.
    pub fn service(&self) -> service::SimService {
        service::SimService::new(self.clone())
    }

    /// The token of the user who may do everything.
    pub fn admin_token(&self) -> String {
        self.inner.users().token_of(ADMIN).unwrap_or_default()
    }

    /// Adds the user of a bearer token, or replaces it: rules are looked at when a request starts.
    pub fn set_user(&self, token: impl Into<String>, user: SimUser) {
        self.inner.users().set_token(token.into(), user);
    }

    /// Makes the holder of a client certificate a user of this cluster; see
    /// [`SimTls::client_certificate`](super::SimTls::client_certificate).
    pub fn set_certificate_user(&self, certificate: &super::SimCertificate, user: SimUser) {
        self.inner.users().set_certificate(certificate.der.clone(), user);
    }

    /// Makes a token unknown: requests get 401 from now on. Open watches go on, as in Kubernetes.
    pub fn remove_user(&self, token: &str) -> bool {
        self.inner.users().remove_token(token)
    }

    /// The UID of the kube-system namespace, which stands for the identity of the cluster.
    pub fn uid(&self) -> String {
        let store = self.inner.store();
        let object = store.get(NAMESPACES, "kube-system");
        object.map_or_else(String::new, |object| {
            object::text(&object.value(), "uid").to_owned()
        })
    }

    /// The version of the last write.
    pub fn resource_version(&self) -> u64 {
        self.inner.store().version
    }

    /// Forgets history up to a version, as etcd's compaction does: older places of watches, pages and
    /// lists get 410.
    pub fn compact(&self, version: u64) {
        self.inner.store().compact(version);
    }

    /// How many watches are open.
    pub fn watches(&self) -> usize {
        self.inner.watches.load(Ordering::Relaxed)
    }

    /// How many objects there are.
    pub fn objects(&self) -> usize {
        self.inner.store().object_count()
    }

    /// The requests so far.
    pub fn audit(&self) -> SimAuditLog {
        lock(&self.inner.audit).clone()
    }

    /// Ends all open watches, as a restart of the server would.
    pub fn end_watches(&self) {
        let mut store = self.inner.store();
        self.inner.epoch.fetch_add(1, Ordering::AcqRel);
        store.wake_all();
    }

    /// Creates an object without a request: not authorised, not in the audit log.
    ///
    /// # Errors
    ///
    /// As the API server's.
    pub fn create(&self, object: Value) -> Result<Value, SimError> {
        let kind = self.kind_of(&object)?;
        let namespace = self.namespace_of(&kind, &object);
        self.write(&kind, &namespace, "", Verb::Create(object))
    }

    /// Replaces an object. Without a `resourceVersion` the newest one is meant, for every kind.
    ///
    /// # Errors
    ///
    /// As the API server's.
    pub fn update(&self, mut object: Value) -> Result<Value, SimError> {
        let kind = self.kind_of(&object)?;
        let namespace = self.namespace_of(&kind, &object);
        let name = object::text(&object, "name").to_owned();
        if object::text(&object, "resourceVersion").is_empty() {
            let key = object::key(&namespace, &name);
            if let Some(live) = self.inner.store().get(&kind.resource, &key) {
                let version = live.version.to_string();
                object::metadata_mut(&mut object).insert("resourceVersion".to_owned(), version.into());
            }
        }
        self.write(&kind, &namespace, &name, Verb::Update(object))
    }

    /// Applies an object by force, as the field manager `sim`: creates it, or changes what it names.
    ///
    /// # Errors
    ///
    /// As the API server's.
    pub fn apply(&self, object: Value) -> Result<Value, SimError> {
        let kind = self.kind_of(&object)?;
        let namespace = self.namespace_of(&kind, &object);
        let name = object::text(&object, "name").to_owned();
        self.write(&kind, &namespace, &name, Verb::Apply { object, force: true })
    }

    /// Deletes an object by resource (`configmaps`, `widgets.example.com`) and key
    /// (`namespace/name` or `name`). One with finalizers is only marked.
    ///
    /// # Errors
    ///
    /// As the API server's.
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
            .get(&kind.resource, key)
            .map(|object| object.value_as(&kind))
    }

    /// All objects of a resource in a namespace, or everywhere for `""`, in the order of a list.
    pub fn list(&self, resource: &str, namespace: &str) -> Vec<Value> {
        let Ok(kind) = self.kind_named(resource) else {
            return Vec::new();
        };
        let store = self.inner.store();
        let Ok(options) = ListOptions::parse(&kind, &Query::default()) else {
            return Vec::new();
        };
        let page = list::list(&store, &kind, namespace, &options);
        page.map(|page| page.objects.iter().map(|object| object.value_as(&kind)).collect())
            .unwrap_or_default()
    }

    fn write(&self, kind: &Arc<Kind>, namespace: &str, name: &str, verb: Verb) -> Result<Value, SimError> {
        let write = Write::new(kind, namespace, name, "sim");
        let done = write.run(&self.inner, verb)?;
        Ok(done.object.value_as(kind))
    }

    fn kind_of(&self, object: &Value) -> Result<Arc<Kind>, SimError> {
        let word = |field: &str| object[field].as_str().unwrap_or_default();
        let found = self
            .inner
            .store()
            .kinds
            .of_object(word("apiVersion"), word("kind"));
        found.ok_or_else(SimError::no_such_resource)
    }

    fn kind_named(&self, resource: &str) -> Result<Arc<Kind>, SimError> {
        let found = self.inner.store().kinds.of_resource(resource);
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

const ADMIN: &str = "admin";

impl std::fmt::Debug for SimCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimCluster")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
