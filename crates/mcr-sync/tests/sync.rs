//! Syncs on simulated API servers.
#![allow(clippy::unwrap_used)]

mod world;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DynamicObject;
use mcr::{Access, ClusterSelector, ClusterSpec};
use mcr_sync::BuildError;
use mcr_testkit::{
    sim::{SimCluster, SimRule, SimUser},
    waiting::eventually,
};
use serde_json::json;

use crate::world::*;

#[tokio::test]
async fn sync_names_of_two_source_clusters_do_not_collide_and_each_follows_its_source() {
    let mut world = World::new();
    world.team_a.create(map("db", json!({"size": "1"}))).unwrap();
    world.team_b.create(map("db", json!({"size": "2"}))).unwrap();
    world.start(to_berlin());
    data(&world.berlin, &world.team_a, "db", json!({"size": "1"})).await;
    data(&world.berlin, &world.team_b, "db", json!({"size": "2"})).await;
    world.team_a.delete("configmaps", "default/db").unwrap();
    gone(&world.berlin, &key("team-a", "db")).await;
    gone(&world.team_a, "default/db").await;
    data(&world.berlin, &world.team_b, "db", json!({"size": "2"})).await;
    world.stop().await;
}

#[tokio::test]
async fn sync_spec_down_repairs_drift_removes_what_it_owned_and_keeps_the_fields_of_others() {
    let mut world = World::new();
    world
        .team_a
        .create(map("db", json!({"size": "1", "old": "x"})))
        .unwrap();
    world.start(to_berlin());
    let mut live = data(
        &world.berlin,
        &world.team_a,
        "db",
        json!({"size": "1", "old": "x"}),
    )
    .await;
    live["data"] = json!({"size": "drift", "old": "x", "theirs": "kept"});
    live["metadata"]["labels"]["theirs"] = "kept".into();
    world.berlin.update(live).unwrap();
    data(
        &world.berlin,
        &world.team_a,
        "db",
        json!({"size": "1", "old": "x", "theirs": "kept"}),
    )
    .await;
    let mut source = world.team_a.get("configmaps", "default/db").unwrap();
    source["data"] = json!({"size": "2"});
    world.team_a.update(source).unwrap();
    let live = data(
        &world.berlin,
        &world.team_a,
        "db",
        json!({"size": "2", "theirs": "kept"}),
    )
    .await;
    assert_eq!(live["metadata"]["labels"]["theirs"], "kept");
    // A target that is deleted is made again.
    world.berlin.delete("configmaps", &key("team-a", "db")).unwrap();
    data(&world.berlin, &world.team_a, "db", json!({"size": "2"})).await;
    world.stop().await;
}

#[tokio::test]
async fn sync_object_of_somebody_else_is_not_touched_unless_the_rule_allows_it() {
    for adopted in [false, true] {
        let mut world = World::new();
        let taken = key("team-a", "db").replace("default/", "");
        world
            .berlin
            .create(map(&taken, json!({"size": "theirs", "more": "x"})))
            .unwrap();
        let before = target(&world.berlin, &world.team_a, "db");
        world.team_a.create(map("db", json!({"size": "1"}))).unwrap();
        world.start(to_berlin().adopt(move |_| adopted));
        if adopted {
            data(
                &world.berlin,
                &world.team_a,
                "db",
                json!({"size": "1", "more": "x"}),
            )
            .await;
        } else {
            // The sync has looked at the object. The deletion of the source that follows must not reach it either.
            let is_read = || {
                world
                    .berlin
                    .audit()
                    .count(|event| event.verb == "get" && event.name == taken)
                    > 0
            };
            eventually(LIMIT, "a look at the object", || is_read().then_some(())).await;
            world.team_a.delete("configmaps", "default/db").unwrap();
            gone(&world.team_a, "default/db").await;
            assert_eq!(target(&world.berlin, &world.team_a, "db"), before);
        }
        world.stop().await;
    }
}

