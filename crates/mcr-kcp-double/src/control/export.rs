use std::sync::Arc;

use serde_json::{Value, json};

use super::condition;
use super::reconcile::Reconcile;
use crate::kinds::{self, BINDINGS, EXPORTS, SCHEMAS, SLICES};
use crate::shard::Shard;
use crate::state::{Claim, Exported, Key, Step};
use mcr_testkit::sim::kinds::{Kind, Kinds, resource_id};
use mcr_testkit::sim::object::text;

impl Reconcile<'_> {
    pub(super) fn handle_schema(&mut self, shard: &Shard, key: &Key) {
        let uses = |export: &Value| {
            let resources = export["spec"]["resources"].as_array().into_iter().flatten();
            resources.into_iter().any(|resource| resource["schema"] == *key.1)
        };
        for name in shard.paths(&key.0, EXPORTS) {
            if shard
                .get(&key.0, EXPORTS, &name)
                .is_some_and(|export| uses(&export))
            {
                self.handle_export(shard, &(key.0.clone(), name));
            }
        }
    }

    pub(super) fn handle_export(&mut self, shard: &Shard, key: &Key) {
        let Some(object) = shard.get(&key.0, EXPORTS, &key.1) else {
            self.export_gone(shard, key);
            return;
        };
        let resources = self.read_resources(shard, key, &object);
        let claims = object["spec"]["permissionClaims"]
            .as_array()
            .into_iter()
            .flatten();
        let claims: Vec<Claim> = claims.map(Claim::parse).collect();
        let served = self.served_kinds(&resources, &claims);
        let export = self.export_mut(key);
        let signature = |resources: &[Exported]| -> Vec<(String, String)> {
            let each = resources.iter();
            each.map(|one| (one.schema.clone(), one.schema_uid.clone()))
                .collect()
        };
        let new = !export.exists;
        let other_resources = signature(&export.resources) != signature(&resources);
        let other_claims = export.claims != claims;
        export.exists = true;
        export.kinds = served;
        if other_resources {
            export.resources = resources;
        }
        export.claims = claims;
        let identity = export.identity.clone();
        shard.edit(&key.0, EXPORTS, &key.1, |object| {
            object["status"]["identityHash"] = identity.into();
            condition::ok(object, &["IdentityValid"]);
        });
        self.own_slice(shard, key, &object);
        for binding in self.export_mut(key).bindings() {
            if new || other_resources {
                self.run_soon(Step::Bind(binding.clone()));
            }
            if other_claims && !new {
                self.run_soon(Step::Claims(binding));
            }
        }
    }

    /// The compiled kinds of an export's schemas. Schemas that have not changed are not compiled again.
    fn read_resources(&mut self, shard: &Shard, key: &Key, object: &Value) -> Vec<Exported> {
        let export = self.export_mut(key);
        let (before, identity) = (export.resources.clone(), export.identity.clone());
        let resources = object["spec"]["resources"].as_array().into_iter().flatten();
        let compile = |resource: &Value| {
            let name = resource["schema"].as_str()?;
            let schema = shard.get(&key.0, SCHEMAS, name)?;
            let uid = text(&schema, "uid");
            if let Some(same) = before
                .iter()
                .find(|one| one.schema == name && one.schema_uid == uid)
            {
                return Some(same.clone());
            }
            let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let versions = schema["spec"]["versions"].as_array().into_iter().flatten();
            let stored = versions.filter(|version| version["storage"] == true);
            Some(Exported {
                group: word(&schema["spec"]["group"]),
                plural: word(&schema["spec"]["names"]["plural"]),
                schema: name.to_owned(),
                schema_uid: uid.to_owned(),
                versions: stored.map(|version| version["name"].clone()).collect(),
                kinds: kinds::of_schema(&schema, &identity).ok()?,
            })
        };
        resources.filter_map(compile).collect()
    }

    /// The kinds of the virtual workspace: those of the export, APIBindings, and the claimed ones.
    fn served_kinds(&self, resources: &[Exported], claims: &[Claim]) -> Kinds {
        let mut served = Kinds::over(kinds::nothing());
        for resource in resources {
            served.set_crd(
                &resource_id(&resource.group, &resource.plural),
                resource.kinds.clone(),
            );
        }
        served.set_crd(BINDINGS, kinds::claimable("apis.kcp.io", "apibindings"));
        for claim in claims {
            let found: Vec<Arc<Kind>> = if claim.identity.is_empty() {
                let groups = claim.groups().into_iter();
                groups
                    .flat_map(|group| kinds::claimable(group, &claim.resource))
                    .collect()
            } else {
                let owner = self
                    .state
                    .exports
                    .values()
                    .find(|export| export.identity == claim.identity);
                let resources = owner.into_iter().flat_map(|export| &export.resources);
                let same = resources.filter(|one| one.group == claim.group && one.plural == claim.resource);
                same.flat_map(|one| one.kinds.clone()).collect()
            };
            if !found.is_empty() {
                served.set_crd(&resource_id(&claim.group, &claim.resource), found);
            }
        }
        served
    }

    /// Creates an endpoint slice with the name of the export, as kcp does.
    fn own_slice(&self, shard: &Shard, key: &Key, export: &Value) {
        if shard.get(&key.0, SLICES, &key.1).is_some() {
            return;
        }
        let path = self
            .inner
            .directory
            .by_id(&key.0)
            .map(|entry| entry.path.to_string());
        shard.add(&key.0, SLICES, json!({
            "metadata": {
                "name": key.1,
                "ownerReferences": [{
                    "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "name": key.1, "uid": text(export, "uid"),
                }],
            },
            "spec": { "export": { "path": path, "name": key.1 } },
        }));
    }

    fn export_gone(&mut self, shard: &Shard, key: &Key) {
        let export = self.export_mut(key);
        export.exists = false;
        export.resources = Vec::new();
        export.claims = Vec::new();
        export.kinds = Kinds::over(kinds::nothing());
        for binding in self.export_mut(key).bindings() {
            self.invalid_export(&binding);
        }
        if let Some(kind) = kinds::well_known(SLICES) {
            shard.delete(&key.0, &kind, &key.1);
        }
        self.publish_endpoints(key);
    }
}
