//! Events of a Cluster and its Secret in any order.

use mcr_core::{
    Availability, Change, Credential, DiscoverySettings, Endpoint, StaticCredential, hub::NoticeKind,
};
use mcr_testkit::{discovery::address_and_token, sim::SimCluster};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{ClusterApiProvider, SecretKeyRef, selection::Selection};

const MINUTES: Duration = Duration::from_secs(600);
const NO_SECRET: &str =
    "no Secret a-kubeconfig with the label cluster.x-k8s.io/cluster-name in namespace fleet";

fn key() -> ObjectKey {
    ObjectKey::namespaced("fleet", "a")
}

fn facts(uid: u32, initialized: bool) -> Arc<Facts> {
    let cluster = json!({
        "metadata": {"name": "a", "namespace": "fleet", "uid": uid.to_string()}, "spec": {},
        "status": {"initialization": {"controlPlaneInitialized": initialized}},
    });
    Arc::new(Facts::of(
        &serde_json::from_value(cluster).unwrap(),
        &Selection::default(),
    ))
}

/// A Secret of this version, owned by the Cluster with this UID, if by any.
fn secret(version: u32, owner: Option<u32>) -> Stamp {
    let owner = owner.map(|uid| {
        json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "a", "uid": uid.to_string()})
    });
    let owners: Vec<Value> = owner.into_iter().collect();
    let metadata = json!({"uid": "s", "resourceVersion": version.to_string(), "ownerReferences": owners});
    Stamp::of(&serde_json::from_value(metadata).unwrap())
}

fn read(version: u32, token: Option<u8>) -> Answer {
    let content = match token {
        Some(token) => {
            let endpoint = Endpoint::new(http::Uri::from_static("https://a"));
            let credential = StaticCredential::new(Credential::token(token.to_string()));
            Ok(EndpointAccess::new(endpoint, credential))
        }
        None => Err(KubeconfigProblem::new("half")),
    };
    Ok(Some(ReadSecret {
        stamp: secret(version, None),
        labelled: true,
        content,
    }))
}

/// A discovery of a hub with one Cluster and its Secret, and a fleet that follows it.
struct World {
    decisions: Decisions,
    now: Instant,
    tickets: Ticket,
    reads: Vec<Ticket>,
    notices: Vec<NoticeKind>,
    spec: Option<Result<String, String>>,
    broken: Option<String>,
    changes: usize,
}

impl World {
    fn new() -> Self {
        let provider = ClusterApiProvider::builder().client(SimCluster::new().client());
        let provider = provider.namespace("fleet").build().unwrap();
        let judge = provider.0.hub.judge(&DiscoverySettings::default());
        let mut world = Self {
            decisions: Decisions::new(provider.0, "v1beta2", judge),
            now: Instant::now(),
            tickets: 0,
            reads: Vec::new(),
            notices: Vec::new(),
            spec: None,
            broken: None,
            changes: 0,
        };
        world.feed([Event::Cluster(HubEvent::Synced), Event::Secret(HubEvent::Synced)]);
        world
    }

    fn feed(&mut self, events: impl IntoIterator<Item = Event>) {
        self.now += MINUTES;
        let outcome = self.decisions.decide(events.into_iter().collect(), self.now);
        self.reads
            .extend(self.tickets..self.tickets + outcome.tasks.len() as u64);
        self.tickets += outcome.tasks.len() as u64;
        self.notices
            .extend(outcome.notices.into_iter().map(|notice| notice.kind));
        self.changes += outcome.changes.len();
        for change in outcome.changes {
            match change {
                Change::Upsert(spec) => {
                    let token = address_and_token(&spec.access)
                        .split(' ')
                        .nth(1)
                        .unwrap()
                        .to_owned();
                    self.spec = Some(match spec.availability {
                        Availability::Suspended { reason } => Err(reason.to_string()),
                        _ => Ok(format!("{} {token}", spec.identity.unwrap_or_default())),
                    });
                    self.broken = None;
                }
                Change::Broken(broken) => self.broken = Some(broken.error.to_string()),
                Change::Remove(_) => (self.spec, self.broken) = (None, None),
                _ => {}
            }
        }
    }

    fn cluster(&mut self, cluster: Option<(u32, bool)>) {
        self.feed([Event::Cluster(match cluster {
            Some((uid, initialized)) => HubEvent::Applied(key(), Ok(facts(uid, initialized))),
            None => HubEvent::Deleted(key()),
        })]);
    }

    fn secret(&mut self, stamp: Option<Stamp>) {
        let key = ObjectKey::namespaced("fleet", "a-kubeconfig");
        self.feed([Event::Secret(match stamp {
            Some(stamp) => HubEvent::Applied(key, stamp.into()),
            None => HubEvent::Deleted(key),
        })]);
    }

    fn answer(&mut self, which: usize, answer: Answer) {
        let ticket = self.reads.remove(which);
        self.feed([Event::Read(key(), ticket, Some(answer))]);
    }
}

