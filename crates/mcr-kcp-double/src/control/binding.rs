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
    /// A binding was written.
    pub(super) fn binding(&mut self, shard: &Shard, at: &Key) {
        let Some(object) = shard.get(&at.0, BINDINGS, &at.1) else {
            self.binding_gone(shard, at);
            return;
        };
        if !text(&object, "deletionTimestamp").is_empty() {
            let names = self.state.unbinding.entry(at.0.clone()).or_default();
            names.insert(at.1.clone());
            self.soon(Step::Unbind(at.clone()));
            return;
        }
        let claims = object["spec"]["permissionClaims"].clone();
        match self.state.bindings.get_mut(at) {
            Some(known) if known.claims == claims => {}
            Some(known) => {
                known.claims = claims;
                if known.bound {
                    self.later(self.inner.delays.claims, Step::Claims(at.clone()));
                }
            }
            None => self.new_binding(shard, at, &object, claims),
        }
    }

    fn new_binding(&mut self, shard: &Shard, at: &Key, object: &Value, claims: Value) {
        let Some(export) = self.export_of(&at.0, &object["spec"]["reference"]["export"]) else {
            return;
        };
        self.know(shard, at, export, claims);
        shard.edit(&at.0, BINDINGS, &at.1, |object| {
            let finalizers = metadata_mut(object)
                .entry("finalizers")
                .or_insert_with(|| json!([]));
            if let Some(list) = finalizers.as_array_mut() {
                list.push(FINALIZER.into());
            }
            object["status"]["phase"] = "Binding".into();
        });
        self.later(self.inner.delays.bind, Step::Bind(at.clone()));
    }

    /// Counts a binding on its shard. The first one brings the URL of the shard.
    pub(super) fn know(&mut self, shard: &Shard, at: &Key, export: Key, claims: Value) {
        let of_export = self.export_mut(&export);
        let first = of_export.on.get_mut(shard.number).is_some_and(|on| {
            on.bindings.insert(at.clone());
            on.bindings.len() == 1
        });
        if first {
            self.later(self.inner.delays.endpoint, Step::Endpoints(export.clone()));
        }
        let binding = Binding {
            export,
            bound: false,
            claims,
            tables: Vec::new(),
        };
        self.state.bindings.insert(at.clone(), binding);
    }

    /// Forgets a binding on its shard. The last one takes the URL of the shard with it.
    pub(super) fn forget(&mut self, shard: &Shard, at: &Key) -> Option<Binding> {
        let binding = self.state.bindings.remove(at)?;
        self.forget_on(shard, at, &binding.export, binding.bound);
        Some(binding)
    }

    pub(super) fn forget_on(&mut self, shard: &Shard, at: &Key, export: &Key, bound: bool) {
        let last = self
            .export_mut(export)
            .on
            .get_mut(shard.number)
            .is_some_and(|on| {
                let was = on.bindings.remove(at);
                if was && bound {
                    on.count(&at.0, false);
                }
                was && on.bindings.is_empty()
            });
        if last {
            self.later(self.inner.delays.endpoint, Step::Endpoints(export.clone()));
        }
    }

    fn binding_gone(&mut self, shard: &Shard, at: &Key) {
        self.forget(shard, at);
        if let Some(names) = self.state.unbinding.get_mut(&at.0) {
            names.remove(&at.1);
            if names.is_empty() {
                self.state.unbinding.remove(&at.0);
            }
        }
    }

    pub(super) fn bind(&mut self, at: &Key) {
        let Some((shard, object)) = self.read(BINDINGS, at) else {
            return;
        };
        if !text(&object, "deletionTimestamp").is_empty() {
            return;
        }
        let Some(binding) = self.state.bindings.get(at) else {
            return;
        };
        let (key, bound) = (binding.export.clone(), binding.bound);
        let export = self.export_mut(&key);
        if !export.exists {
            self.invalid_export(at);
            return;
        }
        let (resources, identity) = (export.resources.clone(), export.identity.clone());
        let claims: Vec<Value> = export.claims.iter().map(|claim| claim.json.clone()).collect();
        let status: Vec<Value> = resources
            .iter()
            .map(|one| bound_resource(one, &identity))
            .collect();
        shard.edit(&at.0, BINDINGS, &at.1, |object| {
            object["status"]["apiExportClusterName"] = (*key.0).into();
            object["status"]["boundResources"] = status.into();
            if !claims.is_empty() {
                object["status"]["exportPermissionClaims"] = claims.into();
            }
            condition::ok(object, &["APIExportValid", "PermissionClaimsValid"]);
        });
        let tables = self.serve(shard, at, &resources, &identity);
        if let Some(binding) = self.state.bindings.get_mut(at) {
            binding.tables = tables;
            binding.bound = true;
        }
        if !bound && let Some(on) = self.export_mut(&key).on.get_mut(shard.number) {
            on.count(&at.0, true);
        }
        shard.edit(&at.0, BINDINGS, &at.1, |object| {
            object["status"]["phase"] = "Bound".into();
            condition::ok(object, &["BindingUpToDate", "InitialBindingCompleted", "Ready"]);
        });
        if !bound {
            self.later(self.inner.delays.claims, Step::Claims(at.clone()));
        }
    }

    /// Makes a logical cluster serve bound resources.
    fn serve(
        &self,
        shard: &Shard,
        at: &Key,
        resources: &[Exported],
        identity: &str,
    ) -> Vec<(String, Arc<str>)> {
        let mut store = shard.server.store();
        let kinds = store.kinds_mut(&at.0);
        let mut tables = Vec::new();
        for resource in resources {
            let name = format!("{}/{}.{}", at.1, resource.plural, resource.group);
            kinds.set_crd(&name, resource.kinds.clone());
            tables.push((name, bound_table(&resource.group, &resource.plural, identity)));
        }
        tables
    }

    /// The export of a binding does not exist, or no longer.
    pub(super) fn invalid_export(&mut self, at: &Key) {
        let Some(shard) = self.shard_of(&at.0) else { return };
        shard.edit(&at.0, BINDINGS, &at.1, |object| {
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
