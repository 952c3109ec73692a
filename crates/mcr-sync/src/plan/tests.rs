use super::*;

type Key = (char, u8);
type Decided = Decision<u8, Key>;

const FINE: State = State::Ours {
    differs: false,
    deleting: false,
};
const DRIFT: State = State::Ours {
    differs: true,
    deleting: false,
};
const DELETING: State = State::Ours {
    differs: true,
    deleting: true,
};
const TAKEN: State = State::Foreign { adoptable: false };

/// Targets are `('t', place)`, copies beside them `('d', place)`, and copies beside the source `('u', place)`. The places of copies
/// in capital letters are not known.
fn observed(recorded: &[u8], wanted: &[u8], objects: &[(Key, State, bool)]) -> Observed<u8, Key> {
    let object = |&(key, state, wanted): &(Key, State, bool)| {
        let role = match key.0 {
            't' => Role::Target,
            'd' => Role::Down,
            _ => Role::Up,
        };
        let of = key.0.is_lowercase().then_some(key.1);
        (
            key,
            Object {
                role,
                of,
                wanted,
                state,
                seen: false,
            },
        )
    };
    let mut all: BTreeMap<_, _> = objects.iter().map(object).collect();
    for place in recorded.iter().chain(wanted) {
        let (of, wanted) = (Some(*place), wanted.contains(place));
        all.entry(('t', *place)).or_insert(Object {
            role: Role::Target,
            of,
            wanted,
            state: State::Away,
            seen: false,
        });
    }
    Observed {
        source: SourceState::Live,
        finalizer: !recorded.is_empty(),
        recorded: recorded.iter().copied().collect(),
        wanted: wanted.iter().copied().collect(),
        objects: all,
        uncertain: BTreeSet::new(),
        incomplete: false,
        listed: recorded.iter().copied().collect(),
    }
}

fn targets(recorded: &[u8], wanted: &[u8], targets: &[(u8, State)]) -> Observed<u8, Key> {
    let target = |&(place, state): &(u8, State)| (('t', place), state, wanted.contains(&place));
    observed(recorded, wanted, &targets.iter().map(target).collect::<Vec<_>>())
}

fn ending(of: Observed<u8, Key>) -> Decided {
    decide(&Observed {
        source: SourceState::Ending,
        wanted: BTreeSet::new(),
        ..of
    })
}

fn writes(writes: &[(Key, Write)]) -> Decided {
    Decision::Write(writes.to_vec())
}

fn held(holds: &[(Key, HoldReason)]) -> Decided {
    Decision::Rest(
        holds
            .iter()
            .map(|&(object, reason)| Hold { object, reason })
            .collect(),
    )
}

#[test]
fn the_placements_and_the_finalizer_come_before_the_first_write() {
    let absent = [(1, State::Absent), (2, State::Absent)];
    assert_eq!(
        decide(&targets(&[], &[1, 2], &absent)),
        Decision::Claim([1, 2].into())
    );
    assert_eq!(
        decide(&targets(&[1], &[2], &absent)),
        Decision::Claim([1, 2].into())
    );
    let finalizer = false;
    let lost = Observed {
        finalizer,
        ..targets(&[1], &[1], &[(1, FINE)])
    };
    assert_eq!(decide(&lost), Decision::Claim([1].into()));
    let both = [(('t', 1), Write::Create), (('t', 2), Write::Create)];
    assert_eq!(decide(&targets(&[1, 2], &[1, 2], &absent)), writes(&both));
    assert_eq!(decide(&targets(&[1], &[1], &[(1, FINE)])), held(&[]));
}

#[test]
fn each_state_of_a_wanted_object_has_its_step_and_holds_no_other_place() {
    for (state, expected) in [
        (FINE, Ok(None)),
        (State::Absent, Ok(Some(Write::Create))),
        (DRIFT, Ok(Some(Write::Update))),
        (State::Foreign { adoptable: true }, Ok(Some(Write::Adopt))),
        (DELETING, Err(HoldReason::Deleting)),
        (TAKEN, Err(HoldReason::Foreign)),
        (State::Away, Err(HoldReason::Away)),
        (State::Abandoned, Err(HoldReason::Away)),
    ] {
        for kind in ['t', 'd', 'u'] {
            let object = (kind, 1);
            let mut all = vec![(object, state, true), (('t', 2), State::Absent, true)];
            all.extend((kind != 't').then_some((('t', 1), FINE, true)));
            let other = (('t', 2), Write::Create);
            let own = expected.ok().flatten().map(|write| (object, write));
            let decided = decide(&observed(&[1, 2], &[1, 2], &all));
            assert_eq!(
                decided,
                Decision::Write(own.into_iter().chain([other]).collect()),
                "{state:?}"
            );
            all[1].1 = FINE;
            let expected = match expected {
                Ok(None) => held(&[]),
                Ok(Some(write)) => writes(&[(object, write)]),
                Err(reason) => held(&[(object, reason)]),
            };
            assert_eq!(decide(&observed(&[1, 2], &[1, 2], &all)), expected, "{state:?}");
        }
    }
}

