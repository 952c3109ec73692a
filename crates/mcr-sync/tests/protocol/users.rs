//! What users do to sources, and what others do to targets.

use mcr_sync::ABANDON;
use serde_json::{Value, json};

use crate::{
    related::SETTINGS,
    world::{BLOCK, CLUSTERS, NAMES, Place, SOURCE_CLUSTERS, Source, World, has_finalizer, uid},
};

/// Adds or removes the finalizer of a user. Returns whether the object has it now.
pub fn toggle_block(object: &mut Value) -> bool {
    let had = has_finalizer(object, BLOCK);
    let list = &mut object["metadata"]["finalizers"];
    let mut finalizers = list.as_array().cloned().unwrap_or_default();
    if had {
        finalizers.retain(|found| found != BLOCK);
    } else {
        finalizers.push(BLOCK.into());
    }
    *list = finalizers.into();
    !had
}

impl World {
    fn placement(&mut self) -> Value {
        let all = &CLUSTERS[SOURCE_CLUSTERS..];
        let chosen = all.iter().filter(|_| self.random.below(2) == 0);
        chosen.copied().collect()
    }

    fn spec(&mut self) -> Value {
        let mut spec = json!({"value": self.random.below(1000), "selected": self.random.below(6) > 0});
        if self.random.below(2) == 0 {
            spec["extra"] = self.random.below(1000).into();
        }
        if self.related {
            let chosen = SETTINGS.iter().filter(|_| self.random.below(2) == 0);
            spec["settings"] = chosen.copied().collect();
        }
        spec
    }

    /// A user creates, edits or deletes a source.
    pub fn change_source(&mut self, action: usize, source: Source) {
        let (cluster, name) = (source.0, NAMES[source.1]);
        let Some(mut own) = self.source(source) else {
            if action < 4 {
                let mut spec = self.spec();
                spec["selected"] = true.into();
                spec["at"] = self.placement();
                self.create(
                    cluster,
                    name,
                    json!({"sync": "yes", "home": CLUSTERS[cluster]}),
                    spec,
                );
            }
            return;
        };
        let is_deleting = own["metadata"]["deletionTimestamp"].is_string();
        match action {
            0 | 1 => {
                let at = own["spec"]["at"].take();
                own["spec"] = self.spec();
                own["spec"]["at"] = at;
            }
            2 | 3 => own["spec"]["at"] = self.placement(),
            4 => return self.delete(cluster, name),
            // A finalizer can't be added during the deletion.
            5 if !is_deleting || has_finalizer(&own, BLOCK) => {
                if toggle_block(&mut own) {
                    self.held.insert(source);
                } else {
                    self.held.remove(&source);
                }
            }
            6 => {
                let abandoned = &mut own["metadata"]["annotations"][ABANDON];
                *abandoned = if abandoned.is_null() {
                    "p, q".into()
                } else {
                    Value::Null
                };
                let annotations = own["metadata"]["annotations"].as_object_mut().unwrap();
                annotations.retain(|_, value| !value.is_null());
            }
            7 if self.narrow => {
                let label = &mut own["metadata"]["labels"]["sync"];
                *label = if label == "yes" { "no" } else { "yes" }.into();
            }
            _ => return,
        }
        self.update(cluster, own);
    }

    /// Somebody changes, blocks, deletes or takes a target.
    pub fn change_target(&mut self, action: usize, source: Source, cluster: usize) {
        let name = self.target_name(source);
        let place = (cluster, name.clone());
        let found = self.get(cluster, &name);
        if action >= 6 {
            return self.change_foreign(action, place, found);
        }
        let Some(mut target) = found.filter(|target| self.owner(cluster, target).is_some()) else {
            return;
        };
        let this = (cluster, uid(&target));
        match action {
            0 => target["spec"]["value"] = (-1).into(),
            1 => {
                let theirs = self.random.below(1000) as u64;
                target["spec"]["theirs"] = theirs.into();
                self.theirs.insert(this, theirs);
            }
            // One half of the link, if the other one is whole.
            2 if self.has_whole_link(&target) => {
                let (half, key) = [
                    ("labels", "sync.mcr.dev/sync"),
                    ("labels", "sync.mcr.dev/source"),
                    ("annotations", "sync.mcr.dev/source-cluster"),
                    ("annotations", "sync.mcr.dev/source-name"),
                ][self.random.below(4)];
                target["metadata"][half].as_object_mut().unwrap().remove(key);
            }
            3 if target["metadata"]["deletionTimestamp"].is_null() || has_finalizer(&target, BLOCK) => {
                toggle_block(&mut target);
            }
            4 => return self.delete(cluster, &name),
            5 => return self.copy_or_delete(cluster, target),
            _ => return,
        }
        self.update(cluster, target);
    }

    /// Somebody copies a target under another name with all that names its source, or deletes that copy.
    fn copy_or_delete(&mut self, cluster: usize, mut target: Value) {
        // Sources of two clusters may want this name, and the target belongs to one of them.
        let Some(owner) = self.owner(cluster, &target) else {
            return;
        };
        let name = Self::copy_name(owner);
        let place = (cluster, name.clone());
        if self.foreign.remove(&place).is_some() {
            return self.delete(cluster, &name);
        }
        if !self.has_whole_link(&target) {
            return;
        }
        let meta = target["metadata"].take();
        target["metadata"] = json!({"name": name, "namespace": "default",
            "labels": meta["labels"], "annotations": meta["annotations"]});
        if let Ok(made) = self.sims[cluster].create(target) {
            self.foreign.insert(place, made);
        }
    }

    pub fn has_whole_link(&self, target: &Value) -> bool {
        let meta = &target["metadata"];
        let labels = ["sync", "source"].map(|key| &meta["labels"][format!("sync.mcr.dev/{key}")]);
        let annotations =
            ["source-cluster", "source-name"].map(|key| &meta["annotations"][format!("sync.mcr.dev/{key}")]);
        labels.into_iter().chain(annotations).all(Value::is_string)
    }

    /// An object of somebody else appears in place of a target, or goes.
    pub fn change_foreign(&mut self, action: usize, place: Place, found: Option<Value>) {
        let (cluster, name) = (place.0, &*place.1);
        if self.foreign.contains_key(&place) {
            if action == 6 {
                self.delete(cluster, name);
                self.foreign.remove(&place);
            }
            return;
        }
        if found.is_some() {
            self.delete(cluster, name);
        }
        let adopt = if self.random.below(4) == 0 { "yes" } else { "no" };
        let spec = json!({"value": self.random.below(1000), "theirs": 0});
        // The name is still taken if the deletion waits for a finalizer.
        if let Some(made) = self.create(cluster, name, json!({"adopt": adopt}), spec) {
            self.theirs.insert((cluster, uid(&made)), 0);
            self.foreign.insert(place, made);
        }
    }

    /// Removes all that users hold up.
    pub fn unblock(&mut self) {
        self.held.clear();
        self.unblock_copies();
        for source in Self::sources() {
            if let Some(mut own) = self.source(source) {
                if has_finalizer(&own, BLOCK) {
                    toggle_block(&mut own);
                }
                own["metadata"]["labels"]["sync"] = "yes".into();
                self.update(source.0, own);
            }
            let name = self.target_name(source);
            for cluster in SOURCE_CLUSTERS..CLUSTERS.len() {
                if let Some(mut target) = self.get(cluster, &name)
                    && has_finalizer(&target, BLOCK)
                {
                    toggle_block(&mut target);
                    self.update(cluster, target);
                }
            }
        }
    }
}
