//! What happens to a Shoot, and what is told of it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use mcr_core::{Access, Change};
use mcr_garden_double::{Garden, Issued};
use mcr_testkit::{
    discovery::address_and_token,
    sim::{SimCluster, SimFleet},
    waiting::eventually,
};
use serde_json::json;
use support::{PATIENCE, Received, World, hour, kubeconfig};

fn operation(type_: &str, state: &str) -> serde_json::Value {
    json!({"type": type_, "state": state, "progress": 40, "description": "what happened"})
}

#[tokio::test]
async fn a_life_is_reported_step_by_step() {
    let world = World::new();
    world.answers("one", hour(&kubeconfig("first")));
    let mut shoot = Garden::shoot("garden-dev", "one");
    let done = shoot["status"].take();
    world.server.create(shoot).unwrap();
    let mut received = world.received();
    assert_eq!(received.line().await, "~dev/one: its creation has not begun");
    assert_eq!(received.line().await, "synced");
    let operation_is = |type_, state| {
        world.change("one", |shoot| {
            shoot["status"]["lastOperation"] = operation(type_, state);
        });
    };
    operation_is("Create", "Processing");
    assert_eq!(received.line().await, "~dev/one: it is being created (40 %)");
    operation_is("Create", "Error");
    assert_eq!(
        received.line().await,
        "~dev/one: its creation has failed and is tried again: what happened"
    );
    operation_is("Create", "Failed");
    assert_eq!(
        received.line().await,
        "~dev/one: its creation has failed: what happened"
    );
    // As after a creation that was stopped for a while.
    operation_is("Reconcile", "Processing");
    assert_eq!(
        received.line().await,
        "~dev/one: its API server has no address yet"
    );
    assert_eq!(world.garden.asked("garden-dev/one"), 0, "it is not there yet");
    world.change("one", |shoot| shoot["status"] = done);
    assert_eq!(received.line().await, "+dev/one");
    // What Gardener does to a cluster that runs is no news.
    operation_is("Reconcile", "Error");
    operation_is("Reconcile", "Failed");

    let hibernate = |wanted: bool, is: bool| {
        world.change("one", |shoot| {
            shoot["spec"]["hibernation"] = json!({"enabled": wanted});
            shoot["status"]["hibernated"] = is.into();
        });
    };
    hibernate(true, false);
    assert_eq!(received.line().await, "~dev/one: it is going into hibernation");
    hibernate(true, true);
    assert_eq!(received.line().await, "~dev/one: it is hibernated");
    hibernate(false, true);
    assert_eq!(
        received.line().await,
        "~dev/one: it is waking up from hibernation"
    );
    let asked = world.garden.asked("garden-dev/one");
    assert_eq!(asked, 1, "none for a suspended one");
    hibernate(false, false);
    assert_eq!(received.line().await, "+dev/one");

    // Migrated to another seed: no step is told but the new description and kubeconfig.
    operation_is("Migrate", "Processing");
    world.answers("one", hour(&kubeconfig("second")));
    world.change("one", |shoot| {
        shoot["status"]["seedName"] = "seed-b".into();
        shoot["status"]["lastOperation"] = operation("Restore", "Processing");
    });
    assert_eq!(received.line().await, "+dev/one", "on another seed");
    let Change::Upsert(spec) = received.next().await else {
        panic!("no kubeconfig of the new seed");
    };
    assert_eq!(spec.properties["seed"], "seed-b");
    assert!(address_and_token(&spec.access).contains("second"));

    world.delete("one");
    assert_eq!(received.line().await, "-dev/one");
    world.add("one");
    assert_eq!(received.line().await, "+dev/one");
}

#[tokio::test]
async fn one_that_was_never_engaged_waits_until_its_control_plane_has_moved() {
    let world = World::new();
    world.add("one");
    world.change("one", |shoot| {
        shoot["status"]["lastOperation"] = operation("Migrate", "Processing");
    });
    let mut received = world.received();
    assert_eq!(
        received.line().await,
        "~dev/one: its control plane leaves seed seed-a"
    );
}

