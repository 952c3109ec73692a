//! What must hold after each step, and at rest.

use std::{collections::BTreeSet, time::Duration};

use mcr_sync::ABANDON;
use serde_json::Value;

use crate::world::{
    BLOCK, CLUSTERS, Id, KEY, Made, NAMES, Place, SOURCES, Slot, Source, Stamp, TARGET, TARGETS, World,
    cluster_of, has_finalizer, names, now, uid, wanted,
};

/// More steps than a history has if the sync comes to rest.
const MOST_STEPS: u64 = 1500;

/// More time than a reconcile takes: nothing that it has read is older.
const SOON: Duration = Duration::from_secs(20);

/// The time from the read that a deletion follows from to the deletion. The sync reads the source once more in between, but only
/// to see whether there is one. Zero: it must not delete what the last read does not allow.
const ACTS_WITHIN: Duration = Duration::from_secs(2);

const FINALIZER: &str = "sync.mcr.dev/model";
const RECORD: &str = "sync.mcr.dev/placed.model";

/// The marks of an object.
pub const ALL: usize = 6;

/// The target clusters in the record of a source.
fn recorded(source: &Value) -> Vec<usize> {
    let text = source["metadata"]["annotations"][RECORD].as_str().unwrap_or("[]");
    let places: Vec<(String, Option<String>, String)> = serde_json::from_str(text).unwrap();
    places.iter().map(|(name, _, _)| cluster_of(name)).collect()
}

/// The phase in the status of a target.
pub fn phase(status: &Value) -> &str {
    status["phase"].as_str().unwrap_or("none")
}

impl World {
    /// The server has shown a source to a program.
    pub fn show(&mut self, program: u64, source: Source) {
        let shown = self.source(source);
        let all = self.shown.entry((program, source)).or_default();
        all.retain(|(at, _)| now() - *at < ACTS_WITHIN);
        all.push((now(), shown));
    }

    /// Whether two programs lead.
    pub fn is_shared(&self) -> bool {
        let is_leader = |program: &&u64| self.leads.contains_key(program);
        self.alive.iter().filter(is_leader).count() > 1
    }

    /// Whether two programs that led at once did this soon one after the other, so that one could not know of the other.
    fn is_race(&self, one: &Stamp, other: &Stamp) -> bool {
        let first = one.0.min(other.0);
        let led = |stamp: &Stamp| self.leads[&stamp.1] <= first;
        one.1 != other.1 && one.0.max(other.0) - first < SOON && led(one) && led(other)
    }

    /// Looks at a write of the sync that the server has accepted. `before` is the object before it.
    pub fn written(&mut self, by: u64, method: &str, place: Place, before: Option<&Value>) {
        let stamp = (now(), by);
        (self.steps, self.writes) = (self.steps + 1, self.writes + 1);
        if self.steps > MOST_STEPS {
            return self.fail("it writes without end");
        }
        let (cluster, name) = (place.0, &*place.1);
        if let Some(name) = NAMES
            .iter()
            .position(|known| *known == name && SOURCES.contains(&cluster))
        {
            self.record_written((cluster, name), before, stamp);
            self.show(by, (cluster, name));
            return self.check((cluster, name));
        }
        let known = before
            .and_then(|before| self.made.get(&(cluster, uid(before))))
            .cloned();
        if let (Some(before), None) = (before, &known) {
            if method == "DELETE" || before["metadata"]["labels"]["adopt"] != "yes" || name.starts_with("m-")
            {
                return self.fail(format!(
                    "the object of somebody else at {place:?} was written: {before}"
                ));
            }
            self.foreign.remove(&place);
        }
        if let ("DELETE", Some(known)) = (method, &known) {
            self.check_delete(known, &stamp);
            return self.check(known.slot.source);
        }
        let after = self.get(cluster, name).unwrap();
        let slots = self
            .source_named(&after["metadata"]["annotations"])
            .into_iter()
            .flat_map(Slot::all);
        let slot = slots.into_iter().find(|slot| self.place(*slot) == place);
        let is_same = |slot: &Slot| known.as_ref().is_none_or(|known| known.slot == *slot);
        let Some(slot) = slot.filter(is_same) else {
            return self.fail(format!("{known:?} at {place:?} is now {after}"));
        };
        let made = Made {
            slot,
            stamp,
            since: None,
        };
        self.made.entry((cluster, uid(&after))).or_insert(made);
        self.check(slot.source);
    }

