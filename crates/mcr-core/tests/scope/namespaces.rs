//! Where requests of clusters in scopes go that name no namespace.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, client::Body};
use mcr_core::{Access, ClusterSpec, Fleet, Scope, TransportLayer, WatchRequest};
use mcr_testkit::{sim::SimCluster, waiting::Background};
use tower::util::MapRequestLayer;

use crate::harness::*;

/// Each namespace is a cluster that has no other one.
const ISLANDS: Layout = Layout {
    default_namespace: |place| place,
    ..NAMESPACES
};

/// Asks for what can't be a namespace whatever is wanted.
const ASTRAY: Layout = Layout {
    name: "astray",
    watch: |wanted| Ok(wanted.clone().namespace("all/secrets?")),
    ..NAMESPACES
};

#[test]
fn the_default_namespace_in_a_scope_is_what_the_layout_reports_of_the_place() {
    paused(|| async {
        let running = Running::start();
        let endpoint = silent("of-the-endpoint");
        let (islands, plain) = (Scope::new(ISLANDS), Scope::new(NAMESPACES));
        for scope in [&islands, &plain] {
            scope.set_endpoint("a", endpoint.clone());
        }
        let announce = |cluster: &str, scope: &Scope, place: &str| {
            let spec = ClusterSpec::new(name(cluster), scope.place("a", place));
            running.clusters.add(spec.identity(cluster));
        };
        announce("plain", &plain, "zoo");
        let cluster = running.engaged("plain").await;
        assert_eq!(cluster.client().default_namespace(), "default");
        announce("island", &islands, "zoo");
        let cluster = running.engaged("island").await;
        let first = cluster.client();
        assert_eq!(first.default_namespace(), "zoo");
        announce("island", &islands, "jungle");
        eventually(SOON, "clients are of the place it moved to", || {
            cluster.client().default_namespace() == "jungle"
        })
        .await;
        assert_eq!(first.default_namespace(), "zoo");
        running.stop().await;
    });
}

#[test]
fn a_watch_of_what_can_not_be_a_namespace_is_refused_in_a_scope_and_stays_so_when_its_cluster_moves() {
    paused(|| async {
        let running = Running::start();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let listed = asked.clone();
        let server = tower::service_fn(move |request: Request<Body>| {
            listed.lock().unwrap().push(request.uri().path().to_owned());
            std::future::pending::<Result<Response<Body>, Infallible>>()
        });
        let endpoint = Client::new(server, "default");
        for (layout, namespace, named) in [
            (NAMESPACES, "../secrets", "../secrets"),
            (ASTRAY, "zoo", "all/secrets?"),
        ] {
            let scope = Scope::new(layout);
            for name in ["a", "b"] {
                scope.set_endpoint(name, endpoint.clone());
            }
            let at = |endpoint: &str| {
                let spec = ClusterSpec::new(name(layout.name), scope.place(endpoint, "zoo"));
                spec.identity(layout.name).label("at", endpoint)
            };
            let cluster = running.announce(at("a")).await;
            let request = WatchRequest::of::<ConfigMap>().namespace(namespace);
            let watch = cluster.watch(request, None).or_fail();
            for endpoint in ["a", "b"] {
                running.clusters.add(at(endpoint));
                let is_there = || cluster.label("at").as_deref() == Some(endpoint);
                eventually(SOON, "it is there", is_there).await;
                let problem = watch.status().problem.unwrap().error.to_string();
                let refusal = format!("{named:?} can't be the name of a namespace");
                assert!(problem.contains(&refusal), "{problem}");
            }
        }
        // Time for what should not come.
        tokio::time::sleep(SOON).await;
        let asked = asked.lock().unwrap().clone();
        assert!(!asked.is_empty(), "the endpoints are connected to");
        assert!(!asked.iter().any(|path| path.contains("configmaps")), "{asked:?}");
        running.stop().await;
    });
}

#[test]
fn a_request_of_a_cluster_in_a_scope_passes_the_layer_of_that_cluster_only() {
    paused(|| async {
        let seen = Arc::<Mutex<Vec<(String, String)>>>::default();
        let noted = seen.clone();
        let (clusters, provider) = provider::announced(true);
        let fleet = Fleet::builder()
            .provider(provider)
            .transport_layer(move |cluster| {
                let (noted, name) = (noted.clone(), cluster.name.to_string());
                TransportLayer::new(MapRequestLayer::new(move |request: Request<Body>| {
                    let path = request.uri().path().to_owned();
                    noted.lock().unwrap().push((name.clone(), path));
                    request
                }))
            });
        let fleet = fleet.build();
        let runs = fleet.clone();
        let running = Background::start(|stop| async move { runs.run(stop).await });
        let (host, scope) = (SimCluster::new(), Scope::new(NAMESPACES));
        scope.set_endpoint("a", Access::from(host.client()));
        clusters.add(spec(&scope, "a", "zoo"));
        let cluster = eventually(SOON, "it is engaged", || fleet.get("zoo").ok()).await;
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "zoo");
        eventually(SOON, "it is ready", || cluster.state().is_ready()).await;
        maps.list(&Default::default()).await.or_fail();
        let of_maps = || -> Vec<(String, String)> {
            let seen = seen.lock().unwrap().clone();
            seen.into_iter()
                .filter(|(_, path)| path.ends_with("configmaps"))
                .collect()
        };
        let own = ("zoo".to_owned(), "/api/v1/namespaces/zoo/configmaps".to_owned());
        assert_eq!(of_maps(), [own]);
        // The list and the watch of the endpoint serve all its clusters.
        let _watch = cluster.watch(WatchRequest::of::<ConfigMap>(), None).or_fail();
        eventually(SOON, "the endpoint lists", || of_maps().len() > 2).await;
        assert!(
            of_maps()[1..]
                .iter()
                .all(|(name, path)| name != "zoo" && path == "/api/v1/configmaps")
        );
        running.stop().await;
    });
}
