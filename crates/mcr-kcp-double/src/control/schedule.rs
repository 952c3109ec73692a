use std::sync::Arc;

use serde_json::{Value, json};

use super::reconcile::Reconcile;
use crate::admission::PATH_ANNOTATION;
use crate::kinds::{LOGICAL_CLUSTERS, TYPES, WORKSPACES};
use crate::names;
use crate::shard::Shard;
use crate::state::{Key, Step};
use mcr_testkit::sim::clock;
use mcr_testkit::sim::object::{metadata_mut, text};

pub(super) const ON_WORKSPACE: &str = "core.kcp.io/logicalcluster";
/// The label with the phase.
pub(crate) const PHASE: &str = "tenancy.kcp.io/phase";
pub(crate) const INITIALIZING: &str = "Initializing";
pub(super) const DELETION: &str = "core.kcp.io/logicalcluster-deletion";
const TERMINATORS: &str = "kcp.io/has-terminators";

impl Reconcile<'_> {
    /// Handles a written Workspace.
    pub(super) fn handle_workspace(&mut self, shard: &Shard, key: &Key) {
        let Some(object) = shard.get(&key.0, WORKSPACES, &key.1) else {
            return;
        };
        let cluster = object["spec"]["cluster"].as_str().unwrap_or_default();
        if !text(&object, "deletionTimestamp").is_empty() {
            self.delete_logical_cluster(cluster);
        } else if cluster.is_empty() {
            self.run_after(self.inner.delays.workspace, Step::Schedule(key.clone()));
        }
    }

    /// Makes the logical cluster of a Workspace.
    pub(super) fn schedule(&mut self, key: &Key) {
        let Some((parent, object)) = self.read(WORKSPACES, key) else {
            return;
        };
        let Some(entry) = self.inner.directory.by_id(&key.0) else {
            return;
        };
        let there = object["spec"]["cluster"].as_str().unwrap_or_default();
        if !there.is_empty() || !text(&object, "deletionTimestamp").is_empty() {
            return;
        }
        let wanted = object["spec"]["location"]["selector"]["matchLabels"]["name"].as_str();
        let shard = match wanted {
            Some(name) => self.inner.shard_named(name).map(|shard| &**shard),
            None => self.inner.shard(0),
        };
        // No shard fits, so the Workspace stays in phase Scheduling.
        let Some(shard) = shard else { return };
        let id = self.inner.next_cluster_id();
        let path: Arc<str> = format!("{}:{}", entry.path, key.1).into();
        let url = format!("{}/clusters/{path}", self.inner.url);
        self.inner.directory.add(id.clone(), path.clone(), shard.number);

        let of_type = self.type_of(&key.0, &object);
        let mut types = Vec::new();
        if let Some((key, object)) = &of_type {
            self.bases(key, object, &mut types);
            types.push((key.clone(), object.clone()));
        }
        let lifecycle = |word: &str| -> Vec<String> {
            let having = types.iter().filter(|(_, object)| object["spec"][word] == true);
            having.map(|(key, _)| format!("{}:{}", key.0, key.1)).collect()
        };
        let (initializers, terminators) = (lifecycle("initializer"), lifecycle("terminator"));
        let shown = object["spec"]["type"]["name"].as_str().unwrap_or("universal");
        let mut cluster = logical_cluster(&url, &path, &shard.name, &initializers, &terminators);
        cluster["metadata"]["annotations"]["internal.tenancy.kcp.io/type"] = match &of_type {
            Some((key, _)) => format!("{}:{}", key.0, key.1).into(),
            None => format!("root:{shown}").into(),
        };
        cluster["spec"]["owner"] = json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "resource": "workspaces", "name": key.1, "cluster": key.0,
            "uid": text(&object, "uid"),
        });
        shard.add(&id, LOGICAL_CLUSTERS, cluster);
        shard.add(&id, "namespaces", namespace("default"));
        let shard_hash = names::shard_hash(&shard.name);
        let ready = initializers.is_empty();
        parent.edit(&key.0, WORKSPACES, &key.1, |object| {
            object["spec"]["cluster"] = (*id).into();
            object["spec"]["URL"] = url.into();
            if object["spec"]["type"].is_null() {
                object["spec"]["type"] = json!({ "name": "universal", "path": "root" });
            }
            let metadata = metadata_mut(object);
            metadata.insert("finalizers".to_owned(), json!([ON_WORKSPACE]));
            let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
            annotations["internal.tenancy.kcp.io/shard"] = shard_hash.into();
            annotations["core.kcp.io/shard"] = (*shard.name).into();
            set_phase(object, INITIALIZING);
            if !ready {
                object["status"]["initializers"] = json!(initializers);
            }
            if !terminators.is_empty() {
                object["status"]["terminators"] = json!(terminators);
            }
        });
        if ready {
            parent.edit(&key.0, WORKSPACES, &key.1, |object| set_phase(object, "Ready"));
        }
    }

    /// The types that a WorkspaceType extends, directly or indirectly, each once. Their initializers and terminators
    /// also apply to its workspaces.
    fn bases(&self, of: &Key, object: &Value, found: &mut Vec<(Key, Value)>) {
        let with = object["spec"]["extend"]["with"].as_array();
        for reference in with.into_iter().flatten() {
            let base = self.type_named(&of.0, reference);
            let Some((key, base)) = base.filter(|(key, _)| !found.iter().any(|(known, _)| known == key))
            else {
                continue;
            };
            found.push((key.clone(), base.clone()));
            self.bases(&key, &base, found);
        }
    }

    /// The WorkspaceType of a Workspace, if it exists.
    fn type_of(&self, cluster: &str, workspace: &Value) -> Option<(Key, Value)> {
        self.type_named(cluster, &workspace["spec"]["type"])
    }

    fn type_named(&self, cluster: &str, spec: &Value) -> Option<(Key, Value)> {
        let path = spec["path"].as_str().filter(|path| !path.is_empty());
        let entry = self.inner.directory.find(path.unwrap_or(cluster))?;
        let key = (entry.id, spec["name"].as_str()?.to_owned());
        let (_, object) = self.read(TYPES, &key)?;
        Some((key, object))
    }
}

