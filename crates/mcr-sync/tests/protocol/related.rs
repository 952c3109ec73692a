//! Related objects: ConfigMaps that go down with a source, and ConfigMaps that come up from beside its targets.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    users::toggle_block,
    world::{
        BLOCK, CLUSTERS, NAMES, Place, SOON, SOURCE_CLUSTERS, Source, World, has_finalizer, is_deleting, uid,
        wanted,
    },
};

/// The objects in each source cluster that sources may name. All names of ConfigMaps begin with `m-`.
pub(crate) const SETTINGS: [&str; 2] = ["m-k", "m-l"];
/// The object beside a target that is chosen by its label, after those that go down.
const KEY: usize = SETTINGS.len();
/// What marks a copy. The labels suffice to find it.
const MARKS: [(&str, &str); 6] = [
    ("labels", "sync.mcr.dev/sync"),
    ("labels", "sync.mcr.dev/source"),
    ("labels", "sync.mcr.dev/related"),
    ("annotations", "sync.mcr.dev/source-cluster"),
    ("annotations", "sync.mcr.dev/source-name"),
    ("annotations", "sync.mcr.dev/origin"),
];

/// One copy that a source may have: the target cluster that it belongs to, and which origin it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) source: Source,
    pub(crate) at: usize,
    origin: usize,
}

/// A copy that the sync has made.
#[derive(Debug, Clone)]
pub(crate) struct Copy {
    uid: String,
    pub(crate) slot: Slot,
    /// Since when it shall exist without a break.
    since: Option<Instant>,
}

