//! Workspaces of shards as clusters, and the traps of an endpoint that answers for all of them at once.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use mcr_doubles::shard::Shard;

use crate::{
    harness::*,
    witness::Witness,
    workspaces::{access, scope},
};

/// How long nothing must happen for it to count as not happening, in paused time.
const A_WHILE: Duration = Duration::from_secs(60);

fn running() -> Running {
    Running::start_with(|settings| {
        pause_at_most(settings, Duration::from_millis(100));
        Arc::make_mut(&mut settings.watch).page_size = 2;
    })
}

fn shard(version: u64, clusters: &[&str]) -> Shard {
    mcr_doubles::shard::shard(&format!("shard{version}"), version, clusters)
}

#[tokio::test(start_paused = true)]
async fn clusters_wait_for_their_endpoint_and_survive_its_absence() {
    let a = shard(100, &["zoo", "jungle"]);
    let running = running();
    // Another client would be another server.
    let (scope, access) = (scope(&[]), access(&a));
    let zoo = running.join(&scope, "a", "zoo").await;
    let jungle = running.join(&scope, "a", "jungle").await;
    for cluster in [&zoo, &jungle] {
        unreachable(cluster, "scope workspaces has no endpoint \"a\" at the moment").await;
    }
    let seen = Witness::of(&zoo);
    assert!(!seen.watch.status().synced);

    scope.set_endpoint("a", access.clone());
    ready(&zoo).await;
    ready(&jungle).await;
    seen.equals(&a).await;
    assert_eq!(seen.lines(), ["+default/of-zoo"]);

    // Gone for good as far as anyone knows: what was read stays readable, and nothing counts as deleted.
    scope.remove_endpoint("a");
    unreachable(&zoo, "has no endpoint").await;
    let error = get(&zoo, "of-zoo").await.unwrap_err().to_string();
    assert!(error.contains("zoo") && error.contains("workspaces"), "{error}");
    eventually(SOON, "its connections are closed", || a.watching() == 0).await;
    a.put("zoo", "default", "meanwhile", "1");
    a.delete("zoo", "default", "of-zoo");
    assert_eq!(seen.names(), ["default/of-zoo"]);
    scope.set_endpoint("a", access.clone());
    seen.equals(&a).await;
    ready(&zoo).await;
    assert_eq!(
        seen.lines(),
        ["+default/meanwhile", "+default/of-zoo", "-default/of-zoo"]
    );

    // Nobody listens there.
    a.be_down(true);
    unreachable(&jungle, "refused").await;
    a.be_down(false);
    ready(&zoo).await;
    ready(&jungle).await;
    a.put("zoo", "default", "again", "1");
    seen.equals(&a).await;
    running.stop().await;
}

