//! Decides the next writes, from the observed state alone.
//!
//! [`decide`] has no memory. A process that is stopped between two writes continues with the same step, because the
//! step follows from the objects in the clusters. Two orders make that safe:
//!
//! - Before an object is created at a place, the source has the finalizer, and its placements annotation (the record)
//!   names the place.
//! - A place is removed from the record, and the finalizer from the source, only after the objects of the place are
//!   gone.
//!
//! So at any time, every object of the sync is at a place that is in the record of a source, and the finalizer keeps
//! that source.

use std::collections::{BTreeMap, BTreeSet};

/// The state of the source that the next step depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceState {
    /// It exists, and is to be synced.
    Live,
    /// It exists, and its targets are to be deleted: it is being deleted, or the sync no longer selects it.
    Ending,
    /// It was certainly deleted, and the deletion did not wait for the finalizer of the sync.
    Deleted,
}

/// What an object is for its source. The objects of one place are written in the order of these variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// A copy beside the target. It is written before the target, so that the service finds it.
    Down,
    Target,
    /// A copy beside the source.
    Up,
}

const ROLES: [Role; 3] = [Role::Down, Role::Target, Role::Up];

/// What was found at a placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// The cluster is not in the fleet, is not connected, or has not listed the kind yet. Nothing is known.
    Away,
    /// The cluster is gone for good: the owner of the source has declared it abandoned, or the limit has passed. Its
    /// objects count as gone.
    Abandoned,
    /// There is no object of this name. A foreign object counts only after the server has refused a creation.
    Absent,
    /// The object belongs to this source.
    Ours {
        /// Whether it differs from the desired state.
        differs: bool,
        /// Whether it is being deleted.
        deleting: bool,
    },
    /// The object belongs to somebody else.
    Foreign {
        /// Whether the rule for adoption allows the sync to take the object over.
        adoptable: bool,
    },
}

impl State {
    /// Whether the object exists and is up to date.
    pub(crate) fn is_up_to_date(self) -> bool {
        matches!(
            self,
            Self::Ours {
                differs: false,
                deleting: false
            }
        )
    }

    /// Whether the object of this source exists and is not being deleted.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::Ours { deleting: false, .. })
    }
}

/// A target, or a copy of a related object. `P` is a place: a cluster, and the name of the target in that cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object<P> {
    pub(crate) role: Role,
    /// The place that the object belongs to. `None` for a copy whose place is unknown, for example because its marks
    /// are damaged.
    pub(crate) place: Option<P>,
    /// Whether it shall exist.
    pub(crate) wanted: bool,
    pub(crate) state: State,
    /// Whether the target existed when it was last observed, although its state is unknown now.
    pub(crate) seen: bool,
}

/// Everything that decides the next step. `K` is the key of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Observed<P, K> {
    pub(crate) source: SourceState,
    /// Whether the source has the finalizer of the sync.
    pub(crate) finalizer: bool,
    /// The places in the record of the source. Objects may exist there.
    pub(crate) recorded: BTreeSet<P>,
    /// The places where a target shall be.
    pub(crate) wanted: BTreeSet<P>,
    /// The targets at all recorded and wanted places, and the copies.
    pub(crate) objects: BTreeMap<K, Object<P>>,
    /// The wanted places for which it is unknown which copies shall exist.
    pub(crate) uncertain: BTreeSet<P>,
    /// Whether a copy that shall exist can't be made now.
    pub(crate) incomplete: bool,
    /// The places whose copies were listed on the servers.
    pub(crate) listed: BTreeSet<P>,
}

/// A write of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    Create,
    /// Take over the object: write the link and the desired state.
    Adopt,
    Update,
    Delete,
}

/// The next step, or the end of the reconcile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision<P, K> {
    /// Write the finalizer and these placements to the source, in one request.
    Claim(BTreeSet<P>),
    /// Write these objects. None of the writes depends on another one.
    Write(Vec<(K, Write)>),
    /// List the copies of these places on the servers, because the stores may not have all of them.
    List(BTreeSet<P>),
    /// Remove placements from the record. These remain.
    Forget(BTreeSet<P>),
    /// Remove the placements and the finalizer from the source.
    Release,
    /// There is nothing to write now. The holds are the objects that are not up to date. Without holds, everything is
    /// up to date.
    Rest(Vec<Hold<K>>),
}

