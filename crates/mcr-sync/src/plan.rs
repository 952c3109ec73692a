//! The decision: from the observed state alone to the next write.
//!
//! [`next_step`] has no memory. A process that stops between two writes continues with the same step, because the step
//! follows from the objects in the clusters. Two orders make that safe:
//!
//! - The source has the finalizer, and names each place in its record, before an object is created there.
//! - A place leaves the record, and the finalizer the source, after the object there is gone.
//!
//! So at any time every object of the sync is in the record of a source that can't disappear.

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

/// What was found at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TargetState {
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

/// Everything that the next step follows from. `P` is a place: a cluster, and the name of an object in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Observed<P> {
    /// The source.
    pub(crate) source: SourceState,
    /// Whether the source has the finalizer of the sync.
    pub(crate) finalizer: bool,
    /// The places in the record of the source: a target may exist there.
    pub(crate) recorded: BTreeSet<P>,
    /// The places where a target shall be.
    pub(crate) wanted: BTreeSet<P>,
    /// The wanted places where the target was when it was last seen, as far as this program knows. Nothing is known of them now.
    pub(crate) seen: BTreeSet<P>,
    /// What was found at each place. A place that is missing here counts as [`TargetState::Away`].
    pub(crate) targets: BTreeMap<P, TargetState>,
}

/// The next write, or the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step<P> {
    /// Write the finalizer and this record to the source, in one request.
    Claim(BTreeSet<P>),
    /// Create the target.
    Create(P),
    /// Take over the object: write the link and the desired state.
    Adopt(P),
    /// Bring the target to the desired state.
    Update(P),
    /// Delete the target.
    Delete(P),
    /// Write this smaller record to the source.
    Forget(BTreeSet<P>),
    /// Remove the record and the finalizer from the source.
    Release,
    /// There is nothing to write now. The holds say what is still to come; without holds all is as it should be.
    Rest(Vec<Hold<P>>),
}

/// A place that is not as it should be, and why nothing is done about it now.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hold<P> {
    /// The place.
    pub(crate) place: P,
    /// The reason.
    pub(crate) reason: HoldReason,
}

/// Why nothing is done at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HoldReason {
    /// The cluster is away. It is looked at again when it is back.
    Away,
    /// The cluster does not answer in time. The plan never gives this reason.
    Silent,
    /// The target is being deleted, and its finalizers are not yet done.
    Deleting,
    /// An object of somebody else has the name. It is not touched.
    Foreign,
    /// The object names the source, and is in none of its places. It is not touched. The plan never gives this reason.
    Claimed,
}

/// Chooses the next step.
pub(crate) fn next_step<P: Ord + Clone>(observed: &Observed<P>) -> Step<P> {
    match observed.source {
        SourceState::Live if !observed.wanted.is_empty() => keep(observed),
        SourceState::Live | SourceState::Ending => end(observed),
        SourceState::Deleted => clean(observed).unwrap_or_else(Step::Rest),
    }
}

impl<P: Ord + Clone> Observed<P> {
    fn target(&self, place: &P) -> TargetState {
        self.targets.get(place).copied().unwrap_or(TargetState::Away)
    }
}

/// Brings all wanted places up to date, then cleans up the others.
fn keep<P: Ord + Clone>(observed: &Observed<P>) -> Step<P> {
    if !observed.finalizer || !observed.wanted.is_subset(&observed.recorded) {
        return Step::Claim(observed.recorded.union(&observed.wanted).cloned().collect());
    }
    let (mut holds, mut is_moving) = (Vec::new(), false);
    for place in &observed.wanted {
        if let Some(step) = write_at(observed, place) {
            return step;
        }
        let reason = match observed.target(place) {
            TargetState::Ours { deleting: true, .. } => HoldReason::Deleting,
            TargetState::Foreign { .. } => HoldReason::Foreign,
            TargetState::Away | TargetState::Abandoned => HoldReason::Away,
            TargetState::Absent | TargetState::Ours { .. } => continue,
        };
        is_moving |= !observed.seen.contains(place);
        holds.push(Hold {
            place: place.clone(),
            reason,
        });
    }
    // The former target stays until the new one is there.
    if is_moving {
        return Step::Rest(holds);
    }
    clean(observed).unwrap_or_else(|others| Step::Rest(holds.into_iter().chain(others).collect()))
}

/// The write that brings a wanted place up to date.
fn write_at<P: Ord + Clone>(observed: &Observed<P>, place: &P) -> Option<Step<P>> {
    match observed.target(place) {
        TargetState::Absent => Some(Step::Create(place.clone())),
        TargetState::Foreign { adoptable: true } => Some(Step::Adopt(place.clone())),
        TargetState::Ours {
            differs: true,
            deleting: false,
        } => Some(Step::Update(place.clone())),
        _ => None,
    }
}