fn has_marks(copy: &Value, marks: &[(&str, &str)]) -> bool {
    let mut marks = marks.iter();
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
        if !wanted(own).contains(&slot.at) {
            return false;
        }
        let name = self.target_name(slot.source);
        match SETTINGS.get(slot.origin) {
            Some(origin) => own["spec"]["settings"]
                .as_array()
                .is_some_and(|all| all.iter().any(|name| name == origin)),
            None => self.get(slot.at, &name).is_some_and(|target| {
                self.owner(slot.at, &target) == Some(slot.source) && !is_deleting(&target)
            }),
        }
    }

    /// The origin of a copy that shall exist.
    fn origin(&self, slot: Slot, own: &Value) -> Option<Value> {
        let (cluster, name) = self.origin_place(slot);
        let origin = self.get(cluster, &name).filter(|_| self.names(slot, own))?;
        let is_chosen =
            slot.origin < KEY || origin["metadata"]["labels"]["for"] == self.target_name(slot.source);
        is_chosen.then_some(origin)
    }

    fn copy_at(&self, place: &Place, found: &Value) -> Option<&Copy> {
        self.copies.get(place).filter(|copy| copy.uid == uid(found))
    }

    /// Most origins exist from the beginning.
    pub(crate) fn create_origins(&self) {
        for slot in
            Self::sources().flat_map(|source| [2, 3].into_iter().flat_map(move |at| Slot::all(source, at)))
        {
            self.create_origin(slot, 0);
        }
    }

    fn create_origin(&self, slot: Slot, value: usize) {
        let (cluster, name) = self.origin_place(slot);
        let labels = json!({"for": self.target_name(slot.source), "at": CLUSTERS[slot.at]});
        self.create(cluster, &name, labels, json!({"value": value}));
    }

    /// Somebody changes an origin, or changes, blocks, deletes or takes a copy.
    pub(crate) fn change_related(&mut self, action: usize, source: Source, at: usize) {
        let slot = Slot {
            source,
            at,
            origin: self.random.below(KEY + 1),
        };
        let place = if action < 4 {
            self.origin_place(slot)
        } else {
            self.copy_place(slot)
        };
        let (cluster, name) = (place.0, &*place.1);
        let found = self.get(cluster, name);
        match (action, found) {
            (0 | 1, found) => {
                if found.is_some() {
                    self.delete(cluster, name);
                }
                let value = self.random.below(1000);
                self.create_origin(slot, value);
            }
            (2, Some(mut origin)) => {
                let chosen = if self.random.below(4) == 0 {
                    "nobody".to_owned()
                } else {
                    self.target_name(source)
                };
                origin["metadata"]["labels"]["for"] = chosen.into();
                origin["data"]["value"] = self.random.below(1000).to_string().into();
                self.update(cluster, origin);
            }
            (3, Some(_)) => self.delete(cluster, name),
            (4, found) => self.change_foreign(6, place, found),
            (_, Some(mut copy)) if self.copy_at(&place, &copy).is_some() => {
                match action {
                    5 => copy["data"]["value"] = "changed".into(),
                    6 if has_marks(&copy, &MARKS) => {
                        let (half, key) = MARKS[self.random.below(MARKS.len())];
                        copy["metadata"][half].as_object_mut().unwrap().remove(key);
                    }
                    7 if !is_deleting(&copy) || has_finalizer(&copy, BLOCK) => drop(toggle_block(&mut copy)),
                    8 => return self.delete(cluster, name),
                    _ => return,
                }
                self.update(cluster, copy);
            }
            _ => {}
        }
    }

    /// Looks at a write of the sync to a ConfigMap.
    pub(crate) fn copy_written(&mut self, method: &str, place: Place, before: Option<&Value>) {
        let known = before.and_then(|before| self.copy_at(&place, before)).cloned();
        if before.is_some() && known.is_none() {
            return self.fail(format!(
                "the object of somebody else at {place:?} was written: {before:?}"
            ));
        }
        if method == "DELETE" {
            let Some(copy) = known else { return };
            if copy.since.is_some_and(|since| since.elapsed() > SOON) {
                self.fail(format!(
                    "the copy at {place:?} was deleted although its origin exists"
                ));
            }
            return self.check(copy.slot.source);
        }
        let after = self.get(place.0, &place.1).unwrap();
        let source = self.source_named(&after["metadata"]["annotations"]);
        let mut slots = source
            .into_iter()
            .flat_map(|source| (SOURCE_CLUSTERS..CLUSTERS.len()).flat_map(move |at| Slot::all(source, at)));
        let Some(slot) = slots.find(|slot| self.copy_place(*slot) == place) else {
            return self.fail(format!("the copy at {place:?} names no source: {after}"));
        };
        if known.as_ref().is_some_and(|known| known.slot != slot) {
            return self.fail(format!(
                "the copy at {place:?} of {known:?} was claimed by {slot:?}"
            ));
        }
        let copy = known.unwrap_or(Copy {
            uid: uid(&after),
            slot,
            since: None,
        });
        self.made
            .entry((place.0, copy.uid.clone()))
            .or_insert(self.writer);
        self.copies.insert(place, copy);
        self.check(slot.source);
    }

    /// No copy of a source is out of its record, and notes which ones shall exist. `kept` are the places in the record.
    pub(crate) fn check_copies(&mut self, source: Source, own: Option<&Value>, kept: &[usize]) {
        let of_source = |copy: &&Copy| copy.slot.source == source;
        let places = self
            .copies
            .iter()
            .filter(|(_, copy)| of_source(copy))
            .map(|(place, _)| place.clone());
        for place in Vec::from_iter(places) {
            let found = self.get(place.0, &place.1);
            let Some((found, copy)) = found
                .and_then(|it| Some((self.copy_at(&place, &it)?.clone(), it)))
                .map(|(a, b)| (b, a))
            else {
                self.copies.remove(&place);
                continue;
            };
            let is_asked = own.is_some_and(|own| self.origin(copy.slot, own).is_some());
            let since = is_asked.then(|| copy.since.unwrap_or_else(Instant::now));
            let this = (place.0, copy.uid.clone());
            if kept.contains(&copy.slot.at) {
                self.excused.remove(&this);
            } else if has_marks(&found, &MARKS[..3]) {
                self.orphan(this, source, "copy");
            }
            self.copies.insert(place, Copy { since, ..copy });
        }
    }

    /// A target is deleted after the copies of its place.
    pub(crate) fn check_copies_before(&mut self, owner: Source, at: usize) {
        let slots = Slot::all(owner, at).map(|slot| self.copy_place(slot));
        for place in slots {
            let Some(found) = self.get(place.0, &place.1) else {
                continue;
            };
            let Some(copy) = self.copy_at(&place, &found) else {
                continue;
            };
            let this = (place.0, copy.uid.clone());
            let is_of_place = copy.slot.source == owner && has_marks(&found, &MARKS[..3]);
            if is_of_place
                && !self.excused.contains(&this)
                && !self.is_race(self.made.get(&this), Some(&self.writer))
            {
                self.fail(format!(
                    "the target of {owner:?} in {} went before its copy at {place:?}",
                    CLUSTERS[at]
                ));
            }
        }
    }

    /// Copies that stay in a cluster which was given up.
    pub(crate) fn excuse_copies(&mut self, source: Source, at: usize) {
        let copies = self
            .copies
            .iter()
            .filter(|((cluster, _), copy)| *cluster == at && copy.slot.source == source);
        let excused = Vec::from_iter(copies.map(|((cluster, _), copy)| (*cluster, copy.uid.clone())));
        self.excused.extend(excused);
    }

    /// At rest: whether copies of a place are held up or missing their origins, and whether some are left.
    pub(crate) fn copies_agree(
        &self,
        source: Source,
        own: Option<&Value>,
        at: usize,
    ) -> Result<(bool, bool), String> {
        let (mut held, mut left) = (false, false);
        for slot in Slot::all(source, at) {
            let place = self.copy_place(slot);
            let found = self.get(place.0, &place.1);
            let is_ours = |found: &&Value| self.copy_at(&place, found).is_some_and(|copy| copy.slot == slot);
            let ours = found.as_ref().filter(is_ours);
            match (own.and_then(|own| self.origin(slot, own)), ours) {
                (Some(origin), Some(copy)) if copy["data"] == origin["data"] && has_marks(copy, &MARKS) => {}
                (Some(_), None) if found.is_some() => held = true,
                (Some(origin), _) => return Err(format!("the copy of {origin} at {place:?} is {found:?}")),
                (None, ours) => {
                    held |= slot.origin < KEY && own.is_some_and(|own| self.names(slot, own));
                    let is_left = |copy: &&Value| {
                        has_marks(copy, &MARKS) && !self.excused.contains(&(place.0, uid(copy)))
                    };
                    left |= ours.filter(is_left).is_some();
                }
            }
        }
        Ok((held, left))
    }

    /// Removes the finalizers that hold up copies.
    pub(crate) fn unblock_copies(&mut self) {
        for (cluster, name) in BTreeSet::from_iter(self.copies.keys().cloned()) {
            if let Some(mut copy) = self.get(cluster, &name).filter(|copy| has_finalizer(copy, BLOCK)) {
                toggle_block(&mut copy);
                self.update(cluster, copy);
            }
        }
    }
}