/// An object that is not up to date, and why nothing is done about it now.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hold<K> {
    pub(crate) object: K,
    pub(crate) reason: HoldReason,
}

/// Why nothing is done about an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HoldReason {
    /// The cluster is away. The event of its return leads to the next observation.
    Away,
    /// The cluster does not answer in time. The plan never gives this reason.
    Silent,
    /// The object is being deleted, and waits for its finalizers.
    Deleting,
    /// An object of somebody else has the name. It is not touched.
    Foreign,
    /// The object names the source, but is in none of the source's places. It is not touched. The plan never gives
    /// this reason.
    Claimed,
}

/// Chooses the next step.
pub(crate) fn decide<P: Ord + Clone, K: Ord + Clone>(observed: &Observed<P, K>) -> Decision<P, K> {
    let (recorded, nothing) = (&observed.recorded, BTreeSet::new());
    let is_kept = observed.source == SourceState::Live && !observed.wanted.is_empty();
    let wanted = if is_kept { &observed.wanted } else { &nothing };
    if is_kept && !(observed.finalizer && wanted.is_subset(recorded)) {
        return Decision::Claim(recorded.union(wanted).cloned().collect());
    }
    let mut work = Work::new(observed);
    for place in wanted {
        work.keep(place);
    }
    if is_kept && work.writes.is_empty() {
        // An unwanted copy may belong to a former place. So former places stay until these copies are deleted.
        let are_gone = work.clean_up(work.unplaced_copies(wanted, observed.uncertain.is_empty()));
        work.is_moving |= !are_gone;
    }
    if !work.writes.is_empty() {
        return Decision::Write(work.writes);
    }
    // The objects of former places stay until the wanted places are complete.
    if is_kept && work.is_moving {
        return Decision::Rest(work.holds);
    }
    let (mut gone, mut to_list) = (BTreeSet::new(), BTreeSet::new());
    for place in recorded.difference(wanted) {
        match work.leave(place) {
            Leaving::Held => {}
            Leaving::Unlisted => drop(to_list.insert(place.clone())),
            Leaving::Gone => drop(gone.insert(place.clone())),
        }
    }
    let is_released = !is_kept && work.holds.is_empty() && gone.len() == recorded.len();
    if is_released && work.writes.is_empty() {
        work.clean_up(work.unplaced_copies(&gone, true));
    }
    let Work { writes, holds, .. } = work;
    if !to_list.is_empty() {
        return Decision::List(to_list);
    }
    if !writes.is_empty() {
        return Decision::Write(writes);
    }
    // A source without the finalizer may be gone. Kubernetes accepts no new finalizer while an object is being
    // deleted, so nothing can be written to such a source.
    if !observed.finalizer {
        return Decision::Rest(holds);
    }
    // The last places are removed together with the finalizer, after the copies whose place is unknown are deleted.
    if is_released {
        return if holds.is_empty() {
            Decision::Release
        } else {
            Decision::Rest(holds)
        };
    }
    if !gone.is_empty() {
        return Decision::Forget(recorded.difference(&gone).cloned().collect());
    }
    Decision::Rest(holds)
}

/// The state of a place that is recorded and not wanted.
enum Leaving {
    /// Objects of the sync are still there, or may be.
    Held,
    /// The copies of the place were not listed on the servers yet.
    Unlisted,
    /// Nothing of the sync is left there.
    Gone,
}

/// The writes and holds that [`decide`] collects.
struct Work<'a, P, K> {
    observed: &'a Observed<P, K>,
    /// The objects by their places.
    at: BTreeMap<&'a P, Vec<(&'a K, &'a Object<P>)>>,
    writes: Vec<(K, Write)>,
    holds: Vec<Hold<K>>,
    /// Whether former places must stay, because a wanted place is not complete.
    is_moving: bool,
}

impl<'a, P: Ord + Clone, K: Ord + Clone> Work<'a, P, K> {
    fn new(observed: &'a Observed<P, K>) -> Self {
        let mut at = BTreeMap::<_, Vec<_>>::new();
        for (key, object) in &observed.objects {
            if let Some(place) = &object.place {
                at.entry(place).or_default().push((key, object));
            }
        }
        Self {
            observed,
            at,
            writes: Vec::new(),
            holds: Vec::new(),
            is_moving: observed.incomplete,
        }
    }