#[tokio::test]
async fn sync_restart_writes_nothing_and_finds_what_happened_meanwhile() {
    let mut world = World::new();
    for at in 0..10 {
        world
            .team_a
            .create(map(&format!("db-{at}"), json!({"size": "1"})))
            .unwrap();
    }
    world.start(to_berlin());
    for at in 0..10 {
        data(
            &world.berlin,
            &world.team_a,
            &format!("db-{at}"),
            json!({"size": "1"}),
        )
        .await;
    }
    world.stop().await;
    let before = (writes(&world.team_a), writes(&world.berlin));
    world.team_a.create(map("last", json!({"size": "1"}))).unwrap();
    world.start(to_berlin());
    data(&world.berlin, &world.team_a, "last", json!({"size": "1"})).await;
    world.stop().await;
    let after = (writes(&world.team_a), writes(&world.berlin));
    assert_eq!(
        (after.0 - before.0, after.1 - before.1),
        (1, 1),
        "the record and the target of `last`"
    );

    // A deletion while the program does not run waits for it.
    world.team_a.delete("configmaps", "default/last").unwrap();
    assert!(world.team_a.get("configmaps", "default/last").is_some());
    world.start(to_berlin());
    gone(&world.team_a, "default/last").await;
    assert!(
        target(&world.berlin, &world.team_a, "last").is_none(),
        "the target goes first"
    );
    world.stop().await;
}

#[tokio::test]
async fn sync_source_cluster_that_leaves_deletes_nothing() {
    let mut world = World::new();
    world.team_a.create(map("db", json!({"size": "1"}))).unwrap();
    world.start(to_berlin());
    data(&world.berlin, &world.team_a, "db", json!({"size": "1"})).await;
    world.clusters.remove("team-a");
    // Another source makes the round after it.
    world.team_b.create(map("db", json!({"size": "2"}))).unwrap();
    data(&world.berlin, &world.team_b, "db", json!({"size": "2"})).await;
    assert!(target(&world.berlin, &world.team_a, "db").is_some());
    world.stop().await;
    assert_eq!(world.berlin.audit().count(|event| event.verb == "delete"), 0);
}

#[tokio::test]
async fn sync_target_cluster_that_is_away_holds_the_source_until_it_is_back_or_abandoned() {
    let mut world = World::new();
    for source in ["db", "lost"] {
        world.team_a.create(map(source, json!({"size": "1"}))).unwrap();
    }
    world.start(to_berlin());
    for source in ["db", "lost"] {
        data(&world.berlin, &world.team_a, source, json!({"size": "1"})).await;
    }
    world.clusters.remove("berlin");
    for source in ["db", "lost"] {
        world
            .team_a
            .delete("configmaps", &format!("default/{source}"))
            .unwrap();
    }
    let mut lost = world.team_a.get("configmaps", "default/lost").unwrap();
    lost["metadata"]["annotations"][mcr_sync::ABANDON] = "berlin".into();
    world.team_a.update(lost).unwrap();
    gone(&world.team_a, "default/lost").await;
    assert!(
        world.team_a.get("configmaps", "default/db").is_some(),
        "it waits for berlin"
    );
    world.clusters.add(spec(&world.berlin, "target"));
    gone(&world.team_a, "default/db").await;
    assert!(target(&world.berlin, &world.team_a, "db").is_none());
    assert!(
        target(&world.berlin, &world.team_a, "lost").is_some(),
        "abandoned"
    );
    world.stop().await;
}

