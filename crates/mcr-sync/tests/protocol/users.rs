//! What users do to sources and origins, and what others do to what the sync makes.

use mcr_sync::ABANDON;
use serde_json::{Value, json};

use crate::{
    rules::ALL,
    world::{
        BLOCK, CLUSTERS, KEY, KINDS, NAMES, Place, SETTINGS, Slot, Source, TARGET, TARGETS, World,
        has_finalizer, is_deleting, uid,
    },
};

/// Adds or removes the finalizer of a user. Returns whether the object has it now.
fn toggle_block(object: &mut Value) -> bool {
    let had = has_finalizer(object, BLOCK);
    let list = &mut object["metadata"]["finalizers"];
    let mut finalizers = list.as_array().cloned().unwrap_or_default();
    finalizers.retain(|found| found != BLOCK);
    finalizers.extend((!had).then(|| BLOCK.into()));
    *list = finalizers.into();
    !had
}

impl World {
    fn spec(&mut self) -> Value {
        let mut spec = json!({"value": self.random.below(1000), "selected": self.random.below(6) > 0});
        if self.random.below(2) == 0 {
            spec["extra"] = self.random.below(1000).into();
        }
        let mut some = |all: &[&str]| {
            let chosen = all.iter().filter(|_| self.random.below(2) == 0);
            chosen.copied().collect::<Value>()
        };
        spec["at"] = some(&CLUSTERS[TARGETS]);
        if self.related {
            spec["settings"] = some(&SETTINGS);
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
                let labels = json!({"sync": "yes", "pick": "yes", "home": self.home(source)});
                self.create(cluster, name, labels, spec);
            }
            return;
        };
        match action {
            0 | 1 => {
                let at = own["spec"]["at"].take();
                own["spec"] = self.spec();
                own["spec"]["at"] = at;
            }
            2 | 3 => own["spec"]["at"] = self.spec()["at"].take(),
            4 => return self.delete(cluster, name),
            // A finalizer can't be added during the deletion.
            5 if !is_deleting(&own) || has_finalizer(&own, BLOCK) => {
                self.held.remove(&source);
                self.held.extend(toggle_block(&mut own).then_some(source));
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
            7 if self.narrow || self.labelled => {
                let label = if self.narrow { "sync" } else { "pick" };
                let label = &mut own["metadata"]["labels"][label];
                *label = if label == "yes" { "no" } else { "yes" }.into();
            }
            _ => return,
        }
        self.update(cluster, own);
    }

    /// Most origins exist from the beginning.
    pub fn create_origins(&self) {
        let all = Self::sources().flat_map(Slot::all);
        let most = all.filter(|slot| self.related && slot.what <= KEY && slot.at < 4);
        most.for_each(|slot| self.create_origin(slot, 0));
    }

    fn create_origin(&self, slot: Slot, value: usize) {
        let (cluster, name) = self.origin_place(slot);
        let labels = json!({"for": self.target_name(slot.source), "copy": self.place(slot).1});
        // With these labels, a copy of a setting that has lost its marks would be a key.
        let labels = if slot.what == KEY { labels } else { json!({}) };
        self.create(cluster, &name, labels, json!({"value": value}));
    }

    /// Somebody makes, changes or deletes an origin, or changes a copy.
    pub fn change_related(&mut self, source: Source, at: usize) {
        let (action, what) = (self.random.below(10), self.random.below(KEY + 1));
        let slot = Slot::new(source, at, what);
        self.note(format!("  related {action}: {slot:?}"));
        let (cluster, name) = self.origin_place(slot);
        match action {
            0 | 1 => {
                self.delete(cluster, &name);
                let value = self.random.below(1000);
                self.create_origin(slot, value);
            }
            2 | 3 => {
                let Some(mut origin) = self.get(cluster, &name) else {
                    return;
                };
                if what == KEY {
                    let chosen = ["nobody".to_owned(), self.target_name(source)][action - 2].clone();
                    origin["metadata"]["labels"]["for"] = chosen.into();
                }
                origin["data"]["value"] = self.random.below(1000).to_string().into();
                self.update(cluster, origin);
            }
            4 => self.delete(cluster, &name),
            _ => self.change_made([0, 2, 3, 4, 7][action - 5], slot),
        }
    }

