use proptest::{prelude::*, test_runner::Config};

use super::*;

const A: &str = "https://a/services/apiexport/1/e";
const B: &str = "https://b/services/apiexport/1/e";

fn ready() -> Binding {
    Binding {
        path: None,
        deleting: false,
        not_ready: None,
        claims_pending: false,
        withheld: Withheld::new(),
        labels: Labels::new(),
    }
}

fn unready() -> Binding {
    Binding {
        not_ready: Some("not Ready".into()),
        claims_pending: true,
        ..ready()
    }
}

fn labelling() -> Binding {
    Binding {
        claims_pending: true,
        ..ready()
    }
}

fn deleting(binding: Binding) -> Binding {
    Binding {
        deleting: true,
        ..binding
    }
}

/// The members, with what they announce in words.
struct World(Members);

impl Default for World {
    fn default() -> Self {
        Self(Members::new("APIBinding"))
    }
}

fn words(decision: &Decision) -> String {
    match decision {
        Decision::Leave(cluster) => format!("-{cluster}"),
        Decision::Announce(cluster, member) => {
            let at = match member.endpoint.as_deref() {
                Some(A) => "a",
                Some(B) => "b",
                Some(other) => other,
                None => "nowhere",
            };
            let state = member
                .suspended
                .as_deref()
                .map(|why| format!(": {why}"))
                .unwrap_or_default();
            format!("+{cluster} at {at}{state}")
        }
    }
}

impl World {
    fn of(urls: &[&str]) -> Self {
        let mut world = Self::default();
        assert_eq!(world.slice(urls), [""; 0]);
        world
    }

    fn slice(&mut self, urls: &[&str]) -> Vec<String> {
        let urls = urls.iter().map(|url| Arc::from(*url)).collect();
        self.0.set_endpoints(urls).iter().map(words).collect()
    }

    fn put(&mut self, url: &str, cluster: &str, name: &str, binding: Binding) -> Option<String> {
        let decision = self
            .0
            .applied(&url.into(), &cluster.into(), &name.into(), binding);
        decision.as_ref().map(words)
    }

    fn delete(&mut self, url: &str, cluster: &str, name: &str) -> Option<String> {
        let decision = self.0.gone(&url.into(), &cluster.into(), &name.into(), true);
        decision.as_ref().map(words)
    }

    fn vanish(&mut self, url: &str, cluster: &str, name: &str) -> Option<String> {
        let decision = self.0.gone(&url.into(), &cluster.into(), &name.into(), false);
        decision.as_ref().map(words)
    }

    fn give_up(&mut self, missing: &Missing) -> Option<String> {
        self.0.give_up(missing).as_ref().map(words)
    }

    fn watched(&self) -> Vec<String> {
        self.0.watched().iter().map(ToString::to_string).collect()
    }
}

/// While A shows it, too.
const MOVES_TO_B: &str = "+x at nowhere: it moves to endpoint https://b/services/apiexport/1/e, and its objects are compared \
                          when endpoint https://a/services/apiexport/1/e no longer shows it";

/// When A does not show it any more.
const WAITS_AT_B: &str = "+x at nowhere: it moves to endpoint https://b/services/apiexport/1/e, and its objects are compared \
                          when PermissionClaimsApplied is true there";

