use std::collections::BTreeMap;

use mcr_core::{
    Availability, ClusterSpec, Credential, Endpoint, EndpointAccess, StaticCredential, internal::NoticeKind,
};
use mcr_testkit::discovery::address_and_token;
use serde_json::{Value, json};

use super::*;
use crate::{selection::Selection, v1beta2::Cluster};

mod world;

fn key() -> ObjectKey {
    ObjectKey::namespaced("fleet", "a")
}

fn secret_key() -> ObjectKey {
    ObjectKey::namespaced("fleet", "a-kubeconfig")
}

fn facts(cluster: Value) -> Arc<Facts> {
    let mut cluster: Cluster = serde_json::from_value(cluster).unwrap();
    cluster.metadata.name = Some("a".into());
    cluster.metadata.namespace = Some("fleet".into());
    Arc::new(Facts::of(&cluster, &Selection::default()))
}

fn waiting(uid: &str) -> Arc<Facts> {
    facts(json!({"metadata": {"uid": uid}, "spec": {}, "status": {"phase": "Provisioning"}}))
}

fn ready(uid: &str) -> Arc<Facts> {
    labelled(uid, "eu")
}

fn labelled(uid: &str, region: &str) -> Arc<Facts> {
    facts(json!({
        "metadata": {"uid": uid, "labels": {"region": region}}, "spec": {},
        "status": {"initialization": {"controlPlaneInitialized": true}},
    }))
}

fn stamp(version: &str) -> Arc<Stamp> {
    owned(version, None)
}

fn owned(version: &str, owner: Option<&str>) -> Arc<Stamp> {
    Arc::new(Stamp {
        uid: Some("s".into()),
        version: version.into(),
        owner: owner.map(Into::into),
    })
}

fn good(version: &str, token: &str) -> Answer {
    let endpoint = Endpoint::new(http::Uri::from_static("https://a"));
    let content = Ok(EndpointAccess::new(
        endpoint,
        StaticCredential::new(Credential::token(token)),
    ));
    let stamp = Stamp::clone(&stamp(version));
    Answer::Read(Box::new(ReadSecret {
        stamp,
        labelled: true,
        content,
    }))
}

fn bad(version: &str) -> Answer {
    let stamp = Stamp::clone(&stamp(version));
    let content = Err(KubeconfigProblem::new("half"));
    Answer::Read(Box::new(ReadSecret {
        stamp,
        labelled: true,
        content,
    }))
}

fn failed() -> Answer {
    Answer::Failed(KubeconfigProblem::new("forbidden"))
}

fn inventory() -> Inventory {
    with(Arc::default())
}

fn with(memory: Arc<Memory>) -> Inventory {
    Inventory::new(false, memory)
}

/// An inventory of a hub whose watches have listed nothing.
fn synced() -> Inventory {
    let mut inventory = inventory();
    assert_eq!(shown(&inventory.clusters_synced()), [""; 0]);
    assert_eq!(shown(&inventory.secrets_synced()), ["synced"]);
    inventory
}

fn shown(outcome: &Outcome) -> Vec<String> {
    let change = |change: &Change| match change {
        Change::Upsert(spec) => match &spec.availability {
            Availability::Suspended { reason } => format!("~{reason}"),
            _ => format!("+{}", token(spec)),
        },
        Change::Broken(broken) => format!("!{}: {}", broken.object, broken.error),
        Change::Remove(_) => "-".into(),
        Change::Synced => "synced".into(),
        other => format!("{other:?}"),
    };
    let reads = outcome.reads.iter().map(|read| format!("?{}", read.number));
    outcome.changes.iter().map(change).chain(reads).collect()
}

fn token(spec: &ClusterSpec) -> String {
    address_and_token(&spec.access)
        .split(' ')
        .nth(1)
        .unwrap()
        .to_owned()
}

fn read(outcome: &Outcome) -> Read {
    outcome.reads[0].clone()
}

