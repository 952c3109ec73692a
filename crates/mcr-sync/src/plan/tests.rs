//! Rows of what is observed, and what is decided.
//!
//! `record` and `want` have the places of the source. Then come the objects with their states: `t1` is the target at the place 1, `d1`
//! and `e1` are copies beside it, and `u1` is one beside the source. The place of `U1` is not known. Nobody wants an object with `-`.

use super::*;

type Key = (char, char);

fn state(name: &str) -> State {
    let ours = |differs, deleting| State::Ours { differs, deleting };
    match name {
        "away" => State::Away,
        "abandoned" => State::Abandoned,
        "absent" => State::Absent,
        "fine" => ours(false, false),
        "drift" => ours(true, false),
        "deleting" => ours(true, true),
        "taken" => State::Foreign { adoptable: false },
        "adoptable" => State::Foreign { adoptable: true },
        other => panic!("{other}"),
    }
}

fn observed(row: &str) -> Observed<char, Key> {
    let mut observed = Observed {
        source: SourceState::Live,
        finalizer: true,
        recorded: BTreeSet::new(),
        wanted: BTreeSet::new(),
        objects: BTreeMap::new(),
        uncertain: BTreeSet::new(),
        incomplete: false,
        listed: BTreeSet::new(),
    };
    for word in row.split_whitespace() {
        let (what, how) = word.split_once('=').unwrap_or((word, ""));
        let places = how.chars().collect();
        match what {
            "ending" => observed.source = SourceState::Ending,
            "deleted" => observed.source = SourceState::Deleted,
            "no-finalizer" => observed.finalizer = false,
            "incomplete" => observed.incomplete = true,
            "unlisted" => observed.listed.clear(),
            "record" => (observed.recorded, observed.listed) = (how.chars().collect(), places),
            "want" => observed.wanted = places,
            "uncertain" => observed.uncertain = places,
            "seen" => observed.objects.values_mut().last().unwrap().seen = true,
            _ => {
                let key = (what.chars().next().unwrap(), what.chars().nth(1).unwrap());
                let role = match key.0 {
                    't' => Role::Target,
                    'd' | 'e' => Role::Down,
                    _ => Role::Up,
                };
                let object = Object {
                    role,
                    place: key.0.is_lowercase().then_some(key.1),
                    wanted: !what.ends_with('-'),
                    state: state(how),
                    seen: false,
                };
                observed.objects.insert(key, object);
            }
        }
    }
    observed
}

/// The decision as a row has it.
fn decided(row: &str) -> String {
    let places = |places: BTreeSet<char>| places.into_iter().collect::<String>();
    let with = |what: &str, objects: Vec<(Key, String)>| {
        let objects = objects
            .iter()
            .map(|((kind, at), how)| format!(" {kind}{at}={how}"));
        format!("{what}{}", objects.collect::<String>()).to_lowercase()
    };
    match decide(&observed(row)) {
        Decision::Claim(all) => format!("claim {}", places(all)),
        Decision::Forget(kept) => format!("keep {}", places(kept)),
        Decision::List(all) => format!("list {}", places(all)),
        Decision::Release => "release".to_owned(),
        Decision::Write(writes) => {
            let writes = writes.into_iter().map(|(key, write)| (key, format!("{write:?}")));
            with("write", writes.collect())
        }
        Decision::Rest(holds) => {
            let reason = |hold: Hold<Key>| (hold.object, format!("{:?}", hold.reason));
            with("rest", holds.into_iter().map(reason).collect())
        }
    }
}

#[track_caller]
fn check(rows: &str) {
    for (row, expected) in rows.lines().filter_map(|line| line.trim().split_once(" -> ")) {
        assert_eq!(decided(row), expected, "{row}");
    }
}

#[test]
fn the_placements_and_the_finalizer_come_before_the_first_write() {
    check(
        "
        no-finalizer want=12 t1=absent t2=absent -> claim 12
        record=1 want=2 t1-=absent t2=absent -> claim 12
        no-finalizer record=1 want=1 t1=fine -> claim 1
        record=12 want=12 t1=absent t2=absent -> write t1=create t2=create
        record=1 want=1 t1=fine -> rest
        ",
    );
}

