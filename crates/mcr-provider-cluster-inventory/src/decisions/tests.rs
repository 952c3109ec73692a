use std::sync::LazyLock;

use mcr_core::{
    AccessPolicy, Availability, Change, ClusterSpec, CredentialPluginPolicy, DiscoverySettings, hub::Memory,
};
use mcr_testkit::sim::SimCluster;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::*;
use crate::{
    access_providers::{AccessProviderConfig, AccessProviders},
    builder::ClusterInventoryProviderBuilder,
    facts::Lens,
    provider::ClusterInventoryProvider,
};

mod placements;
mod secrets;

/// A client of a hub that is never asked.
static CLIENT: LazyLock<kube::Client> = LazyLock::new(|| {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
    let _guard = RUNTIME.enter();
    SimCluster::new().client()
});

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("fleet", name)
}

fn providers() -> AccessProviders {
    AccessProviders::new([AccessProviderConfig::new("p", "/plugins/p")]).unwrap()
}

/// The decisions of a discovery, step by step.
struct World(Decisions);

impl World {
    fn of(builder: ClusterInventoryProviderBuilder, memory: &Arc<Memory<Ids>>, policy: AccessPolicy) -> Self {
        let mut provider = builder.client(CLIENT.clone()).build().unwrap();
        Arc::get_mut(&mut provider.0).unwrap().memory = memory.clone();
        let judge = provider.0.hub.judge(&DiscoverySettings::from(policy));
        Self(Decisions::new(provider.0, "v1alpha2", judge))
    }

    fn decide(&mut self, events: Vec<Event>) -> Vec<Change> {
        self.0.decide(events, Instant::now()).changes
    }

    fn profile(&mut self, key: &ObjectKey, facts: Arc<Facts>) -> Vec<Change> {
        self.decide(vec![Event::Profile(0, HubEvent::Applied(key.clone(), Ok(facts)))])
    }

    fn profile_gone(&mut self, key: &ObjectKey) -> Vec<Change> {
        self.decide(vec![Event::Profile(0, HubEvent::Deleted(key.clone()))])
    }

    fn profiles_synced(&mut self) -> Vec<Change> {
        self.decide(vec![Event::Profile(0, HubEvent::Synced)])
    }
}

fn builder() -> ClusterInventoryProviderBuilder {
    ClusterInventoryProvider::builder()
        .namespace("fleet")
        .access_providers(providers())
}

fn policy() -> AccessPolicy {
    AccessPolicy::default().credential_plugins(CredentialPluginPolicy::allowlist(["/plugins/p"]))
}

fn inventory() -> World {
    with(&Arc::default())
}

fn with(memory: &Arc<Memory<Ids>>) -> World {
    World::of(builder(), memory, policy())
}

/// A hub whose watch has listed nothing.
fn synced() -> World {
    let mut inventory = inventory();
    assert_eq!(shown(&inventory.profiles_synced()), ["synced"]);
    inventory
}