/// A LogicalCluster with these initializers and terminators.
pub(crate) fn logical_cluster(
    url: &str,
    path: &str,
    shard: &str,
    initializers: &[String],
    terminators: &[String],
) -> Value {
    let phase = if initializers.is_empty() {
        "Ready"
    } else {
        INITIALIZING
    };
    let mut finalizers = vec![DELETION];
    if !terminators.is_empty() {
        finalizers.push(TERMINATORS);
    }
    let mut object = json!({
        "metadata": {
            "name": "cluster", "finalizers": finalizers,
            "annotations": { PATH_ANNOTATION: path, "core.kcp.io/shard": shard },
        },
        "spec": {}, "status": { "URL": url },
    });
    if !initializers.is_empty() {
        object["spec"]["initializers"] = json!(initializers);
        object["status"]["initializers"] = json!(initializers);
    }
    if !terminators.is_empty() {
        object["spec"]["terminators"] = json!(terminators);
        object["status"]["terminators"] = json!(terminators);
    }
    object["status"]["phase"] = phase.into();
    set_lifecycle_labels(&mut object);
    object
}

/// Sets the labels by which the virtual workspaces of initializers and terminators select a LogicalCluster: its phase,
/// and what it waits for.
pub(super) fn set_lifecycle_labels(object: &mut Value) {
    let mut labels = object["metadata"]["labels"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    labels.retain(|key, _| {
        !key.contains("ializer.internal.kcp.io/") && !key.contains("minator.internal.kcp.io/")
    });
    for (word, field) in [("initializer", "initializers"), ("terminator", "terminators")] {
        let names = object["status"][field].as_array().into_iter().flatten();
        labels.extend(names.filter_map(Value::as_str).map(|name| {
            let (key, value) = names::lifecycle_label(word, name);
            (key, value.into())
        }));
    }
    labels.insert(PHASE.to_owned(), object["status"]["phase"].clone());
    metadata_mut(object).insert("labels".to_owned(), labels.into());
}

pub(crate) fn namespace(name: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "creationTimestamp": clock::now(), "labels": { "kubernetes.io/metadata.name": name },
        },
        "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" },
    })
}

pub(super) fn set_phase(object: &mut Value, phase: &str) {
    object["status"]["phase"] = phase.into();
    let metadata = metadata_mut(object);
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    labels[PHASE] = phase.into();
}
