use std::sync::Arc;

use serde_json::{Value, json};

use super::condition;
use super::reconcile::Reconcile;
use crate::kinds::{BINDINGS, bound_table};
use crate::shard::Shard;
use crate::state::{Binding, Exported, Key, Step};
use mcr_testkit::sim::object::{metadata_mut, text};

pub(super) const FINALIZER: &str = "apis.kcp.io/apibinding-finalizer";

impl Reconcile<'_> {
    /// Handles a written binding.
    pub(super) fn handle_binding(&mut self, shard: &Shard, key: &Key) {
        let Some(object) = shard.get(&key.0, BINDINGS, &key.1) else {
            self.binding_gone(shard, key);
            return;
        };
        if !text(&object, "deletionTimestamp").is_empty() {
            let names = self.state.unbinding.entry(key.0.clone()).or_default();
            names.insert(key.1.clone());
            self.run_soon(Step::Unbind(key.clone()));
            return;
        }
        let claims = object["spec"]["permissionClaims"].clone();
        match self.state.bindings.get_mut(key) {
            Some(known) if known.claims == claims => {}
            Some(known) => {
                known.claims = claims;
                if known.bound {
                    self.run_after(self.inner.delays.claims, Step::Claims(key.clone()));
                }
            }
            None => self.new_binding(shard, key, &object, claims),
        }
    }

    fn new_binding(&mut self, shard: &Shard, key: &Key, object: &Value, claims: Value) {
        let Some(export) = self.export_of(&key.0, &object["spec"]["reference"]["export"]) else {
            return;
        };
        self.add_binding(shard, key, export, claims);
        shard.edit(&key.0, BINDINGS, &key.1, |object| {
            let finalizers = metadata_mut(object)
                .entry("finalizers")
                .or_insert_with(|| json!([]));
            if let Some(list) = finalizers.as_array_mut() {
                list.push(FINALIZER.into());
            }
            object["status"]["phase"] = "Binding".into();
        });
        self.run_after(self.inner.delays.bind, Step::Bind(key.clone()));
    }

    /// Adds a binding to its shard. The first binding adds the URL of the shard.
    pub(super) fn add_binding(&mut self, shard: &Shard, key: &Key, export: Key, claims: Value) {
        let of_export = self.export_mut(&export);
        let first = of_export.on.get_mut(shard.number).is_some_and(|on| {
            on.bindings.insert(key.clone());
            on.bindings.len() == 1
        });
        if first {
            self.run_after(self.inner.delays.endpoint, Step::Endpoints(export.clone()));
        }
        let binding = Binding {
            export,
            bound: false,
            claims,
            tables: Vec::new(),
        };
        self.state.bindings.insert(key.clone(), binding);
    }

    /// Removes a binding from its shard. The last binding removes the URL of the shard.
    pub(super) fn remove_binding(&mut self, shard: &Shard, key: &Key) -> Option<Binding> {
        let binding = self.state.bindings.remove(key)?;
        self.remove_binding_on(shard, key, &binding.export, binding.bound);
        Some(binding)
    }

    pub(super) fn remove_binding_on(&mut self, shard: &Shard, key: &Key, export: &Key, bound: bool) {
        let last = self
            .export_mut(export)
            .on
            .get_mut(shard.number)
            .is_some_and(|on| {
                let was = on.bindings.remove(key);
                if was && bound {
                    on.count(&key.0, false);
                }
                was && on.bindings.is_empty()
            });
        if last {
            self.run_after(self.inner.delays.endpoint, Step::Endpoints(export.clone()));
        }
    }

    fn binding_gone(&mut self, shard: &Shard, key: &Key) {
        self.remove_binding(shard, key);
        if let Some(names) = self.state.unbinding.get_mut(&key.0) {
            names.remove(&key.1);
            if names.is_empty() {
                self.state.unbinding.remove(&key.0);
            }
        }
    }

    pub(super) fn bind(&mut self, key: &Key) {
        let Some((shard, object)) = self.read(BINDINGS, key) else {
            return;
        };
        if !text(&object, "deletionTimestamp").is_empty() {
            return;
        }
        let Some(binding) = self.state.bindings.get(key) else {
            return;
        };
        let (export_key, bound) = (binding.export.clone(), binding.bound);
        let export = self.export_mut(&export_key);
        if !export.exists {
            self.invalid_export(key);
            return;
        }
        let (resources, identity) = (export.resources.clone(), export.identity.clone());
        let claims: Vec<Value> = export.claims.iter().map(|claim| claim.json.clone()).collect();
        let status: Vec<Value> = resources
            .iter()
            .map(|one| bound_resource(one, &identity))
            .collect();
        shard.edit(&key.0, BINDINGS, &key.1, |object| {
            object["status"]["apiExportClusterName"] = (*export_key.0).into();
            object["status"]["boundResources"] = status.into();
            if !claims.is_empty() {
                object["status"]["exportPermissionClaims"] = claims.into();
            }
            condition::ok(object, &["APIExportValid", "PermissionClaimsValid"]);
        });
        let tables = self.serve(shard, key, &resources, &identity);
        if let Some(binding) = self.state.bindings.get_mut(key) {
            binding.tables = tables;
            binding.bound = true;
        }
        if !bound && let Some(on) = self.export_mut(&export_key).on.get_mut(shard.number) {
            on.count(&key.0, true);
        }
        shard.edit(&key.0, BINDINGS, &key.1, |object| {
            object["status"]["phase"] = "Bound".into();
            condition::ok(object, &["BindingUpToDate", "InitialBindingCompleted", "Ready"]);
        });
        if !bound {
            self.run_after(self.inner.delays.claims, Step::Claims(key.clone()));
        }
    }

    /// Makes a logical cluster serve bound resources.
    fn serve(
        &self,
        shard: &Shard,
        key: &Key,
        resources: &[Exported],
        identity: &str,
    ) -> Vec<(String, Arc<str>)> {
        let mut store = shard.server.store();
        let kinds = store.kinds_mut(&key.0);
        let mut tables = Vec::new();
        for resource in resources {
            let name = format!("{}/{}.{}", key.1, resource.plural, resource.group);
            kinds.set_crd(&name, resource.kinds.clone());
            tables.push((name, bound_table(&resource.group, &resource.plural, identity)));
        }
        tables
    }

    /// Sets the conditions of a binding whose export does not exist.
    pub(super) fn invalid_export(&mut self, key: &Key) {
        let Some(shard) = self.shard_of(&key.0) else {
            return;
        };
        shard.edit(&key.0, BINDINGS, &key.1, |object| {
            let why = Some(("APIExportNotFound", "APIExport of spec.reference not found"));
            condition::set(object, "APIExportValid", "False", why);
            condition::set(object, "Ready", "False", why);
        });
    }
}

impl crate::state::OnShard {
    pub(super) fn count(&mut self, cluster: &Arc<str>, more: bool) {
        let count = self.bound.entry(cluster.clone()).or_default();
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            self.bound.remove(cluster);
        }
    }
}

fn bound_resource(one: &Exported, identity: &str) -> Value {
    json!({
        "group": one.group, "resource": one.plural, "storageVersions": one.versions,
        "schema": { "name": one.schema, "UID": one.schema_uid, "identityHash": identity },
    })
}