/// What is said when a read is answered.
fn answer(inventory: &mut Inventory, asked: &Outcome, answer: Answer) -> Vec<String> {
    shown(&inventory.answered(read(asked), answer))
}

/// What is said when the Secret has changed, or is there.
fn secret(inventory: &mut Inventory, version: &str) -> Vec<String> {
    shown(&inventory.secret(&secret_key(), Some(stamp(version))))
}

/// An engaged cluster with the token `one`.
fn engaged(inventory: &mut Inventory) {
    inventory.secret(&secret_key(), Some(stamp("1")));
    let asked = inventory.cluster(&key(), ready("u"));
    assert_eq!(answer(inventory, &asked, good("1", "one")), ["+one"]);
}

const NOT_YET: &str = "~the control plane is not initialized yet (phase Provisioning)";
const NO_SECRET: &str =
    "no Secret a-kubeconfig with the label cluster.x-k8s.io/cluster-name in namespace fleet";

#[test]
fn a_cluster_is_engaged_once_it_is_initialized_and_its_secret_is_there() {
    // The Secret first, as KubeadmControlPlane does it.
    let mut inventory = synced();
    assert_eq!(shown(&inventory.cluster(&key(), waiting("u"))), [NOT_YET]);
    assert_eq!(secret(&mut inventory, "1"), [""; 0], "it is not read yet");
    let asked = inventory.cluster(&key(), ready("u"));
    assert_eq!(shown(&asked), ["?0"]);
    assert_eq!(read(&asked).secret, secret_key());
    assert_eq!(&*read(&asked).key, "value");
    let outcome = inventory.answered(read(&asked), good("1", "one"));
    assert_eq!(shown(&outcome), ["+one"]);
    let Change::Upsert(spec) = &outcome.changes[0] else {
        panic!("{outcome:?}")
    };
    assert_eq!(spec.identity.as_deref(), Some("u"));
    assert_eq!(
        spec.labels,
        BTreeMap::from([("region".to_owned(), "eu".to_owned())])
    );
    assert_eq!(spec.properties["cluster"], "a");

    // Initialized first.
    let mut inventory = synced();
    let missing = format!("~the control plane is initialized, but its kubeconfig is missing: {NO_SECRET}");
    let asked = inventory.cluster(&key(), ready("u"));
    assert_eq!(
        shown(&asked),
        ["?0"],
        "the watch of Secrets may be behind that of Clusters"
    );
    assert_eq!(answer(&mut inventory, &asked, Answer::Gone), [&*missing]);
    assert_eq!(
        shown(&inventory.cluster(&key(), labelled("u", "us"))),
        [&*missing],
        "it is not asked again"
    );
    let asked = inventory.secret(&secret_key(), Some(stamp("1")));
    assert_eq!(shown(&asked), ["?1"]);
    assert_eq!(answer(&mut inventory, &asked, good("1", "one")), ["+one"]);
}

#[test]
fn a_secret_alone_engages_nothing_and_is_never_read() {
    let mut inventory = synced();
    assert_eq!(secret(&mut inventory, "1"), [""; 0]);
    let mut inventory = synced();
    engaged(&mut inventory);
    assert_eq!(shown(&inventory.cluster_gone(&key())), ["-"]);
    assert_eq!(secret(&mut inventory, "2"), [""; 0]);
    assert_eq!(shown(&inventory.secret(&secret_key(), None)), [""; 0]);
    assert!(
        inventory.secrets.is_empty() && inventory.clusters.is_empty(),
        "{inventory:?}"
    );
}

#[test]
fn a_rotation_is_one_read_and_one_upsert_and_a_touch_is_no_upsert() {
    let mut inventory = synced();
    engaged(&mut inventory);
    let asked = inventory.secret(&secret_key(), Some(stamp("2")));
    assert_eq!(shown(&asked), ["?1"], "nothing is said meanwhile");
    assert_eq!(answer(&mut inventory, &asked, good("2", "two")), ["+two"]);
    let asked = inventory.secret(&secret_key(), Some(stamp("3")));
    assert_eq!(answer(&mut inventory, &asked, good("3", "two")), [""; 0]);
    assert_eq!(secret(&mut inventory, "3"), [""; 0]);
    // Labels and properties need no read.
    assert_eq!(shown(&inventory.cluster(&key(), labelled("u", "us"))), ["+two"]);
    assert_eq!(shown(&inventory.cluster(&key(), labelled("u", "us"))), [""; 0]);
}

