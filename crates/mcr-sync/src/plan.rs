//! The decision: from the observed state alone to the next writes.
//!
//! [`decide`] has no memory. A process that stops between two writes continues with the same step, because the step
//! follows from the objects in the clusters. Two orders make that safe:
//!
//! - The source has the finalizer, and names each place in its placements annotation, before an object is created there.
//! - A place leaves the annotation, and the finalizer the source, after the objects of the place are gone.
//!
//! So at any time every object of the sync is at a place that a source names which can't disappear.

use std::collections::{BTreeMap, BTreeSet};

/// The source, as far as it matters for the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceState {
    /// It exists, and is to be synced.
    Live,
    /// It exists, and its targets are to go: it is being deleted, or the sync no longer selects it.
    Ending,
    /// It was deleted for certain, without waiting for the finalizer.
    Deleted,
}

/// What an object is for its source. Objects of one place are written in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// A copy beside the target. The service finds it when the target is made.
    Down,
    Target,
    /// A copy beside the source.
    Up,
}

const ROLES: [Role; 3] = [Role::Down, Role::Target, Role::Up];

/// What was found where an object is or shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// The cluster is not in the fleet, is not connected, or has not listed the kind yet. Nothing is known.
    Away,
    /// The cluster is gone for good: by its owner's word, or because the limit has passed. Its objects count as gone.
    Abandoned,
    /// There is no object of this name, or none that a creation has met.
    Absent,
    /// The object of this source.
    Ours {
        /// Whether it differs from the desired state.
        differs: bool,
        /// Whether it is being deleted.
        deleting: bool,
    },
    /// An object of somebody else.
    Foreign {
        /// Whether the rule for adoption allows to take it over.
        adoptable: bool,
    },
}

impl State {
    /// Whether the object is there as it should be.
    pub(crate) fn is_fine(self) -> bool {
        matches!(
            self,
            Self::Ours {
                differs: false,
                deleting: false
            }
        )
    }

    /// Whether the object of this source is there, and stays.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::Ours { deleting: false, .. })
    }
}

/// A target or a copy of a related object. `P` is a place: a cluster, and the name of the target in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object<P> {
    pub(crate) role: Role,
    /// The place that it belongs to. `None` if nobody knows: a copy whose marks are damaged, or whose place is not known.
    pub(crate) of: Option<P>,
    /// Whether it shall exist.
    pub(crate) wanted: bool,
    pub(crate) state: State,
    /// Whether the target was there when it was last observed, although nothing is known of it now.
    pub(crate) seen: bool,
}

/// Everything that the next step follows from. `K` is the key of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Observed<P, K> {
    pub(crate) source: SourceState,
    /// Whether the source has the finalizer of the sync.
    pub(crate) finalizer: bool,
    /// The places in the annotation of the source: objects may exist there.
    pub(crate) recorded: BTreeSet<P>,
    /// The places where a target shall be.
    pub(crate) wanted: BTreeSet<P>,
    /// The targets at all these places, and the copies.
    pub(crate) objects: BTreeMap<K, Object<P>>,
    /// The wanted places of which nobody knows which copies shall exist.
    pub(crate) uncertain: BTreeSet<P>,
    /// Whether a copy that shall exist can't be made now.
    pub(crate) incomplete: bool,
    /// The places whose copies the servers were asked for.
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

/// The next step, or the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision<P, K> {
    /// Write the finalizer and these placements to the source, in one request.
    Claim(BTreeSet<P>),
    /// Write these objects. None of the writes depends on another one.
    Write(Vec<(K, Write)>),
    /// Ask the servers for all copies that belong to these places: the stores may not have all of them.
    List(BTreeSet<P>),
    /// Write fewer placements to the source: these.
    Forget(BTreeSet<P>),
    /// Remove the placements and the finalizer from the source.
    Release,
    /// There is nothing to write now. The holds are what is still to come; without holds all is as it should be.
    Rest(Vec<Hold<K>>),
}

/// An object that is not as it should be, and why nothing is done about it now.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hold<K> {
    pub(crate) object: K,
    pub(crate) reason: HoldReason,
}

/// Why nothing is done about an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HoldReason {
    /// The cluster is away. It is observed again when it is back.
    Away,
    /// The cluster does not answer in time. The plan never gives this reason.
    Silent,
    /// The object is being deleted, and its finalizers are not yet done.
    Deleting,
    /// An object of somebody else has the name. It is not touched.
    Foreign,
    /// The object names the source, and is in none of its places. It is not touched. The plan never gives this reason.
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
        // A former place may be theirs, so it stays until they are gone.
        let are_gone = work.clean_up(work.of_no_place(wanted, observed.uncertain.is_empty()));
        work.is_moving |= !are_gone;
    }
    if !work.writes.is_empty() {
        return Decision::Write(work.writes);
    }
    // What belongs to a former place stays until the new ones are complete.
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
        work.clean_up(work.of_no_place(&gone, true));
    }
    let Work { writes, holds, .. } = work;
    if !to_list.is_empty() {
        return Decision::List(to_list);
    }
    if !writes.is_empty() {
        return Decision::Write(writes);
    }
    // Without the finalizer the source may be gone, and Kubernetes accepts no new one while an object is being deleted.
    if !observed.finalizer {
        return Decision::Rest(holds);
    }
    // The last places leave together with the finalizer, and not before a copy of no known place.
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

enum Leaving {
    Held,
    Unlisted,
    Gone,
}

struct Work<'a, P, K> {
    observed: &'a Observed<P, K>,
    at: BTreeMap<&'a P, Vec<(&'a K, &'a Object<P>)>>,
    writes: Vec<(K, Write)>,
    holds: Vec<Hold<K>>,
    is_moving: bool,
}

impl<'a, P: Ord + Clone, K: Ord + Clone> Work<'a, P, K> {
    fn new(observed: &'a Observed<P, K>) -> Self {
        let mut at = BTreeMap::<_, Vec<_>>::new();
        for (key, object) in &observed.objects {
            if let Some(place) = &object.of {
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

    /// Brings a wanted place up to date. The objects of each role wait for those before.
    fn keep(&mut self, place: &'a P) {
        let (before, objects) = (self.writes.len(), self.at(place));
        for role in ROLES {
            let of_role = |(_, object): &&(&K, &Object<P>)| object.role == role && object.wanted;
            for (key, object) in objects.iter().filter(of_role) {
                let step = match object.state {
                    state if state.is_fine() => continue,
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
        // A copy with another name is made before the former one goes.
        if !self.observed.uncertain.contains(place) {
            let stale = objects.into_iter().filter(|(_, object)| !object.wanted);
            self.clean_up(stale.map(|(key, _)| key));
        }
    }

    /// The copies that nobody wants, and that belong to none of these places. Those of no known place are among them if `all`.
    fn of_no_place(&self, places: &BTreeSet<P>, all: bool) -> Vec<&'a K> {
        let Observed {
            recorded, objects, ..
        } = self.observed;
        let is_left = |of: &P| recorded.contains(of) || places.contains(of);
        let others = objects.iter().filter(|(_, object)| match &object.of {
            _ if object.wanted => false,
            Some(of) => !is_left(of),
            None => all,
        });
        others.map(|(key, _)| key).collect()
    }

    /// Deletes copies. Returns whether there are none.
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

    /// Deletes what is at a place that is recorded and not wanted: the copies, then the target.
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
        // Nothing is written to a source that is gone, so what the stores miss now may be found later.
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
            // The object of somebody else is not ours to delete.
            _ => Leaving::Gone,
        }
    }
}

#[cfg(test)]
mod tests;
