//! Clusters that are reached with plugins, in a fleet. Hub and members are simulated; the plugins are programs that run.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{fs, path::PathBuf};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_core::{ClusterState, Fleet, WatchRequest};
use mcr_provider_cluster_inventory::{
    ARGS_EXTENSION, AccessProviderConfig, AccessProviders, ArgsPolicy, ClusterInventoryProvider,
    ENV_EXTENSION, EXEC_EXTENSION, EnvPolicy,
};
use mcr_testkit::{
    sim::{SimCluster, SimFleet, SimRule, SimUser},
    waiting::{self, Background},
};
use serde_json::{Value, json};
use support::{
    Folder, PATIENCE, PROFILES, base64, change, client, condition, extended, hub, locally, profile, timed,
};

/// A hub, members, and a fleet that reaches them with a plugin.
struct World {
    hub: SimCluster,
    members: SimFleet,
    folder: Folder,
    fleet: Fleet,
    running: Background<()>,
}

impl World {
    async fn new(names: &[&str]) -> Self {
        Self::with(names, |_| String::new()).await
    }

    /// The plugin does something first, and may set MORE to more of the status that it gives. Then it notes its arguments, the
    /// variable TENANT and its configuration, and gives the token in the file of that name.
    async fn with(names: &[&str], first: impl FnOnce(&Folder) -> String) -> Self {
        let folder = Folder::new();
        let first = first(&folder);
        let plugin = folder.plugin(&format!(
            "{first}\nname=$(printf '%s' \"$KUBERNETES_EXEC_INFO\" | sed 's/.*\"config\":{{\"name\":\"\\([^\"]*\\)\"}}.*/\\1/')\n\
             printf '%s\\n' \"$*|$TENANT|$name\" >> {0}/runs\n\
             printf '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\
             \"status\":{{\"token\":\"%s\"%s}}}}' \"$(cat \"{0}/$name\")\" \"$MORE\"",
            folder.0.display()
        ));
        let members = names.iter().map(|name| SimCluster::builder().name(*name).build());
        let members = SimFleet::serve(members).await.unwrap();
        for name in names {
            let token = members.get(name).unwrap().admin_token();
            fs::write(folder.0.join(name), token).unwrap();
        }
        let hub = hub();
        let config = AccessProviderConfig::new("p", plugin.to_str().unwrap())
            .args(["get"])
            .provide_cluster_info(true)
            .args_policy(ArgsPolicy::Append)
            .env_policy(EnvPolicy::Replace)
            .profile_args(["--tenant", "*"])
            .profile_env(["TENANT"]);
        let other = AccessProviderConfig::new("other", plugin.to_str().unwrap())
            .args(["other"])
            .provide_cluster_info(true);
        let providers = AccessProviders::new([config, other]).unwrap();
        let mut policy = locally(&[]);
        policy = policy.credential_plugins(providers.plugin_policy());
        let provider = timed(ClusterInventoryProvider::builder())
            .client(client(&hub))
            .access_providers(providers)
            .build()
            .unwrap();
        let fleet = Fleet::builder()
            .provider(provider)
            .settings(|settings| settings.access_policy = policy)
            .build();
        let running = Background::start({
            let fleet = fleet.clone();
            |stop| async move { fleet.run(stop).await }
        });
        Self {
            hub,
            members,
            folder,
            fleet,
            running,
        }
    }

    /// The profile of a member, with these extensions beside the configuration of the plugin.
    fn profile(&self, name: &str, more: &[(&str, Value)]) -> Value {
        let mut profile = profile("default", name, &self.members.url(name));
        profile["status"]["accessProviders"][0]["cluster"]["certificate-authority-data"] =
            base64(self.members.ca_pem()).into();
        let config = (EXEC_EXTENSION, json!({"name": name}));
        extended(profile, &[&[config], more].concat())
    }

    /// What the plugin was run with, sorted.
    fn runs(&self) -> Vec<String> {
        let runs = fs::read_to_string(self.folder.0.join("runs")).unwrap_or_default();
        let mut runs: Vec<String> = runs.lines().map(str::to_owned).collect();
        runs.sort();
        runs
    }

    async fn ready(&self, name: &str) {
        eventually(&format!("{name} is ready"), || {
            self.state(name).is_some_and(|state| state == ClusterState::Ready)
        })
        .await;
    }

    fn state(&self, name: &str) -> Option<ClusterState> {
        self.fleet.get(name).ok().map(|cluster| cluster.state())
    }

    fn lists(&self, name: &str) -> usize {
        let member = self.members.get(name).unwrap();
        member.audit().count(|event| event.is_list("configmaps"))
    }
}

