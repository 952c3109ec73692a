//! The inventory of the hub kit.

use std::{collections::BTreeMap, sync::Arc};

use mcr_core::{
    Availability, Change, ClusterName, Credential, Endpoint, EndpointAccess, ObjectKey, StaticCredential,
    hub::{Decoded, Described, Description, Inventory, Memory, Verdict},
};
use proptest::prelude::*;

#[derive(Debug, PartialEq)]
struct Facts(Description);

impl Described for Facts {
    fn description(&self) -> &Description {
        &self.0
    }
}

struct World {
    memory: Arc<Memory>,
    inventory: Inventory<Facts>,
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("fleet", name)
}

fn good(token: &str) -> Option<Verdict> {
    let endpoint = Endpoint::new(http::Uri::from_static("https://a"));
    let credential = StaticCredential::new(Credential::token(token));
    Some(Verdict::Good(EndpointAccess::new(endpoint, credential)))
}

fn waiting(why: &str) -> Option<Verdict> {
    Some(Verdict::Waiting(why.into()))
}

fn broken(why: &str) -> Option<Verdict> {
    let (object, why) = ("Secret a".into(), why.into());
    Some(Verdict::Broken { object, why })
}

fn shown(changes: Vec<Change>) -> Vec<String> {
    let shown = |change| match change {
        Change::Upsert(spec) => match spec.availability {
            Availability::Available => format!("+{}", spec.name),
            Availability::Suspended { reason } => format!("~{}: {reason}", spec.name),
            other => format!("{other:?}"),
        },
        Change::Broken(broken) => format!("!{}: {broken}", broken.name),
        Change::Remove(name) => format!("-{name}"),
        Change::Synced => "synced".into(),
        other => format!("{other:?}"),
    };
    changes.into_iter().map(shown).collect()
}

impl World {
    fn new() -> Self {
        let memory = Arc::default();
        let inventory = Inventory::new("Thing", 1, Arc::clone(&memory));
        Self { memory, inventory }
    }

    fn synced() -> Self {
        let mut world = Self::new();
        world.inventory.listed();
        assert_eq!(world.shown(), ["synced"]);
        world
    }

    /// Another discovery.
    fn restart(&mut self) {
        self.inventory = Inventory::new("Thing", 1, self.memory.clone());
    }

    fn shown(&mut self) -> Vec<String> {
        shown(self.inventory.take_changes())
    }

    fn apply(&mut self, name: &str, uid: &str, verdict: Option<Verdict>) -> Vec<String> {
        let facts = Facts(Description {
            uid: Some(uid.into()),
            ..Description::default()
        });
        self.applied(name, Ok(facts.into()), verdict)
    }

    fn applied(&mut self, name: &str, facts: Decoded<Facts>, verdict: Option<Verdict>) -> Vec<String> {
        let cluster = ClusterName::new(name).unwrap();
        self.inventory.applied(&key(name), cluster, facts);
        self.decide(name, verdict)
    }

    fn decide(&mut self, name: &str, verdict: Option<Verdict>) -> Vec<String> {
        self.inventory.announce(&key(name), verdict);
        self.shown()
    }
}

#[test]
fn each_change_is_announced_once() {
    let mut world = World::synced();
    assert_eq!(world.apply("a", "1", waiting("created")), ["~a: created"]);
    assert_eq!(world.apply("a", "1", waiting("created")), [""; 0]);
    assert_eq!(world.apply("a", "1", good("t")), ["+a"]);
    assert_eq!(world.apply("a", "1", good("t")), [""; 0]);
    assert_eq!(world.decide("a", good("u")), ["+a"], "other credentials");
    assert_eq!(world.decide("a", broken("bad")), ["!a: Secret a: bad"]);
    assert_eq!(world.decide("a", broken("bad")), [""; 0]);
    assert_eq!(world.decide("a", good("u")), ["+a"]);
    let (object, why) = ("Secret a".to_owned(), "no key".into());
    let absent = Some(Verdict::Absent { object, why });
    assert_eq!(world.decide("a", absent), ["-a", "!a: Secret a: no key"]);
    world.inventory.deleted(&key("a"));
    assert_eq!(world.shown(), ["-a"]);
    world.inventory.deleted(&key("a"));
    assert_eq!(world.shown(), [""; 0]);
}

#[test]
fn what_was_never_announced_is_not_removed() {
    let mut world = World::synced();
    assert_eq!(world.apply("a", "1", None), [""; 0]);
    world.inventory.deleted(&key("a"));
    assert_eq!(world.shown(), [""; 0]);
}

#[test]
fn synced_waits_for_all_lists_and_for_the_first_verdict_on_each_object() {
    let mut world = World::new();
    assert_eq!(world.apply("a", "1", good("t")), ["+a"]);
    assert_eq!(world.apply("b", "1", None), [""; 0]);
    assert_eq!(world.apply("c", "1", None), [""; 0]);
    world.inventory.listed();
    assert_eq!(world.decide("b", broken("bad")), ["!b: Secret a: bad"]);
    world.inventory.deleted(&key("c"));
    assert_eq!(world.shown(), ["synced"]);
    assert_eq!(world.apply("d", "1", None), [""; 0], "once");
}