#[test]
fn a_secret_that_is_gone_takes_nothing_from_an_engaged_cluster() {
    let mut inventory = synced();
    engaged(&mut inventory);
    let gone = format!("!Secret fleet/a-kubeconfig: {NO_SECRET}");
    assert_eq!(shown(&inventory.secret(&secret_key(), None)), [&*gone]);
    assert_eq!(
        shown(&inventory.cluster(&key(), waiting("u"))),
        [""; 0],
        "initialized never goes back"
    );
    let asked = inventory.secret(&secret_key(), Some(stamp("9")));
    assert_eq!(answer(&mut inventory, &asked, good("9", "two")), ["+two"]);
    // The watch has not told yet that it is gone again.
    let asked = inventory.secret(&secret_key(), Some(stamp("10")));
    assert_eq!(answer(&mut inventory, &asked, Answer::Gone), [&*gone]);
    assert_eq!(
        shown(&inventory.secret(&secret_key(), None)),
        [""; 0],
        "said already"
    );
}

#[test]
fn a_read_that_is_ahead_of_the_watch_is_not_repeated() {
    let mut inventory = synced();
    engaged(&mut inventory);
    let asked = inventory.secret(&secret_key(), Some(stamp("2")));
    assert_eq!(answer(&mut inventory, &asked, good("3", "three")), ["+three"]);
    assert_eq!(secret(&mut inventory, "3"), [""; 0]);
    // An answer to a question that is out of date.
    let late = inventory.secret(&secret_key(), Some(stamp("4")));
    let asked = inventory.secret(&secret_key(), Some(stamp("5")));
    assert_eq!(answer(&mut inventory, &late, good("4", "four")), [""; 0]);
    assert_eq!(answer(&mut inventory, &asked, good("5", "five")), ["+five"]);
}

#[test]
fn a_secret_that_the_watch_does_not_know_yet_is_read_once() {
    let mut inventory = synced();
    let asked = inventory.cluster(&key(), ready("u"));
    assert_eq!(answer(&mut inventory, &asked, good("1", "one")), ["+one"]);
    assert_eq!(secret(&mut inventory, "1"), [""; 0]);
    let gone = format!("!Secret fleet/a-kubeconfig: {NO_SECRET}");
    assert_eq!(shown(&inventory.secret(&secret_key(), None)), [&*gone]);

    // Told by the watch while it is read.
    let mut inventory = synced();
    let asked = inventory.cluster(&key(), ready("u"));
    assert_eq!(secret(&mut inventory, "2"), [""; 0]);
    let again = inventory.answered(read(&asked), Answer::Gone);
    assert_eq!(shown(&again), ["?1"], "it was not there yet");
    assert_eq!(answer(&mut inventory, &again, good("2", "two")), ["+two"]);

    // One without the label does not count.
    let mut inventory = synced();
    let asked = inventory.cluster(&key(), ready("u"));
    let mut unlabelled = good("1", "one");
    if let Answer::Read(read) = &mut unlabelled {
        read.labelled = false;
    }
    let announced = answer(&mut inventory, &asked, unlabelled);
    assert!(
        announced.len() == 1 && announced[0].starts_with('~') && announced[0].ends_with(NO_SECRET),
        "{announced:?}"
    );
}

