use std::sync::Arc;

use serde_json::{Value, json};

use super::condition;
use super::reconcile::Reconcile;
use crate::kinds::BINDINGS;
use crate::shard::Shard;
use crate::state::{Applied, CLAIM_PREFIX, Claim, Key};
use mcr_testkit::sim::object::{metadata_mut, text};

impl Reconcile<'_> {
    /// Applies the claims that a binding accepts, and withdraws claims that it no longer accepts.
    pub(super) fn apply_claims(&mut self, key: &Key) {
        let Some((shard, object)) = self.read(BINDINGS, key) else {
            return;
        };
        let Some(binding) = self.state.bindings.get(key) else {
            return;
        };
        if !binding.bound || !text(&object, "deletionTimestamp").is_empty() {
            return;
        }
        let export_key = binding.export.clone();
        let export = self.export_mut(&export_key);
        let (hash, wanted) = (export.hash.clone(), export.claims.clone());
        let accepted = object["spec"]["permissionClaims"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let accepted: Vec<&Value> = accepted
            .iter()
            .filter(|claim| claim["state"] == "Accepted")
            .collect();
        let is_claimed = |json: &&&Value| wanted.iter().any(|claim| Claim::parse(json).is_about(claim));
        let unexpected = accepted.iter().filter(|json| !is_claimed(json)).count();
        let mut applied = Vec::new();
        let mut shown = Vec::new();
        for claim in &wanted {
            let same = |json: &&&Value| Claim::parse(json).is_about(claim);
            let Some(json) = accepted.iter().find(same) else {
                continue;
            };
            let verbs = Claim::parse(json).verbs;
            let mut json = (**json).clone();
            if let Some(map) = json.as_object_mut() {
                map.remove("state");
            }
            applied.push(Applied {
                binding: key.1.clone(),
                label: claim.label(&hash),
                tables: claim.tables(),
                verbs,
                selector: json["selector"].clone(),
            });
            shown.push(json);
        }
        let tables = self.replace_claims(key, applied);
        self.label_all(shard, &key.0, &tables);
        shard.edit(&key.0, BINDINGS, &key.1, |object| {
            let of_export: Vec<Value> = wanted.iter().map(|claim| claim.json.clone()).collect();
            for (field, list) in [
                ("appliedPermissionClaims", shown),
                ("exportPermissionClaims", of_export),
            ] {
                if !list.is_empty() {
                    object["status"][field] = list.into();
                } else if let Some(status) = object["status"].as_object_mut() {
                    status.remove(field);
                }
            }
            condition::ok(object, &["PermissionClaimsApplied"]);
            if unexpected == 0 {
                condition::ok(object, &["PermissionClaimsValid"]);
            } else {
                let message = format!("{unexpected} unexpected and/or invalid permission claims");
                let why = Some(("InvalidPermissionClaims", &*message));
                condition::set(object, "PermissionClaimsValid", "False", why);
            }
        });
    }

    /// Sets the applied claims of a binding. Returns the tables that the old or the new claims concern.
    pub(super) fn replace_claims(&mut self, key: &Key, applied: Vec<Applied>) -> Vec<Arc<str>> {
        let all = self.state.claims.entry(key.0.clone()).or_default();
        let mut tables: Vec<Arc<str>> = Vec::new();
        let old = all.iter().filter(|claim| claim.binding == key.1);
        for table in old.chain(&applied).flat_map(|claim| &claim.tables) {
            if !tables.contains(table) {
                tables.push(table.clone());
            }
        }
        all.retain(|claim| claim.binding != key.1);
        all.extend(applied);
        if all.is_empty() {
            self.state.claims.remove(&key.0);
        }
        tables
    }

    pub(super) fn label_all(&self, shard: &Shard, cluster: &Arc<str>, tables: &[Arc<str>]) {
        for table in tables {
            for path in shard.paths(cluster, table) {
                self.label_on(shard, cluster, table, &path);
            }
        }
    }

    pub(super) fn label_object(&mut self, cluster: &Arc<str>, table: &Arc<str>, path: &str) {
        if let Some(shard) = self.shard_of(cluster) {
            self.label_on(shard, cluster, table, path);
        }
    }

    fn label_on(&self, shard: &Shard, cluster: &Arc<str>, table: &Arc<str>, path: &str) {
        let claims = self.state.claims.get(cluster);
        shard.edit(cluster, table, path, |object| {
            let wanted = wanted_labels(claims, table, object);
            if wanted == claim_labels(object) {
                return;
            }
            let metadata = metadata_mut(object);
            let labels = metadata.entry("labels").or_insert_with(|| json!({}));
            let Some(map) = labels.as_object_mut() else { return };
            map.retain(|key, _| !key.starts_with(CLAIM_PREFIX));
            map.extend(wanted.into_iter().map(|(key, value)| (key, value.into())));
            if map.is_empty() {
                metadata.remove("labels");
            }
        });
    }

    /// Whether the claim labels of an object differ from the claims on it.
    pub(super) fn has_wrong_labels(&self, shard: &Shard, table: &Arc<str>, key: &Key) -> bool {
        let Some(claims) = self.state.claims.get(&key.0) else {
            return false;
        };
        if !claims.iter().any(|claim| claim.tables.contains(table)) {
            return false;
        }
        let object = shard.get(&key.0, table, &key.1);
        object.is_some_and(|object| wanted_labels(Some(claims), table, &object) != claim_labels(&object))
    }
}

/// The labels of claims that an object has, in order.
fn claim_labels(object: &Value) -> Vec<(String, String)> {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    let own = labels.filter(|(key, _)| key.starts_with(CLAIM_PREFIX));
    let mut own: Vec<(String, String)> = own
        .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    own.sort();
    own
}

/// The labels that an object must have.
fn wanted_labels(claims: Option<&Vec<Applied>>, table: &Arc<str>, object: &Value) -> Vec<(String, String)> {
    let claims = claims.into_iter().flatten();
    let mine = claims.filter(|claim| claim.tables.contains(table) && selects(&claim.selector, object));
    let mut labels: Vec<(String, String)> = mine.map(|claim| claim.label.clone()).collect();
    labels.sort();
    labels.dedup();
    labels
}

/// Whether the selector of an accepted claim selects an object.
pub(super) fn selects(selector: &Value, object: &Value) -> bool {
    let own = |key: &str| object["metadata"]["labels"][key].as_str();
    let mut equal = selector["matchLabels"].as_object().into_iter().flatten();
    equal.all(|(key, value)| own(key) == value.as_str())
}