#[test]
fn a_broken_cluster_is_not_shown_as_suspended() {
    let mut world = World::synced();
    assert_eq!(world.apply("a", "1", waiting("created")), ["~a: created"]);
    assert_eq!(world.decide("a", broken("bad")), ["-a", "!a: Secret a: bad"]);
    assert_eq!(world.decide("a", good("t")), ["+a"]);
    assert_eq!(world.decide("a", waiting("asleep")), ["~a: asleep"]);
    assert!(!world.memory.is_engaged(&key("a")));
    assert_eq!(
        world.decide("a", broken("bad")),
        ["+a", "!a: Secret a: bad"],
        "it keeps the access of before"
    );
}

#[test]
fn another_object_of_the_name_is_another_cluster_also_in_the_next_discovery() {
    let mut world = World::synced();
    assert_eq!(world.apply("a", "1", good("t")), ["+a"]);
    assert_eq!(world.apply("a", "2", good("t")), ["-a", "+a"]);
    world.restart();
    assert!(world.memory.is_engaged(&key("a")), "in use");
    assert_eq!(world.apply("a", "2", good("t")), ["+a"]);
    world.restart();
    assert_eq!(world.apply("a", "3", waiting("new")), ["-a", "~a: new"]);
    world.restart();
    world.inventory.listed();
    assert_eq!(world.shown(), ["synced"]);
    assert!(
        !world.memory.contains(&key("a")),
        "what has vanished is forgotten"
    );
}

#[test]
fn an_object_that_cannot_be_decoded_keeps_its_cluster_and_renews_its_credentials() {
    let mut world = World::synced();
    let unreadable = || Err("no JSON".into());
    let all = ["!a: Thing fleet/a: no JSON"];
    assert_eq!(world.applied("a", unreadable(), good("t")), all, "never read");
    assert_eq!(world.apply("a", "1", good("t")), ["+a"]);
    assert_eq!(world.applied("a", unreadable(), good("t")), all);
    assert_eq!(world.decide("a", None), [""; 0]);
    assert_eq!(world.decide("a", good("u")), ["+a", "!a: Thing fleet/a: no JSON"]);
    assert_eq!(world.apply("a", "1", good("u")), ["+a"]);
}

#[test]
fn an_object_whose_cluster_gets_another_name_removes_the_cluster_of_the_former_name() {
    let mut world = World::synced();
    assert_eq!(world.apply("a", "1", good("t")), ["+a"]);
    let facts = Facts(Description {
        uid: Some("1".into()),
        ..Description::default()
    });
    let renamed = ClusterName::new("b").unwrap();
    assert!(world.inventory.applied(&key("a"), renamed, Ok(facts.into())));
    assert_eq!(world.decide("a", good("t")), ["-a", "+b"]);
    world.inventory.deleted(&key("a"));
    assert_eq!(world.shown(), ["-b"]);
}

#[test]
fn a_suspended_cluster_is_not_in_use_also_when_its_object_cannot_be_decoded() {
    let mut world = World::synced();
    let in_use = |world: &World| world.inventory.get(&key("a")).unwrap().is_in_use();
    world.apply("a", "1", good("t"));
    assert!(in_use(&world));
    assert_eq!(world.apply("a", "1", waiting("asleep")), ["~a: asleep"]);
    assert!(!in_use(&world));
    let unreadable = world.applied("a", Err("no JSON".into()), good("u"));
    assert_eq!(unreadable, ["!a: Thing fleet/a: no JSON"], "not woken");
    assert!(!in_use(&world));
    assert_eq!(world.apply("a", "1", good("u")), ["+a"]);
    assert!(in_use(&world));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens, the announcements of all discoveries together describe what the provider has decided last.
    #[test]
    fn the_announcements_are_what_was_decided(
        steps in prop::collection::vec((0..3_usize, 0..2_u8, 0..7_u8), 0..60),
    ) {
        let mut world = World::new();
        let (mut fleet, mut decided) = (BTreeMap::new(), BTreeMap::new());
        for (name, uid, what) in steps {
            let name = ["a", "b", "c"][name];
            let verdict = match what {
                0 => good("t"),
                1 => good("u"),
                2 => waiting("w"),
                3 => broken("x"),
                4 => None,
                5 => {
                    world.inventory.deleted(&key(name));
                    None
                }
                _ => {
                    world.restart();
                    decided.clear();
                    continue;
                }
            };
            if what == 5 {
                decided.remove(name);
            } else {
                let is = match what { 0 | 1 => Some("+"), 2 => Some("~"), 3 => Some("!"), _ => None };
                if let Some(is) = is {
                    decided.insert(name, is);
                }
            }
            let shown = match what {
                5 => world.shown(),
                _ => world.apply(name, &uid.to_string(), verdict),
            };
            if what == 4 && shown.iter().any(|change| change.starts_with('-')) {
                decided.remove(name);
            }
            for change in shown {
                let (kind, of) = change.split_at(1);
                match kind {
                    "-" => _ = fleet.remove(&of[..1]),
                    "+" | "~" | "!" => _ = fleet.insert(of[..1].to_owned(), kind.to_owned()),
                    _ => {}
                }
            }
            for (name, is) in &decided {
                prop_assert_eq!(fleet.get(*name).map(String::as_str), Some(*is));
            }
        }
    }
}