#[tokio::test]
async fn sync_placement_moves_the_new_target_first() {
    let mut world = World::new();
    let place = |map: &ConfigMap, _: &mcr::Cluster, _: &mcr::Fleet| {
        let at = map.data.as_ref().and_then(|data| data.get("at"));
        at.into_iter().map(|at| name(at)).collect()
    };
    world
        .team_a
        .create(map("db", json!({"size": "1", "at": "berlin"})))
        .unwrap();
    world.start(maps().place(ClusterSelector::label("role", "target"), place));
    data(
        &world.berlin,
        &world.team_a,
        "db",
        json!({"size": "1", "at": "berlin"}),
    )
    .await;
    // While the new cluster is away, the former target stays.
    world.clusters.remove("lyon");
    let mut source = world.team_a.get("configmaps", "default/db").unwrap();
    source["data"]["at"] = "lyon".into();
    world.team_a.update(source).unwrap();
    let recorded = || {
        let source = world.team_a.get("configmaps", "default/db")?;
        source["metadata"]["annotations"]["sync.mcr.dev/placed.maps"]
            .as_str()?
            .contains("lyon")
            .then_some(())
    };
    eventually(LIMIT, "lyon in the record", recorded).await;
    assert!(target(&world.berlin, &world.team_a, "db").is_some());
    world.clusters.add(spec(&world.lyon, "target"));
    data(
        &world.lyon,
        &world.team_a,
        "db",
        json!({"size": "1", "at": "lyon"}),
    )
    .await;
    gone(&world.berlin, &key("team-a", "db")).await;
    let forgotten = || {
        let source = world.team_a.get("configmaps", "default/db")?;
        let record = source["metadata"]["annotations"]["sync.mcr.dev/placed.maps"].as_str()?;
        (!record.contains("berlin")).then_some(())
    };
    eventually(LIMIT, "berlin is no longer in the record", forgotten).await;
    world.stop().await;
}

#[tokio::test]
async fn sync_to_each_serves_a_cluster_that_joins_and_a_source_that_is_no_longer_selected_is_released() {
    let mut world = World::new();
    world.team_a.create(map("db", json!({"size": "1"}))).unwrap();
    world.start(maps().to_each(ClusterSelector::label("role", "target")));
    data(&world.berlin, &world.team_a, "db", json!({"size": "1"})).await;
    data(&world.lyon, &world.team_a, "db", json!({"size": "1"})).await;
    let paris = SimCluster::builder().name("paris").build();
    world.clusters.add(spec(&paris, "target"));
    data(&paris, &world.team_a, "db", json!({"size": "1"})).await;
    let mut source = world.team_a.get("configmaps", "default/db").unwrap();
    source["data"] = json!({});
    world.team_a.update(source).unwrap();
    for cluster in [&world.berlin, &world.lyon, &paris] {
        gone(cluster, &key("team-a", "db")).await;
    }
    let released = || {
        let source = world.team_a.get("configmaps", "default/db")?;
        source["metadata"]["finalizers"].is_null().then_some(source)
    };
    let source = eventually(LIMIT, "the release", released).await;
    assert!(source["metadata"]["annotations"]["sync.mcr.dev/placed.maps"].is_null());
    world.stop().await;
}

#[tokio::test]
async fn sync_status_comes_up_with_a_condition_and_nothing_is_written_without_a_difference() {
    let mut world = World::new();
    for cluster in [&world.team_a, &world.team_b, &world.berlin, &world.lyon] {
        cluster.create(widget_crd(json!({"status": {}}))).unwrap();
    }
    world.team_a.create(widget(json!({"size": 1}))).unwrap();
    world.start(widget_sync());
    let at = key("team-a", "w");
    let target = eventually(LIMIT, "the target", || {
        world.berlin.get("widgets.example.com", &at)
    })
    .await;
    assert_eq!(
        target["spec"],
        json!({"size": 1, "tier": "basic"}),
        "with the default of the server"
    );
    let client = world.berlin.client();
    let api = kube::Api::<DynamicObject>::namespaced_with(client, "default", &widgets());
    let patch = kube::api::Patch::Merge(json!({"status": {"phase": "Running"}}));
    let target_name = at.trim_start_matches("default/");
    api.patch_status(target_name, &Default::default(), &patch)
        .await
        .unwrap();
    let up = || {
        let status = world.team_a.get("widgets.example.com", "default/w")?["status"].clone();
        (status["phase"] == "Running").then_some(status)
    };
    let status = eventually(LIMIT, "the phase", up).await;
    assert_eq!(status["at"], "berlin");
    let condition = synced(&world).unwrap();
    assert_eq!(
        (&condition["status"], &condition["observedGeneration"]),
        (&json!("True"), &json!(1))
    );
    world.stop().await;
    let before = writes(&world.team_a) + writes(&world.berlin);
    world.start(widget_sync());
    let patch = kube::api::Patch::Merge(json!({"status": {"phase": "Stopped"}}));
    api.patch_status(target_name, &Default::default(), &patch)
        .await
        .unwrap();
    let up = || {
        (world.team_a.get("widgets.example.com", "default/w")?["status"]["phase"] == "Stopped").then_some(())
    };
    eventually(LIMIT, "the other phase", up).await;
    world.stop().await;
    let after = writes(&world.team_a) + writes(&world.berlin);
    assert_eq!(
        after - before,
        2,
        "the test's write to the target and the new status"
    );
}

