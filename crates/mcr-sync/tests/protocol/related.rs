//! Related objects: ConfigMaps that go down with a source, and ConfigMaps that come up from beside its targets.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    users::toggle_block,
    world::{
        BLOCK, CLUSTERS, NAMES, Place, SOON, SOURCE_CLUSTERS, Source, World, has_finalizer, is_deleting, now,
        uid, wanted,
    },
};

/// The objects in each source cluster that sources may name.
pub const SETTINGS: [&str; 2] = ["m-k", "m-l"];
/// The object beside a target that is chosen by its label. As an origin it comes after those that go down.
const KEY: usize = SETTINGS.len();
/// What marks a copy. The labels suffice to find it, and the next one tells the place that it belongs to.
const MARKS: [(&str, &str); 6] = [
    ("labels", "sync.mcr.dev/sync"),
    ("labels", "sync.mcr.dev/source"),
    ("labels", "sync.mcr.dev/related"),
    ("annotations", "sync.mcr.dev/origin"),
    ("annotations", "sync.mcr.dev/source-cluster"),
    ("annotations", "sync.mcr.dev/source-name"),
];

/// One copy that a source may have: the target cluster that it belongs to, and which origin it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    pub source: Source,
    pub at: usize,
    origin: usize,
}

/// A copy that the sync has made.
#[derive(Debug, Clone)]
pub struct Copy {
    uid: String,
    pub slot: Slot,
    /// Since when it shall exist without a break.
    since: Option<Duration>,
}

fn has_marks(copy: &Value, marks: usize) -> bool {
    let mut marks = MARKS[..marks].iter();
    marks.all(|(half, key)| copy["metadata"][half][key].is_string())
}

impl Slot {
    fn all(source: Source, at: usize) -> [Self; KEY + 1] {
        std::array::from_fn(|origin| Self { source, at, origin })
    }
}

impl World {
    fn origin_place(&self, Slot { source, at, origin }: Slot) -> Place {
        match SETTINGS.get(origin) {
            Some(name) => (source.0, (*name).to_owned()),
            None => (at, format!("m-{}", self.target_name(source))),
        }
    }

    /// As the functions for names of the sync have it.
    fn copy_place(&self, Slot { source, at, origin }: Slot) -> Place {
        let (home, name) = (CLUSTERS[source.0], NAMES[source.1]);
        match SETTINGS.get(origin) {
            Some(origin) if self.collide => (at, format!("{origin}-{name}")),
            Some(origin) => (at, format!("{origin}-{home}-{name}")),
            None => (source.0, format!("m-{name}-{}", CLUSTERS[at])),
        }
    }

    /// Whether the source wants this copy, if its origin exists.
    fn names(&self, slot: Slot, own: &Value) -> bool {
        let names = own["spec"]["settings"].as_array();
        let is_named = match SETTINGS.get(slot.origin) {
            Some(origin) => names.is_some_and(|names| names.iter().any(|name| name == origin)),
            None => {
                let target = self.get(slot.at, &self.target_name(slot.source));
                let is_there = |it: &Value| self.owner(slot.at, it) == Some(slot.source) && !is_deleting(it);
                target.is_some_and(|target| is_there(&target))
            }
        };
        is_named && wanted(own).contains(&slot.at)
    }

    /// The origin of a copy that shall exist.
    fn origin(&self, slot: Slot, own: &Value) -> Option<Value> {
        let (cluster, name) = self.origin_place(slot);
        let origin = self.get(cluster, &name).filter(|_| self.names(slot, own))?;
        let chosen = &origin["metadata"]["labels"]["for"];
        (slot.origin < KEY || *chosen == self.target_name(slot.source)).then_some(origin)
    }

    /// What is in the place of a copy, and whether it is this copy.
    fn found(&self, slot: Slot) -> (Place, Option<Value>, bool) {
        let place = self.copy_place(slot);
        let (found, copy) = (self.get(place.0, &place.1), self.copies.get(&place));
        let is_it = |found: &Value| copy.is_some_and(|copy| copy.slot == slot && copy.uid == uid(found));
        let is_ours = found.as_ref().is_some_and(is_it);
        (place, found, is_ours)
    }

    /// Most origins exist from the beginning.
    pub fn create_origins(&self) {
        for source in Self::sources() {
            let slots = [2, 3].into_iter().flat_map(|at| Slot::all(source, at));
            slots.for_each(|slot| self.create_origin(slot, 0));
        }
    }

    fn create_origin(&self, slot: Slot, value: usize) {
        let (cluster, name) = self.origin_place(slot);
        let labels = json!({"for": self.target_name(slot.source), "at": CLUSTERS[slot.at]});
        self.create(cluster, &name, labels, json!({"value": value}));
    }

