use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use mcr_testkit::sim::clock;
use mcr_testkit::sim::kinds::{Kind, Kinds};
use mcr_testkit::sim::object::{self, Object, has_finalizers, metadata_mut, text};
use mcr_testkit::sim::state::{CLUSTER_ANNOTATION, ClusterState, ServerState};
use mcr_testkit::sim::write::{Verb, Write};

/// A shard: one store, with one sequence of resource versions, for all its logical clusters.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) name: Arc<str>,
    pub(super) number: usize,
    /// `https://<address>`.
    pub(super) url: String,
    pub(super) server: Arc<ServerState>,
    down: AtomicBool,
}

/// Writes of the control plane. They are not authorised, validated or audited.
impl Shard {
    pub(super) fn new(name: Arc<str>, number: usize, url: String, server: ServerState) -> Self {
        Self {
            name,
            number,
            url,
            server: Arc::new(server),
            down: AtomicBool::new(false),
        }
    }

    pub(super) fn is_down(&self) -> bool {
        self.down.load(Ordering::Acquire)
    }

    pub(super) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::Release);
        if down {
            self.server.end_watches();
        }
    }

    /// A view of one logical cluster, as an API server.
    pub(super) fn view(&self, cluster: &str) -> Arc<ClusterState> {
        self.view_of(cluster, None)
    }

    /// A view of one logical cluster with these kinds. The empty string stands for all logical clusters.
    pub(super) fn view_of(&self, cluster: &str, kinds: Option<Kinds>) -> Arc<ClusterState> {
        let server = self.server.clone();
        Arc::new(ClusterState::part_of(
            server,
            self.name.clone(),
            cluster.into(),
            kinds,
        ))
    }

    /// A view of all logical clusters whose lists and watches only show objects that are being deleted.
    pub(super) fn view_of_deleting(&self, kinds: Kinds) -> Arc<ClusterState> {
        let server = self.server.clone();
        let all = ClusterState::part_of(server, self.name.clone(), "".into(), Some(kinds));
        Arc::new(all.only_deleting())
    }

    /// The objects that were written since the last call, by table and key.
    pub(super) fn take_written(&self) -> Vec<(Arc<str>, Box<str>)> {
        let mut store = self.server.store();
        store.written.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// An object by its path: `namespace/name` or `name`.
    pub(super) fn get(&self, cluster: &str, table: &str, path: &str) -> Option<Value> {
        let store = self.server.store();
        store
            .get(table, &object::key(cluster, "", path))
            .map(|object| object.value())
    }

    /// The paths of the objects of a table in a logical cluster.
    pub(super) fn paths(&self, cluster: &str, table: &str) -> Vec<String> {
        let store = self.server.store();
        let prefix = object::prefix(cluster, "");
        let all = store.current(table, &prefix, "");
        all.map(|object| object.path().to_owned()).collect()
    }

    /// The tables in which a logical cluster has objects.
    pub(super) fn tables(&self, cluster: &str) -> Vec<Arc<str>> {
        let store = self.server.store();
        let prefix = object::prefix(cluster, "");
        let mut tables = store.resources();
        tables.retain(|table| store.current(table, &prefix, "").next().is_some());
        tables
    }

    /// Adds an object, unless it exists already.
    pub(super) fn add(&self, cluster: &str, table: &str, mut object: Value) {
        let uid = self.server.uid();
        let metadata = metadata_mut(&mut object);
        metadata.insert("uid".to_owned(), uid.into());
        metadata.insert("creationTimestamp".to_owned(), clock::now().into());
        metadata.entry("generation").or_insert_with(|| 1.into());
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        annotations[CLUSTER_ANNOTATION] = cluster.into();
        let mut store = self.server.store();
        let object = Object::new(cluster, object, store.next_version());
        if store.get(table, &object.key).is_none() {
            store.put(&table.into(), Arc::new(object));
        }
    }

    /// Changes an object. Removes it if it is being deleted and has no finalizers left.
    pub(super) fn edit(&self, cluster: &str, table: &str, path: &str, change: impl FnOnce(&mut Value)) {
        let mut store = self.server.store();
        let key = object::key(cluster, "", path);
        let Some(live) = store.get(table, &key) else {
            return;
        };
        let before = live.value();
        let mut after = before.clone();
        change(&mut after);
        if after == before {
            return;
        }
        let leaves = !text(&after, "deletionTimestamp").is_empty() && !has_finalizers(&after);
        if leaves {
            store.remove(&table.into(), &key);
            return;
        }
        let object = Object::new(cluster, after, store.next_version());
        store.put(&table.into(), Arc::new(object));
    }

    /// Deletes an object as a user would. An object with finalizers is only marked.
    pub(super) fn delete(&self, cluster: &str, kind: &Arc<Kind>, path: &str) {
        let (namespace, name) = path.split_once('/').unwrap_or(("", path));
        // The object may be gone already.
        let _ = Write::new(&self.view(cluster), kind, namespace, name, "kcp").run(Verb::Delete(json!({})));
    }

    /// Removes an object, even if it has finalizers.
    pub(super) fn remove(&self, cluster: &str, table: &str, path: &str) {
        let key = object::key(cluster, "", path);
        self.server.store().remove(&table.into(), &key);
    }

    /// Stores an object of another shard in this one, with a version of this one.
    pub(super) fn take_over(&self, cluster: &str, table: &str, object: Value) {
        let mut store = self.server.store();
        let object = Object::new(cluster, object, store.next_version());
        store.put(&table.into(), Arc::new(object));
    }
}