#[test]
fn a_read_that_fails_is_reported_and_tried_again() {
    let mut inventory = synced();
    inventory.secret(&secret_key(), Some(stamp("1")));
    let asked = inventory.cluster(&key(), ready("u"));
    let reported = "!Secret fleet/a-kubeconfig, key \"value\": forbidden";
    let again = inventory.answered(read(&asked), failed());
    assert_eq!(shown(&again), [reported, "?0"]);
    assert_eq!(read(&again).failures, 1);
    let again = inventory.answered(read(&again), failed());
    assert_eq!(shown(&again), ["?0"], "told once");
    assert_eq!(read(&again).failures, 2);
    assert_eq!(answer(&mut inventory, &again, good("1", "one")), ["+one"]);
    // Not for a Cluster that has left since.
    let asked = inventory.secret(&secret_key(), Some(stamp("2")));
    inventory.cluster_gone(&key());
    assert_eq!(answer(&mut inventory, &asked, failed()), [""; 0]);
}

#[test]
fn a_broken_secret_is_reported_with_an_event_and_so_is_its_end() {
    let mut inventory = synced();
    engaged(&mut inventory);
    let asked = inventory.secret(&secret_key(), Some(stamp("2")));
    let outcome = inventory.answered(read(&asked), bad("2"));
    assert_eq!(
        shown(&outcome),
        ["!Secret fleet/a-kubeconfig, key \"value\": half"]
    );
    assert_eq!(outcome.notices[0].kind, NoticeKind::Broken("half".into()));
    assert_eq!(
        (&outcome.notices[0].key, &*outcome.notices[0].uid),
        (&secret_key(), "s")
    );
    let asked = inventory.secret(&secret_key(), Some(stamp("3")));
    let outcome = inventory.answered(read(&asked), good("3", "one"));
    assert_eq!(shown(&outcome), ["+one"], "as it was before");
    assert_eq!(outcome.notices[0].kind, NoticeKind::Well);
    assert_eq!(
        inventory.secret(&secret_key(), None).notices[0].kind,
        NoticeKind::Gone
    );
}

#[test]
fn a_cluster_that_waited_for_a_broken_secret_does_not_wait_any_more() {
    let mut inventory = synced();
    inventory.cluster(&key(), waiting("u"));
    inventory.secret(&secret_key(), Some(stamp("1")));
    let read = read(&inventory.cluster(&key(), ready("u")));
    let outcome = inventory.answered(read, bad("1"));
    let shown = shown(&outcome);
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert_eq!(shown[0], "-");
    assert!(
        shown[1].starts_with('!') && shown[1].ends_with("half"),
        "{shown:?}"
    );
}

#[test]
fn another_uid_is_another_cluster_and_does_not_get_the_kubeconfig_of_the_old_one() {
    let mut inventory = synced();
    inventory.secret(&secret_key(), Some(owned("1", Some("u"))));
    let asked = inventory.cluster(&key(), ready("u"));
    inventory.answered(read(&asked), good("1", "one"));
    assert_eq!(shown(&inventory.cluster(&key(), waiting("v"))), ["-", NOT_YET]);
    // The garbage collector has not come yet.
    let of_another = "~the control plane is initialized, but its kubeconfig is missing: Secret fleet/a-kubeconfig belongs to \
                      another Cluster of this name; it waits for its own";
    assert_eq!(shown(&inventory.cluster(&key(), ready("v"))), [of_another]);
    let asked = inventory.secret(&secret_key(), Some(owned("2", Some("v"))));
    // Nor does it if the watch is behind.
    let mut old = good("1", "one");
    if let Answer::Read(read) = &mut old {
        read.stamp.owner = Some("u".into());
    }
    assert!(!answer(&mut inventory, &asked, old).contains(&"+one".to_owned()));
    let asked = inventory.secret(&secret_key(), Some(owned("3", Some("v"))));
    assert_eq!(answer(&mut inventory, &asked, good("3", "two")), ["+two"]);
}

#[test]
fn a_hub_without_uids_has_clusters_without_identity() {
    let mut inventory = synced();
    inventory.secret(&secret_key(), Some(stamp("1")));
    let asked = inventory.cluster(&key(), ready(""));
    let outcome = inventory.answered(read(&asked), good("1", "one"));
    assert!(matches!(&outcome.changes[0], Change::Upsert(spec) if spec.identity.is_none()));
    assert_eq!(shown(&inventory.cluster(&key(), ready(""))), [""; 0]);
}