/// The steps that are taken together with this one: those at other places that depend on no other step.
pub(crate) fn together<P: Ord + Clone>(observed: &Observed<P>, step: Step<P>) -> Vec<Step<P>> {
    let places = observed.recorded.union(&observed.wanted);
    let is_wanted = |place: &&P| observed.source == SourceState::Live && observed.wanted.contains(place);
    match step {
        Step::Create(_) | Step::Adopt(_) | Step::Update(_) => {
            let wanted = places.filter(is_wanted);
            wanted.filter_map(|place| write_at(observed, place)).collect()
        }
        Step::Delete(_) => {
            let is_ours =
                |place: &&P| matches!(observed.target(place), TargetState::Ours { deleting: false, .. });
            let left = places.filter(|place| !is_wanted(place)).filter(is_ours);
            left.map(|place| Step::Delete(place.clone())).collect()
        }
        step => vec![step],
    }
}

/// Cleans up all places, then releases the source.
fn end<P: Ord + Clone>(observed: &Observed<P>) -> Step<P> {
    let nothing_wanted = Observed {
        wanted: BTreeSet::new(),
        ..observed.clone()
    };
    match clean(&nothing_wanted) {
        // The last places leave the record together with the finalizer.
        Ok(Step::Forget(rest)) if rest.is_empty() => Step::Release,
        Ok(step) => step,
        Err(holds) if holds.is_empty() && observed.finalizer => Step::Release,
        Err(holds) => Step::Rest(holds),
    }
}