#[test]
fn labels_are_those_of_all_bindings_and_stay_while_the_workspace_moves() {
    let mut members = Members::new("APIBinding");
    members.set_endpoints([A, B].map(Arc::from).into());
    let cluster: Arc<str> = "one".into();
    let shown = |decision: Option<Decision>| match decision {
        Some(Decision::Announce(_, member)) => format!("{} {:?}", member.endpoint.is_some(), member.labels),
        other => format!("{other:?}"),
    };
    let put = |members: &mut Members, url: &str, name: &str, labels: &[(&str, &str)]| {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let binding = Binding {
            labels: labels.collect(),
            ..ready()
        };
        shown(members.applied(&url.into(), &cluster, &name.into(), binding))
    };
    assert_eq!(
        put(&mut members, A, "y", &[("env", "dev"), ("team", "a")]),
        r#"true {"env": "dev", "team": "a"}"#
    );
    assert_eq!(
        put(&mut members, A, "x", &[("env", "prod")]),
        r#"true {"env": "prod", "team": "a"}"#
    );
    assert_eq!(put(&mut members, A, "x", &[("env", "prod")]), "None");
    assert_eq!(
        shown(members.gone(&A.into(), &cluster, &"y".into(), true)),
        r#"true {"env": "prod"}"#
    );
    assert_eq!(put(&mut members, B, "x", &[]), r#"false {"env": "prod"}"#);
    assert_eq!(
        shown(members.gone(&A.into(), &cluster, &"x".into(), false)),
        "true {}"
    );
    assert_eq!(
        put(&mut members, B, "x", &[("env", "prod")]),
        r#"true {"env": "prod"}"#
    );
    assert_eq!(
        shown(members.gone(&B.into(), &cluster, &"x".into(), false)),
        r#"false {"env": "prod"}"#
    );
}

/// The kinds that are withheld.
fn withheld(member: Option<Decision>) -> Vec<String> {
    match member {
        Some(Decision::Announce(_, member)) => member.withheld.into_keys().collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_kind_is_withheld_unless_one_binding_that_is_ready_grants_it() {
    let withholding = |kinds: &[&str], binding: Binding| Binding {
        withheld: kinds
            .iter()
            .map(|kind| (kind.to_string(), "not accepted".to_owned()))
            .collect(),
        ..binding
    };
    let mut members = Members::new("APIBinding");
    members.set_endpoints([A, B].map(Arc::from).into());
    let cluster = Arc::from("one");
    let put = |members: &mut Members, url: &str, name: &str, binding| {
        withheld(members.applied(&url.into(), &cluster, &name.into(), binding))
    };
    let both = withholding(&["configmaps", "secrets"], unready());
    assert_eq!(put(&mut members, A, "x", both.clone()), ["configmaps", "secrets"]);
    assert_eq!(
        put(&mut members, A, "y", withholding(&["secrets"], ready())),
        ["secrets"]
    );
    assert_eq!(
        put(&mut members, A, "x", withholding(&["configmaps"], ready())),
        [""; 0]
    );
    let both = withholding(&["configmaps", "secrets"], ready());
    assert_eq!(put(&mut members, A, "x", both), ["secrets"]);
    // On its way to another shard, whose bindings are not complete yet.
    assert_eq!(put(&mut members, B, "x", labelling()), ["secrets"]);
    for name in ["x", "y"] {
        members.gone(&A.into(), &cluster, &name.into(), false);
    }
    let both = withholding(&["configmaps"], ready());
    assert_eq!(put(&mut members, B, "x", both), ["configmaps"]);
}

#[test]
fn kcp_a_workspace_is_suspended_until_it_is_ready_and_while_it_is_not() {
    let mut world = World::of(&[A]);
    assert_eq!(world.put(A, "x", "e", unready()).unwrap(), "+x at a: not Ready");
    assert_eq!(world.put(A, "x", "e", labelling()).unwrap(), "+x at a");
    assert_eq!(world.put(A, "x", "e", ready()), None, "nothing to announce");
    assert_eq!(world.put(A, "x", "e", unready()).unwrap(), "+x at a: not Ready");
    // Finalizers must be releasable.
    assert_eq!(world.put(A, "x", "e", deleting(unready())).unwrap(), "+x at a");
    assert_eq!(world.delete(A, "x", "e").unwrap(), "-x");
}

#[test]
fn kcp_a_workspace_leaves_with_its_last_binding() {
    let mut world = World::of(&[A]);
    assert_eq!(world.put(A, "x", "one", unready()).unwrap(), "+x at a: not Ready");
    assert_eq!(world.put(A, "x", "two", ready()).unwrap(), "+x at a");
    assert_eq!(
        world.put(A, "y", "one", ready()).unwrap(),
        "+y at a",
        "the same name in another workspace"
    );
    assert_eq!(world.delete(A, "x", "one"), None);
    assert_eq!(world.delete(A, "x", "one"), None, "it is gone already");
    assert_eq!(world.delete(A, "x", "two").unwrap(), "-x");
    assert_eq!(world.delete(A, "y", "one").unwrap(), "-y");
    assert_eq!(world.put(A, "x", "one", ready()).unwrap(), "+x at a");
}

#[test]
fn kcp_a_lost_endpoint_keeps_its_workspaces() {
    let mut world = World::of(&[A, B]);
    world.put(A, "x", "e", ready());
    assert_eq!(world.slice(&[B]), [""; 0]);
    assert_eq!(world.watched(), [A, B], "nobody has seen its binding go");
    assert_eq!(world.slice(&[]), [""; 0]);
    assert_eq!(world.watched(), [A]);
    assert_eq!(world.slice(&[A]), [""; 0]);
    assert_eq!(world.put(A, "x", "e", ready()), None);
    // The last unbind removes the endpoint. Which of the two is seen first does not matter.
    assert_eq!(world.slice(&[]), [""; 0]);
    assert_eq!(world.delete(A, "x", "e").unwrap(), "-x");
    assert_eq!(world.watched(), [""; 0]);
    world.slice(&[A]);
    assert_eq!(world.put(A, "x", "e", ready()).unwrap(), "+x at a");
}

#[test]
fn kcp_a_move_waits_until_the_new_shard_shows_all_objects() {
    // As kcp does it: the binding arrives with its conditions, before the objects.
    let mut world = World::of(&[A, B]);
    world.put(A, "x", "e", ready());
    assert_eq!(world.put(B, "x", "e", ready()).unwrap(), MOVES_TO_B);
    assert_eq!(world.put(B, "x", "e", ready()), None);
    assert_eq!(world.vanish(A, "x", "e").unwrap(), "+x at b");
    // The new shard applies the claims anew.
    let mut world = World::of(&[A, B]);
    world.put(A, "x", "e", ready());
    assert_eq!(world.put(B, "x", "e", unready()).unwrap(), MOVES_TO_B);
    assert_eq!(world.put(B, "x", "e", labelling()), None);
    assert_eq!(world.delete(A, "x", "e").unwrap(), WAITS_AT_B);
    assert_eq!(world.put(B, "x", "e", ready()).unwrap(), "+x at b");
    // The place is kept when the claims change later.
    assert_eq!(world.put(B, "x", "e", labelling()), None);
    assert_eq!(world.delete(B, "x", "e").unwrap(), "-x");
}

#[test]
fn kcp_a_move_is_seen_in_any_order() {
    // The old shard is the last to notice.
    let mut world = World::of(&[A, B]);
    world.put(A, "x", "e", ready());
    assert_eq!(world.put(B, "x", "e", ready()).unwrap(), MOVES_TO_B);
    assert_eq!(world.put(A, "x", "e", unready()), None);
    assert_eq!(
        world.put(A, "x", "other", ready()),
        None,
        "the order of the shards counts, not of the bindings"
    );
    assert_eq!(world.delete(A, "x", "e"), None);
    assert_eq!(world.delete(A, "x", "other").unwrap(), "+x at b");
    // The move back is given up.
    assert_eq!(
        world.put(A, "x", "e", labelling()).unwrap().split(',').next(),
        Some("+x at nowhere: it moves to endpoint https://a/services/apiexport/1/e")
    );
    assert_eq!(world.delete(A, "x", "e").unwrap(), "+x at b");
    // Its shard is lost, then another one shows the workspace.
    let mut world = World::of(&[B]);
    world.put(B, "x", "e", ready());
    assert_eq!(world.slice(&[A]), [""; 0]);
    assert_eq!(world.put(A, "x", "e", ready()).unwrap(), "+x at a");
    // The slice is read after the bindings of another shard.
    let mut world = World::of(&[A, B]);
    world.put(A, "x", "e", ready());
    world.put(B, "x", "e", ready());
    assert_eq!(world.slice(&[A]), ["+x at a"]);
}

#[test]
fn kcp_a_move_never_suspends_a_workspace_that_is_being_cleaned_up() {
    let mut world = World::of(&[A, B]);
    world.put(A, "x", "e", deleting(ready()));
    assert_eq!(world.put(B, "x", "e", unready()), None);
    assert_eq!(
        world.put(B, "x", "e", deleting(ready())),
        None,
        "its objects may not be there yet"
    );
    assert_eq!(world.put(B, "x", "e", unready()), None);
    assert_eq!(world.delete(A, "x", "e").unwrap(), WAITS_AT_B);
    assert_eq!(world.put(B, "x", "e", deleting(unready())).unwrap(), "+x at b");
    // The deletion begins on the old shard while the workspace waits.
    let mut world = World::of(&[A, B]);
    world.put(A, "x", "e", ready());
    assert_eq!(world.put(B, "x", "e", unready()).unwrap(), MOVES_TO_B);
    assert_eq!(world.put(A, "x", "e", deleting(ready())).unwrap(), "+x at a");
}

#[test]
fn kcp_a_workspace_that_vanishes_from_its_shard_may_come_back_on_another_one() {
    let mut world = World::of(&[A, B]);
    world.put(A, "x", "e", ready());
    let missing = "+x at nowhere: its APIBinding e has gone from endpoint https://a/services/apiexport/1/e without having been \
                   deleted; the workspace leaves the fleet unless another shard shows it soon";
    assert_eq!(world.vanish(A, "x", "e").unwrap(), missing);
    let first = world.0.take_missing().unwrap();
    assert_eq!(world.put(B, "x", "e", unready()).unwrap(), WAITS_AT_B);
    assert_eq!(world.give_up(&first), None, "it is found");
    assert_eq!(world.put(B, "x", "e", ready()).unwrap(), "+x at b");
    world.vanish(B, "x", "e").unwrap();
    assert_eq!(world.give_up(&first), None, "it is missing anew");
    let second = world.0.take_missing().unwrap();
    assert_eq!(world.give_up(&second).unwrap(), "-x");
    assert_eq!(world.give_up(&second), None);
    // Its binding was being deleted.
    world.put(A, "x", "e", deleting(ready()));
    assert_eq!(world.vanish(A, "x", "e").unwrap(), "-x");
    assert_eq!(world.0.take_missing(), None);
    // It was being deleted and is created again: nobody has seen the new one go.
    world.put(A, "x", "e", deleting(ready()));
    assert_eq!(world.put(A, "x", "e", unready()).unwrap(), "+x at a: not Ready");
    assert_eq!(world.vanish(A, "x", "e").unwrap(), missing);
}

/// The virtualWorkspaceURL of a shard is changed from A to B. Nobody ever reports that A has lost its bindings.
#[test]
fn kcp_a_workspace_at_a_replaced_url_leaves_when_it_is_unbound() {
    for (new, at) in [(ready(), "+x at b"), (labelling(), WAITS_AT_B)] {
        let mut world = World::of(&[A]);
        world.put(A, "x", "e", ready());
        world.slice(&[B]);
        assert_eq!(world.put(B, "x", "e", new).unwrap(), at);
        assert_eq!(world.put(A, "x", "e", ready()), None, "the old URL still answers");
        assert_eq!(world.delete(B, "x", "e").unwrap(), "-x");
        assert_eq!(world.watched(), [B]);
    }
    // Nobody replaces A, and A does not answer.
    let mut world = World::of(&[A, B]);
    world.put(A, "x", "e", ready());
    world.slice(&[B]);
    let left: Vec<String> = world.0.lost(&A.into()).iter().map(words).collect();
    assert_eq!(left, ["-x"]);
}

#[derive(Debug, Clone)]
enum Event {
    Slice(Vec<bool>),
    Lost(usize),
    Applied(usize, usize, usize, Binding),
    Gone(usize, usize, usize, bool),
    GiveUp,
}

const URLS: [&str; 3] = [A, B, "c"];
const CLUSTERS: [&str; 3] = ["x", "y", "z"];
const NAMES: [&str; 2] = ["one", "two"];

fn event() -> impl Strategy<Value = Event> {
    let binding =
        (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(deleting, not_ready, claims_pending)| {
            Binding {
                deleting,
                not_ready: not_ready.then(|| "not Ready".into()),
                claims_pending,
                ..ready()
            }
        });
    prop_oneof![
        1 => proptest::collection::vec(any::<bool>(), 3).prop_map(Event::Slice),
        1 => (0..3_usize).prop_map(Event::Lost),
        6 => (0..3_usize, 0..3_usize, 0..2_usize, binding).prop_map(|(at, cluster, name, binding)| Event::Applied(at, cluster, name, binding)),
        3 => (0..3_usize, 0..3_usize, 0..2_usize, any::<bool>())
            .prop_map(|(at, cluster, name, deleted)| Event::Gone(at, cluster, name, deleted)),
        1 => Just(Event::GiveUp),
    ]
}

type Known = BTreeMap<(usize, usize, usize), Binding>;

/// What is known of a workspace is forgotten at endpoints that are not in the slice: it has moved to one that is, or was unbound
/// there.
fn forget_lost(known: &mut Known, cluster: &str, in_slice: &BTreeSet<Arc<str>>) {
    known.retain(|(at, of, _), _| CLUSTERS[*of] != cluster || in_slice.contains(URLS[*at]));
}

/// What holds after each event, whatever the order.
fn check(members: &Members, known: &Known, announced: &BTreeMap<Arc<str>, Member>, given_up: bool) {
    for (number, cluster) in CLUSTERS.iter().enumerate() {
        let of = |url: &str| -> Vec<&Binding> {
            let of = known
                .iter()
                .filter(|((at, of, _), _)| *of == number && URLS[*at] == url);
            of.map(|(_, binding)| binding).collect()
        };
        let urls: Vec<&str> = URLS.into_iter().filter(|url| !of(url).is_empty()).collect();
        let Some(member) = announced.get(*cluster) else {
            assert!(urls.is_empty(), "{cluster} has a binding");
            continue;
        };
        if urls.is_empty() {
            assert!(
                member.endpoint.is_none() && member.suspended.is_some(),
                "{cluster} is missing"
            );
            assert!(!given_up, "{cluster} is still missing");
            continue;
        }
        let served: Vec<&str> = urls
            .iter()
            .copied()
            .filter(|url| members.in_slice().contains(*url))
            .collect();
        let deleting = |url: &&str| of(url).iter().any(|binding| binding.deleting);
        match member.endpoint.as_deref() {
            Some(url) => {
                let bindings = of(url);
                assert!(!bindings.is_empty(), "{cluster} is not at {url}");
                assert!(
                    served.is_empty() || served.contains(&url),
                    "{cluster} is at an endpoint that is lost"
                );
                let usable = bindings
                    .iter()
                    .any(|binding| binding.deleting || binding.not_ready.is_none());
                assert_eq!(member.suspended.is_none(), usable, "{cluster}");
            }
            None => {
                assert!(member.suspended.is_some());
                let newest = if served.is_empty() { &urls } else { &served };
                let pending = |url: &&str| of(url).iter().any(|binding| binding.claims_pending);
                assert!(
                    newest.len() > 1 || newest.iter().any(pending),
                    "{cluster} waits for nothing"
                );
                assert!(!served.iter().any(deleting), "{cluster} can't be cleaned up");
            }
        }
    }
    let lost = known.keys().map(|(at, ..)| Arc::from(URLS[*at]));
    assert_eq!(
        members.watched(),
        lost.chain(members.in_slice().iter().cloned()).collect()
    );
}

proptest! {
    #![proptest_config(Config { cases: 512, failure_persistence: None, ..Config::default() })]

    #[test]
    fn kcp_members_are_the_workspaces_with_bindings_in_any_order_of_events(
        events in proptest::collection::vec(event(), 1..60)
    ) {
        let mut members = Members::new("APIBinding");
        let mut known = Known::new();
        let mut announced = BTreeMap::new();
        for event in events {
            let mut given_up = false;
            // Each event twice: a list after a broken watch reports again what is known.
            for again in [false, true] {
                let decisions: Vec<Decision> = match &event {
                    Event::Slice(urls) => {
                        let urls = URLS.iter().zip(urls).filter(|(_, listed)| **listed);
                        members.set_endpoints(urls.map(|(url, _)| Arc::from(*url)).collect())
                    }
                    Event::Lost(at) if members.in_slice().contains(URLS[*at]) => Vec::new(),
                    Event::Lost(at) => {
                        known.retain(|(lost, ..), _| lost != at);
                        members.lost(&URLS[*at].into())
                    }
                    Event::Applied(at, cluster, name, binding) => {
                        known.insert((*at, *cluster, *name), binding.clone());
                        let (at, cluster, name) = (URLS[*at].into(), CLUSTERS[*cluster].into(), NAMES[*name].into());
                        members.applied(&at, &cluster, &name, binding.clone()).into_iter().collect()
                    }
                    Event::Gone(at, cluster, name, deleted) => {
                        let gone = known.remove(&(*at, *cluster, *name));
                        let last = !known.keys().any(|(other, of, _)| (other, of) == (at, cluster));
                        if last
                            && gone.is_some_and(|binding| *deleted || binding.deleting)
                            && members.in_slice().contains(URLS[*at])
                        {
                            forget_lost(&mut known, CLUSTERS[*cluster], members.in_slice());
                        }
                        let (at, cluster, name) = (URLS[*at].into(), CLUSTERS[*cluster].into(), NAMES[*name].into());
                        members.gone(&at, &cluster, &name, *deleted).into_iter().collect()
                    }
                    Event::GiveUp => {
                        let mut left = Vec::new();
                        while let Some(missing) = members.take_missing() {
                            left.extend(members.give_up(&missing));
                        }
                        given_up = true;
                        left
                    }
                };
                prop_assert!(!again || decisions.is_empty(), "{:?} is announced twice", decisions);
                for decision in decisions {
                    match decision {
                        Decision::Announce(cluster, member) => {
                            prop_assert_ne!(announced.insert(cluster, member.clone()), Some(member));
                        }
                        Decision::Leave(cluster) => prop_assert!(announced.remove(&cluster).is_some()),
                    }
                }
                for (cluster, member) in &announced {
                    if member.endpoint.as_ref().is_some_and(|url| members.in_slice().contains(url)) {
                        forget_lost(&mut known, cluster, members.in_slice());
                    }
                }
                check(&members, &known, &announced, given_up);
            }
        }
    }
}