#[test]
fn synced_comes_once_after_all_that_can_be_announced() {
    let mut inventory = inventory();
    assert_eq!(
        shown(&inventory.cluster(&key(), ready("u"))),
        [""; 0],
        "the Secret may come yet"
    );
    assert_eq!(shown(&inventory.clusters_synced()), [""; 0]);
    let asked = inventory.secret(&secret_key(), Some(stamp("1")));
    assert_eq!(shown(&inventory.secrets_synced()), [""; 0]);
    let again = inventory.answered(read(&asked), failed());
    assert_eq!(again.changes.len(), 2, "{again:?}");
    assert_eq!(
        shown(&again)[1],
        "synced",
        "a Secret that can't be read holds up nobody"
    );
    assert_eq!(answer(&mut inventory, &again, good("1", "one")), ["+one"]);

    let mut inventory = self::inventory();
    inventory.clusters_synced();
    inventory.cluster(&key(), ready("u"));
    let all = shown(&inventory.secrets_synced());
    assert!(
        all.len() == 2 && all[0].starts_with('~') && all[1] == "synced",
        "{all:?}"
    );

    // A Secret that goes while it is read.
    let mut inventory = self::inventory();
    inventory.cluster(&key(), ready("u"));
    inventory.clusters_synced();
    inventory.secret(&secret_key(), Some(stamp("1")));
    inventory.secrets_synced();
    let all = shown(&inventory.secret(&secret_key(), None));
    assert!(
        all.len() == 2 && all[0].starts_with('~') && all[1] == "synced",
        "{all:?}"
    );
}

/// After a failure of the hub, a cluster whose Secret is missing at that moment keeps its connection.
#[test]
fn a_new_discovery_takes_nothing_from_a_cluster_that_is_engaged() {
    let memory = Arc::new(Memory::default());
    engaged(&mut with(memory.clone()));
    let mut inventory = with(memory.clone());
    assert_eq!(shown(&inventory.cluster(&key(), waiting("u"))), [""; 0]);
    inventory.clusters_synced();
    let gone = format!("!Secret fleet/a-kubeconfig: {NO_SECRET}");
    assert_eq!(shown(&inventory.secrets_synced()), [&*gone, "synced"]);
    // Another Cluster of the name gets nothing of it.
    let mut inventory = with(memory.clone());
    assert_eq!(shown(&inventory.cluster(&key(), waiting("v"))), ["-", NOT_YET]);
    assert!(!memory.is_engaged(&key(), Some(&"u".into())));
}

#[test]
fn a_cluster_that_cannot_be_decoded_is_broken_and_keeps_what_it_has() {
    let unreadable = || {
        let mut facts = Facts::clone(&waiting("u"));
        facts.uid = None;
        facts.state = State::Unreadable("not a Cluster".into());
        Arc::new(facts)
    };
    let reported = "!Cluster fleet/a: not a Cluster";
    let mut inventory = synced();
    assert_eq!(shown(&inventory.cluster(&key(), unreadable())), [reported]);
    assert_eq!(shown(&inventory.cluster(&key(), waiting("u"))), [NOT_YET]);
    let mut inventory = synced();
    engaged(&mut inventory);
    assert_eq!(shown(&inventory.cluster(&key(), unreadable())), [reported]);
    assert_eq!(
        shown(&inventory.cluster(&key(), ready("u"))),
        ["+one"],
        "without a read"
    );
    inventory.cluster(&key(), unreadable());
    assert_eq!(shown(&inventory.cluster(&key(), waiting("v"))), ["-", NOT_YET]);
}

#[test]
fn in_all_namespaces_names_have_the_namespace() {
    let mut inventory = Inventory::new(true, Arc::default());
    let outcome = inventory.cluster(&key(), waiting("u"));
    assert!(matches!(&outcome.changes[0], Change::Upsert(spec) if spec.name == "fleet/a"));
}