#[test]
fn each_state_of_a_wanted_object_has_its_step_and_holds_no_other_place() {
    for (state, write, hold) in [
        ("fine", "", ""),
        ("absent", "create", ""),
        ("drift", "update", ""),
        ("adoptable", "adopt", ""),
        ("deleting", "", "deleting"),
        ("taken", "", "foreign"),
        ("away", "", "away"),
        ("abandoned", "", "away"),
    ] {
        for object in ["t1", "d1", "u1"] {
            let target = if object == "t1" { "" } else { "t1=fine" };
            let row = format!("record=12 want=12 {object}={state} {target}");
            let of = |what: &str| {
                if what.is_empty() {
                    String::new()
                } else {
                    format!(" {object}={what}")
                }
            };
            assert_eq!(
                decided(&format!("{row} t2=absent")),
                format!("write{} t2=create", of(write))
            );
            let what = if write.is_empty() { "rest" } else { "write" };
            let expected = format!("{what}{}{}", of(write), of(hold));
            assert_eq!(decided(&format!("{row} t2=fine")), expected);
        }
    }
}

#[test]
fn the_objects_of_a_place_are_written_in_order_and_copies_that_nobody_wants_go_last() {
    check(
        "
        record=1 want=1 d1=absent t1=drift u1=absent e1-=fine U9-=fine -> write d1=create
        record=1 want=1 d1=fine t1=drift u1=absent e1-=fine U9-=fine -> write t1=update
        record=1 want=1 d1=fine t1=fine u1=absent e1-=fine U9-=fine -> write u1=create
        record=1 want=1 d1=fine t1=fine u1=fine e1-=fine U9-=fine -> write e1=delete
        # Nobody knows whether they are wanted.
        record=1 want=1 uncertain=1 d1=fine t1=fine u1=fine e1-=fine U9-=fine -> rest
        record=1 want=1 d1=fine t1=fine u1=fine e1-=absent U9-=fine -> write u9=delete
        record=1 want=1 d1=fine t1=fine u1=fine e1-=absent U9-=deleting -> rest u9=deleting
        ",
    );
}

#[test]
fn a_move_makes_the_new_target_before_it_deletes_the_old_one() {
    check(
        "
        record=12 want=2 t1-=fine t2=away -> rest t2=away
        record=12 want=2 t1-=fine t2=taken -> rest t2=foreign
        record=12 want=2 t1-=fine t2=deleting -> rest t2=deleting
        record=12 want=2 t1-=fine t2=absent -> write t2=create
        record=12 want=2 t1-=fine t2=fine -> write t1=delete
        record=12 want=2 t1-=deleting t2=fine -> rest t1=deleting
        record=12 want=2 t1-=absent t2=fine -> keep 2
        # A copy is missing.
        record=12 want=2 incomplete t1-=fine t2=fine -> rest
        # It was there before its cluster was away.
        record=12 want=2 t1-=fine t2=away seen -> write t1=delete
        ",
    );
}

#[test]
fn the_copies_of_a_place_are_asked_for_and_go_before_its_target() {
    check(
        "
        record=12 want=2 unlisted t1-=fine d1-=fine u1-=fine t2=fine -> list 1
        record=12 want=2 t1-=fine d1-=fine u1-=fine t2=fine -> write d1=delete u1=delete
        record=12 want=2 t1-=fine t2=fine -> write t1=delete
        ",
    );
}

#[test]
fn the_source_is_released_when_all_is_gone() {
    check(
        "
        ending record=12 t1-=absent t2-=fine -> write t2=delete
        ending record=12 t1-=absent t2-=deleting -> keep 2
        ending record=12 t1-=away t2-=fine -> write t2=delete
        ending record=12 t1-=away t2-=abandoned -> keep 1
        ending record=1 t1-=away -> rest t1=away
        ending record=12 t1-=absent t2-=absent -> release
        ending record=12 t1-=abandoned t2-=absent -> release
        ending record=12 t1-=adoptable t2-=absent -> release
        ending record=1 t1-=absent U9-=fine -> write u9=delete
        # The place may be its own.
        ending record=1 t1-=absent U9-=deleting -> rest u9=deleting
        ending -> release
        ending no-finalizer -> rest
        # As a live source that is placed nowhere.
        record=1 t1-=fine -> write t1=delete
        record=1 t1-=absent -> release
        ",
    );
}

#[test]
fn nothing_is_written_to_a_source_that_is_gone() {
    check(
        "
        deleted no-finalizer record=1 unlisted t1-=fine -> write t1=delete
        deleted no-finalizer record=1 unlisted t1-=absent -> rest
        deleted no-finalizer record=1 unlisted t1-=away -> rest t1=away
        ",
    );
}