#[tokio::test]
async fn sync_bad_input_is_told_and_mended_and_others_go_on() {
    let mut world = World::new();
    for cluster in [&world.team_a, &world.team_b, &world.berlin, &world.lyon] {
        cluster.create(widget_crd(json!({"status": {}}))).unwrap();
    }
    world.team_a.create(widget(json!({"bad": true}))).unwrap();
    world.team_b.create(widget(json!({"size": 1}))).unwrap();
    world.start(widget_sync());
    let told = |reason: &'static str| {
        let world = &world;
        move || synced(world).filter(|condition| condition["reason"] == reason)
    };
    let condition = eventually(LIMIT, "the failed projection", told("FunctionFailed")).await;
    assert!(
        condition["message"]
            .as_str()
            .unwrap()
            .ends_with("the size is missing"),
        "{condition}"
    );
    eventually(LIMIT, "the other one", || {
        world.berlin.get("widgets.example.com", &key("team-b", "w"))
    })
    .await;
    let mut source = world.team_a.get("widgets.example.com", "default/w").unwrap();
    source["spec"] = json!({"size": 2});
    world.team_a.update(source).unwrap();
    eventually(LIMIT, "the mended one", told("Synced")).await;
    assert!(
        world
            .berlin
            .get("widgets.example.com", &key("team-a", "w"))
            .is_some()
    );
    world.stop().await;
}

#[tokio::test]
async fn sync_target_cluster_without_rights_is_told_in_a_condition() {
    let mut world = World::new();
    for cluster in [&world.team_a, &world.team_b, &world.berlin, &world.lyon] {
        cluster.create(widget_crd(json!({"status": {}}))).unwrap();
    }
    world.team_a.create(widget(json!({"size": 1}))).unwrap();
    let reader =
        |verbs: &[&str]| SimUser::new("reader").rule(SimRule::new(["*"], ["*"], verbs.iter().copied()));
    world.berlin.set_user("reader", reader(&["get", "list", "watch"]));
    world.start(widget_sync());
    let access = Access::from(world.berlin.client_with_token("reader"));
    world.clusters.add(
        ClusterSpec::named("berlin", access)
            .unwrap()
            .label("role", "target"),
    );
    let told = || synced(&world).filter(|condition| condition["status"] == "False");
    let condition = eventually(LIMIT, "the refusal", || {
        told().filter(|condition| condition["reason"] == "RequestFailed")
    })
    .await;
    assert!(
        condition["message"]
            .as_str()
            .unwrap()
            .starts_with("could not create cluster://berlin/default/w-"),
        "{condition}"
    );
    world.berlin.set_user("reader", reader(&["*"]));
    eventually(LIMIT, "the target", || {
        world.berlin.get("widgets.example.com", &key("team-a", "w"))
    })
    .await;
    world.stop().await;
}

