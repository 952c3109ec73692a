//! Namespaces that come, change and go.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    client::Body,
};
use mcr::ClusterState;
use mcr_core::{
    Access, AccessPolicy, AddressPolicy, Change, HubWatch, KubeconfigAccess, Provider, Trust, WatchRequest,
};
use mcr_provider_namespace::NamespaceProvider;
use mcr_testkit::{control_plane::ControlPlane, sim::SimCluster};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::harness::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_join_and_change_and_a_terminating_one_stays_until_it_is_gone() {
    let plane = ControlPlane::builder()
        .with_controller_manager()
        .start()
        .await
        .or_fail();
    let client = plane.client();
    let first = namespace(&client, "island", &[("team", "a")]).await;
    let running = Running::start(provider(&plane).build().or_fail());
    let island = running.cluster("island").await;
    assert_eq!(island.identity().as_deref(), first.metadata.uid.as_deref());
    assert_eq!(island.label("team").as_deref(), Some("a"));
    assert_eq!(island.properties()["phase"], "Active");
    // All of them, as upstream.
    for name in ["default", "kube-system", "kube-public"] {
        running.cluster(name).await;
    }

    let namespaces: Api<Namespace> = Api::all(client.clone());
    let patch = json!({"metadata": {"labels": {"team": "b"}}});
    merge(&namespaces, "island", patch).await;
    eventually("the label is seen", || {
        island.label("team").as_deref() == Some("b")
    })
    .await;

    // Something in it has a finalizer, which only who works in the cluster removes.
    lives(&client, "island", "crusoe", "human").await;
    let patch = json!({"metadata": {"finalizers": ["example.com/held"]}});
    merge(&maps(&client, "island"), "crusoe", patch).await;
    namespaces
        .delete("island", &DeleteParams::default())
        .await
        .or_fail();
    eventually("it is terminating", || {
        island.properties()["phase"] == "Terminating"
    })
    .await;
    // What was said of it later is heard, and it is still there.
    let patch = json!({"metadata": {"labels": {"team": "c"}}});
    merge(&namespaces, "island", patch).await;
    eventually("the next label is seen", || {
        island.label("team").as_deref() == Some("c")
    })
    .await;
    assert!(running.fleet.get("island").or_fail().is_same(&island), "it stays");
    let inside = maps(&island.client(), "island");
    merge(&inside, "crusoe", json!({"metadata": {"finalizers": null}})).await;
    eventually("it goes", || running.fleet.get("island").is_err()).await;

    // Another one of the same name is another cluster.
    let second = namespace(&client, "island", &[]).await;
    let again = running.cluster("island").await;
    assert_ne!(again.identity(), island.identity());
    assert_eq!(again.identity().as_deref(), second.metadata.uid.as_deref());
    assert!(inside.get("crusoe").await.is_err());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_deleted_and_made_anew_unseen_is_another_cluster() {
    let plane = ControlPlane::builder()
        .with_controller_manager()
        .start()
        .await
        .or_fail();
    let client = plane.client();
    namespace(&client, "island", &[]).await;
    let running = Running::start(provider(&plane).build().or_fail());
    let island = running.cluster("island").await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    // Faster than anybody can follow: what comes of it is told as one change.
    namespaces
        .delete("island", &DeleteParams::default())
        .await
        .or_fail();
    while namespaces.get_opt("island").await.or_fail().is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    namespace(&client, "island", &[]).await;
    eventually("another one of that name", || {
        running
            .fleet
            .get("island")
            .ok()
            .filter(|cluster| cluster.identity() != island.identity())
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_exclusions_and_filters_choose() {
    let plane = ControlPlane::start().await.or_fail();
    let client = plane.client();
    for (name, team) in [("zoo", "a"), ("jungle", "a"), ("island", "a"), ("desert", "b")] {
        namespace(&client, name, &[("team", team)]).await;
        lives(&client, name, "somebody", "human").await;
    }
    let chosen = provider(&plane)
        .labels("team=a")
        .exclude(["jungle"])
        .filter(|name| name != "zoo")
        .build()
        .or_fail();
    let running = Running::start(chosen);
    let island = running.cluster("island").await;
    running.sees("live island island/somebody").await;
    assert_eq!(running.names(), ["island"]);
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let team = |name: &'static str, team: &'static str| {
        let (namespaces, patch) = (
            namespaces.clone(),
            Patch::Merge(json!({"metadata": {"labels": {"team": team}}})),
        );
        async move {
            namespaces
                .patch(name, &PatchParams::default(), &patch)
                .await
                .or_fail()
        }
    };
    team("desert", "a").await;
    running.sees("live desert desert/somebody").await;
    // One that no longer matches leaves, though it is there.
    team("island", "b").await;
    eventually("island leaves", || running.fleet.get("island").is_err()).await;
    assert!(island.token().is_cancelled());
    assert_eq!(running.names(), ["desert"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_host_removes_nothing() {
    let plane = ControlPlane::start().await.or_fail();
    let client = plane.client();
    namespace(&client, "island", &[]).await;
    lives(&client, "island", "crusoe", "human").await;
    let running = Running::start(provider(&plane).build().or_fail());
    running.sees("live island island/crusoe").await;
    let island = running.cluster("island").await;
    plane.stop().await.or_fail();
    let gone = |state: &ClusterState| matches!(state, ClusterState::Unreachable { .. });
    tokio::time::timeout(PATIENCE, island.wait_for(gone))
        .await
        .or_fail();
    plane.restart().await.or_fail();
    ready(&island).await;
    lives(&plane.client(), "island", "friday", "human").await;
    running.sees("live island island/friday").await;
    namespace(&plane.client(), "jungle", &[]).await;
    running.cluster("jungle").await;
    // Had it left meanwhile, it would be another engagement.
    assert!(running.fleet.get("island").or_fail().is_same(&island));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_that_are_not_in_namespaces_are_refused() {
    let plane = ControlPlane::start().await.or_fail();
    namespace(&plane.client(), "island", &[]).await;
    let running = Running::start(provider(&plane).build().or_fail());
    let island = running.cluster("island").await;
    ready(&island).await;
    assert!(!island.capabilities().cluster_scoped_kinds() && island.capabilities().server_side_apply());
    assert_eq!(island.client().default_namespace(), "island");
    for request in [WatchRequest::of::<Node>(), WatchRequest::of::<Namespace>()] {
        let watch = island.watch(request, None).or_fail();
        let problem = eventually("a reason", || watch.status().problem).await;
        let text = problem.error.to_string();
        assert!(text.contains("no cluster-scoped kinds"), "{text}");
    }
    // The client has them neither: the API server has no such path in a namespace.
    let nodes = Api::<Node>::all(island.client());
    let missing = nodes.list(&ListParams::default()).await.unwrap_err();
    assert!(
        matches!(&missing, kube::Error::Api(status) if status.code == 404),
        "{missing}"
    );
    let refused = nodes.get("a").await.unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 403),
        "{refused}"
    );
    running.stop().await;
}

/// The simulator has no aggregated discovery.
#[tokio::test]
async fn a_host_with_the_older_discovery_and_a_group_without_an_answer_has_all_other_kinds() {
    let host = SimCluster::new();
    host.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "island"}}))
        .or_fail();
    let (down, inner) = (Arc::new(AtomicUsize::new(0)), host.client());
    let counted = down.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (inner, counted) = (inner.clone(), counted.clone());
        async move {
            if request.uri().path() == "/apis/apps/v1" {
                counted.fetch_add(1, Ordering::SeqCst);
                let down = http::Response::builder().status(503);
                return Ok::<_, kube::Error>(down.body(Body::empty()).or_fail());
            }
            inner.send(request).await
        }
    });
    let provider = NamespaceProvider::builder().client(Client::new(service, "default"));
    let running = Running::start(provider.build().or_fail());
    let island = running.cluster("island").await;
    ready(&island).await;
    assert!(down.load(Ordering::SeqCst) > 0, "the older discovery was asked");
    let nodes = island.watch(WatchRequest::of::<Node>(), None).or_fail();
    let problem = eventually("a reason", || nodes.status().problem).await;
    assert!(problem.error.to_string().contains("no cluster-scoped kinds"));
    maps(&island.client(), "island")
        .list(&ListParams::default())
        .await
        .or_fail();
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_can_not_be_reached_is_reported_and_tried_again() {
    let plane = ControlPlane::start().await.or_fail();
    plane.stop().await.or_fail();
    let provider = provider(&plane).build().or_fail();
    let mut discovery = provider.discover(CancellationToken::new());
    let first = tokio::time::timeout(PATIENCE, discovery.next()).await.or_fail();
    let error = first.unwrap().unwrap_err().to_string();
    assert!(error.contains("the host cluster can't be reached"), "{error}");
    assert!(discovery.next().await.is_none());

    let user_without_rights = {
        plane.restart().await.or_fail();
        plane.user("nobody").create().await.or_fail()
    };
    let forbidden = NamespaceProvider::builder()
        .client(user_without_rights.client().await.or_fail())
        .build()
        .or_fail();
    let mut discovery = forbidden.discover(CancellationToken::new());
    let first = tokio::time::timeout(PATIENCE, discovery.next()).await.or_fail();
    let error = first.unwrap().unwrap_err().to_string();
    assert!(
        error.contains("namespaces can't be watched") && error.contains("cannot list"),
        "{error}"
    );

    let mut discovery = provider.discover(CancellationToken::new());
    let mut names = Vec::new();
    while let Some(change) = tokio::time::timeout(PATIENCE, discovery.next()).await.or_fail() {
        match change.or_fail() {
            Change::Upsert(spec) => names.push(spec.name.to_string()),
            Change::Synced => break,
            other => panic!("{other:?}"),
        }
    }
    names.sort();
    assert_eq!(
        names,
        ["default", "kube-node-lease", "kube-public", "kube-system"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_untrusted_kubeconfig_of_the_host_may_do_what_the_policy_of_the_fleet_allows() {
    let host = SimCluster::new().serve().await.or_fail();
    let access = Access::from(KubeconfigAccess::new(host.kubeconfig(), Trust::Untrusted));
    let provider = NamespaceProvider::builder().access(access).build().or_fail();
    let locally = AccessPolicy::default().addresses(AddressPolicy::default().allow_loopback(true));
    let first = async |policy: &AccessPolicy| {
        let mut discovery = provider.discover_with(CancellationToken::new(), &policy.clone().into());
        let first = tokio::time::timeout(PATIENCE, discovery.next()).await.or_fail();
        first.unwrap().map_err(|error| error.to_string())
    };
    let allowed = first(&locally).await;
    assert!(matches!(allowed, Ok(Change::Upsert(_))), "{allowed:?}");
    let error = first(&AccessPolicy::default()).await.unwrap_err();
    assert!(error.contains("loopback"), "{error}");
}

/// A provider that finds clusters in a cluster that is a namespace: it watches with an ordinary client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_of_such_a_cluster_carries_a_watch_of_its_own() {
    let plane = ControlPlane::start().await.or_fail();
    namespace(&plane.client(), "island", &[]).await;
    lives(&plane.client(), "default", "nobody", "human").await;
    let running = Running::start(provider(&plane).build().or_fail());
    let island = running.cluster("island").await;
    ready(&island).await;
    let mut watch = HubWatch::new(island.client(), WatchRequest::of::<ConfigMap>().labels("type"));
    assert!(matches!(
        tokio::time::timeout(PATIENCE, watch.next()).await.or_fail(),
        mcr_core::HubEvent::Synced
    ));
    lives(&plane.client(), "island", "crusoe", "human").await;
    match tokio::time::timeout(PATIENCE, watch.next()).await.or_fail() {
        mcr_core::HubEvent::Applied(key, _) => assert_eq!(key.to_string(), "island/crusoe"),
        other => panic!("{other:?}"),
    }
    let listed = maps(&island.client(), "island")
        .list(&ListParams::default().labels("type"))
        .await
        .or_fail();
    assert_eq!(listed.items.len(), 1);
    running.stop().await;
}
