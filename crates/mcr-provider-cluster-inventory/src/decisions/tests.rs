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
        access: Access::Plugins(Arc::new(providers())),
    };
    Arc::new(lens.of(&serde_json::from_value(profile).unwrap(), &[]).unwrap())
}

fn ready(uid: &str, server: &str) -> Arc<Facts> {
    facts(profile(uid, server))
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
