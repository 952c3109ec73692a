//! Random histories: whatever happens, the announced clusters are those of the inner provider, with the properties of their answers.

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use mcr_core::{AnswerBody, BoxError, ObjectMetadata, Placement, Scope, ScopeLayout, Trust, Upstream};
use proptest::prelude::*;

use super::*;

const AT_ONCE: usize = 3;
const REFRESH: Duration = Duration::from_secs(600);
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Debug, Clone)]
enum Step {
    Upsert {
        name: usize,
        identity: Option<u8>,
        access: u8,
        suspended: bool,
        id: Option<u8>,
    },
    Broken(usize),
    Remove(usize),
    Synced,
    /// The probe of this number ends: with this cluster id, or with an error.
    Answer(usize, Result<Option<u8>, ()>),
    Advance(u64),
    /// The inner discovery starts again.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    let id = || prop::option::of(0..3_u8);
    prop_oneof![
        4 => (name.clone(), prop::option::of(0..2_u8), 0..2_u8, prop::bool::weighted(0.2), id())
            .prop_map(|(name, identity, access, suspended, id)| Step::Upsert { name, identity, access, suspended, id }),
        1 => name.clone().prop_map(Step::Broken),
        1 => name.prop_map(Step::Remove),
        1 => Just(Step::Synced),
        4 => (0..AT_ONCE, prop_oneof![3 => id().prop_map(Ok), 1 => Just(Err(()))])
            .prop_map(|(which, answer)| Step::Answer(which, answer)),
        2 => (1..700_u64).prop_map(Step::Advance),
        1 => Just(Step::Restart),
    ]
}

fn new_members(memory: BTreeMap<ClusterName, Known>) -> Members {
    let may_set = [CLUSTER_ID, "answered"].map(str::to_owned);
    Members::new(REFRESH, AT_ONCE, memory).may_set(Arc::new(may_set.into()))
}

fn found(id: Option<u8>) -> Properties {
    let answered = ("answered".to_owned(), format!("{id:?}"));
    let id = id.map(|id| (CLUSTER_ID.to_owned(), id.to_string()));
    id.into_iter().chain([answered]).collect()
}

/// What a listener knows of a cluster, and what the inner provider has said of it.
struct Received {
    inner: ClusterSpec,
    broken: bool,
    shown: ClusterSpec,
    /// The last cluster id that was shown.
    id: Option<String>,
    /// What clusters of this name and identity have answered.
    answers: Vec<Properties>,
}

struct World {
    members: Members,
    now: Instant,
    received: BTreeMap<ClusterName, Received>,
    probes: Vec<Probe>,
}

impl World {
    fn new() -> Self {
        Self {
            members: new_members(BTreeMap::new()),
            now: Instant::now(),
            received: BTreeMap::new(),
            probes: Vec::new(),
        }
    }