#[tokio::test]
async fn a_rotation_is_one_read_and_one_upsert_and_a_touch_is_no_upsert() {
    let mut world = World::new();
    world.secret(Some(secret(1, None)));
    assert!(world.reads.is_empty(), "a Secret alone is never read");
    world.cluster(Some((1, true)));
    world.answer(0, read(1, Some(1)));
    assert_eq!(world.spec, Some(Ok("1 1".into())));
    let changes = world.changes;
    world.secret(Some(secret(2, None)));
    assert_eq!(world.changes, changes, "nothing is announced meanwhile");
    // The read is ahead of the watch.
    world.answer(0, read(3, Some(2)));
    world.secret(Some(secret(3, None)));
    assert_eq!((world.changes, world.reads.len()), (changes + 1, 0));
    world.secret(Some(secret(4, None)));
    world.answer(0, read(4, Some(2)));
    assert_eq!(world.changes, changes + 1, "the same kubeconfig");
    world.secret(Some(secret(5, None)));
    world.answer(0, read(5, None));
    assert_eq!(world.broken.as_deref(), Some("half"));
    assert_eq!(world.notices.last(), Some(&NoticeKind::Broken("half".into())));
    world.secret(Some(secret(6, None)));
    world.answer(0, read(6, Some(2)));
    assert_eq!(
        (world.notices.last(), &world.broken),
        (Some(&NoticeKind::Well), &None)
    );
    world.secret(None);
    assert_eq!(world.notices.last(), Some(&NoticeKind::Gone));
    assert_eq!(
        world.broken.as_deref(),
        Some(NO_SECRET),
        "an engaged cluster keeps what it has"
    );
    world.cluster(Some((1, false)));
    assert_eq!(
        world.broken.as_deref(),
        Some(NO_SECRET),
        "initialized never goes back"
    );
}

#[tokio::test]
async fn the_secret_of_another_cluster_of_the_name_engages_nothing() {
    let mut world = World::new();
    world.secret(Some(secret(1, Some(1))));
    world.cluster(Some((2, true)));
    assert!(world.reads.is_empty());
    let Some(Err(waits)) = &world.spec else {
        panic!("{:?}", world.spec)
    };
    assert!(
        waits.ends_with("belongs to another Cluster of this name; it waits for its own"),
        "{waits}"
    );
    world.secret(Some(secret(2, Some(2))));
    // It lost its label meanwhile.
    let mut unlabelled = read(2, Some(1));
    if let Ok(Some(read)) = &mut unlabelled {
        read.labelled = false;
    }
    world.answer(0, unlabelled);
    assert!(matches!(&world.spec, Some(Err(reason)) if reason.ends_with(NO_SECRET)));
    let elsewhere = Selection {
        kubeconfig_secret: Some(mcr_core::hub::Closure::new(|_| SecretKeyRef::new("b", "c"))),
        ..Selection::default()
    };
    let custom = Facts::of(
        &serde_json::from_value(json!({"metadata": {}, "spec": {}})).unwrap(),
        &elsewhere,
    );
    assert_eq!(
        custom.secret(&key()),
        (ObjectKey::namespaced("fleet", "b"), "c".into())
    );
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Create,
    Initialize,
    Delete,
    Secret(Option<u8>),
    DeleteSecret,
    /// The watch of Clusters, the watch of Secrets, or a read gets on.
    Clusters,
    Secrets,
    Read(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Create),
        3 => Just(Step::Initialize),
        1 => Just(Step::Delete),
        4 => prop::option::weighted(0.75, 0..3_u8).prop_map(Step::Secret),
        2 => Just(Step::DeleteSecret),
        4 => Just(Step::Clusters),
        4 => Just(Step::Secrets),
        6 => any::<u8>().prop_map(Step::Read),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens to a Cluster and its Secret, and in whatever order it is reported: a fleet that follows the announcements
    /// ends where the hub is.
    #[test]
    fn events_in_any_order_end_in_the_same_announcements(steps in prop::collection::vec(step(), 0..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _guard = runtime.enter();
        let mut world = World::new();
        let (mut uids, mut versions) = (0, 0);
        let (mut cluster, mut there) = (None, None);
        for step in steps.into_iter().chain([Step::Clusters, Step::Secrets]) {
            versions += 1;
            match step {
                Step::Create => {
                    uids += 1;
                    cluster = Some((uids, false));
                }
                Step::Initialize => cluster = cluster.map(|(uid, _)| (uid, true)),
                Step::Delete => cluster = None,
                Step::Secret(token) => there = Some((versions, token)),
                Step::DeleteSecret => there = None,
                Step::Clusters => world.cluster(cluster),
                Step::Secrets => world.secret(there.map(|(version, _)| secret(version, None))),
                Step::Read(_) if world.reads.is_empty() => {}
                Step::Read(which) => {
                    let answer = match there {
                        _ if which % 7 == 6 => Err(Refused::new("forbidden")),
                        Some((version, token)) => read(version, token),
                        None => Ok(None),
                    };
                    world.answer(usize::from(which) % world.reads.len(), answer);
                }
            }
        }
        // Everything is reported.
        for _ in 0..2 {
            while !world.reads.is_empty() {
                world.answer(0, there.map_or(Ok(None), |(version, token)| read(version, token)));
            }
            world.feed([]);
        }
        let (spec, broken) = (&world.spec, world.broken.as_deref());
        match (cluster, there) {
            (None, _) => prop_assert_eq!((spec, broken), (&None, None)),
            (Some((uid, true)), Some((_, Some(token)))) => {
                prop_assert_eq!((spec, broken), (&Some(Ok(format!("{uid} {token}"))), None));
            }
            (Some((_, true)), Some((_, None))) => prop_assert_eq!(broken, Some("half")),
            (Some((uid, true)), None) => match spec {
                Some(Err(reason)) => prop_assert!(reason.ends_with(NO_SECRET) && broken.is_none()),
                Some(Ok(spec)) => {
                    prop_assert!(spec.starts_with(&format!("{uid} ")), "{}", spec);
                    prop_assert_eq!(broken, Some(NO_SECRET));
                }
                None => prop_assert_eq!(broken, Some(NO_SECRET)),
            },
            (Some((_, false)), _) => {
                prop_assert!(matches!(spec, Some(Err(reason)) if reason.contains("not initialized")), "{:?}", spec);
                prop_assert_eq!(broken, None);
            }
        }
    }
}