/// While its reconciliations are stopped, Gardener writes an operation without a type.
#[tokio::test]
async fn one_whose_creation_is_held_back_is_not_created() {
    let world = World::new();
    world.add("one");
    world.change("one", |shoot| {
        shoot["status"]["lastOperation"] = json!({"state": "Pending"});
    });
    let mut received = world.received();
    assert_eq!(received.line().await, "~dev/one: its creation has not begun");
    assert_eq!(world.garden.asked("garden-dev/one"), 0);
}

/// The garden issues no kubeconfig for it, but the one in use may still work.
#[tokio::test]
async fn one_that_runs_stays_connected_while_its_addresses_are_not_reported() {
    let world = World::new();
    world.add("one");
    let mut received = world.received();
    assert_eq!(received.until("synced").await, ["+dev/one", "synced"]);
    world.answers("one", Issued::refused(422, "no addresses"));
    world.change("one", |shoot| {
        shoot["status"]["advertisedAddresses"] = json!([]);
        shoot["metadata"]["labels"] = json!({"tier": "gold"});
    });
    assert_eq!(received.line().await, "+dev/one", "with its new label");
}

#[tokio::test]
async fn a_garden_that_refuses_is_reported_and_asked_again() {
    let world = World::new();
    world.add("one");
    world.answers("one", Issued::refused(403, "no"));
    let mut received = world.received();
    assert_eq!(
        received.until("synced").await,
        [
            "!dev/one: Shoot garden-dev/one: the garden refused adminkubeconfig with 403; grant the verb create on \
             shoots/adminkubeconfig in namespace garden-dev to the client of the garden",
            "synced"
        ]
    );
    world.answers("one", hour(&kubeconfig("one")));
    assert_eq!(received.line().await, "+dev/one");
    // One that wakes up stays suspended as long as the garden refuses. It is no cluster that was removed.
    world.change("one", |shoot| {
        shoot["spec"]["hibernation"] = json!({"enabled": true})
    });
    assert_eq!(received.line().await, "~dev/one: it is going into hibernation");
    world.answers("one", Issued::refused(500, "no"));
    world.change("one", |shoot| shoot["spec"]["hibernation"] = json!({}));
    assert_eq!(
        received.line().await,
        "~dev/one: it is ready, but there is no kubeconfig: the garden refused adminkubeconfig with 500"
    );
    world.answers("one", hour(&kubeconfig("one")));
    assert_eq!(received.line().await, "+dev/one");
}

#[tokio::test]
async fn an_unusable_kubeconfig_is_reported_and_the_last_one_stays_in_use() {
    let world = World::new();
    world.add("a");
    let mut received = world.received();
    assert_eq!(received.until("synced").await, ["+dev/a", "synced"]);
    let plugin = kubeconfig("t").replace(
        r#""token":"t""#,
        r#""exec":{"command":"secret-command","apiVersion":"client.authentication.k8s.io/v1"}"#,
    );
    world.answers("a", hour(&plugin));
    world.change("a", |shoot| shoot["status"]["seedName"] = "seed-b".into());
    assert_eq!(
        received.line().await,
        "+dev/a",
        "on another seed, with the last kubeconfig"
    );
    let reported = received.line().await;
    assert!(
        reported.starts_with("!dev/a: Shoot garden-dev/a: the kubeconfig of the Shoot can't be used: "),
        "{reported}"
    );
    world.answers("a", hour(&kubeconfig("t2")));
    assert_eq!(received.line().await, "+dev/a");
}