    /// Somebody changes, blocks, deletes or takes a target or a copy.
    pub fn change_made(&mut self, action: usize, slot: Slot) {
        let (place, is_target) = (self.place(slot), slot.what == TARGET);
        if action >= 7 {
            return self.change_foreign(place);
        }
        let Some(mut made) = self.ours(slot) else { return };
        let cluster = place.0;
        match action {
            0 if is_target => made["spec"]["value"] = (-1).into(),
            0 => made["data"]["value"] = "changed".into(),
            1 if is_target => {
                let theirs = self.random.below(1000) as u64;
                made["spec"]["theirs"] = theirs.into();
                self.theirs.insert((cluster, uid(&made)), theirs);
            }
            // One mark, if the others are whole.
            2 if slot.has_marks(&made, ALL) => {
                let all = Vec::from_iter(slot.marks());
                let (half, key) = &all[self.random.below(all.len())];
                made["metadata"][half].as_object_mut().unwrap().remove(key);
            }
            3 if !is_deleting(&made) || has_finalizer(&made, BLOCK) => drop(toggle_block(&mut made)),
            4 => return self.delete(cluster, &place.1),
            5 if is_target => return self.copy_or_delete(slot, made),
            // As its controller sets the status, which no update does.
            6 if is_target => {
                made["status"]["phase"] = self.random.below(4).to_string().into();
                return self.sims[cluster].restore(made).unwrap();
            }
            _ => return,
        }
        self.update(cluster, made);
    }

    /// Somebody copies a target under another name with all that names its source, or deletes that copy.
    fn copy_or_delete(&mut self, slot: Slot, mut target: Value) {
        let name = Self::copy_name(slot.source);
        let place = (slot.at, name.clone());
        if self.foreign.remove(&place).is_some() {
            return self.delete(slot.at, &name);
        }
        if !slot.has_marks(&target, ALL) {
            return;
        }
        let meta = target["metadata"].take();
        target["metadata"] = json!({"name": name, "namespace": "default",
            "labels": meta["labels"], "annotations": meta["annotations"]});
        let made = self.sims[slot.at].create(target).ok();
        self.foreign.extend(made.map(|made| (place, made)));
    }

    /// An object of somebody else appears in place of a target or a copy, or goes.
    fn change_foreign(&mut self, place: Place) {
        let (cluster, name) = (place.0, &*place.1);
        if self.foreign.remove(&place).is_some() {
            return self.delete(cluster, name);
        }
        self.delete(cluster, name);
        let adopt = if self.random.below(4) == 0 { "yes" } else { "no" };
        let spec = json!({"value": self.random.below(1000), "theirs": 0});
        // The name is still taken if the deletion waits for a finalizer.
        if let Some(made) = self.create(cluster, name, json!({"adopt": adopt}), spec) {
            self.theirs.insert((cluster, uid(&made)), 0);
            self.foreign.insert(place, made);
        }
    }

    /// Ends all trouble, and removes all that users hold up.
    pub fn unblock(&mut self) {
        (self.trouble, self.lagging, self.crash_in) = Default::default();
        self.held.clear();
        for (sim, kind) in self.sims.iter().flat_map(|sim| KINDS.map(|kind| (sim, kind))) {
            for mut object in sim.list(kind, "default") {
                let is_blocked = has_finalizer(&object, BLOCK) && !toggle_block(&mut object);
                let label = object.pointer_mut("/metadata/labels/sync");
                let label = label.filter(|label| **label == "no");
                let is_hidden = label.map(|label| *label = "yes".into()).is_some();
                if is_blocked || is_hidden {
                    sim.update(object).unwrap();
                }
            }
        }
    }
}
