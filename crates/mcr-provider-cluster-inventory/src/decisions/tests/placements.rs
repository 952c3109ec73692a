//! What schedulers choose.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// A discovery of clusters that schedulers choose.
fn chosen(memory: &Arc<Memory<Ids>>) -> World {
    World::of(builder().placement("web"), memory, policy())
}

fn slice(names: &[&str]) -> Option<Slice> {
    let mut names: Vec<ObjectKey> = names.iter().map(|name| key(name)).collect();
    names.sort();
    Some(Slice(Ok(names.into())))
}

fn decision(name: &str, slice: Option<Slice>) -> Event {
    Event::Decision(match slice {
        Some(slice) => HubEvent::Applied(key(name), slice),
        None => HubEvent::Deleted(key(name)),
    })
}

fn unreadable() -> Option<Slice> {
    Some(Slice(Err("not a PlacementDecision".into())))
}

fn one(name: &str, facts: Arc<Facts>) -> Event {
    Event::Profile(0, HubEvent::Applied(key(name), Ok(facts)))
}

fn announced(world: &mut World, batch: Vec<Event>) -> Vec<String> {
    let mut announced = shown(&world.decide(batch));
    let synced = announced.last().is_some_and(|last| last == "synced");
    let end = announced.len() - usize::from(synced);
    announced[..end].sort();
    announced
}

const NOTHING: [&str; 0] = [];

#[test]
fn as_long_as_decisions_are_not_all_known_nothing_leaves_because_of_them() {
    let memory = Arc::default();
    let mut clusters = chosen(&memory);
    let both = vec![
        one("a", ready("a", "a")),
        one("b", ready("b", "b")),
        decision("slice-0", slice(&["a", "b"])),
        Event::Profile(0, HubEvent::Synced),
        Event::Decision(HubEvent::Synced),
    ];
    assert_eq!(clusters.decide(both).len(), 3);
    // The next discovery knows no decision for a while.
    let mut clusters = chosen(&memory);
    let profiles = vec![
        one("a", ready("a", "a")),
        one("b", ready("b", "b")),
        Event::Profile(0, HubEvent::Synced),
    ];
    assert_eq!(
        announced(&mut clusters, profiles),
        NOTHING,
        "no `synced`, at which the fleet removes the rest"
    );
    assert_eq!(
        announced(&mut clusters, vec![decision("slice-0", slice(&["a"]))]),
        ["+a a"]
    );
    assert_eq!(
        announced(&mut clusters, vec![decision("slice-0", slice(&[]))]),
        NOTHING
    );
    assert_eq!(
        announced(&mut clusters, vec![one("a", ready("a", "two"))]),
        ["+a two"]
    );
    assert_eq!(
        announced(
            &mut clusters,
            vec![
                decision("slice-0", slice(&["a"])),
                Event::Decision(HubEvent::Synced)
            ]
        ),
        ["-b", "synced"]
    );
    assert!(memory.contains(&key("a")) && !memory.contains(&key("b")));
}

#[test]
fn a_decision_that_cannot_be_read_takes_no_cluster_away_and_gives_none() {
    let memory = Arc::default();
    let mut clusters = chosen(&memory);
    let all = vec![
        one("a", ready("a", "a")),
        one("b", ready("b", "b")),
        decision("slice-0", slice(&["a"])),
        Event::Profile(0, HubEvent::Synced),
        Event::Decision(HubEvent::Synced),
    ];
    assert_eq!(announced(&mut clusters, all), ["+a a", "synced"]);
    assert_eq!(
        announced(&mut clusters, vec![decision("slice-0", unreadable())]),
        NOTHING,
        "its last names stay chosen"
    );
    // The next discovery has never read it.
    let mut clusters = chosen(&memory);
    let all = vec![
        one("a", ready("a", "a")),
        one("b", ready("b", "b")),
        decision("slice-0", unreadable()),
        Event::Profile(0, HubEvent::Synced),
        Event::Decision(HubEvent::Synced),
    ];
    assert_eq!(announced(&mut clusters, all), ["+a a", "synced"]);
    assert_eq!(
        announced(&mut clusters, vec![decision("slice-0", slice(&["b"]))]),
        ["+b b", "-a"]
    );
    // It is deleted instead of corrected.
    assert_eq!(
        announced(&mut clusters, vec![decision("slice-0", unreadable())]),
        NOTHING
    );
    assert_eq!(announced(&mut clusters, vec![decision("slice-0", None)]), ["-b"]);
}