/// What is said of one endpoint is no reason to begin anew with another one.
#[tokio::test(start_paused = true)]
async fn endpoints_that_change_all_the_time_do_not_keep_others_from_being_connected() {
    let a = shard(100, &["zoo"]);
    a.be_slow(Duration::from_millis(100));
    let running = running();
    let scope = scope(&[]);
    let busy = tokio::spawn({
        let (scope, access) = (scope.clone(), access(&a));
        async move {
            loop {
                scope.set_endpoint("other", access.clone());
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    });
    scope.set_endpoint("a", access(&a));
    let zoo = running.join(&scope, "a", "zoo").await;
    ready(&zoo).await;
    busy.abort();
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_reaches_its_own_workspace_and_nothing_else() {
    let a = shard(100, &["zoo", "jungle"]);
    let running = running();
    let scope = scope(&[("a", &a)]);
    let zoo = running.join(&scope, "a", "zoo").await;
    let unbound = running.join(&scope, "a", "unbound").await;
    ready(&zoo).await;
    let api: Api<ConfigMap> = zoo.namespaced("default");
    let created = api
        .create(&PostParams::default(), &config_map("made"))
        .await
        .or_fail();
    assert_eq!(created.metadata.annotations.unwrap()["kcp.io/cluster"], "zoo");
    let patch = serde_json::json!({"data": {"value": "2"}});
    let patched = api
        .patch("made", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .or_fail();
    assert_eq!(patched.data.unwrap()["value"], "2");
    assert_eq!(api.list(&Default::default()).await.or_fail().items.len(), 2);
    let seen = Witness::of(&zoo);
    seen.equals(&a).await;
    api.delete("made", &DeleteParams::default()).await.or_fail();
    seen.equals(&a).await;
    assert!(matches!(api.get("made").await, Err(kube::Error::Api(error)) if error.code == 404));

    let refused = get(&unbound, "x").await;
    assert!(matches!(refused, Err(kube::Error::Api(error)) if error.code == 403));
    for asked in a.asked() {
        let of_all = asked.path.starts_with("/clusters/*/");
        let own = ["/clusters/zoo/", "/clusters/unbound/"]
            .iter()
            .any(|own| asked.path.starts_with(own));
        assert!(of_all || own, "{}", asked.path);
    }
    let able = zoo.capabilities();
    assert!(!able.server_side_apply() && !able.streaming_lists() && able.cluster_scoped_kinds());
    assert_eq!(zoo.scope().as_deref(), Some("workspaces"));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_moves_keeps_its_store_and_is_reported_the_difference_once() {
    let (a, b) = (shard(5000, &["zoo", "jungle"]), shard(100, &["island"]));
    for name in ["goes", "changes", "stays"] {
        a.put("zoo", "default", name, "1");
    }
    let running = running();
    let scope = scope(&[("a", &a), ("b", &b)]);
    let zoo = running.join(&scope, "a", "zoo").await;
    let jungle = running.join(&scope, "a", "jungle").await;
    let island = running.join(&scope, "b", "island").await;
    let (seen, left, there) = (Witness::of(&zoo), Witness::of(&jungle), Witness::of(&island));
    seen.equals(&a).await;
    left.equals(&a).await;
    there.equals(&b).await;
    for witness in [&seen, &left, &there] {
        witness.forget_lines();
    }
    eventually(SOON, "both watch", || a.watching() + b.watching() == 2).await;

    // The other shard takes it over and goes on from there, and then the provider hears of it.
    b.adopt("zoo", &a);
    b.delete("zoo", "default", "goes");
    b.put("zoo", "default", "changes", "2");
    b.put("zoo", "default", "comes", "1");
    let (lists_of_a, lists_of_b) = (a.lists(), b.lists());
    running.clusters.add(spec(&scope, "b", "zoo"));
    eventually(SOON, "the client goes to the other shard", || {
        let host = running.fleet.scopes();
        host.iter()
            .any(|scope| &*scope.endpoint == "b" && scope.clusters == 2)
    })
    .await;
    a.unbind("zoo");
    // Until it is listed there, nothing is missing.
    assert!(seen.store().unwrap().contains_key("default/stays"));
    seen.equals(&b).await;
    running.keeps(&zoo);
    let api: Api<ConfigMap> = zoo.namespaced("default");
    assert!(api.get("comes").await.is_ok());
    // Two pages at most two objects each make one list of three requests.
    let pages = b.has("zoo").len() + b.has("island").len();
    // Nothing else was told to anyone before what comes now.
    a.bookmark();
    a.put("jungle", "default", "later", "1");
    b.put("island", "default", "later", "1");
    b.put("zoo", "default", "later", "1");
    left.equals(&a).await;
    there.equals(&b).await;
    seen.equals(&b).await;
    assert_eq!(
        seen.lines(),
        [
            // Of the other shard everything has another version.
            "~default/changes",
            "+default/comes",
            "-default/goes",
            "+default/later",
            "~default/of-zoo",
            "~default/stays"
        ]
    );
    assert_eq!(seen.faults(), [""; 0]);
    assert_eq!(
        (left.lines(), there.lines()),
        (
            vec!["+default/later".to_owned()],
            vec!["+default/later".to_owned()]
        )
    );
    assert_eq!(b.lists() - lists_of_b, pages.div_ceil(2), "listed once");
    assert_eq!(a.lists(), lists_of_a);
    assert!(zoo.state().is_ready());

    // And back.
    a.adopt("zoo", &b);
    running.clusters.add(spec(&scope, "a", "zoo"));
    eventually(SOON, "it is back", || seen.store().unwrap() == a.has("zoo")).await;
    b.unbind("zoo");
    a.put("zoo", "default", "last", "1");
    seen.equals(&a).await;
    assert!(seen.has("+default/last") && !seen.has("-default/stays"));
    running.stop().await;
}

#[test]
fn a_cluster_that_moves_to_a_shard_that_can_not_be_listed_keeps_what_it_has() {
    paused(|| async {
        let (a, b) = (shard(5000, &["zoo"]), shard(100, &["island"]));
        let running = running();
        let scope = scope(&[("a", &a), ("b", &b)]);
        let zoo = running.join(&scope, "a", "zoo").await;
        let island = running.join(&scope, "b", "island").await;
        let (seen, there) = (Witness::of(&zoo), Witness::of(&island));
        seen.equals(&a).await;
        there.equals(&b).await;
        b.adopt("zoo", &a);
        b.fail_lists(true);
        running.clusters.add(spec(&scope, "b", "zoo"));
        eventually(SOON, "the list fails", || seen.problem()).await;
        a.unbind("zoo");
        b.put("zoo", "default", "comes", "1");
        // Those who did not ask for the list don't notice that it fails.
        b.put("island", "default", "meanwhile", "1");
        there.equals(&b).await;
        // An index that comes while it waits finds what it has.
        let indexed = |name: &str| running.fleet.by_index::<ConfigMap>("name", name).objects.len();
        running
            .fleet
            .index::<ConfigMap>("name", |map| map.metadata.name.clone().into_iter().collect());
        assert_eq!(indexed("of-zoo"), 1);
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(seen.names(), ["default/of-zoo"]);
        assert_eq!(seen.lines(), ["+default/of-zoo"]);
        assert!(seen.watch.status().synced, "what it holds is old, not incomplete");
        b.fail_lists(false);
        seen.equals(&b).await;
        there.equals(&b).await;
        assert_eq!(
            seen.lines(),
            ["+default/comes", "+default/of-zoo", "~default/of-zoo"]
        );
        assert_eq!(indexed("comes"), 1);

        // There and back before anything is listed.
        b.fail_lists(true);
        a.adopt("zoo", &b);
        seen.forget_lines();
        for endpoint in ["a", "b", "a"] {
            running.clusters.add(spec(&scope, endpoint, "zoo"));
        }
        seen.equals(&a).await;
        b.unbind("zoo");
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(seen.lines(), ["~default/comes", "~default/of-zoo"]);
        running.stop().await;
    });
}

#[test]
fn fifty_clusters_that_move_one_after_the_other_cost_a_few_lists() {
    paused(|| async {
        let (a, b) = (shard(5000, &[]), shard(100, &["island"]));
        let running = Running::start();
        let scope = scope(&[("a", &a), ("b", &b)]);
        let island = running.join(&scope, "b", "island").await;
        let there = Witness::of(&island);
        there.equals(&b).await;
        let mut moving = Vec::new();
        for i in 0..50 {
            let name = format!("c{i}");
            a.bind(&name);
            a.put(&name, "default", "x", "1");
            moving.push(Witness::of(&running.join(&scope, "a", &name).await));
        }
        for seen in &moving {
            seen.equals(&a).await;
            seen.forget_lines();
        }
        let lists = b.lists();
        for seen in &moving {
            let name = seen.cluster.name().as_str();
            b.adopt(name, &a);
            running.clusters.add(spec(&scope, "b", name));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for seen in &moving {
            seen.equals(&b).await;
            assert_eq!(seen.lines(), ["~default/x"]);
        }
        let cost = b.lists() - lists;
        assert!((1..=6).contains(&cost), "{cost} lists");
        let scopes = running.fleet.scopes();
        assert_eq!(scopes.len(), 1, "the endpoint that all have left is let go of");
        assert_eq!(scopes[0].clusters, 51);
        running.stop().await;
    });
}
