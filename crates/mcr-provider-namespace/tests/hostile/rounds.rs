//! No request to a cluster that is a namespace reads or changes anything else of its host.
//!
//! Random requests, most of them wrong in some way, against a real API server. Its audit log is the judge: it has every
//! request as the API server understood it.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use kube::Client;
use mcr_provider_namespace::NamespaceMapping;
use mcr_testkit::control_plane::{AuditEvent, ControlPlane};
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Value, json};

use crate::{
    harness::{Raw, ask, crd, namespace, snapshot},
    requests::requests,
};

/// Requests of one round, between which the namespace is filled again.
const ROUND: usize = 250;
const ROUNDS: usize = 16;
/// Most of the time is spent with watches, which last for a second.
const AT_ONCE: usize = 60;
/// Stands in every object of another namespace, and of none.
const CANARY: &str = "canary-of-others";
const OTHERS: [&str; 4] = ["zoo", "jungle", "default", "kube-system"];
const USER: &str = "who-lives-on-an-island";

/// One of each kind that is written to, by path below a namespace.
pub(crate) fn objects() -> Vec<(&'static str, &'static str, Value)> {
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    vec![
        ("api/v1", "configmaps", json!({"data": {"k": "v"}})),
        ("api/v1", "secrets", json!({"stringData": {"k": "v"}})),
        (
            "api/v1",
            "services",
            json!({"spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}),
        ),
        ("api/v1", "serviceaccounts", json!({})),
        (
            "api/v1",
            "pods",
            json!({"spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}}),
        ),
        (
            "apis/apps/v1",
            "deployments",
            json!({"spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}}),
        ),
        ("apis/rbac.authorization.k8s.io/v1", "roles", json!({"rules": []})),
        (
            "apis/coordination.k8s.io/v1",
            "leases",
            json!({"spec": {"holderIdentity": "x"}}),
        ),
        (
            "apis/example.com/v1",
            "widgets",
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"replicas": 1}, "status": {"replicas": 1}}),
        ),
    ]
}

/// Writes the objects `a` and `b` of each kind, where they are not there.
async fn fill(client: &Client, namespace: &str, mark: &str) {
    let writes = objects().into_iter().flat_map(|(root, plural, object)| {
        ["a", "b"].map(|name| {
            let mut object = object.clone();
            object["metadata"] = json!({"name": name, "labels": {"a": "b"}, "annotations": {"mark": mark}});
            Raw::new("POST", format!("/{root}/namespaces/{namespace}/{plural}"))
                .body("application/json", object)
        })
    });
    let events = ["a", "b"].map(|name| {
        let event = json!({"metadata": {"name": name, "annotations": {"mark": mark}}, "reason": "R", "type": "Normal",
            "involvedObject": {"kind": "ConfigMap", "name": "a", "namespace": namespace}});
        Raw::new("POST", format!("/api/v1/namespaces/{namespace}/events")).body("application/json", event)
    });
    for raw in writes.chain(events) {
        let reply = ask(client, &raw).await.unwrap();
        assert!(
            [201, 409].contains(&reply.code.as_u16()),
            "{raw:?}: {}",
            reply.text
        );
    }
}

/// Whether a cluster that is the namespace `island` may have led to this.
fn is_allowed(event: &AuditEvent) -> bool {
    let reads = matches!(&*event.verb, "get" | "list" | "watch" | "head");
    match (&*event.resource, &*event.namespace) {
        // The kind Namespace: the own one is read.
        ("namespaces", _) => {
            reads && event.name == "island" && event.uri.starts_with("/api/v1/namespaces/island")
        }
        ("", _) => {
            let first = event
                .uri
                .trim_start_matches('/')
                .split(['/', '?'])
                .next()
                .unwrap_or_default();
            reads
                && ["api", "apis", "version", "openapi", "healthz", "livez", "readyz"].contains(&first)
                && !event.uri.split(['/', '?']).any(|segment| segment == "..")
        }
        (_, namespace) => namespace == "island",
    }
}

async fn others(host: &Client) -> BTreeMap<String, String> {
    let mut objects = snapshot(host).await;
    objects.retain(|object, _| {
        // Of the namespace itself, and what API servers write by themselves.
        !object.contains(" island/")
            && !object.contains("/leases kube-system/")
            && !object.contains("/leasecandidates ")
    });
    objects
}

async fn hostile(seed: u8) {
    let plane = ControlPlane::builder()
        .audit(true)
        .crd(crd("widgets", "Widget", "Namespaced"))
        .crd(crd("gadgets", "Gadget", "Cluster"))
        .start()
        .await
        .unwrap();
    let host = plane.client();
    for name in OTHERS.into_iter().chain(["island"]) {
        namespace(&host, name).await;
    }
    for other in OTHERS {
        fill(&host, other, CANARY).await;
    }
    for (path, object) in [
        (
            "/apis/example.com/v1/gadgets",
            json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "a", "annotations": {"m": CANARY}}}),
        ),
        (
            "/api/v1/nodes",
            json!({"metadata": {"name": "a", "annotations": {"m": CANARY}}}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            json!({"metadata": {"name": "a", "annotations": {"m": CANARY}}}),
        ),
    ] {
        assert_eq!(
            ask(&host, &Raw::new("POST", path).body("application/json", object))
                .await
                .unwrap()
                .code,
            201
        );
    }
    let user = plane
        .user(USER)
        .groups(["system:masters"])
        .create()
        .await
        .unwrap();
    let upstream = user.client().await.unwrap();
    let island = NamespaceMapping::new().client(&upstream, "island")
        .unwrap();

    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let requests = requests();
    let before = others(&host).await;
    let mut answered = 0;
    for round in 0..ROUNDS {
        fill(&host, "island", "own").await;
        let round_of: Vec<Raw> = (0..ROUND)
            .map(|_| requests.new_tree(&mut runner).unwrap().current())
            .collect();
        let replies = stream::iter(round_of).map(|raw| {
            let island = &island;
            async move { (ask(island, &raw).await, raw) }
        });
        let mut replies = replies.buffer_unordered(AT_ONCE);
        while let Some((reply, raw)) = replies.next().await {
            let Some(reply) = reply else { continue };
            answered += 1;
            assert!(
                !reply.text.contains(CANARY),
                "round {round}, {raw:?} was answered: {}",
                reply.text
            );
        }
    }
    assert!(answered > ROUND * ROUNDS / 2, "{answered} requests were answered");

    let log = plane.audit().await.unwrap();
    let seen: Vec<&AuditEvent> = log.events().filter(|event| event.user == USER).collect();
    let stray: Vec<_> = seen.iter().filter(|event| !is_allowed(event)).collect();
    assert!(
        stray.is_empty(),
        "{} requests strayed: {:#?}",
        stray.len(),
        &stray[..stray.len().min(5)]
    );

    let after = others(&host).await;
    let changed: Vec<_> = before
        .iter()
        .filter(|(object, state)| after.get(*object) != Some(*state))
        .collect();
    let added: Vec<_> = after
        .keys()
        .filter(|object| !before.contains_key(*object))
        // Of the addresses of Services, in the own namespace too, the API server keeps its own books.
        .filter(|object| !object.contains("/ipaddresses ") && !object.contains("/events default/10."))
        .collect();
    assert!(
        changed.is_empty() && added.is_empty(),
        "changed: {changed:?}, added: {added:?}"
    );

    // All of this says little if nothing went through.
    let mut done: BTreeMap<String, usize> = BTreeMap::new();
    for event in seen.iter().filter(|event| event.is_start() && event.code < 300) {
        let part = if event.subresource.is_empty() {
            String::new()
        } else {
            format!("/{}", event.subresource)
        };
        *done.entry(format!("{}{part}", event.verb)).or_default() += 1;
    }
    for (verb, least) in [
        ("get", 40),
        ("list", 40),
        ("watch", 10),
        ("create", 10),
        ("update", 5),
        ("patch", 20),
        ("delete", 10),
        ("deletecollection", 10),
        ("get/status", 3),
        ("patch/status", 1),
        ("get/scale", 1),
    ] {
        assert!(
            done.get(verb).is_some_and(|done| *done >= least),
            "{verb} has succeeded too seldom: {done:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_leads_out_of_a_namespace() {
    hostile(7).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: other requests than the usual ones"]
async fn nothing_leads_out_of_a_namespace_with_other_seeds() {
    for seed in 20..26 {
        hostile(seed).await;
    }
}