    fn at(&self, place: &P) -> Vec<(&'a K, &'a Object<P>)> {
        self.at.get(place).cloned().unwrap_or_default()
    }

    fn hold(&mut self, object: &K, reason: HoldReason) {
        let object = object.clone();
        self.holds.push(Hold { object, reason });
    }

    /// Brings a wanted place up to date. The objects of each role wait for the objects of the roles before it.
    fn keep(&mut self, place: &'a P) {
        let (before, objects) = (self.writes.len(), self.at(place));
        for role in ROLES {
            let of_role = |(_, object): &&(&K, &Object<P>)| object.role == role && object.wanted;
            for (key, object) in objects.iter().filter(of_role) {
                let step = match object.state {
                    state if state.is_up_to_date() => continue,
                    State::Absent => Ok(Write::Create),
                    State::Foreign { adoptable: true } => Ok(Write::Adopt),
                    State::Ours { deleting: false, .. } => Ok(Write::Update),
                    State::Ours { deleting: true, .. } => Err(HoldReason::Deleting),
                    State::Foreign { .. } => Err(HoldReason::Foreign),
                    State::Away | State::Abandoned => Err(HoldReason::Away),
                };
                match step {
                    Ok(write) => self.writes.push(((*key).clone(), write)),
                    Err(reason) => {
                        self.is_moving |= !object.seen;
                        self.hold(key, reason);
                    }
                }
            }
            if self.writes.len() > before {
                return;
            }
        }
        // Under a new name, a copy is created before the copy with the former name is deleted.
        if !self.observed.uncertain.contains(place) {
            let stale = objects.into_iter().filter(|(_, object)| !object.wanted);
            self.clean_up(stale.map(|(key, _)| key));
        }
    }

    /// The unwanted copies that belong to none of these places and to no recorded place. With `all`, also the unwanted
    /// copies whose place is unknown.
    fn unplaced_copies(&self, places: &BTreeSet<P>, all: bool) -> Vec<&'a K> {
        let Observed {
            recorded, objects, ..
        } = self.observed;
        let is_left = |place: &P| recorded.contains(place) || places.contains(place);
        let others = objects.iter().filter(|(_, object)| match &object.place {
            _ if object.wanted => false,
            Some(place) => !is_left(place),
            None => all,
        });
        others.map(|(key, _)| key).collect()
    }

    /// Deletes copies. Returns whether all of them are gone already.
    fn clean_up(&mut self, copies: impl IntoIterator<Item = &'a K>) -> bool {
        let mut are_gone = true;
        for key in copies {
            match self.observed.objects.get(key).map(|object| object.state) {
                Some(State::Ours { deleting: false, .. }) => self.writes.push((key.clone(), Write::Delete)),
                Some(State::Ours { .. }) => self.hold(key, HoldReason::Deleting),
                Some(State::Away) => self.hold(key, HoldReason::Away),
                _ => continue,
            }
            are_gone = false;
        }
        are_gone
    }

    /// Deletes the objects of a place that is recorded and not wanted: first the copies, then the target.
    fn leave(&mut self, place: &'a P) -> Leaving {
        let objects = self.at(place).into_iter();
        let (targets, copies): (Vec<_>, Vec<_>) =
            objects.partition(|(_, object)| object.role == Role::Target);
        let target = targets.first().map(|(key, object)| (*key, object.state));
        let reason = match target {
            Some((_, State::Ours { deleting: true, .. })) => Some(HoldReason::Deleting),
            Some((_, State::Away)) => Some(HoldReason::Away),
            _ => None,
        };
        if let (Some((key, _)), Some(reason)) = (target, reason) {
            self.hold(key, reason);
            return Leaving::Held;
        }
        // If the source exists, the copies must be listed before the place is forgotten. After a deletion there is no
        // record to update, and copies that the stores miss now can be found later.
        if self.observed.source != SourceState::Deleted && !self.observed.listed.contains(place) {
            return Leaving::Unlisted;
        }
        if !self.clean_up(copies.into_iter().map(|(key, _)| key)) {
            return Leaving::Held;
        }
        match target {
            Some((key, State::Ours { .. })) => {
                self.writes.push((key.clone(), Write::Delete));
                Leaving::Held
            }
            // The sync does not delete the object of somebody else.
            _ => Leaving::Gone,
        }
    }
}

#[cfg(test)]
mod tests;