async fn eventually(what: &str, so: impl FnMut() -> bool) {
    waiting::eventually(PATIENCE, what, so).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inventory_17_arguments_and_environment_of_a_profile_never_reach_the_plugin_of_another() {
    let world = World::new(&["a", "b", "c"]).await;
    let tenant = |tenant: &str| {
        [
            (ARGS_EXTENSION, json!(["--tenant", tenant])),
            (ENV_EXTENSION, json!({"TENANT": tenant})),
        ]
    };
    world.hub.create(world.profile("a", &tenant("A"))).unwrap();
    world.ready("a").await;
    world.hub.create(world.profile("b", &tenant("B")[..1])).unwrap();
    world.ready("b").await;
    world.hub.create(world.profile("c", &[])).unwrap();
    world.ready("c").await;
    assert_eq!(
        world.runs(),
        ["get --tenant A|A|a", "get --tenant B||b", "get||c"]
    );
    // The first one again, as itself.
    world.hub.apply(world.profile("a", &tenant("AA"))).unwrap();
    let again = "get --tenant AA|AA|a".to_owned();
    eventually("the new arguments are used", || world.runs().contains(&again)).await;
    let runs = world.runs();
    assert_eq!(
        runs,
        [
            "get --tenant AA|AA|a",
            "get --tenant A|A|a",
            "get --tenant B||b",
            "get||c"
        ]
    );
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inventory_17_a_thousand_status_only_updates_engage_nothing_anew_and_list_nothing() {
    let world = World::new(&["a"]).await;
    world.hub.create(world.profile("a", &[])).unwrap();
    world.ready("a").await;
    let cluster = world.fleet.get("a").unwrap();
    let maps = cluster.watch(WatchRequest::of::<ConfigMap>(), None).unwrap();
    eventually("its objects are listed", || maps.status().synced).await;
    let (hub, member) = (world.hub.audit().mark(), world.members.get("a").unwrap());
    let before = member.audit().mark();
    for beat in 0..1000 {
        change(&world.hub, PROFILES, "default/a", |there| {
            let time = format!(
                "2026-01-01T{:02}:{:02}:{:02}Z",
                beat / 3600,
                beat / 60 % 60,
                beat % 60
            );
            there["status"]["conditions"] =
                json!([condition("ControlPlaneHealthy", "True", &format!("beat {beat}"))]);
            there["status"]["conditions"][0]["lastTransitionTime"] = time.clone().into();
            there["status"]["properties"][0]["lastObservedTime"] = time.into();
        });
    }
    change(&world.hub, PROFILES, "default/a", |there| {
        there["status"]["properties"][0]["value"] = "last".into();
    });
    eventually("the last one has arrived", || {
        world
            .fleet
            .get("a")
            .is_ok_and(|cluster| cluster.property("region").as_deref() == Some("last"))
    })
    .await;
    let now = world.fleet.get("a").unwrap();
    assert!(now.is_same(&cluster), "it was never engaged anew");
    assert_eq!(now.state(), ClusterState::Ready);
    assert_eq!(
        world.hub.audit().since(hub).count(|event| event.verb == "list"),
        0,
        "in the hub"
    );
    assert_eq!(
        member.audit().since(before).count(|event| event.verb == "list"),
        0,
        "in the member"
    );
    assert_eq!(world.lists("a"), 1);
    assert_eq!(world.runs(), ["get||a"]);
    drop(maps);
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inventory_17_a_plugin_runs_once_until_its_credential_is_refused() {
    let world = World::new(&["a", "b"]).await;
    for name in ["a", "b"] {
        world.hub.create(world.profile(name, &[])).unwrap();
        world.ready(name).await;
    }
    let cluster = world.fleet.get("a").unwrap();
    let maps = cluster.watch(WatchRequest::of::<ConfigMap>(), None).unwrap();
    eventually("its objects are listed", || maps.status().synced).await;
    assert_eq!(world.runs(), ["get||a", "get||b"]);
    // The token of one cluster is revoked, and the plugin has another one.
    let member = world.members.get("a").unwrap();
    member.set_user("second", SimUser::new("second").rule(SimRule::all()));
    fs::write(world.folder.0.join("a"), "second").unwrap();
    assert!(member.remove_user(&member.admin_token()));
    member.end_watches();
    eventually("the new token is used", || {
        member
            .audit()
            .count(|event| event.user == "second" && event.is_watch_start("configmaps"))
            > 0
    })
    .await;
    assert_eq!(world.runs(), ["get||a", "get||a", "get||b"]);
    assert_eq!(world.lists("a"), 1, "no LIST but the first");
    assert!(world.fleet.get("a").unwrap().is_same(&cluster));
    drop(maps);
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inventory_17_a_plugin_runs_again_when_its_credential_has_expired() {
    let world = World::with(&["a"], |folder| {
        // Only the first credential has an end, which has passed.
        let expired = r#"MORE=',"expirationTimestamp":"2020-01-01T00:00:00Z"'"#;
        format!("[ -e {}/runs ] || {expired}", folder.0.display())
    })
    .await;
    world.hub.create(world.profile("a", &[])).unwrap();
    world.ready("a").await;
    let cluster = world.fleet.get("a").unwrap();
    let maps = cluster.watch(WatchRequest::of::<ConfigMap>(), None).unwrap();
    eventually("its objects are listed", || maps.status().synced).await;
    eventually("the plugin is run again", || world.runs().len() > 1).await;
    // A watch that begins again needs a credential, and the second one is good for ever.
    let member = world.members.get("a").unwrap();
    let begun = || member.audit().count(|event| event.is_watch_start("configmaps"));
    eventually("its objects are watched", || begun() > 0).await;
    let before = begun();
    member.end_watches();
    eventually("its objects are watched again", || begun() > before).await;
    assert_eq!(world.runs(), ["get||a", "get||a"]);
    assert!(world.fleet.get("a").unwrap().is_same(&cluster));
    drop(maps);
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_access_provider_or_another_program_of_it_takes_over_below_the_running_watches() {
    let world = World::new(&["a"]).await;
    world.hub.create(world.profile("a", &[])).unwrap();
    world.ready("a").await;
    let cluster = world.fleet.get("a").unwrap();
    let maps = cluster.watch(WatchRequest::of::<ConfigMap>(), None).unwrap();
    eventually("its objects are listed", || maps.status().synced).await;
    let mut other = world.profile("a", &[]);
    other["status"]["accessProviders"][0]["name"] = "other".into();
    world.hub.apply(other).unwrap();
    eventually("the other one is run", || world.runs() == ["get||a", "other||a"]).await;
    // Its program is upgraded. The credential that it gave goes on to be used until it is refused.
    let member = world.members.get("a").unwrap();
    member.set_user("upgraded", SimUser::new("upgraded").rule(SimRule::all()));
    world.folder.plugin(
        "printf '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\
         \"status\":{\"token\":\"upgraded\"}}'",
    );
    assert!(member.remove_user(&member.admin_token()));
    member.end_watches();
    eventually("the new program is run", || {
        member
            .audit()
            .count(|event| event.user == "upgraded" && event.is_watch_start("configmaps"))
            > 0
    })
    .await;
    assert_eq!(world.lists("a"), 1, "no LIST but the first");
    assert!(world.fleet.get("a").unwrap().is_same(&cluster));
    drop(maps);
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inventory_17_a_cluster_that_is_unhealthy_for_a_while_is_the_same_one_afterwards() {
    let world = World::new(&["a"]).await;
    world.hub.create(world.profile("a", &[])).unwrap();
    world.ready("a").await;
    let cluster = world.fleet.get("a").unwrap();
    let maps = cluster.watch(WatchRequest::of::<ConfigMap>(), None).unwrap();
    eventually("its objects are listed", || maps.status().synced).await;
    let health = |status: &'static str| {
        change(&world.hub, PROFILES, "default/a", |there| {
            there["status"]["conditions"][0]["status"] = status.into();
        });
    };
    health("False");
    eventually("it is suspended", || {
        matches!(world.state("a"), Some(ClusterState::Suspended { reason }) if reason.contains("ControlPlaneHealthy is False"))
    })
    .await;
    let member = world.members.get("a").unwrap();
    eventually("nothing is watched", || member.watches() == 0).await;
    health("True");
    world.ready("a").await;
    assert!(
        world.fleet.get("a").unwrap().is_same(&cluster),
        "it kept what it knew"
    );
    eventually("its objects are watched again", || member.watches() == 1).await;
    assert_eq!(world.lists("a"), 1, "the watch goes on where it was");
    drop(maps);
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_the_fleet_does_not_allow_is_never_run() {
    let folder = Folder::new();
    let ran: PathBuf = folder.0.join("ran");
    let plugin = folder.plugin(&format!("touch {}", ran.display()));
    let hub = hub();
    hub.create(profile("default", "a", "https://192.0.2.1:1"))
        .unwrap();
    let config = AccessProviderConfig::new("p", plugin.to_str().unwrap());
    let provider = timed(ClusterInventoryProvider::builder())
        .client(client(&hub))
        .access_providers(AccessProviders::new([config]).unwrap())
        // The provider's own policy allows more than the fleet's.
        .access_policy(locally(&[&plugin]))
        .build()
        .unwrap();
    let fleet = Fleet::builder().provider(provider).build();
    let running = Background::start({
        let fleet = fleet.clone();
        |stop| async move { fleet.run(stop).await }
    });
    eventually("the reason is shown", || {
        format!("{:?}", fleet.snapshot().clusters).contains("AccessPolicy::credential_plugins")
    })
    .await;
    assert!(!ran.exists());
    running.stop().await;
}