    /// A place may leave the record when its objects are gone, or are abandoned.
    fn record_written(&mut self, source: Source, before: Option<&Value>, stamp: Stamp) {
        let Some(before) = before else { return };
        let kept = self.source(source).as_ref().map(recorded).unwrap_or_default();
        let abandoned = before["metadata"]["annotations"][ABANDON]
            .as_str()
            .unwrap_or_default();
        for cluster in recorded(before)
            .into_iter()
            .filter(|cluster| !kept.contains(cluster))
        {
            self.shrunk.insert(source, stamp);
            if abandoned.contains(CLUSTERS[cluster]) {
                let made = self
                    .made
                    .iter()
                    .filter(|(id, made)| id.0 == cluster && made.slot.source == source);
                self.excused.extend(made.map(|(id, _)| id.clone()));
            }
        }
    }

    /// A target is deleted because of what the server said about the source, and after its copies. A move makes the new target first.
    fn check_delete(&mut self, Made { slot, since, .. }: &Made, stamp: &Stamp) {
        if slot.what != TARGET {
            if since.is_some_and(|since| now() - since > SOON) {
                self.fail(format!(
                    "the copy for {slot:?} was deleted although its origin exists"
                ));
            }
            return;
        }
        let is_early = |(id, made): &(&Id, &Made)| {
            let is_of_it = made.slot != *slot && (made.slot.source, made.slot.at) == (slot.source, slot.at);
            let is_known = !self.excused.contains(id) && !self.is_race(&made.stamp, stamp);
            is_of_it
                && is_known
                && self
                    .ours(made.slot)
                    .is_some_and(|copy| made.slot.has_marks(&copy, 4))
        };
        if let Some((_, copy)) = self.made.iter().find(is_early) {
            return self.fail(format!("the target of {slot:?} went before {copy:?}"));
        }
        let shown = self.shown.get(&(stamp.1, slot.source)).into_iter().flatten();
        let faults = shown.map(|(_, shown)| self.fault_of_delete(slot.at, shown.as_ref()));
        let fault = faults.reduce(|former, last| former.and(last));
        if let (Some(fault), Some(_)) = (
            fault.unwrap_or(Some("was not read".into())),
            self.source(slot.source),
        ) {
            self.fail(format!("the target for {slot:?} was deleted: the source {fault}"));
        }
    }

    /// Why what a program has read of a source does not allow to delete its target.
    fn fault_of_delete(&self, at: usize, shown: Option<&Value>) -> Option<String> {
        let Some(shown) = shown else {
            return Some("was gone, and is there".into());
        };
        let (wanted, uid) = (wanted(shown), uid(shown));
        if wanted.contains(&at) {
            return Some("wants it".into());
        }
        let missing = wanted
            .into_iter()
            .find(|to| !self.placed.contains(&(uid.clone(), *to)))?;
        Some(format!("was not yet in {}", CLUSTERS[missing]))
    }

    /// Checks this source, and those with copies, whose origins may be others now.
    pub fn check_all(&mut self, source: Source) {
        let made = self.made.values().map(|made| made.slot);
        let mut all = BTreeSet::from_iter(made.filter(|slot| slot.what != TARGET).map(|slot| slot.source));
        all.insert(source);
        all.into_iter().for_each(|source| self.check(source));
    }

    /// Nothing that the sync made is out of the record of its source, and nothing that a user set was lost.
    fn check(&mut self, source: Source) {
        let own = self.source(source);
        if self.held.contains(&source) && !own.as_ref().is_some_and(|own| has_finalizer(own, BLOCK)) {
            return self.fail(format!("{source:?} has lost the finalizer of its user"));
        }
        let kept = own.as_ref().filter(|own| has_finalizer(own, FINALIZER));
        let kept = kept.map(recorded).unwrap_or_default();
        let made = self.made.clone().into_iter();
        for (id, mut made) in made.filter(|(_, made)| made.slot.source == source) {
            let slot = made.slot;
            let Some(found) = self.ours(slot).filter(|found| uid(found) == id.1) else {
                self.made.remove(&id);
                continue;
            };
            if self
                .theirs
                .get(&id)
                .is_some_and(|theirs| found["spec"]["theirs"] != *theirs)
            {
                self.fail(format!("a field of somebody else was lost: {found}"));
            }
            match &own {
                Some(own) if slot.what == TARGET => drop(self.placed.insert((uid(own), slot.at))),
                Some(own) if self.origin(slot, own).is_some() => drop(made.since.get_or_insert_with(now)),
                _ => made.since = None,
            }
            // Nobody knows the place of a copy that names no origin, until the source is released.
            let marks = if kept.is_empty() { 3 } else { 4 };
            if kept.contains(&slot.at) {
                self.excused.remove(&id);
            } else if self
                .shrunk
                .get(&source)
                .is_some_and(|shrunk| self.is_race(&made.stamp, shrunk))
            {
                // One program has made it, while another one has removed the place from the record.
                self.excused.insert(id.clone());
            } else if !self.excused.contains(&id) && (slot.what == TARGET || slot.has_marks(&found, marks)) {
                self.fail(format!("an orphan: {made:?}"));
            }
            self.made.insert(id, made);
        }
    }