#[test]
fn a_sync_that_makes_no_sense_is_not_built() {
    let error = |sync: Maps| sync.build().unwrap_err();
    assert!(matches!(
        error(Maps::new("x").mirror()),
        BuildError::NoPlacement(_)
    ));
    assert!(matches!(
        error(Maps::new("x").to(name("berlin"))),
        BuildError::NoProjection(_)
    ));
    let orphans = |sync: Maps| sync.delete_orphans_after(LIMIT).unwrap_err();
    assert!(matches!(orphans(to_berlin()), BuildError::NoOwner(_)));
    assert!(matches!(orphans(to_berlin().owner("EU")), BuildError::Owner(_)));
    assert!(matches!(error(to_berlin().owner("EU")), BuildError::Owner(_)));
    for bad in ["", "A", "-a", "a_b", &"a".repeat(51)] {
        assert!(
            matches!(
                error(Maps::new(bad).mirror().to(name("berlin"))),
                BuildError::Name(_)
            ),
            "{bad}"
        );
    }
}

#[tokio::test]
async fn sync_kind_without_a_status_subresource_is_an_error_before_anything_is_written() {
    let mut world = World::new();
    world.team_a.create(widget_crd(json!({}))).unwrap();
    for cluster in [&world.team_b, &world.berlin, &world.lyon] {
        cluster.create(widget_crd(json!({"status": {}}))).unwrap();
    }
    for source in [&world.team_a, &world.team_b] {
        source.create(widget(json!({"size": 1}))).unwrap();
    }
    let controller = widget_sync()
        .from(ClusterSelector::label("role", "source"))
        .build()
        .unwrap();
    let handle = controller.handle();
    world.run([controller], "");
    let told = || {
        let clusters = handle.status().clusters.into_iter();
        clusters
            .flat_map(|(_, status)| status.failing)
            .find(|request| request.error.contains("has no status subresource"))
    };
    let failing = eventually(LIMIT, "the error", told).await;
    assert!(failing.retry_at.is_some(), "the kind may change");
    let of = |source: &str| world.berlin.get("widgets.example.com", &key(source, "w"));
    eventually(LIMIT, "the target of the other cluster", || of("team-b")).await;
    assert_eq!(of("team-a"), None);
    let source = world.team_a.get("widgets.example.com", "default/w").unwrap();
    assert_eq!(source["metadata"]["finalizers"], json!(null));
    // The kind gets the subresource.
    let mut crd = world
        .team_a
        .get(
            "customresourcedefinitions.apiextensions.k8s.io",
            "widgets.example.com",
        )
        .unwrap();
    crd["spec"]["versions"][0]["subresources"] = json!({"status": {}});
    world.team_a.update(crd).unwrap();
    eventually(LIMIT, "the target", || of("team-a")).await;
    world.stop().await;
}

#[tokio::test]
async fn sync_makes_a_missing_namespace_uses_the_template_and_mends_the_link() {
    let mut world = World::new();
    world.team_a.create(map("db", json!({"size": "1"}))).unwrap();
    let template = mcr_sync::NameTemplate::parse("{cluster}-{name}").unwrap();
    world.start(
        to_berlin()
            .namespace(mcr_sync::TargetNamespace::Fixed("dbs".into()))
            .name_by(template),
    );
    let at = || world.berlin.get("configmaps", "dbs/team-a-db");
    let mut live = eventually(LIMIT, "the target", at).await;
    let label = live["metadata"]["labels"]["sync.mcr.dev/sync"].take();
    assert_eq!(label, "maps");
    live["metadata"]["labels"]
        .as_object_mut()
        .unwrap()
        .remove("sync.mcr.dev/sync");
    world.berlin.update(live).unwrap();
    let mended = || at().filter(|live| live["metadata"]["labels"]["sync.mcr.dev/sync"] == "maps");
    eventually(LIMIT, "the label", mended).await;
    world.team_a.delete("configmaps", "default/db").unwrap();
    gone(&world.team_a, "default/db").await;
    assert!(at().is_none());
    world.stop().await;
}