#[tokio::test]
async fn a_kubeconfig_for_another_address_is_tried_before_it_replaces_one_that_works() {
    let member = SimCluster::builder().name("a").build();
    let members = SimFleet::serve([member.clone()]).await.unwrap();
    let good = members.kubeconfig("a").unwrap();
    let world = World::new();
    world.add("a");
    world.answers("a", hour(&good));
    let mut received = world.received();
    received.until("synced").await;
    let phase = |phase: &str| {
        world.change("a", |shoot| {
            shoot["status"]["credentials"] =
                json!({"rotation": {"certificateAuthorities": {"phase": phase}}});
        });
    };
    world.answers("a", hour(&kubeconfig("leads-nowhere")));
    phase("Prepared");
    let asked = || world.garden.asked("garden-dev/a") >= 4;
    tokio::select! {
        reported = received.next() => panic!("{reported:?}"),
        () = eventually(PATIENCE, "it is asked again and again", asked) => {}
    }
    let newer = format!("{good}\n# newer");
    world.answers("a", hour(&newer));
    let Change::Upsert(spec) = received.next().await else {
        panic!("no new kubeconfig");
    };
    assert!(matches!(spec.access, Access::Endpoint(_)));
    // If the one in use does not work either, the new one replaces it.
    members.remove("a");
    world.answers("a", hour(&kubeconfig("leads-elsewhere")));
    phase("Completed");
    assert_eq!(received.line().await, "+dev/a");
}

#[tokio::test]
async fn names_are_those_of_projects_and_shoots() {
    let world = World::new();
    world
        .server
        .create(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "projects.core.gardener.cloud"},
            "spec": {
                "group": "core.gardener.cloud", "scope": "Cluster",
                "names": {"kind": "Project", "listKind": "ProjectList", "plural": "projects", "singular": "project"},
                "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}],
            },
        }))
        .unwrap();
    for (name, namespace) in [("core", "garden-core"), ("other", "elsewhere")] {
        world
            .server
            .create(json!({
                "apiVersion": "core.gardener.cloud/v1beta1", "kind": "Project",
                "metadata": {"name": name}, "spec": {"namespace": namespace},
            }))
            .unwrap();
    }
    // By the label, by the Project, and the namespace itself.
    let all = [
        ("garden-dev", "dev"),
        ("garden-core", "core"),
        ("garden-other", "garden-other"),
    ];
    for (namespace, _) in all {
        if namespace != "garden-dev" {
            world.namespace(namespace, None);
        }
        world.server.create(Garden::shoot(namespace, "one")).unwrap();
    }
    world.answers("one", hour(&kubeconfig("one")));
    let provider = world.builder().all_namespaces().build().unwrap();
    let mut reported = Received::of(&provider).until("synced").await;
    reported.sort();
    let mut names: Vec<String> = all.iter().map(|(_, project)| format!("+{project}/one")).collect();
    names.push("synced".into());
    names.sort();
    assert_eq!(reported, names);
}

#[tokio::test]
async fn shoots_are_selected_by_what_they_are() {
    let world = World::new();
    world.namespace("garden-core", Some("core"));
    for name in ["a", "b"] {
        world.add(name);
    }
    world.server.create(Garden::shoot("garden-core", "a")).unwrap();
    world.change("b", |shoot| {
        shoot["spec"]["purpose"] = "production".into();
        shoot["spec"]["cloudProfile"]["name"] = "aws".into();
        shoot["status"]["seedName"] = "seed-b".into();
    });
    let all = || world.builder().all_namespaces();
    for (builder, reported) in [
        (all().projects(["core"]), vec!["+core/a"]),
        (all().purposes(["production"]), vec!["+dev/b"]),
        (all().seeds(["seed-b"]), vec!["+dev/b"]),
        (all().cloud_profiles(["aws", "gcp"]), vec!["+dev/b"]),
        (
            all().select(|shoot| shoot.metadata.name.as_deref() == Some("a")),
            vec!["+core/a", "+dev/a"],
        ),
    ] {
        let provider = builder.build().unwrap();
        let mut received = Received::of(&provider).until("synced").await;
        received.pop();
        received.sort();
        assert_eq!(received, reported, "{provider:?}");
    }
}