/// The next step to clean up the places that are recorded and not wanted, or what holds it up.
fn clean<P: Ord + Clone>(observed: &Observed<P>) -> Result<Step<P>, Vec<Hold<P>>> {
    let (mut holds, mut gone) = (Vec::new(), BTreeSet::new());
    for place in observed.recorded.difference(&observed.wanted) {
        let reason = match observed.target(place) {
            TargetState::Ours { deleting: false, .. } => return Ok(Step::Delete(place.clone())),
            TargetState::Ours { .. } => HoldReason::Deleting,
            TargetState::Away => HoldReason::Away,
            // The object of somebody else is not ours to delete.
            TargetState::Absent | TargetState::Abandoned | TargetState::Foreign { .. } => {
                gone.insert(place.clone());
                continue;
            }
        };
        holds.push(Hold {
            place: place.clone(),
            reason,
        });
    }
    // Without the finalizer the source may be gone, and Kubernetes accepts no new one while an object is being deleted.
    if observed.finalizer && !gone.is_empty() {
        return Ok(Step::Forget(
            observed.recorded.difference(&gone).cloned().collect(),
        ));
    }
    Err(holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: TargetState = TargetState::Ours {
        differs: false,
        deleting: false,
    };
    const DELETING: TargetState = TargetState::Ours {
        differs: true,
        deleting: true,
    };

    fn observed(recorded: &[u8], wanted: &[u8], targets: &[(u8, TargetState)]) -> Observed<u8> {
        Observed {
            source: SourceState::Live,
            finalizer: !recorded.is_empty(),
            recorded: recorded.iter().copied().collect(),
            wanted: wanted.iter().copied().collect(),
            seen: BTreeSet::new(),
            targets: targets.iter().copied().collect(),
        }
    }

    fn step(recorded: &[u8], wanted: &[u8], targets: &[(u8, TargetState)]) -> Step<u8> {
        next_step(&observed(recorded, wanted, targets))
    }

    fn holds(holds: &[(u8, HoldReason)]) -> Step<u8> {
        let hold = |&(place, reason): &(u8, HoldReason)| Hold { place, reason };
        Step::Rest(holds.iter().map(hold).collect())
    }

    fn ending(of: Observed<u8>) -> Step<u8> {
        next_step(&Observed {
            source: SourceState::Ending,
            ..of
        })
    }

    #[test]
    fn the_record_and_the_finalizer_come_before_the_first_write() {
        let absent = [(1, TargetState::Absent), (2, TargetState::Absent)];
        assert_eq!(step(&[], &[1, 2], &absent), Step::Claim([1, 2].into()));
        assert_eq!(step(&[1], &[2], &absent), Step::Claim([1, 2].into()));
        let mut lost = observed(&[1], &[1], &[(1, FINE)]);
        lost.finalizer = false;
        assert_eq!(next_step(&lost), Step::Claim([1].into()));
        assert_eq!(step(&[1, 2], &[1, 2], &absent), Step::Create(1));
        assert_eq!(step(&[1], &[1], &[(1, FINE)]), holds(&[]));
    }

    #[test]
    fn each_state_of_a_wanted_place_has_its_step() {
        let drift = TargetState::Ours {
            differs: true,
            deleting: false,
        };
        for (target, expected) in [
            (drift, Step::Update(1)),
            (DELETING, holds(&[(1, HoldReason::Deleting)])),
            (TargetState::Foreign { adoptable: true }, Step::Adopt(1)),
            (
                TargetState::Foreign { adoptable: false },
                holds(&[(1, HoldReason::Foreign)]),
            ),
            (TargetState::Away, holds(&[(1, HoldReason::Away)])),
            (TargetState::Abandoned, holds(&[(1, HoldReason::Away)])),
        ] {
            assert_eq!(step(&[1], &[1], &[(1, target)]), expected, "{target:?}");
        }
        assert_eq!(
            step(&[1], &[1], &[]),
            holds(&[(1, HoldReason::Away)]),
            "not observed"
        );
    }

    #[test]
    fn a_place_that_is_held_does_not_hold_up_the_others() {
        let targets = [
            (1, TargetState::Away),
            (2, TargetState::Foreign { adoptable: false }),
            (3, TargetState::Absent),
        ];
        assert_eq!(step(&[1, 2, 3], &[1, 2, 3], &targets), Step::Create(3));
    }

    #[test]
    fn a_move_makes_the_new_target_before_it_deletes_the_old_one() {
        for new in [
            TargetState::Away,
            TargetState::Foreign { adoptable: false },
            DELETING,
        ] {
            assert!(
                matches!(step(&[1, 2], &[2], &[(1, FINE), (2, new)]), Step::Rest(holds) if holds.len() == 1)
            );
        }
        assert_eq!(
            step(&[1, 2], &[2], &[(1, FINE), (2, TargetState::Absent)]),
            Step::Create(2)
        );
        assert_eq!(step(&[1, 2], &[2], &[(1, FINE), (2, FINE)]), Step::Delete(1));
        assert_eq!(
            step(&[1, 2], &[2], &[(1, DELETING), (2, FINE)]),
            holds(&[(1, HoldReason::Deleting)])
        );
        assert_eq!(
            step(&[1, 2], &[2], &[(1, TargetState::Absent), (2, FINE)]),
            Step::Forget([2].into())
        );
    }

    #[test]
    fn the_source_is_released_when_all_targets_are_gone() {
        let with = |first, second| ending(observed(&[1, 2], &[1, 2], &[(1, first), (2, second)]));
        assert_eq!(with(TargetState::Absent, FINE), Step::Delete(2));
        assert_eq!(with(TargetState::Absent, DELETING), Step::Forget([2].into()));
        assert_eq!(with(TargetState::Away, FINE), Step::Delete(2));
        assert_eq!(
            with(TargetState::Away, TargetState::Abandoned),
            Step::Forget([1].into())
        );
        assert_eq!(
            ending(observed(&[1], &[], &[(1, TargetState::Away)])),
            holds(&[(1, HoldReason::Away)])
        );
        for gone in [
            TargetState::Absent,
            TargetState::Abandoned,
            TargetState::Foreign { adoptable: true },
        ] {
            assert_eq!(with(gone, TargetState::Absent), Step::Release, "{gone:?}");
        }
        let empty = Observed {
            finalizer: true,
            ..observed(&[], &[], &[])
        };
        assert_eq!(ending(empty), Step::Release);
        assert_eq!(ending(observed(&[], &[], &[])), holds(&[]));
    }

    #[test]
    fn a_live_source_that_is_placed_nowhere_is_released() {
        assert_eq!(step(&[1], &[], &[(1, FINE)]), Step::Delete(1));
        assert_eq!(step(&[1], &[], &[(1, TargetState::Absent)]), Step::Release);
        assert_eq!(step(&[], &[], &[]), holds(&[]));
    }

    #[test]
    fn a_source_that_is_gone_is_not_written_to() {
        let gone = |target| {
            next_step(&Observed {
                source: SourceState::Deleted,
                finalizer: false,
                ..observed(&[1], &[], &[(1, target)])
            })
        };
        assert_eq!(gone(FINE), Step::Delete(1));
        assert_eq!(gone(TargetState::Absent), holds(&[]));
        assert_eq!(gone(TargetState::Away), holds(&[(1, HoldReason::Away)]));
    }
}