    /// Listens to what is announced of one cluster at once.
    fn hear(&mut self, changes: Vec<Change>) {
        let mut removed = false;
        for change in changes {
            match change {
                Change::Remove(_) => removed = true,
                Change::Upsert(spec) => {
                    let received = self
                        .received
                        .get_mut(&spec.name)
                        .expect("only what the inner provider has announced");
                    let id = spec.properties.get(CLUSTER_ID).cloned();
                    let before = received.shown.identity.clone();
                    if let (Some(was), Some(is)) = (&received.id, &id)
                        && was != is
                    {
                        let another = matches!((&before, &spec.identity), (Some(was), Some(is)) if was != is);
                        assert!(
                            removed || another,
                            "cluster {was} became {is} unnoticed: {before:?}"
                        );
                    } else {
                        assert!(!removed, "removed without a reason");
                    }
                    received.id = id.or(received.id.take());
                    received.shown = spec;
                    removed = false;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(!removed, "a removal without another cluster");
    }

    fn upsert(&mut self, spec: ClusterSpec) {
        let received = self
            .received
            .entry(spec.name.clone())
            .or_insert_with(|| Received {
                shown: spec.clone(),
                inner: spec.clone(),
                broken: false,
                id: None,
                answers: Vec::new(),
            });
        let other = matches!((&received.inner.identity, &spec.identity), (Some(was), Some(is)) if was != is);
        if other {
            received.id = None;
            received.answers.clear();
        }
        let obsolete = other || !access::is_same(&received.inner.access, &spec.access);
        let name = spec.name.clone();
        received.inner = spec.clone();
        received.broken = false;
        let changes = self.members.upsert(spec, self.now);
        assert!(!changes.is_empty(), "an announcement is passed on at once");
        let running = self
            .probes
            .iter()
            .filter(|probe| probe.spec.name == name && !probe.stop.is_cancelled());
        assert!(
            !obsolete || running.count() == 0,
            "{name}: the probe of another cluster or access goes on"
        );
        self.hear(changes);
    }

    fn answer(&mut self, which: usize, answer: Result<Option<u8>, ()>) {
        if which >= self.probes.len() {
            return;
        }
        let probe = self.probes.remove(which);
        let name = probe.spec.name.clone();
        let answer = match answer {
            Ok(id) => Ok(found(id)),
            Err(()) => Err("no".into()),
        };
        let obsolete = probe.stop.is_cancelled();
        if let (false, Ok(found)) = (obsolete, &answer) {
            let received = self
                .received
                .get_mut(&name)
                .expect("the probe of a removed cluster is cancelled");
            assert!(!received.broken, "the probe of a broken cluster is cancelled");
            received.answers.push(found.clone());
        }
        // Whether or not the probe notices in time that it was cancelled.
        let changes = self.members.probed(&name, probe.ticket, Some(answer), self.now);
        assert!(
            !obsolete || changes.is_empty(),
            "the answer of a cancelled probe is announced: {changes:?}"
        );
        self.hear(changes);
    }

    fn start_probes(&mut self) {
        while let Some(probe) = self.members.start_probe(self.now) {
            let received = &self.received[&probe.spec.name];
            assert!(
                !received.broken && can_be_probed(&received.inner),
                "{}",
                probe.spec.name
            );
            assert!(access::is_same(&probe.spec.access, &received.inner.access));
            self.probes.push(probe);
        }
        let running = self.probes.iter().filter(|probe| !probe.stop.is_cancelled());
        assert!(running.count() <= AT_ONCE);
        let mut names: Vec<_> = self
            .probes
            .iter()
            .filter(|probe| !probe.stop.is_cancelled())
            .map(|probe| &probe.spec.name)
            .collect();
        names.sort();
        assert!(
            names.windows(2).all(|two| two[0] != two[1]),
            "one probe for each cluster"
        );
    }

    fn check(&self) {
        for (name, received) in &self.received {
            let (inner, shown) = (&received.inner, &received.shown);
            assert_eq!(shown.availability, inner.availability);
            assert!(access::is_same(&shown.access, &inner.access));
            let added = |found: &Properties| {
                let mut all = inner.properties.clone();
                for (name, value) in found {
                    all.entry(name.clone()).or_insert_with(|| value.clone());
                }
                all == shown.properties
            };
            // A broken cluster is shown as it was.
            assert!(
                received.broken
                    || received
                        .answers
                        .last()
                        .map_or(shown.properties == inner.properties, added),
                "{name}: {:?} of {:?} and {:?}",
                shown.properties,
                inner.properties,
                received.answers
            );
            let (declared, announced) = (inner.identity.as_deref(), shown.identity.as_deref());
            assert!(
                announced == declared || announced.is_some_and(|identity| identity.contains('/')),
                "{name}: {announced:?}"
            );
            let status = self.members.status(name).expect("its status is shown");
            assert_eq!(
                status.cluster_id.as_deref(),
                shown.properties.get(CLUSTER_ID).map(String::as_str)
            );
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Upsert {
                name,
                identity,
                access,
                suspended,
                id,
            } => {
                let access = Access::kubeconfig(access.to_string(), Trust::Trusted);
                let mut spec = ClusterSpec::named(NAMES[name], access).unwrap();
                spec.identity = identity.map(|identity| format!("uid-{identity}").into());
                if suspended {
                    spec = spec.suspended("hibernates");
                }
                if let Some(id) = id {
                    spec = spec.property(CLUSTER_ID, id.to_string());
                }
                self.upsert(spec);
            }
            Step::Broken(name) => {
                let name = ClusterName::new(NAMES[name]).unwrap();
                self.members.broken(&name);
                if let Some(received) = self.received.get_mut(&name) {
                    received.broken = true;
                }
            }
            Step::Remove(name) => {
                let name = ClusterName::new(NAMES[name]).unwrap();
                self.members.remove(&name);
                self.received.remove(&name);
                assert!(self.members.status(&name).is_none());
            }
            Step::Synced => self.members.synced(),
            Step::Answer(which, answer) => self.answer(which, answer),
            Step::Advance(seconds) => self.now += Duration::from_secs(seconds),
            Step::Restart => {
                let memory = self.members.take_memory();
                self.members = new_members(memory);
                self.probes.clear();
                let specs: Vec<_> = self
                    .received
                    .values()
                    .map(|received| (received.inner.clone(), received.broken))
                    .collect();
                for (spec, broken) in specs {
                    let name = spec.name.clone();
                    let before = self.received[&name].shown.identity.clone();
                    self.upsert(spec);
                    let received = self.received.get_mut(&name).unwrap();
                    assert_eq!(
                        received.shown.identity, before,
                        "another discovery is no other cluster"
                    );
                    received.broken = broken;
                    if broken {
                        self.members.broken(&name);
                    }
                }
                self.members.synced();
            }
        }
        self.start_probes();
        self.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_announced_is_what_the_inner_provider_reports_with_the_properties_of_the_clusters(
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        // However it went, each cluster that can be probed is probed at last, and its answer is announced.
        for _ in 0..40 {
            world.step(Step::Advance(700));
            while !world.probes.is_empty() {
                world.step(Step::Answer(0, Ok(Some(7))));
            }
        }
        for (name, received) in &world.received {
            if can_be_probed(&received.inner) && !received.broken {
                prop_assert_eq!(received.answers.last(), Some(&found(Some(7))), "{}", name);
            }
        }
    }
}

#[test]
fn a_probe_that_fails_is_tried_again_soon_and_later_ever_more_rarely() {
    let mut members = Members::new(REFRESH, 1, BTreeMap::new());
    let mut now = Instant::now();
    let spec = ClusterSpec::named("a", Access::kubeconfig("", Trust::Trusted)).unwrap();
    members.upsert(spec.clone(), now);
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let probe = members.start_probe(now).unwrap();
        members.probed(&spec.name, probe.ticket, Some(Err("no".into())), now);
        let due = members.next_due().unwrap();
        pauses.push(due - now);
        now = due;
    }
    assert!(pauses[0] <= FIRST_RETRY, "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause <= REFRESH), "{pauses:?}");
    assert!(pauses[11] >= REFRESH / 2, "{pauses:?}");
    assert_eq!(
        members.status(&spec.name).unwrap().last_error.as_deref(),
        Some("no")
    );
    let probe = members.start_probe(now).unwrap();
    members.probed(&spec.name, probe.ticket, Some(Ok(Properties::new())), now);
    let pause = members.next_due().unwrap() - now;
    assert!(
        pause >= REFRESH * 8 / 10 && pause <= REFRESH * 12 / 10,
        "{pause:?}"
    );
    let status = members.status(&spec.name).unwrap();
    assert_eq!((status.answered, status.last_error), (true, None));
}

#[test]
fn what_is_remembered_goes_with_a_cluster_that_is_gone() {
    let spec = |name| ClusterSpec::named(name, Access::kubeconfig("", Trust::Trusted)).unwrap();
    let after = |steps: &dyn Fn(&mut Members)| {
        let mut members = Members::new(REFRESH, 1, BTreeMap::new());
        members.upsert(spec("a"), Instant::now());
        members.upsert(spec("b"), Instant::now());
        let mut members = Members::new(REFRESH, 1, members.take_memory());
        members.upsert(spec("a"), Instant::now());
        steps(&mut members);
        let names = members.take_memory().into_keys();
        names.map(|name| name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(after(&|_| ()), ["a", "b"], "b may still be announced");
    assert_eq!(after(&|members| members.synced()), ["a"]);
    let b = ClusterName::new("b").unwrap();
    assert_eq!(after(&|members| members.remove(&b)), ["a"]);
}

struct Layout;

impl ScopeLayout for Layout {
    fn name(&self) -> &str {
        "layout"
    }

    fn place<'o>(&self, _: &ObjectMetadata<'o>) -> Option<Placement<'o>> {
        None
    }

    fn send(
        &self,
        _: Arc<str>,
        _: Request<Body>,
        _: Upstream,
    ) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>> {
        Box::pin(async { Err("never asked".into()) })
    }
}

#[test]
fn a_place_in_a_scope_is_passed_on_and_never_probed() {
    let spec = ClusterSpec::named("a", Scope::new(Layout).place("shard", "root")).unwrap();
    let mut members = Members::new(REFRESH, 1, BTreeMap::new());
    let now = Instant::now();
    assert_eq!(members.upsert(spec, now).len(), 1);
    assert!(members.start_probe(now + REFRESH).is_none());
}