#[test]
fn the_objects_of_a_place_are_written_in_order_and_copies_that_nobody_wants_go_last() {
    let mut all = vec![
        (('d', 1), State::Absent, true),
        (('t', 1), DRIFT, true),
        (('u', 1), State::Absent, true),
        (('e', 1), FINE, false),
        (('U', 9), FINE, false),
    ];
    for (at, write) in [Write::Create, Write::Update, Write::Create]
        .into_iter()
        .enumerate()
    {
        assert_eq!(decide(&observed(&[1], &[1], &all)), writes(&[(all[at].0, write)]));
        all[at].1 = FINE;
    }
    let uncertain = Observed {
        uncertain: [1].into(),
        ..observed(&[1], &[1], &all)
    };
    assert_eq!(
        decide(&uncertain),
        held(&[]),
        "nobody knows whether they are wanted"
    );
    assert_eq!(
        decide(&observed(&[1], &[1], &all)),
        writes(&[(('e', 1), Write::Delete)])
    );
    all[3].1 = State::Absent;
    assert_eq!(
        decide(&observed(&[1], &[1], &all)),
        writes(&[(('U', 9), Write::Delete)])
    );
    all[4].1 = DELETING;
    assert_eq!(
        decide(&observed(&[1], &[1], &all)),
        held(&[(('U', 9), HoldReason::Deleting)])
    );
}

#[test]
fn a_move_makes_the_new_target_before_it_deletes_the_old_one() {
    for new in [State::Away, TAKEN, DELETING] {
        let moved = targets(&[1, 2], &[2], &[(1, FINE), (2, new)]);
        assert!(matches!(decide(&moved), Decision::Rest(holds) if holds.len() == 1));
    }
    let moved = |old, new| targets(&[1, 2], &[2], &[(1, old), (2, new)]);
    assert_eq!(
        decide(&moved(FINE, State::Absent)),
        writes(&[(('t', 2), Write::Create)])
    );
    assert_eq!(decide(&moved(FINE, FINE)), writes(&[(('t', 1), Write::Delete)]));
    assert_eq!(
        decide(&moved(DELETING, FINE)),
        held(&[(('t', 1), HoldReason::Deleting)])
    );
    assert_eq!(decide(&moved(State::Absent, FINE)), Decision::Forget([2].into()));
    let incomplete = true;
    assert_eq!(
        decide(&Observed {
            incomplete,
            ..moved(FINE, FINE)
        }),
        held(&[]),
        "a copy is missing"
    );
    let mut seen = moved(FINE, State::Away);
    seen.objects.get_mut(&('t', 2)).unwrap().seen = true;
    assert_eq!(
        decide(&seen),
        writes(&[(('t', 1), Write::Delete)]),
        "it was there before its cluster was away"
    );
}

#[test]
fn the_copies_of_a_place_are_asked_for_and_go_before_its_target() {
    let all = [
        (('t', 1), FINE, false),
        (('d', 1), FINE, false),
        (('u', 1), FINE, false),
        (('t', 2), FINE, true),
    ];
    let left = observed(&[1, 2], &[2], &all);
    let listed = BTreeSet::new();
    assert_eq!(
        decide(&Observed {
            listed,
            ..left.clone()
        }),
        Decision::List([1].into())
    );
    assert_eq!(
        decide(&left),
        writes(&[(('d', 1), Write::Delete), (('u', 1), Write::Delete)])
    );
    let mut gone = left;
    gone.objects.retain(|key, _| key.0 == 't');
    assert_eq!(decide(&gone), writes(&[(('t', 1), Write::Delete)]));
}

#[test]
fn the_source_is_released_when_all_is_gone() {
    let with = |first, second| ending(targets(&[1, 2], &[], &[(1, first), (2, second)]));
    assert_eq!(with(State::Absent, FINE), writes(&[(('t', 2), Write::Delete)]));
    assert_eq!(with(State::Absent, DELETING), Decision::Forget([2].into()));
    assert_eq!(with(State::Away, FINE), writes(&[(('t', 2), Write::Delete)]));
    assert_eq!(with(State::Away, State::Abandoned), Decision::Forget([1].into()));
    assert_eq!(
        ending(targets(&[1], &[], &[(1, State::Away)])),
        held(&[(('t', 1), HoldReason::Away)])
    );
    for gone in [
        State::Absent,
        State::Abandoned,
        State::Foreign { adoptable: true },
    ] {
        assert_eq!(with(gone, State::Absent), Decision::Release, "{gone:?}");
    }
    let lost = observed(
        &[1],
        &[],
        &[(('t', 1), State::Absent, false), (('U', 9), FINE, false)],
    );
    assert_eq!(ending(lost), writes(&[(('U', 9), Write::Delete)]));
    let lost = observed(
        &[1],
        &[],
        &[(('t', 1), State::Absent, false), (('U', 9), DELETING, false)],
    );
    assert_eq!(
        ending(lost),
        held(&[(('U', 9), HoldReason::Deleting)]),
        "the place may be its own"
    );
    let finalizer = true;
    assert_eq!(
        ending(Observed {
            finalizer,
            ..targets(&[], &[], &[])
        }),
        Decision::Release
    );
    assert_eq!(ending(targets(&[], &[], &[])), held(&[]));
    // As a live source that is placed nowhere.
    assert_eq!(
        decide(&targets(&[1], &[], &[(1, FINE)])),
        writes(&[(('t', 1), Write::Delete)])
    );
    assert_eq!(
        decide(&targets(&[1], &[], &[(1, State::Absent)])),
        Decision::Release
    );
}

#[test]
fn nothing_is_written_to_a_source_that_is_gone() {
    let gone = |state| {
        let (source, finalizer, listed) = (SourceState::Deleted, false, BTreeSet::new());
        decide(&Observed {
            source,
            finalizer,
            listed,
            ..targets(&[1], &[], &[(1, state)])
        })
    };
    assert_eq!(gone(FINE), writes(&[(('t', 1), Write::Delete)]));
    assert_eq!(gone(State::Absent), held(&[]));
    assert_eq!(gone(State::Away), held(&[(('t', 1), HoldReason::Away)]));
}
