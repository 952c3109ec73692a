//! What must hold after each step, and at rest.

use std::{collections::BTreeSet, time::Duration};

use mcr_sync::ABANDON;
use serde_json::Value;

use crate::world::{
    BLOCK, CLUSTERS, Id, Known, Place, Slot, Source, Stamp, TARGET, World, cluster_of, has_finalizer, names,
    now, uid, wanted,
};

/// More steps than a history has if the sync comes to rest.
const MOST_STEPS: u64 = 1500;
/// More time than a reconcile takes: nothing that it has read is older.
const SOON: Duration = Duration::from_secs(20);
const FINALIZER: &str = "sync.mcr.dev/model";
const RECORD: &str = "sync.mcr.dev/placed.model";
/// What targets and copies have of their origins.
const FIELDS: [&[&str]; 2] = [&["/data"], &["/spec/value", "/spec/extra"]];
/// All marks of an object.
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
    /// A program gets to know a source by an answer of the server.
    pub fn show(&mut self, program: u64, source: Source, shown: Option<Value>) {
        let all = self.shown.entry((program, source)).or_default();
        // Of answers that come at the same time, each may be the one that the program acts on next.
        all.retain(|(at, _)| *at == now());
        all.push((now(), shown));
    }

    /// What a program knows of the sources by their server's last answers.
    pub fn known_by(&self, program: u64) -> Known {
        let own = self.shown.iter().filter(|((by, _), _)| *by == program);
        own.map(|((_, source), all)| (*source, all.clone())).collect()
    }

    /// Whether two programs lead.
    pub fn is_shared(&self) -> bool {
        let is_leader = |program: &&u64| self.leads.contains_key(program);
        self.alive.iter().filter(is_leader).count() > 1
    }

    /// Whether two programs that led at once did this so soon one after the other that one could not know.
    fn is_race(&self, one: &Stamp, other: &Stamp) -> bool {
        let first = one.0.min(other.0);
        let led = |stamp: &Stamp| self.leads[&stamp.1] <= first;
        one.1 != other.1 && one.0.max(other.0) - first < SOON && led(one) && led(other)
    }

    /// Looks at a write of the sync that the server has accepted. `before` is the object before it, and `known_sources` what the program
    /// knew when it sent the write.
    pub fn written(
        &mut self,
        by: u64,
        method: &str,
        place: Place,
        before: Option<&Value>,
        known_sources: &Known,
    ) {
        let stamp = (now(), by);
        (self.steps, self.writes) = (self.steps + 1, self.writes + 1);
        if self.steps > MOST_STEPS {
            return self.fail("it writes without end");
        }
        let (cluster, name) = (place.0, &*place.1);
        if let Some(source) = Self::source_at(&place) {
            self.record_written(source, before, stamp);
            return self.check(source);
        }
        let known = before.and_then(|it| self.made.get(&(cluster, uid(it)))).copied();
        if let (Some(before), None) = (before, known) {
            let may_adopt = before["metadata"]["labels"]["adopt"] == "yes" && !name.starts_with("m-");
            if method == "DELETE" || !may_adopt {
                return self.fail(format!("{place:?} of somebody else is written: {before}"));
            }
            self.foreign.remove(&place);
        }
        if let ("DELETE", Some((slot, _))) = (method, known) {
            self.check_delete(slot, (cluster, uid(before.unwrap())), &stamp, known_sources);
            return self.check(slot.source);
        }
        let after = self.get(cluster, name).unwrap();
        let source = self.source_named(&after["metadata"]["annotations"]);
        let mut slots = source.into_iter().flat_map(Slot::all);
        let slot = slots.find(|slot| self.place(*slot) == place);
        let Some(slot) = slot.filter(|slot| known.is_none_or(|known| known.0 == *slot)) else {
            return self.fail(format!("{known:?} at {place:?} is now {after}"));
        };
        self.made.entry((cluster, uid(&after))).or_insert((slot, stamp));
        self.check(slot.source);
    }

    /// A place may leave the record when its objects are gone, or are abandoned.
    fn record_written(&mut self, source: Source, before: Option<&Value>, stamp: Stamp) {
        let Some(before) = before else { return };
        let kept = self.source(source).as_ref().map(recorded).unwrap_or_default();
        let abandoned = &before["metadata"]["annotations"][ABANDON];
        let is_given_up = |at: usize| abandoned.as_str().is_some_and(|it| it.contains(CLUSTERS[at]));
        for at in recorded(before).into_iter().filter(|at| !kept.contains(at)) {
            self.shrunk.insert(source, stamp);
            let made = self
                .made
                .iter()
                .filter(|(id, made)| id.0 == at && made.0.source == source);
            let excused = made.filter(|_| is_given_up(at)).map(|(id, _)| id.clone());
            self.excused.extend(excused);
        }
    }

    /// A target is deleted because of the server's answer about the source, and after its copies. A move makes the
    /// new target first.
    fn check_delete(&mut self, slot: Slot, id: Id, stamp: &Stamp, known: &Known) {
        if slot.what != TARGET {
            if self.since.get(&id).is_some_and(|since| now() - *since > SOON) {
                self.fail(format!("{slot:?} was deleted, and its origin exists"));
            }
            return;
        }
        let is_early = |(id, (copy, made)): &(&Id, &(Slot, Stamp))| {
            *copy != slot
                && copy.target() == slot
                && !self.excused.contains(id)
                && !self.is_race(made, stamp)
                && self.ours(*copy).is_some_and(|found| copy.has_marks(&found, 4))
        };
        if let Some((_, copy)) = self.made.iter().find(is_early) {
            return self.fail(format!("the target of {slot:?} went before {copy:?}"));
        }
        let shown = known.get(&slot.source).into_iter().flatten();
        let faults = shown.map(|(_, shown)| self.fault_of_delete(slot.at, shown.as_ref()));
        let fault = faults.reduce(|former, last| former.and(last));
        let fault = fault.unwrap_or(Some("was not read".into()));
        if let (Some(fault), Some(_)) = (fault, self.source(slot.source)) {
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
        let mut wanted = wanted.into_iter();
        let missing = wanted.find(|to| !self.placed.contains(&(uid.clone(), *to)))?;
        Some(format!("was not yet in {}", CLUSTERS[missing]))
    }

    /// Checks this source, and those with copies, whose origins may be others now.
    pub fn check_all(&mut self, source: Source) {
        let made = self.made.values().filter(|made| made.0.what != TARGET);
        let mut all = BTreeSet::from_iter(made.map(|made| made.0.source));
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
        for (id, (slot, stamp)) in made.filter(|(_, made)| made.0.source == source) {
            let Some(found) = self.ours(slot).filter(|found| uid(found) == id.1) else {
                self.made.remove(&id);
                continue;
            };
            let theirs = self.theirs.get(&id);
            if theirs.is_some_and(|theirs| found["spec"]["theirs"] != *theirs) {
                self.fail(format!("a field of somebody else was lost: {found}"));
            }
            let is_target = slot.what == TARGET;
            match &own {
                Some(own) if is_target => drop(self.placed.insert((uid(own), slot.at))),
                Some(own) if self.origin(slot, own).is_some() => {
                    self.since.entry(id.clone()).or_insert_with(now);
                }
                _ => drop(self.since.remove(&id)),
            }
            // Nobody knows the place of a copy that names no origin, until the source is released.
            let marks = if kept.is_empty() { 3 } else { 4 };
            let shrunk = self.shrunk.get(&source);
            if kept.contains(&slot.at) {
                self.excused.remove(&id);
            } else if shrunk.is_some_and(|shrunk| self.is_race(&stamp, shrunk)) {
                // One program has made it, while another one has removed the place from the record.
                self.excused.insert(id);
            } else if !self.excused.contains(&id) && (is_target || slot.has_marks(&found, marks)) {
                self.fail(format!("in no record: {found}"));
            }
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
        for ((cluster, name), made) in &self.foreign {
            if self.get(*cluster, name).as_ref() != Some(made) {
                return Err(format!("somebody else's {name} is no longer {made}"));
            }
        }
        Ok(())
    }

    fn agrees(&self, source: Source, own: Option<&Value>, away: &BTreeSet<usize>) -> Result<(), String> {
        let wanted = own.map(wanted).unwrap_or_default();
        let (mut held, mut left, mut claimed, mut unclear) = (false, false, false, false);
        let mut phases = Vec::new();
        held |= wanted.iter().any(|at| away.contains(at));
        for slot in Slot::all(source).filter(|slot| !away.contains(&slot.at)) {
            let Slot { at, what, .. } = slot;
            claimed |= self.foreign.contains_key(&(at, Self::copy_name(source)));
            let (is_wanted, is_target) = (wanted.contains(&at), what == TARGET);
            // Of the copies of a place without its target nothing is known.
            if is_wanted && self.ours(slot.target()).is_none() && !is_target {
                continue;
            }
            let (cluster, name) = self.place(slot);
            let is_excused = |made: &Value| self.excused.contains(&(cluster, uid(made)));
            match (own.and_then(|own| self.origin(slot, own)), self.ours(slot)) {
                (Some(origin), Some(made)) => {
                    let mut fields = FIELDS[usize::from(is_target)].iter();
                    let is_same = fields.all(|path| made.pointer(path) == origin.pointer(path));
                    if !is_same || !slot.has_marks(&made, ALL) {
                        return Err(format!("{slot:?} is {made}"));
                    }
                    phases.extend(is_target.then(|| format!("{}={}", CLUSTERS[at], phase(&made["status"]))));
                }
                (Some(_), None) => {
                    let found = self.get(cluster, &name).ok_or(format!("nothing for {slot:?}"))?;
                    let is_free = is_target && !self.made.contains_key(&(cluster, uid(&found)));
                    if is_free && found["metadata"]["labels"]["adopt"] == "yes" {
                        return Err(format!("not adopted for {slot:?}: {found}"));
                    }
                    held = true;
                }
                // A target that was given up names its source still. If somebody removes that, the sync may see it.
                (None, Some(made)) if is_excused(&made) => {
                    claimed |= is_target;
                    unclear |= is_target && !slot.has_marks(&made, ALL);
                }
                (None, Some(made)) if is_target || slot.has_marks(&made, ALL) => {
                    if is_wanted {
                        return Err(format!("{made} is stale"));
                    }
                    left = true;
                }
                // An origin may be missing.
                (None, _) => held |= is_wanted && own.is_some_and(|own| names(own, what)),
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
