//! Syncs on simulated API servers.
#![allow(clippy::unwrap_used)]

mod world;

use kube::{Api, api::Patch, core::DynamicObject};
use mcr::{Access, ClusterSelector, ClusterSpec};
use mcr_sync::{NameTemplate, TargetNamespace};
use mcr_testkit::{
    sim::{SimCluster, SimRule, SimUser},
    waiting::eventually,
};
use serde_json::{Value, json};

use crate::world::*;

const MAPS: &str = "configmaps";
const WIDGETS: &str = "widgets.example.com";
const DB: &str = "default/db";

fn size(size: &str) -> Value {
    json!({"size": size})
}

fn annotation(source: &Value) -> &Value {
    &source["metadata"]["annotations"]["sync.mcr.dev/placed.maps"]
}

#[tokio::test(start_paused = true)]
async fn sync_names_of_two_source_clusters_do_not_collide_and_each_follows_its_source() {
    let mut w = World::new();
    make(&w.team_a, "db", size("1"));
    make(&w.team_b, "db", size("2"));
    w.start(to_berlin());
    data(&w.berlin, &w.team_a, "db", size("1")).await;
    data(&w.berlin, &w.team_b, "db", size("2")).await;
    delete(&w.team_a, MAPS, "db");
    gone(&w.berlin, &key("team-a", "db")).await;
    gone(&w.team_a, DB).await;
    rest().await;
    data(&w.berlin, &w.team_b, "db", size("2")).await;
}

#[tokio::test(start_paused = true)]
async fn sync_spec_down_repairs_drift_removes_what_it_owned_and_keeps_the_fields_of_others() {
    let mut w = World::new();
    make(&w.team_a, "db", json!({"size": "1", "old": "x"}));
    w.start(to_berlin());
    data(&w.berlin, &w.team_a, "db", json!({"size": "1", "old": "x"})).await;
    edit(&w.berlin, MAPS, &key("team-a", "db"), |live| {
        live["data"] = json!({"size": "drift", "old": "x", "theirs": "kept"});
        live["metadata"]["labels"]["theirs"] = "kept".into();
    });
    let repaired = json!({"size": "1", "old": "x", "theirs": "kept"});
    data(&w.berlin, &w.team_a, "db", repaired).await;
    set(&w.team_a, "db", size("2"));
    let changed = json!({"size": "2", "theirs": "kept"});
    let live = data(&w.berlin, &w.team_a, "db", changed).await;
    assert_eq!(live["metadata"]["labels"]["theirs"], "kept");
    // A target that is deleted is made again.
    w.berlin.delete(MAPS, &key("team-a", "db")).unwrap();
    data(&w.berlin, &w.team_a, "db", size("2")).await;
}

#[tokio::test(start_paused = true)]
async fn sync_object_of_somebody_else_is_not_touched_unless_the_rule_allows_it() {
    let mut w = World::new();
    for name in ["db", "free"] {
        make(&w.team_a, name, size("1"));
        let taken = key("team-a", name).replace("default/", "");
        make(&w.berlin, &taken, json!({"size": name, "more": "x"}));
    }
    let before = target(&w.berlin, &w.team_a, "db");
    w.start(to_berlin().adopt(|map| map.data.as_ref().unwrap()["size"] == "free"));
    let both = json!({"size": "1", "more": "x"});
    data(&w.berlin, &w.team_a, "free", both).await;
    rest().await;
    // The deletion of the source must not reach it either.
    delete(&w.team_a, MAPS, "db");
    gone(&w.team_a, DB).await;
    assert!(before.is_some());
    assert_eq!(target(&w.berlin, &w.team_a, "db"), before);
}

#[tokio::test(start_paused = true)]
async fn sync_restart_writes_nothing_and_finds_what_happened_meanwhile() {
    let mut w = World::new();
    w.start(to_berlin());
    make(&w.team_a, "db", size("1"));
    data(&w.berlin, &w.team_a, "db", size("1")).await;
    rest().await;
    w.stop().await;
    let before = [&w.team_a, &w.berlin].map(writes);
    make(&w.team_a, "last", size("1"));
    w.start(to_berlin());
    data(&w.berlin, &w.team_a, "last", size("1")).await;
    rest().await;
    w.stop().await;
    let after = [&w.team_a, &w.berlin].map(writes);
    assert_eq!(after, before.map(|writes| writes + 1), "for `last`");

    // A deletion while the program does not run waits for it.
    delete(&w.team_a, MAPS, "last");
    assert!(w.team_a.get(MAPS, "default/last").is_some());
    w.start(to_berlin());
    gone(&w.team_a, "default/last").await;
    let target = target(&w.berlin, &w.team_a, "last");
    assert!(target.is_none(), "the target goes first");
}

