//! Tests of the announcements: decision by decision, and with random containers.

use proptest::prelude::*;

use super::*;

const CONF: &str = "{contexts: [{name: c, context: {cluster: c, user: u}}], current-context: c, \
                    clusters: [{name: c, cluster: {server: 'https://x:6443'}}], users: [{name: u, user: {token: t}}]}";

struct World {
    inventory: Inventory,
    now: Instant,
}

impl World {
    fn new() -> Self {
        Self {
            inventory: Inventory::new(Engine::Docker, String::new(), Duration::from_secs(600)),
            now: Instant::now(),
        }
    }

    fn later(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn observe(&mut self, nodes: impl IntoIterator<Item = Node>) -> Vec<String> {
        self.inventory
            .observe(nodes.into_iter().collect(), self.now)
            .iter()
            .map(reported)
            .collect()
    }

    /// Runs the reads that are due. Every node has `conf`.
    fn read(&mut self, conf: &str) -> Vec<String> {
        self.answer(|_| Ok(conf.as_bytes().to_vec()))
    }

    fn answer(&mut self, answer: impl Fn(&Read) -> Result<Vec<u8>, ReadError>) -> Vec<String> {
        let due = self.inventory.due(self.now);
        let announced = due
            .iter()
            .filter_map(|read| self.inventory.read(read, answer(read), self.now, 0.0));
        announced.map(|change| reported(&change)).collect()
    }
}

fn reported(change: &Change) -> String {
    match change {
        Change::Upsert(spec) => {
            let shown = mcr_testkit::discovery::address_and_token(&spec.access);
            let (at, token) = shown.split_once("https://").unwrap().1.split_once("/ ").unwrap();
            let identity = spec.identity.as_deref().unwrap();
            let secret = if token.is_empty() {
                " without credentials"
            } else {
                ""
            };
            let off = match &spec.availability {
                mcr_core::Availability::Suspended { reason } => format!(", {reason}"),
                _ => String::new(),
            };
            format!("+{} is {identity} at {at}{secret}{off}", spec.name)
        }
        Change::Broken(broken) => format!("!{}: {}", broken.name, broken.error),
        Change::Remove(name) => format!("-{name}"),
        other => panic!("{other:?}"),
    }
}

fn node(cluster: &str, id: &str) -> Node {
    Node {
        id: id.into(),
        name: format!("{cluster}-control-plane"),
        cluster: cluster.into(),
        role: Role::ControlPlane,
        state: State::Running,
        endpoint: Some("127.0.0.1:1".into()),
    }
}

fn named(node: Node, suffix: &str) -> Node {
    Node {
        name: format!("{}-{suffix}", node.cluster),
        ..node
    }
}

fn stopped(node: Node) -> Node {
    Node {
        state: State::Stopped,
        ..node
    }
}

fn other(cluster: &str, id: &str, role: Role) -> Node {
    Node {
        role,
        ..named(node(cluster, id), id)
    }
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_cluster_is_announced_once_its_kubeconfig_was_read_and_not_again() {
    let mut world = World::new();
    assert_eq!(world.observe([node("a", "1")]), NOTHING);
    assert!(!world.inventory.complete());
    assert_eq!(world.read(CONF), ["+a is 1 at 127.0.0.1:1"]);
    assert!(world.inventory.complete());
    assert_eq!(world.observe([node("a", "1")]), NOTHING);
    assert_eq!(world.read(CONF), NOTHING);
    world.later(601);
    assert_eq!(
        world.inventory.due(world.now).len(),
        1,
        "read again, as certificates are renewed"
    );
    assert!(world.inventory.due(world.now).is_empty(), "one reading at a time");
}

#[test]
fn a_half_made_cluster_is_broken_and_read_again_soon_and_later_less_often() {
    let mut world = World::new();
    let missing = |_: &Read| Err(ReadError::Failed("it is not there yet".into()));
    assert!(
        world.observe([Node {
            state: State::Created,
            ..node("a", "1")
        }])[0]
            .contains("has not been started yet")
    );
    assert_eq!(world.observe([node("a", "1")]), NOTHING);
    assert_eq!(
        world.answer(missing),
        ["!a: admin.conf of node a-control-plane can't be read: it is not there yet"]
    );
    let pause = |world: &World| world.inventory.next_due().unwrap() - world.now;
    assert_eq!(pause(&world), Duration::from_millis(200));
    world.later(15);
    assert_eq!(world.answer(missing), NOTHING, "announced already");
    assert_eq!(pause(&world), Duration::from_millis(500));
    world.later(10_000);
    assert_eq!(world.answer(missing), NOTHING);
    assert_eq!(pause(&world), Duration::from_secs(10));
    world.later(10);
    assert!(world.read("clusters: [")[0].contains("can't be used: it is not YAML"));
    world.later(10);
    assert_eq!(world.read(CONF), ["+a is 1 at 127.0.0.1:1"]);
}

#[test]
fn a_stopped_node_suspends_its_cluster_and_a_started_one_brings_it_back_at_once() {
    let mut world = World::new();
    world.observe([node("a", "1")]);
    world.read(CONF);
    assert_eq!(
        world.observe([stopped(node("a", "1"))]),
        ["+a is 1 at 127.0.0.1:1, its node is stopped"]
    );
    assert_eq!(world.inventory.next_due(), None, "a stopped node can't be read");
    let moved = Node {
        endpoint: Some("127.0.0.1:2".into()),
        ..node("a", "1")
    };
    assert_eq!(world.observe([moved]), ["+a is 1 at 127.0.0.1:2"]);
    assert_eq!(world.inventory.due(world.now).len(), 1, "and is read again");
}

#[test]
fn what_is_off_from_the_beginning_is_known_and_has_no_credentials() {
    for (state, reason) in [
        (State::Stopped, "its node is stopped"),
        (State::Paused, "its node is paused"),
        (State::Restarting, "its node is restarting"),
    ] {
        let mut world = World::new();
        let off = Node {
            state,
            ..node("a", "1")
        };
        assert_eq!(
            world.observe([off]),
            [format!("+a is 1 at 127.0.0.1:1 without credentials, {reason}")]
        );
        assert!(world.inventory.complete());
    }
}

#[test]
fn a_cluster_made_anew_under_the_same_name_is_another_one() {
    let mut world = World::new();
    world.observe([node("a", "1")]);
    world.read(CONF);
    assert_eq!(world.observe([node("a", "2")]), ["-a"]);
    assert_eq!(world.read(CONF), ["+a is 2 at 127.0.0.1:1"]);
    assert_eq!(world.observe([]), ["-a"]);
    assert_eq!(world.observe([node("a", "3")]), NOTHING);
    assert_eq!(world.read(CONF), ["+a is 3 at 127.0.0.1:1"]);
}

#[test]
fn what_was_read_of_a_predecessor_counts_for_nothing() {
    let mut world = World::new();
    world.observe([node("a", "1")]);
    let old = world.inventory.due(world.now).remove(0);
    world.observe([node("a", "2")]);
    let new = world.inventory.due(world.now).remove(0);
    let counts = |world: &mut World, read: &Read| {
        let announced = world.inventory.read(read, Ok(CONF.into()), world.now, 0.0);
        announced.is_some()
    };
    assert!(!counts(&mut world, &old));
    assert!(counts(&mut world, &new));
    world.observe([]);
    assert!(!counts(&mut world, &new));
}

#[test]
fn of_several_control_planes_the_load_balancer_has_the_address_and_any_that_runs_is_read() {
    let mut world = World::new();
    let planes = || {
        [
            node("a", "1"),
            named(node("a", "2"), "control-plane2"),
            named(node("a", "3"), "control-plane3"),
        ]
    };
    let balancer = || Node {
        endpoint: Some("127.0.0.1:9".into()),
        ..other("a", "lb", Role::LoadBalancer)
    };
    world.observe(planes().into_iter().chain([balancer()]));
    assert_eq!(world.read(CONF), ["+a is 1 at 127.0.0.1:9"]);
    // The first control plane stops, then is removed for good: the cluster is the same.
    let [first, second, third] = planes();
    assert_eq!(
        world.observe([stopped(first), second.clone(), third.clone(), balancer()]),
        NOTHING
    );
    assert_eq!(
        world.answer(|read| {
            assert_eq!(read.node, "2");
            Ok(CONF.into())
        }),
        NOTHING
    );
    assert_eq!(
        world.observe([second.clone(), third.clone(), balancer()]),
        NOTHING
    );
    assert_eq!(
        world.observe([second.clone(), third.clone(), stopped(balancer())]),
        ["+a is 1 at 127.0.0.1:9, its load balancer is stopped"]
    );
    assert_eq!(
        world.observe([stopped(second), stopped(third), balancer()]),
        ["+a is 1 at 127.0.0.1:9, its control-plane nodes are stopped"]
    );
}

#[test]
fn without_a_load_balancer_the_first_control_plane_that_runs_has_the_address() {
    let mut world = World::new();
    let second = Node {
        endpoint: Some("127.0.0.1:2".into()),
        ..named(node("a", "2"), "control-plane2")
    };
    world.observe([second.clone(), node("a", "1")]);
    assert_eq!(world.read(CONF), ["+a is 1 at 127.0.0.1:1"]);
    assert_eq!(
        world.observe([stopped(node("a", "1")), second]),
        ["+a is 1 at 127.0.0.1:2"]
    );
}

#[test]
fn a_cluster_without_a_control_plane_reports_so_and_one_that_lost_it_is_gone() {
    let mut world = World::new();
    let worker = || other("a", "w", Role::Other);
    let announced = world.observe([worker()]);
    assert!(
        announced[0].starts_with("!a: it has no control-plane node, only a-w:"),
        "{announced:?}"
    );
    assert_eq!(world.observe([worker()]), NOTHING);
    world.observe([worker(), node("a", "1")]);
    assert_eq!(world.read(CONF), ["+a is 1 at 127.0.0.1:1"]);
    let announced = world.observe([worker()]);
    assert!(
        announced[0] == "-a" && announced[1].starts_with("!a: it has no control-plane node"),
        "{announced:?}"
    );
}

#[test]
fn an_unmapped_port_and_a_node_that_vanishes_while_read_are_distinguished() {
    let mut world = World::new();
    let announced = world.observe([Node {
        endpoint: None,
        ..node("a", "1")
    }]);
    assert!(
        announced[0].contains("port 6443 of container a-control-plane is not mapped"),
        "{announced:?}"
    );
    let mut world = World::new();
    world.observe([node("a", "1")]);
    assert_eq!(world.answer(|_| Err(ReadError::Gone)), NOTHING);
    assert!(world.inventory.next_due().is_some());
    assert_eq!(world.observe([]), NOTHING, "nothing was ever announced of it");
    assert!(world.inventory.complete());
}

#[test]
fn only_what_begins_with_the_prefix_counts_and_names_stay_whole() {
    let mut world = World::new();
    world.inventory.prefix = "fleet-".into();
    world.observe([node("fleet-a", "1"), node("other", "2"), node("fleet-\u{7}", "3")]);
    assert_eq!(world.read(CONF), ["+fleet-a is 1 at 127.0.0.1:1"]);
}

#[test]
fn a_hopeless_cluster_does_not_hide_its_neighbours() {
    let mut world = World::new();
    world.observe([
        node("a", "1"),
        node("b", "2"),
        Node {
            endpoint: None,
            ..node("c", "3")
        },
    ]);
    let announced = world.answer(|read| match read.node.as_str() {
        "1" => Err(ReadError::Failed("hopeless".into())),
        _ => Ok(CONF.into()),
    });
    assert!(
        announced[0].starts_with("!a") && announced[1] == "+b is 2 at 127.0.0.1:1",
        "{announced:?}"
    );
    assert!(world.inventory.complete());
    // Nor does it delay a new one, however many there are.
    let names = ["a", "b", "c", "d", "e", "new"];
    world.observe(names[..5].iter().map(|name| node(name, name)));
    world.answer(|_| Err(ReadError::Failed("hopeless".into())));
    world.later(90);
    world.observe(names.map(|name| node(name, name)));
    let mut waiting = world.inventory.due(world.now).into();
    let mut next = |running, failing| next_read(&mut waiting, running, failing).map(|read| read.node);
    let begun = [next(4, 0), next(3, 2), next(3, 2), next(3, 1), next(0, 0)];
    assert_eq!(begun.map(Option::unwrap_or_default), ["", "new", "", "a", "b"]);
}

fn any_node() -> impl Strategy<Value = Node> {
    let states = [
        State::Running,
        State::Paused,
        State::Restarting,
        State::Created,
        State::Stopped,
    ];
    let roles = [
        Role::ControlPlane,
        Role::ControlPlane,
        Role::LoadBalancer,
        Role::Other,
    ];
    (
        0..3_usize,
        0..4_usize,
        prop::sample::select(states.to_vec()),
        prop::sample::select(roles.to_vec()),
        0..3_u16,
    )
        .prop_map(|(cluster, id, state, role, port)| Node {
            state,
            role,
            endpoint: (port > 0).then(|| format!("127.0.0.1:{port}")),
            ..named(
                node(&format!("c{cluster}"), &format!("{cluster}{id}")),
                &format!("node{id}"),
            )
        })
}

fn some_nodes() -> impl Strategy<Value = Vec<Node>> {
    prop::collection::vec(any_node(), 0..8).prop_map(|nodes| {
        let by_id: BTreeMap<String, Node> = nodes.into_iter().map(|node| (node.id.clone(), node)).collect();
        by_id.into_values().collect()
    })
}

proptest! {
    /// After any changes the announcements add up to exactly the current clusters, each in its current state.
    #[test]
    fn who_listens_knows_what_there_is(rounds in prop::collection::vec((some_nodes(), any::<bool>()), 1..12)) {
        let mut world = World::new();
        let mut known: BTreeMap<String, String> = BTreeMap::new();
        let mut last = Vec::new();
        let mut receive = |announced: Vec<String>| {
            for announced in announced {
                let end = announced.find([' ', ':']).unwrap_or(announced.len());
                let name = announced[1..end].to_owned();
                match announced.as_bytes()[0] {
                    b'-' => { known.remove(&name); }
                    _ => { known.insert(name, announced); }
                }
            }
        };
        for (nodes, readable) in rounds {
            receive(world.observe(nodes.clone()));
            receive(if readable { world.read(CONF) } else { world.answer(|_| Err(ReadError::Failed("no".into()))) });
            world.later(20);
            last = nodes;
        }
        world.later(10_000);
        receive(world.read(CONF));
        prop_assert!(world.inventory.complete());
        // The same world in a discovery that starts now. Identities may differ, because the old discovery may have an
        // older one.
        let mut fresh = World::new();
        let mut expected: BTreeMap<String, String> = BTreeMap::new();
        for announced in fresh.observe(last).into_iter().chain(fresh.read(CONF)) {
            let end = announced.find([' ', ':']).unwrap_or(announced.len());
            expected.insert(announced[1..end].to_owned(), announced);
        }
        let plain = |announced: &BTreeMap<String, String>| -> BTreeMap<String, String> {
            let plain = announced.iter().map(|(name, announced)| {
                let announced = announced.split(" at ").last().unwrap_or_default().replace(" without credentials", "");
                (name.clone(), announced)
            });
            plain.collect()
        };
        prop_assert_eq!(plain(&known), plain(&expected));
    }

    #[test]
    fn pauses_are_bounded_and_never_nothing(seconds in 0_u64..1_000_000, jitter in -1.0_f64..2.0) {
        let pause = pause(Duration::from_secs(seconds), jitter);
        prop_assert!(pause >= Duration::from_millis(100) && pause <= Duration::from_secs(10));
    }
}