/// A decision that can't be read may name each cluster that the last discovery has announced, so it is chosen in the middle of a
/// batch.
#[test]
fn facts_from_the_time_when_a_profile_was_not_chosen_replace_no_newer_ones() {
    let memory = Arc::default();
    let mut clusters = chosen(&memory);
    let named = decision("slice-0", slice(&["a"]));
    let synced = || {
        [
            Event::Profile(0, HubEvent::Synced),
            Event::Decision(HubEvent::Synced),
        ]
    };
    clusters.decide(
        [one("a", ready("a", "a")), named]
            .into_iter()
            .chain(synced())
            .collect(),
    );
    let mut clusters = chosen(&memory);
    assert_eq!(
        announced(&mut clusters, vec![one("a", ready("a", "old"))]),
        NOTHING
    );
    let batch = vec![decision("slice-0", unreadable()), one("a", ready("a", "new"))];
    announced(&mut clusters, batch);
    let facts = clusters.0.facts(&key("a")).unwrap();
    assert_eq!(facts, ready("a", "new"));
}

#[derive(Debug, Clone)]
enum Step {
    Profile(usize, bool),
    /// The names of a slice. None: it is deleted. An error: it can't be read.
    Decision(usize, Option<Result<Vec<usize>, ()>>),
    /// The discovery fails, and the next one lists all.
    Restart,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

fn step() -> impl Strategy<Value = Step> {
    let names = prop::collection::vec(0..NAMES.len(), 0..3);
    prop_oneof![
        4 => (0..NAMES.len(), any::<bool>()).prop_map(|(which, there)| Step::Profile(which, there)),
        6 => (0..2_usize, prop::option::weighted(0.8, names)).prop_map(|(which, names)| Step::Decision(which, names.map(Ok))),
        1 => (0..2_usize).prop_map(|which| Step::Decision(which, Some(Err(())))),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens to ClusterProfiles and PlacementDecisions: if all of them can be read, the fleet has exactly the clusters
    /// that exist and are named; if one can't be read, it has these at least and none that does not exist.
    #[test]
    fn a_fleet_has_the_clusters_that_are_there_and_chosen(steps in prop::collection::vec(step(), 0..40)) {
        let memory = Arc::default();
        let (mut there, mut slices) = (BTreeSet::new(), BTreeMap::new());
        let mut fleet = BTreeSet::<String>::new();
        let sync = || vec![Event::Profile(0, HubEvent::Synced), Event::Decision(HubEvent::Synced)];
        let mut clusters = chosen(&memory);
        clusters.decide(sync());
        let names = ["slice-0", "slice-1"];
        let of = |slice: &Result<Vec<usize>, ()>| match slice {
            Ok(named) => slice_of(named),
            Err(()) => unreadable(),
        };
        for step in steps {
            let (batch, listed) = match step {
                Step::Profile(which, true) => {
                    there.insert(which);
                    (vec![one(NAMES[which], ready(NAMES[which], "one"))], false)
                }
                Step::Profile(which, false) => {
                    there.remove(&which);
                    (vec![Event::Profile(0, HubEvent::Deleted(key(NAMES[which])))], false)
                }
                Step::Decision(which, slice) => {
                    let change = decision(names[which], slice.as_ref().and_then(of));
                    match slice {
                        Some(slice) => _ = slices.insert(which, slice),
                        None => _ = slices.remove(&which),
                    }
                    (vec![change], false)
                }
                Step::Restart => {
                    clusters = chosen(&memory);
                    let profiles = there.iter().map(|which| one(NAMES[*which], ready(NAMES[*which], "one")));
                    let decisions = slices.iter().map(|(which, slice)| decision(names[*which], of(slice)));
                    (profiles.chain(decisions).chain(sync()).collect(), true)
                }
            };
            let mut reported = BTreeSet::new();
            for change in clusters.decide(batch) {
                match change {
                    Change::Upsert(spec) => {
                        reported.insert(spec.name.to_string());
                        fleet.insert(spec.name.to_string());
                    }
                    Change::Remove(name) => _ = fleet.remove(name.as_str()),
                    // The fleet removes what a new discovery has not named by now.
                    Change::Synced if listed => fleet.retain(|name| reported.contains(name)),
                    _ => {}
                }
            }
            let wanted: BTreeSet<String> = slices
                .values()
                .flatten()
                .flatten()
                .filter(|which| there.contains(which))
                .map(|which| NAMES[*which].to_owned())
                .collect();
            let exists: BTreeSet<String> = there.iter().map(|which| NAMES[*which].to_owned()).collect();
            if slices.values().all(Result::is_ok) {
                prop_assert_eq!(&fleet, &wanted);
            } else {
                prop_assert!(fleet.is_superset(&wanted) && fleet.is_subset(&exists));
            }
        }
    }
}

fn slice_of(named: &[usize]) -> Option<Slice> {
    let named: Vec<&str> = named.iter().map(|which| NAMES[*which]).collect();
    slice(&named)
}