#[tokio::test(start_paused = true)]
async fn sync_target_cluster_that_is_away_holds_the_source_until_it_is_back_or_abandoned() {
    let mut w = World::new();
    w.start(to_berlin());
    for name in ["db", "lost"] {
        make(&w.team_a, name, size("1"));
        data(&w.berlin, &w.team_a, name, size("1")).await;
    }
    w.clusters.remove("berlin");
    delete(&w.team_a, MAPS, "db");
    delete(&w.team_a, MAPS, "lost");
    edit(&w.team_a, MAPS, "default/lost", |lost| {
        lost["metadata"]["annotations"][mcr_sync::ABANDON] = "berlin".into();
    });
    gone(&w.team_a, "default/lost").await;
    rest().await;
    assert!(w.team_a.get(MAPS, DB).is_some(), "it waits for berlin");
    w.clusters.add(spec(&w.berlin, "target"));
    gone(&w.team_a, DB).await;
    assert!(target(&w.berlin, &w.team_a, "db").is_none());
    assert!(target(&w.berlin, &w.team_a, "lost").is_some(), "abandoned");
}

fn rights(cluster: &SimCluster, verbs: &[&'static str]) {
    let rule = SimRule::new(["*"], ["*"], verbs.iter().copied());
    cluster.set_user("sync", SimUser::new("sync").rule(rule));
}

#[tokio::test(start_paused = true)]
async fn sync_target_cluster_that_refuses_does_not_hold_the_others() {
    let mut w = World::new();
    w.start(maps().to_each(ClusterSelector::label("role", "target")));
    for cluster in [&w.berlin, &w.lyon] {
        let access = Access::from(cluster.client_with_token("sync"));
        let spec = ClusterSpec::named(cluster.name(), access).unwrap();
        w.clusters.add(spec.label("role", "target"));
    }
    let served = |cluster: &SimCluster| target(cluster, &w.team_a, "db").is_some();
    // Each of them in turn, because one of them comes first.
    for (refusing, other) in [(&w.berlin, &w.lyon), (&w.lyon, &w.berlin)] {
        rights(other, &["*"]);
        rights(refusing, &["get", "list", "watch"]);
        make(&w.team_a, "db", size("1"));
        eventually(LIMIT, "the target", || served(other)).await;
        assert!(!served(refusing));
        rights(refusing, &["*"]);
        eventually(LIMIT, "the target, with the rights", || served(refusing)).await;

        rights(refusing, &["get", "list", "watch"]);
        delete(&w.team_a, MAPS, "db");
        eventually(LIMIT, "no target", || !served(other)).await;
        rest().await;
        assert!(served(refusing) && w.team_a.get(MAPS, DB).is_some());
        rights(refusing, &["*"]);
        gone(&w.team_a, DB).await;
        assert!(!served(refusing));
    }
}

#[tokio::test(start_paused = true)]
async fn sync_placement_moves_the_new_target_first() {
    let mut w = World::new();
    let [here, there] = ["berlin", "lyon"].map(|at| json!({"size": "1", "at": at}));
    make(&w.team_a, "db", here.clone());
    w.start(maps().place(ClusterSelector::label("role", "target"), at));
    data(&w.berlin, &w.team_a, "db", here).await;
    // While the new cluster is away, the former target stays.
    w.clusters.remove("lyon");
    set(&w.team_a, "db", there.clone());
    let has = |cluster: &str, wanted| {
        let source = w.team_a.get(MAPS, DB).unwrap();
        let record = annotation(&source).as_str();
        record.is_some_and(|record| record.contains(cluster) == wanted)
    };
    eventually(LIMIT, "lyon in the record", || has("lyon", true)).await;
    rest().await;
    assert!(target(&w.berlin, &w.team_a, "db").is_some());
    w.clusters.add(spec(&w.lyon, "target"));
    data(&w.lyon, &w.team_a, "db", there).await;
    gone(&w.berlin, &key("team-a", "db")).await;
    eventually(LIMIT, "berlin is not in the record", || has("berlin", false)).await;
    // Placed nowhere, it is released.
    set(&w.team_a, "db", json!({}));
    gone(&w.lyon, &key("team-a", "db")).await;
    rest().await;
    let source = w.team_a.get(MAPS, DB).unwrap();
    assert!(source["metadata"]["finalizers"].is_null() && annotation(&source).is_null());
}

#[tokio::test(start_paused = true)]
async fn sync_status_comes_up_with_a_condition_and_nothing_is_written_without_a_difference() {
    let mut w = with_widgets();
    w.team_a.create(widget(json!({"size": 1}))).unwrap();
    let at = key("team-a", "w");
    let api = Api::<DynamicObject>::namespaced_with(w.berlin.client(), "default", &widgets());
    let team_a = w.team_a.clone();
    let status = || team_a.get(WIDGETS, "default/w").unwrap()["status"].clone();
    let mut before = 0;
    for phase in ["Running", "Stopped"] {
        w.start(widget_sync());
        let target = eventually(LIMIT, "the target", || w.berlin.get(WIDGETS, &at)).await;
        let with_default = json!({"size": 1, "tier": "basic"});
        assert_eq!(target["spec"], with_default, "with the default of the server");
        let patch = Patch::Merge(json!({"status": {"phase": phase}}));
        let name = at.trim_start_matches("default/");
        api.patch_status(name, &Default::default(), &patch).await.unwrap();
        eventually(LIMIT, "the phase", || status()["phase"] == phase).await;
        assert_eq!(status()["at"], "berlin");
        let condition = synced(&w).unwrap();
        assert_eq!(condition["status"], "True");
        assert_eq!(condition["observedGeneration"], 1);
        rest().await;
        w.stop().await;
        let after = writes(&w.team_a) + writes(&w.berlin);
        // The second time, the test's write to the target and the new status.
        assert!(phase == "Running" || after - before == 2, "{before} {after}");
        before = after;
    }
}

#[test]
fn a_sync_that_makes_no_sense_is_not_built() {
    let built = |sync: Maps| format!("{:?}", sync.build().unwrap_err());
    let orphans = |sync: Maps| format!("{:?}", sync.delete_orphans_after(LIMIT).unwrap_err());
    let mut rows = vec![
        (built(Maps::new("x").mirror()), "NoPlacement("),
        (built(Maps::new("x").to(name("berlin"))), "NoProjection("),
        (built(to_berlin().owner("EU")), "Owner("),
        (orphans(to_berlin().owner("EU")), "Owner("),
        (orphans(to_berlin()), "NoOwner("),
    ];
    let names = ["", "A", "-a", "a_b", &"a".repeat(51)];
    rows.extend(names.map(|bad| (built(Maps::new(bad).mirror().to(name("berlin"))), "Name(")));
    for (error, wanted) in rows {
        assert!(error.starts_with(wanted), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn sync_kind_without_a_status_subresource_is_an_error_before_anything_is_written() {
    let mut w = with_widgets();
    let team_a = w.team_a.clone();
    let serve = |subresources| {
        let kinds = "customresourcedefinitions.apiextensions.k8s.io";
        edit(&team_a, kinds, WIDGETS, |kind| {
            kind["spec"]["versions"][0]["subresources"] = subresources
        });
    };
    serve(json!({}));
    for source in [&w.team_a, &w.team_b] {
        source.create(widget(json!({"size": 1}))).unwrap();
    }
    let sync = widget_sync().from(ClusterSelector::label("role", "source"));
    let controller = sync.build().unwrap();
    let handle = controller.handle();
    w.run([controller], "");
    let reported = || {
        let clusters = handle.status().clusters.into_iter();
        let mut failing = clusters.flat_map(|(_, status)| status.failing);
        failing.find(|request| request.error.contains("has no status subresource"))
    };
    let failing = eventually(LIMIT, "the error", reported).await;
    assert!(failing.retry_at.is_some(), "the kind may change");
    let of = |source: &str| w.berlin.get(WIDGETS, &key(source, "w"));
    eventually(LIMIT, "the target of the other cluster", || of("team-b")).await;
    assert_eq!(of("team-a"), None);
    let source = w.team_a.get(WIDGETS, "default/w").unwrap();
    assert_eq!(source["metadata"]["finalizers"], json!(null));
    // The kind gets the subresource.
    serve(json!({"status": {}}));
    eventually(LIMIT, "the target", || of("team-a")).await;
}

#[tokio::test(start_paused = true)]
async fn sync_makes_a_missing_namespace_uses_the_template_and_mends_the_link() {
    let mut w = World::new();
    make(&w.team_a, "db", size("1"));
    let sync = to_berlin().namespace(TargetNamespace::Fixed("dbs".into()));
    w.start(sync.name_by(NameTemplate::parse("{cluster}-{name}").unwrap()));
    let at = || w.berlin.get(MAPS, "dbs/team-a-db");
    let linked = || at().filter(|live| live["metadata"]["labels"]["sync.mcr.dev/sync"] == "maps");
    eventually(LIMIT, "the target", linked).await;
    edit(&w.berlin, MAPS, "dbs/team-a-db", |live| {
        let labels = live["metadata"]["labels"].as_object_mut().unwrap();
        labels.remove("sync.mcr.dev/sync");
    });
    eventually(LIMIT, "the label", linked).await;
    delete(&w.team_a, MAPS, "db");
    gone(&w.team_a, DB).await;
    assert!(at().is_none());
}
