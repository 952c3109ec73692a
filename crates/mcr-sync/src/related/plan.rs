//! The decision for the copies of one source: from what was found alone to the next write.

use std::collections::BTreeMap;

use crate::plan::TargetState;

/// One copy, as far as it matters for the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copy {
    /// It shall exist. With `early`, it is made before the target and not after it.
    Wanted { state: TargetState, early: bool },
    /// It exists, and its origin is gone or no longer selected.
    Stale { deleting: bool },
    /// It exists, and nobody knows now whether its origin does.
    Kept,
}

/// When the step is taken: before the targets are written, or after all of them are as they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Early,
    Late,
}

/// A write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step<C> {
    Create(C),
    Update(C),
    Delete(C),
}

impl<C> Step<C> {
    pub(crate) fn key(&self) -> &C {
        match self {
            Self::Create(key) | Self::Update(key) | Self::Delete(key) => key,
        }
    }
}

/// Why nothing is done about a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyHold {
    Away,
    Deleting,
    Foreign,
}

/// Chooses the next steps. All copies that shall exist are written before one is deleted, so that a renamed copy is never missing.
pub(crate) fn next<C: Ord + Clone>(
    copies: &BTreeMap<C, Copy>,
    phase: Phase,
) -> Result<Vec<Step<C>>, Vec<(C, CopyHold)>> {
    let (mut steps, mut holds) = (Vec::new(), Vec::new());
    for (key, copy) in copies {
        let state = match copy {
            Copy::Wanted { early: false, .. } if phase == Phase::Early => continue,
            Copy::Wanted { state, .. } => state,
            _ => continue,
        };
        let hold = match state {
            TargetState::Absent => {
                steps.push(Step::Create(key.clone()));
                continue;
            }
            TargetState::Ours { deleting: true, .. } => CopyHold::Deleting,
            TargetState::Ours { differs: true, .. } => {
                steps.push(Step::Update(key.clone()));
                continue;
            }
            TargetState::Ours { .. } => continue,
            TargetState::Foreign { .. } => CopyHold::Foreign,
            TargetState::Away | TargetState::Abandoned => CopyHold::Away,
        };
        holds.push((key.clone(), hold));
    }
    if phase == Phase::Late && steps.is_empty() {
        for (key, copy) in copies {
            match copy {
                Copy::Stale { deleting: false } => steps.push(Step::Delete(key.clone())),
                Copy::Stale { deleting: true } => holds.push((key.clone(), CopyHold::Deleting)),
                Copy::Wanted { .. } | Copy::Kept => {}
            }
        }
    }
    if steps.is_empty() { Err(holds) } else { Ok(steps) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: TargetState = TargetState::Ours {
        differs: false,
        deleting: false,
    };
    const DIFFERS: TargetState = TargetState::Ours {
        differs: true,
        deleting: false,
    };

    fn wanted(state: TargetState) -> Copy {
        Copy::Wanted { state, early: false }
    }

    fn late(copies: &[(u8, Copy)]) -> Result<Vec<Step<u8>>, Vec<(u8, CopyHold)>> {
        next(&copies.iter().copied().collect(), Phase::Late)
    }

    #[test]
    fn every_state_of_a_wanted_copy_has_its_step() {
        for (state, step) in [
            (TargetState::Absent, Ok(vec![Step::Create(1)])),
            (DIFFERS, Ok(vec![Step::Update(1)])),
            (FINE, Err(vec![])),
            (TargetState::Away, Err(vec![(1, CopyHold::Away)])),
            (TargetState::Abandoned, Err(vec![(1, CopyHold::Away)])),
        ] {
            assert_eq!(late(&[(1, wanted(state))]), step, "{state:?}");
        }
        for adoptable in [false, true] {
            let state = TargetState::Foreign { adoptable };
            assert_eq!(late(&[(1, wanted(state))]), Err(vec![(1, CopyHold::Foreign)]));
        }
        for differs in [false, true] {
            let state = TargetState::Ours {
                differs,
                deleting: true,
            };
            assert_eq!(late(&[(1, wanted(state))]), Err(vec![(1, CopyHold::Deleting)]));
        }
    }

    #[test]
    fn a_stale_copy_goes_after_the_others_are_written_and_a_kept_one_stays() {
        let stale = Copy::Stale { deleting: false };
        assert_eq!(
            late(&[(1, stale), (2, wanted(TargetState::Absent))]),
            Ok(vec![Step::Create(2)])
        );
        assert_eq!(
            late(&[(1, stale), (2, wanted(DIFFERS))]),
            Ok(vec![Step::Update(2)])
        );
        assert_eq!(late(&[(1, stale), (2, wanted(FINE))]), Ok(vec![Step::Delete(1)]));
        let foreign = wanted(TargetState::Foreign { adoptable: false });
        assert_eq!(late(&[(1, foreign), (2, stale)]), Ok(vec![Step::Delete(2)]));
        assert_eq!(
            late(&[(1, Copy::Stale { deleting: true }), (2, Copy::Kept)]),
            Err(vec![(1, CopyHold::Deleting)])
        );
        assert_eq!(late(&[]), Err(vec![]));
    }

    #[test]
    fn before_the_targets_only_early_copies_are_written_and_nothing_is_deleted() {
        let early = |copies: &[(u8, Copy)]| next(&copies.iter().copied().collect(), Phase::Early);
        let first = |state| Copy::Wanted { state, early: true };
        let stale = Copy::Stale { deleting: false };
        assert_eq!(
            early(&[(1, stale), (2, wanted(TargetState::Absent))]),
            Err(vec![])
        );
        assert_eq!(
            early(&[(1, stale), (2, first(TargetState::Absent))]),
            Ok(vec![Step::Create(2)])
        );
        assert_eq!(early(&[(1, first(DIFFERS))]), Ok(vec![Step::Update(1)]));
    }
}
