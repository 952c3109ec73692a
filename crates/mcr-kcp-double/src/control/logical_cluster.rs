use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::reconcile::Reconcile;
use super::schedule::{DELETION, INITIALIZING, ON_WORKSPACE, set_lifecycle_labels, set_phase};
use super::unbind::drop_finalizer;
use crate::kinds::{BINDINGS, LOGICAL_CLUSTERS, WORKSPACES};
use crate::shard::Shard;
use crate::state::{Key, Step};
use mcr_testkit::sim::clock;
use mcr_testkit::sim::kinds::NAMESPACES;
use mcr_testkit::sim::object::{metadata_mut, text};

const CLUSTER: &str = "cluster";

/// Marks a namespace as being deleted.
fn close(shard: &Shard, id: &str, name: &str) {
    let Some(mut object) = shard.get(id, NAMESPACES, name) else {
        return;
    };
    if text(&object, "deletionTimestamp").is_empty() {
        metadata_mut(&mut object).insert("deletionTimestamp".to_owned(), clock::now().into());
        object["status"]["phase"] = "Terminating".into();
        shard.take_over(id, NAMESPACES, object);
    }
}

impl Reconcile<'_> {
    /// Handles a written LogicalCluster: its initializers or terminators may be done. As in kcp, this write updates
    /// the labels from the previous status, and a later write changes the phase. So watches by label see each step.
    pub(super) fn handle_logical_cluster(&mut self, shard: &Shard, id: &Arc<str>) {
        let Some(object) = shard.get(id, LOGICAL_CLUSTERS, CLUSTER) else {
            return;
        };
        let pending = |field: &str| {
            let names = object["status"][field].as_array();
            names.is_some_and(|names| !names.is_empty())
        };
        let deleting = !text(&object, "deletionTimestamp").is_empty();
        let mut labelled = object.clone();
        set_lifecycle_labels(&mut labelled);
        if labelled != object {
            shard.edit(id, LOGICAL_CLUSTERS, CLUSTER, set_lifecycle_labels);
            return;
        }
        let phase = match object["status"]["phase"].as_str().unwrap_or_default() {
            _ if deleting && pending("terminators") => "Terminating",
            _ if deleting => "Deleting",
            INITIALIZING if !pending("initializers") => "Ready",
            phase => phase,
        };
        shard.edit(id, LOGICAL_CLUSTERS, CLUSTER, |object| {
            object["status"]["phase"] = phase.into()
        });
        if let Some((parent, workspace)) = self.workspace_of(&object)
            && let Some(shard) = self.shard_of(&parent)
        {
            shard.edit(&parent, WORKSPACES, &workspace, |of_workspace| {
                set_phase(of_workspace, phase);
                let Some(status) = of_workspace["status"].as_object_mut() else {
                    return;
                };
                for field in ["initializers", "terminators"] {
                    if pending(field) {
                        status.insert(field.to_owned(), object["status"][field].clone());
                    } else {
                        status.remove(field);
                    }
                }
            });
        }
        if deleting && self.state.leaving.insert(id.clone()) {
            self.run_after(self.inner.delays.content, Step::Empty(id.clone()));
        }
    }

    /// The Workspace that a LogicalCluster belongs to.
    fn workspace_of(&self, logical_cluster: &Value) -> Option<Key> {
        let owner = &logical_cluster["spec"]["owner"];
        let parent = self.inner.directory.by_id(owner["cluster"].as_str()?)?;
        Some((parent.id, owner["name"].as_str()?.to_owned()))
    }

    /// Starts the deletion of a logical cluster.
    pub(super) fn delete_logical_cluster(&mut self, id: &str) {
        let Some(shard) = self.shard_of(id) else { return };
        shard.edit(id, LOGICAL_CLUSTERS, CLUSTER, |object| {
            if !text(object, "deletionTimestamp").is_empty() {
                return;
            }
            metadata_mut(object).insert("deletionTimestamp".to_owned(), clock::now().into());
        });
    }

    /// Deletes the contents of a logical cluster, without waiting for terminators. When no contents and no terminators
    /// are left, deletes the logical cluster, then its Workspace. A namespace is deleted after its objects, and
    /// accepts no new ones.
    pub(super) fn delete_contents(&mut self, id: &Arc<str>) {
        let Some(shard) = self.shard_of(id) else { return };
        let Some(object) = shard.get(id, LOGICAL_CLUSTERS, CLUSTER) else {
            return;
        };
        let kinds = shard.server.store().kinds(id).clone();
        let mut left = 0;
        // The bindings are deleted last. Until then, finalizers can be released through the virtual workspaces of
        // their exports.
        let mut tables = shard.tables(id);
        tables.retain(|table| &**table != LOGICAL_CLUSTERS);
        if tables.iter().any(|table| &**table != BINDINGS) {
            tables.retain(|table| &**table != BINDINGS);
        }
        tables.sort_by_key(|table| &**table == NAMESPACES);
        let mut held_in = BTreeSet::new();
        for table in tables {
            let Some(kind) = kinds.of_table(&table) else {
                continue;
            };
            for path in shard.paths(id, &table) {
                if kind.is_namespaces() {
                    if held_in.contains(&path) {
                        close(shard, id, &path);
                    } else {
                        shard.remove(id, &table, &path);
                    }
                    continue;
                }
                let held = shard.get(id, &table, &path);
                if held.is_some_and(|object| text(&object, "deletionTimestamp").is_empty()) {
                    shard.delete(id, &kind, &path);
                }
            }
            let paths = shard.paths(id, &table);
            left += paths.len();
            let namespaces = paths.iter().filter_map(|path| path.split_once('/'));
            held_in.extend(namespaces.map(|(namespace, _)| namespace.to_owned()));
        }
        if left > 0 {
            for name in shard.paths(id, BINDINGS) {
                self.run_soon(Step::Unbind((id.clone(), name)));
            }
            return;
        }
        if !shard.paths(id, BINDINGS).is_empty() {
            self.run_soon(Step::Empty(id.clone()));
            return;
        }
        let terminators = object["status"]["terminators"].as_array();
        if terminators.is_some_and(|names| !names.is_empty()) {
            shard.edit(id, LOGICAL_CLUSTERS, CLUSTER, |object| {
                drop_finalizer(object, DELETION)
            });
            return;
        }
        shard.remove(id, LOGICAL_CLUSTERS, CLUSTER);
        shard.server.store().take_kinds(id);
        self.inner.directory.remove(id);
        self.state.leaving.remove(id);
        self.state.claims.remove(id);
        if let Some((parent, workspace)) = self.workspace_of(&object)
            && let Some(shard) = self.shard_of(&parent)
        {
            shard.edit(&parent, WORKSPACES, &workspace, |object| {
                drop_finalizer(object, ON_WORKSPACE)
            });
        }
    }
}