    /// Somebody makes, changes or deletes an origin, or changes, blocks, deletes or takes a copy.
    pub fn change_related(&mut self, source: Source, at: usize) {
        let (action, origin) = (self.random.below(10), self.random.below(KEY + 1));
        let slot = Slot { source, at, origin };
        self.note(format!("  related {action}: {slot:?}"));
        let (place, found, is_ours) = self.found(slot);
        let (cluster, name) = if action < 5 {
            self.origin_place(slot)
        } else {
            place.clone()
        };
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
                let chosen = if action == 2 {
                    "nobody".to_owned()
                } else {
                    self.target_name(source)
                };
                origin["metadata"]["labels"]["for"] = chosen.into();
                origin["data"]["value"] = self.random.below(1000).to_string().into();
                self.update(cluster, origin);
            }
            4 | 5 => self.delete(cluster, &name),
            6 => self.change_foreign(6, place, found),
            _ if is_ours => {
                let mut copy = found.unwrap();
                match action {
                    7 => copy["data"]["value"] = "changed".into(),
                    8 if has_marks(&copy, MARKS.len()) => {
                        let (half, key) = MARKS[self.random.below(MARKS.len())];
                        copy["metadata"][half].as_object_mut().unwrap().remove(key);
                    }
                    9 if !is_deleting(&copy) || has_finalizer(&copy, BLOCK) => drop(toggle_block(&mut copy)),
                    _ => return,
                }
                self.update(cluster, copy);
            }
            _ => {}
        }
    }

    /// Looks at a write of the sync to a ConfigMap.
    pub fn copy_written(&mut self, method: &str, place: Place, before: Option<&Value>) {
        let known = self.copies.get(&place).cloned();
        let known = known.filter(|copy| before.is_some_and(|before| copy.uid == uid(before)));
        let slot = match (method, known) {
            (_, None) if before.is_some() => {
                return self.fail(format!(
                    "the object of somebody else at {place:?} was written: {before:?}"
                ));
            }
            ("DELETE", Some(copy)) => {
                if copy.since.is_some_and(|since| now() - since > SOON) {
                    self.fail(format!(
                        "the copy at {place:?} was deleted although its origin exists"
                    ));
                }
                copy.slot
            }
            (_, known) => {
                let after = self.get(place.0, &place.1).unwrap();
                let source = self.source_named(&after["metadata"]["annotations"]);
                let places = source
                    .into_iter()
                    .flat_map(|it| (SOURCE_CLUSTERS..CLUSTERS.len()).map(move |at| (it, at)));
                let mut slots = places.flat_map(|(source, at)| Slot::all(source, at));
                let slot = slots.find(|slot| self.copy_place(*slot) == place);
                if slot.is_none() || known.as_ref().is_some_and(|known| Some(known.slot) != slot) {
                    return self.fail(format!("the copy at {place:?} of {known:?} is now {after}"));
                }
                let (uid, slot) = (uid(&after), slot.unwrap());
                self.made.entry((place.0, uid.clone())).or_insert(self.writer);
                let since = known.and_then(|known| known.since);
                self.copies.insert(place, Copy { uid, slot, since });
                slot
            }
        };
        self.check(slot.source);
    }

    /// No copy of a source is out of its record. Notes which ones shall exist. `kept` are the places in the record.
    pub fn check_copies(&mut self, source: Source, own: Option<&Value>, kept: &[usize]) {
        let copies = self.copies.clone().into_iter();
        for (place, copy) in copies.filter(|(_, copy)| copy.slot.source == source) {
            let (_, found, true) = self.found(copy.slot) else {
                self.copies.remove(&place);
                continue;
            };
            let is_asked = own.is_some_and(|own| self.origin(copy.slot, own).is_some());
            let since = is_asked.then(|| copy.since.unwrap_or_else(now));
            let this = (place.0, copy.uid.clone());
            // Nobody knows the place of a copy without its origin, until the source is released.
            let marks = if kept.is_empty() { 3 } else { 4 };
            if kept.contains(&copy.slot.at) {
                self.excused.remove(&this);
            } else if has_marks(&found.unwrap(), marks) {
                self.orphan(this, source, "copy");
            }
            self.copies.insert(place, Copy { since, ..copy });
        }
    }

    /// A target is deleted after the copies of its place.
    pub fn check_copies_before(&mut self, owner: Source, at: usize) {
        for slot in Slot::all(owner, at) {
            let (place, Some(copy), true) = self.found(slot) else {
                continue;
            };
            let this = (place.0, uid(&copy));
            let is_race = self.is_race(self.made.get(&this), Some(&self.writer));
            if has_marks(&copy, 4) && !is_race && !self.excused.contains(&this) {
                self.fail(format!(
                    "the target of {owner:?} in {} went before {copy}",
                    CLUSTERS[at]
                ));
            }
        }
    }

    /// Copies that stay in a cluster which was given up.
    pub fn excuse_copies(&mut self, source: Source, at: usize) {
        for slot in &Slot::all(source, at)[..KEY] {
            if let (place, Some(copy), true) = self.found(*slot) {
                self.excused.insert((place.0, uid(&copy)));
            }
        }
    }

    /// At rest: whether copies that belong to a place are left.
    pub fn has_copies(&self, source: Source, at: usize) -> bool {
        Slot::all(source, at)
            .into_iter()
            .any(|slot| match self.found(slot) {
                (place, Some(copy), true) => {
                    has_marks(&copy, MARKS.len()) && !self.excused.contains(&(place.0, uid(&copy)))
                }
                _ => false,
            })
    }

    /// At rest: whether copies of a place are held up, by objects of somebody else or because their origins are missing.
    pub fn copies_agree(&self, source: Source, own: &Value, at: usize) -> Result<bool, String> {
        let mut held = false;
        for slot in Slot::all(source, at) {
            let (place, found, is_ours) = self.found(slot);
            match (self.origin(slot, own), found) {
                (Some(_), Some(_)) if !is_ours => held = true,
                (Some(origin), Some(copy))
                    if copy["data"] == origin["data"] && has_marks(&copy, MARKS.len()) => {}
                (None, Some(copy)) if is_ours && has_marks(&copy, MARKS.len()) => {
                    return Err(format!("{copy} is stale"));
                }
                (None, _) => held |= slot.origin < KEY && self.names(slot, own),
                (origin, copy) => return Err(format!("the copy of {origin:?} at {place:?} is {copy:?}")),
            }
        }
        Ok(held)
    }

    /// Removes the finalizers that hold up copies.
    pub fn unblock_copies(&mut self) {
        for (cluster, name) in self.copies.keys() {
            if let Some(mut copy) = self.get(*cluster, name).filter(|copy| has_finalizer(copy, BLOCK)) {
                toggle_block(&mut copy);
                self.update(*cluster, copy);
            }
        }
    }
}