    /// What must hold at rest. Of the clusters that are away nothing is known.
    pub fn agreement(&self, away: &BTreeSet<usize>) -> Result<(), String> {
        let mut sources = Self::sources().filter(|source| !away.contains(&source.0));
        sources.try_for_each(|source| {
            let own = self.source(source);
            let agrees = self.agrees(source, own.as_ref(), away);
            agrees.map_err(|fault| format!("{source:?}: {fault}: {own:?}"))
        })?;
        let is_there =
            |((cluster, name), made): (&Place, &Value)| self.get(*cluster, name).as_ref() == Some(made);
        let lost = self.foreign.iter().find(|it| !is_there(*it));
        lost.map_or(Ok(()), |(place, made)| {
            Err(format!("what was left at {place:?} is no longer {made}"))
        })
    }

    fn agrees(&self, source: Source, own: Option<&Value>, away: &BTreeSet<usize>) -> Result<(), String> {
        let wanted = own.map(wanted).unwrap_or_default();
        let (mut held, mut left, mut claimed, mut unclear) = (false, false, false, false);
        let mut phases = Vec::new();
        held |= wanted.iter().any(|at| away.contains(at));
        claimed |= TARGETS
            .into_iter()
            .any(|at| !away.contains(&at) && self.foreign.contains_key(&(at, Self::copy_name(source))));
        for slot in Slot::all(source).filter(|slot| !away.contains(&slot.at)) {
            let Slot { at, what, .. } = slot;
            let (cluster, name) = self.place(slot);
            let (found, ours) = (self.get(cluster, &name), self.ours(slot));
            let is_excused = |made: &Value| self.excused.contains(&(cluster, uid(made)));
            let is_wanted = wanted.contains(&at);
            if is_wanted && what != TARGET && self.ours(Slot { what: TARGET, ..slot }).is_none() {
                // Of the copies of a place without its target nothing is known.
                continue;
            }
            match (own.and_then(|own| self.origin(slot, own)), ours) {
                (Some(origin), Some(made)) => {
                    let fields = |of: &Value| match what {
                        TARGET => [of["spec"]["value"].clone(), of["spec"]["extra"].clone()],
                        _ => [of["data"].clone(), Value::Null],
                    };
                    if fields(&made) != fields(&origin) || !slot.has_marks(&made, ALL) {
                        return Err(format!("{slot:?} is {made}"));
                    }
                    if what == TARGET {
                        phases.push(format!("{}={}", CLUSTERS[at], phase(&made["status"])));
                    }
                }
                (Some(_), None) => {
                    let found = found.ok_or(format!("nothing for {slot:?}"))?;
                    let is_free = what == TARGET && !self.made.contains_key(&(cluster, uid(&found)));
                    if is_free && found["metadata"]["labels"]["adopt"] == "yes" {
                        return Err(format!("not adopted for {slot:?}: {found}"));
                    }
                    held = true;
                }
                // A target that was given up names its source still. If somebody removes that, the sync may see it or not.
                (None, Some(made)) if is_excused(&made) => {
                    claimed |= what == TARGET;
                    unclear |= what == TARGET && !slot.has_marks(&made, ALL);
                }
                (None, Some(made)) if what == TARGET || slot.has_marks(&made, ALL) => {
                    if is_wanted {
                        return Err(format!("{made} is stale"));
                    }
                    left = true;
                }
                // An origin that is missing.
                (None, _) => held |= is_wanted && what < KEY && own.is_some_and(|own| names(own, what)),
            }
        }
        if left && !held {
            return Err("a target or a copy is left".to_owned());
        }
        let Some(own) = own else { return Ok(()) };
        let mut kept = recorded(own).into_iter();
        let waits = kept.any(|cluster| away.contains(&cluster) && !wanted.contains(&cluster));
        if wanted.is_empty() {
            let is_released = waits || !has_finalizer(own, FINALIZER);
            return is_released.then_some(()).ok_or("it is not released".to_owned());
        }
        let condition = &own["status"]["conditions"][0];
        let expected = if held || waits || claimed { "False" } else { "True" };
        let is_expected = condition["status"] == expected || unclear && !held && !waits;
        if !is_expected || condition["observedGeneration"] != own["metadata"]["generation"] {
            let why = format!("held {held}, waits {waits}, claimed {claimed}, away {away:?}");
            return Err(format!("the condition is not {expected} ({why})"));
        }
        if !held && own["status"]["phases"] != phases.join(",") {
            return Err(format!("the status is not {phases:?}"));
        }
        Ok(())
    }
}