/// A ready ClusterProfile at this address.
fn profile(uid: &str, server: &str) -> Value {
    json!({
        "metadata": {"name": "a", "namespace": "fleet", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"clusterManager": {"name": "ocm"}},
        "status": {
            "conditions": [{
                "type": "ControlPlaneHealthy", "status": "True", "reason": "Well", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
            "accessProviders": [{"name": "p", "cluster": {"server": format!("https://{server}.example")}}],
        },
    })
}

fn facts(profile: Value) -> Arc<Facts> {
    let lens = Lens {
        version: "v1alpha2",
        selection: Arc::default(),
        providers: Some(Arc::new(providers())),
    };
    Arc::new(lens.of(&serde_json::from_value(profile).unwrap(), &[]).unwrap())
}

fn ready(uid: &str, server: &str) -> Arc<Facts> {
    facts(profile(uid, server))
}

fn healthy(uid: &str, status: &str) -> Arc<Facts> {
    let mut profile = profile(uid, "one");
    profile["status"]["conditions"][0]["status"] = status.into();
    facts(profile)
}

fn member(uid: &str, id: &str, created: u8) -> Arc<Facts> {
    let mut profile = profile(uid, "one");
    profile["metadata"]["labels"] = json!({MEMBER_ID_LABEL: id});
    profile["metadata"]["creationTimestamp"] = format!("2026-01-01T00:00:{created:02}Z").into();
    facts(profile)
}

fn without_access(uid: &str) -> Arc<Facts> {
    let mut profile = profile(uid, "one");
    profile["status"]["accessProviders"] = json!([]);
    facts(profile)
}

fn shown(changes: &[Change]) -> Vec<String> {
    let change = |change: &Change| match change {
        Change::Upsert(spec) => match &spec.availability {
            Availability::Suspended { reason } => format!("~{}: {reason}", spec.name),
            _ => format!("+{} {}", spec.name, server(spec)),
        },
        Change::Broken(broken) => format!("!{}: {}: {}", broken.name, broken.object, broken.error),
        Change::Remove(name) => format!("-{name}"),
        Change::Synced => "synced".into(),
        other => format!("{other:?}"),
    };
    changes.iter().map(change).collect()
}

/// What is announced when a profile has changed, or is there.
fn applied(inventory: &mut World, name: &str, facts: Arc<Facts>) -> Vec<String> {
    shown(&inventory.profile(&key(name), facts))
}

/// The host of the cluster, without its end.
fn server(spec: &ClusterSpec) -> String {
    let shown = mcr_testkit::discovery::address_and_token(&spec.access);
    let host = shown.split("https://").nth(1).unwrap_or("nowhere");
    host.split('.').next().unwrap().to_owned()
}

const NO_ACCESS: &str = "it has no access providers; its cluster manager, or an add-on of it, writes them";

#[test]
fn another_id_is_another_cluster_also_in_the_next_discovery_and_one_that_comes_or_goes_is_none() {
    let with_ids = |member: &str, cluster: &str| {
        let mut profile = profile("u", "one");
        if !member.is_empty() {
            profile["metadata"]["labels"] = json!({crate::facts::MEMBER_ID_LABEL: member});
        }
        if !cluster.is_empty() {
            let id = json!({"name": "cluster.clusterset.k8s.io", "value": cluster, "lastObservedTime": "2026-01-01T00:00:00Z"});
            profile["status"]["properties"] = json!([id]);
        }
        facts(profile)
    };
    for restarts in [false, true] {
        let mut inventory = synced();
        inventory.profile(&key("a"), with_ids("", ""));
        for (member, cluster, another) in [
            ("m", "", false),
            ("m", "one", false),
            ("m", "two", true),
            ("", "", false),
            ("", "two", false),
            ("", "one", true),
            ("n", "one", false),
            ("m", "one", true),
        ] {
            if restarts {
                inventory = with(&inventory.0.config.memory.clone());
            }
            let mut announced = inventory.profile(&key("a"), with_ids(member, cluster));
            // Until then, an older profile of the same cluster may come.
            announced.extend(inventory.profiles_synced());
            let removed = announced.iter().any(|change| matches!(change, Change::Remove(_)));
            assert_eq!(removed, another, "{member} {cluster}: {announced:?}");
        }
    }
}

#[test]
fn a_cluster_is_engaged_once_it_is_ready_and_can_be_reached() {
    let mut inventory = synced();
    assert_eq!(
        applied(&mut inventory, "a", without_access("u")),
        [format!(
            "~a: the cluster is ready, but can't be reached yet: {NO_ACCESS}"
        )]
    );
    assert_eq!(
        applied(&mut inventory, "a", healthy("u", "Unknown")),
        ["~a: the condition ControlPlaneHealthy is Unknown (Well)"]
    );
    let engaged = inventory.profile(&key("a"), ready("u", "one"));
    assert_eq!(shown(&engaged), ["+a one"]);
    let Change::Upsert(spec) = &engaged[0] else {
        panic!()
    };
    assert_eq!(spec.identity.as_deref(), Some("u"));
    assert_eq!(spec.properties["manager"], "ocm");
    assert_eq!(
        applied(&mut inventory, "a", ready("u", "one")),
        [""; 0],
        "nothing has changed"
    );
    assert_eq!(applied(&mut inventory, "a", ready("u", "two")), ["+a two"]);
    assert_eq!(shown(&inventory.profile_gone(&key("a"))), ["-a"]);
    assert_eq!(shown(&inventory.profile_gone(&key("a"))), [""; 0]);
}

#[test]
fn health_that_goes_suspends_and_keeps_the_access_and_health_that_is_not_known_takes_nothing() {
    let mut inventory = synced();
    inventory.profile(&key("a"), healthy("u", "True"));
    assert_eq!(
        applied(&mut inventory, "a", healthy("u", "Unknown")),
        [""; 0],
        "the manager has trouble, not the cluster"
    );
    let suspended = inventory.profile(&key("a"), healthy("u", "False"));
    assert_eq!(
        shown(&suspended),
        ["~a: the condition ControlPlaneHealthy is False (Well)"]
    );
    let Change::Upsert(spec) = &suspended[0] else {
        panic!()
    };
    assert_eq!(
        server(spec),
        "one",
        "the same access, so that the fleet keeps what it knows"
    );
    assert_eq!(
        applied(&mut inventory, "a", healthy("u", "Unknown")),
        ["~a: the condition ControlPlaneHealthy is Unknown (Well)"],
        "it is not engaged now"
    );
    assert_eq!(applied(&mut inventory, "a", healthy("u", "True")), ["+a one"]);
}

#[test]
fn access_that_goes_takes_nothing_from_an_engaged_cluster() {
    let mut inventory = synced();
    inventory.profile(&key("a"), ready("u", "one"));
    let gone = format!("!a: ClusterProfile fleet/a: {NO_ACCESS}");
    assert_eq!(applied(&mut inventory, "a", without_access("u")), [gone]);
    assert_eq!(applied(&mut inventory, "a", ready("u", "one")), ["+a one"]);
    let mut wrong = profile("u", "one");
    wrong["status"]["accessProviders"][0]["cluster"]["server"] = "SECRET".into();
    let broken = applied(&mut inventory, "a", facts(wrong));
    assert!(
        broken.len() == 1
            && broken[0].starts_with("!a: ClusterProfile fleet/a, status.accessProviders: ")
            && broken[0].contains("has no scheme")
            && !broken[0].contains("SECRET"),
        "{broken:?}"
    );
}

#[test]
fn a_plugin_that_the_fleet_does_not_allow_is_explained() {
    let mut inventory = World::of(builder(), &Arc::default(), AccessPolicy::default());
    let broken = applied(&mut inventory, "a", ready("u", "one"));
    assert!(
        broken[0].starts_with("!a")
            && broken[0].contains("/plugins/p")
            && broken[0].contains("FleetSettings::access_policy"),
        "{broken:?}"
    );
}

#[test]
fn of_two_profiles_of_the_same_cluster_the_older_counts() {
    let duplicate = |of: &str, first: &str| {
        format!(
            "~{of}: ClusterProfile {first} is older and describes the same cluster: both have the label \
             multicluster.x-k8s.io/inventory-member-id=m. The fleet has the cluster once, as {first}; to select this one, use \
             `labels` or `managers`"
        )
    };
    // In whatever order the first list has them.
    for order in [["young", "old"], ["old", "young"]] {
        let mut inventory = inventory();
        for name in order {
            let created = if name == "old" { 1 } else { 2 };
            let announced = inventory.profile(&key(name), member(name, "m", created));
            assert_eq!(shown(&announced), [""; 0], "the other may come yet");
        }
        let mut announced = shown(&inventory.profiles_synced());
        assert_eq!(announced.pop().unwrap(), "synced");
        announced.sort();
        assert_eq!(announced, ["+old one".to_owned(), duplicate("young", "old")]);
        // A third one changes nothing, and the next one takes over.
        assert_eq!(
            applied(&mut inventory, "third", member("third", "m", 3)),
            [duplicate("third", "old")]
        );
        assert_eq!(
            shown(&inventory.profile_gone(&key("old"))),
            [
                "-old".to_owned(),
                duplicate("third", "young"),
                "+young one".to_owned()
            ]
        );
        // One that turns out to be another cluster.
        assert_eq!(
            applied(&mut inventory, "young", member("young", "n", 2)),
            ["-young", "+third one", "+young one"]
        );
    }
    // One that is labelled later: it is disengaged before the other could be engaged twice.
    let mut inventory = synced();
    inventory.profile(&key("a"), member("a", "m", 2));
    inventory.profile(&key("b"), ready("b", "one"));
    let mut labelled = profile("b", "one");
    labelled["metadata"]["labels"] = json!({MEMBER_ID_LABEL: "m"});
    assert_eq!(
        applied(&mut inventory, "b", facts(labelled)),
        [duplicate("a", "b"), "+b one".to_owned()]
    );
}

#[test]
fn an_empty_member_id_is_none() {
    let mut inventory = synced();
    assert_eq!(applied(&mut inventory, "a", member("a", "", 1)), ["+a one"]);
    assert_eq!(applied(&mut inventory, "b", member("b", "", 2)), ["+b one"]);
}
