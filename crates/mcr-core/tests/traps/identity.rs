//! Who answers: another name of a cluster in the fleet, and another cluster behind the same description.

use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, join_all};
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use mcr_core::{
    Access, Cluster, ClusterSpec, ClusterState, Credential, CredentialError, CredentialSource, Endpoint,
    EndpointAccess, Fingerprint, HUB, Refresh, WatchRequest,
};
use mcr_testkit::log::Log;
use tokio_util::task::AbortOnDropHandle;
use tracing::Level;

use mcr_doubles::scripted::{Answer, Server};

use crate::harness::*;

fn without_duplicates() -> Running {
    Running::start_with(|settings| settings.allow_duplicates = false)
}

async fn waits_beside(cluster: &Cluster, other: &str) {
    let state = cluster
        .wait_for(|state| matches!(state, ClusterState::Suspended { .. }))
        .await;
    let reason = state.reason().unwrap();
    assert!(
        reason.contains(&format!("the same cluster as {other} ")),
        "{reason}"
    );
    assert!(reason.contains("kube-system UID uid-0-0"), "{reason}");
    assert_eq!(cluster.same_as().as_deref(), Some(other));
    let refused = cluster
        .client()
        .request_text(get("/work"))
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("the same cluster"), "{refused}");
}

fn get(path: &str) -> Request<Vec<u8>> {
    Request::get(path).body(Vec::new()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn another_name_of_a_cluster_is_engaged_only_when_the_first_one_leaves() {
    let log = Log::of_this_thread(Level::WARN);
    let server = Server::in_memory(serves_one_map);
    let running = without_duplicates();
    let first = running.join_by("b", server.access()).await;
    ready(&first).await;
    let second = running.join_by("a", server.access()).await;
    let (watch, _) = follow(&second, WatchRequest::of::<ConfigMap>());
    waits_beside(&second, "b").await;
    for_millis(600_000).await;
    assert_eq!(
        server.lists(MAPS).len(),
        0,
        "nothing is listed by its second name"
    );
    let [a, b] = &running.fleet.snapshot().clusters[..] else {
        panic!("two are shown")
    };
    assert_eq!((a.same_as.as_deref(), b.same_as.as_deref()), (Some("b"), None));
    assert_eq!(b.warnings.len(), 1);
    assert!(b.warnings[0].ends_with("kube-system UID: a"), "{:?}", b.warnings);
    assert_eq!(log.lines_with("another name of one in the fleet").len(), 1);

    running.clusters.remove(&name("b"));
    ready(&second).await;
    assert_eq!(second.same_as(), None);
    synced(&watch).await;
    let again = running.join_by("b", server.access()).await;
    waits_beside(&again, "a").await;
    let elsewhere = Server::in_memory(serves_one_map);
    elsewhere.become_another();
    running
        .clusters
        .add(ClusterSpec::new(name("b"), elsewhere.access()));
    ready(&again).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_name_stays_out_also_when_its_uid_may_not_be_read_any_more() {
    let server = Server::in_memory(|_| {
        let message = "namespaces \"kube-system\" is forbidden: User \"somebody\" cannot get it";
        Answer::status(403, "Forbidden", message)
    });
    let running = without_duplicates();
    ready(&running.join_by("b", server.access()).await).await;
    let second = running.join_by("a", server.access()).await;
    waits_beside(&second, "b").await;
    server.script_probes();
    for_millis(60_000).await;
    waits_beside(&second, "b").await;
    server.fall_silent();
    unreachable(&second, "").await;
    server.speak_again();
    waits_beside(&second, "b").await;
    running.clusters.remove(&name("b"));
    ready(&second).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_hub_takes_the_place_of_its_other_name() {
    let server = Server::in_memory(serves_one_map);
    let running = without_duplicates();
    let first = running.join_by("a", server.access()).await;
    ready(&first).await;
    let client = first.client();
    client.request_text(get("/work")).await.unwrap();
    let hub = running.join_by(HUB, server.access()).await;
    ready(&hub).await;
    assert!(
        client.request_text(get("/work")).await.is_err(),
        "before the hub is Ready"
    );
    let second = eventually("it is engaged anew", || {
        running.fleet.get("a").ok().filter(|now| !now.is_same(&first))
    })
    .await;
    waits_beside(&second, HUB).await;
    assert!(hub.is_hub() && second.is_hub());
    running.clusters.remove(&name(HUB));
    ready(&second).await;
    assert!(!second.is_hub());
    running.stop().await;
    let allowing = Running::start();
    let (a, hub) = (
        allowing.join_by("a", server.access()).await,
        allowing.join_by(HUB, server.access()).await,
    );
    for cluster in [&a, &hub] {
        ready(cluster).await;
        assert!(cluster.is_hub());
    }
    allowing.stop().await;
}

/// A token `…@uid` leads to the cluster with that UID, as behind a front that routes by credentials. Whoever has `…@none` may not
/// read the UID.
struct Source(u8, Arc<Mutex<&'static str>>);

impl CredentialSource for Source {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.0)
    }

    fn credential(&self, _: Refresh) -> BoxFuture<'_, Result<Credential, CredentialError>> {
        let token = *self.1.lock().unwrap();
        Box::pin(async move {
            if token == "hangs" {
                *self.1.lock().unwrap() = "hanging";
                std::future::pending::<()>().await;
            }
            Ok(Credential::token(token))
        })
    }
}

/// The identity provider may be behind the same network, at a renewal and when the description changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_cluster_is_unreachable_although_its_credential_source_hangs() {
    for changes in [false, true] {
        let server = Server::start(serves_one_map).await;
        let second = std::time::Duration::from_secs(1);
        let running = Running::start_with(|settings| {
            (settings.probe_after, settings.probe_timeout) = (second, second);
        });
        let token = Arc::new(Mutex::new("t"));
        let source = |number| spec(&server, None, Source(number, token.clone()), false);
        running.clusters.add(source(1));
        let cluster = eventually("it is engaged", || running.fleet.get("a").ok()).await;
        ready(&cluster).await;
        *token.lock().unwrap() = "hangs";
        let _work;
        if changes {
            running.clusters.add(source(2));
        } else {
            server.refuse("t");
            let client = cluster.client();
            let asks = async move { client.request_text(get("/work")).await };
            _work = AbortOnDropHandle::new(tokio::spawn(asks));
        }
        eventually("the source hangs", || *token.lock().unwrap() == "hanging").await;
        server.fall_silent();
        // Before the source is given up.
        let found = tokio::time::timeout(second * 20, unreachable(&cluster, "no answer")).await;
        assert!(found.is_ok(), "changes: {changes}");
        running.stop().await;
    }
}

/// Each change ends the attempt to use the one before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_cluster_is_unreachable_although_its_description_changes_all_the_time() {
    let server = Server::start(serves_one_map).await;
    let second = std::time::Duration::from_secs(1);
    let running =
        Running::start_with(|settings| (settings.probe_after, settings.probe_timeout) = (second, second));
    let source = |number| spec(&server, None, Source(number, Arc::new(Mutex::new("t"))), false);
    running.clusters.add(source(0));
    let cluster = eventually("it is engaged", || running.fleet.get("a").ok()).await;
    ready(&cluster).await;
    server.fall_silent();
    let changes = async {
        for number in 1..=100 {
            running.clusters.add(source(number));
            for_millis(200).await;
        }
    };
    let found = tokio::select! {
        _ = unreachable(&cluster, "no answer") => true,
        () = changes => false,
    };
    assert!(found, "{}", cluster.state());
    running.stop().await;
}

/// How the description changes, or only the token that its source gives out.
#[derive(Clone, Copy)]
enum To {
    Address,
    Name,
    Credential,
    Renewed,
}

fn spec(server: &Server, sni: Option<&str>, source: Source, declared: bool) -> ClusterSpec {
    let mut endpoint = Endpoint::new(format!("http://{}", server.address).parse().unwrap());
    endpoint.tls_server_name = sni.map(Into::into);
    let spec = ClusterSpec::new(name("a"), Access::from(EndpointAccess::new(endpoint, source)));
    if declared { spec.identity("declared") } else { spec }
}

async fn follows(before: &'static str, to: To, after: &'static str, declared: bool, is_same: bool) {
    let answer = |_: &_| Answer::json(&serde_json::json!({}));
    let (one, two) = (Server::start(answer).await, Server::start(answer).await);
    let running = Running::start();
    let token = Arc::new(Mutex::new(before));
    let start = spec(&one, None, Source(1, token.clone()), declared);
    running.clusters.add(start);
    let first = eventually("it is engaged", || running.fleet.get("a").ok()).await;
    ready(&first).await;
    let client = first.client();
    let work = AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let _ = client.request_text(get("/work")).await;
            for_millis(2).await;
        }
    }));
    let works = |server: &Server, token: &str| {
        let bearer = format!("Bearer {token}");
        let asked = server.asked().into_iter();
        asked
            .filter(|asked| asked.path == "/work" && asked.header("authorization") == Some(&bearer))
            .count()
    };
    eventually("it is at work", || works(&one, before) > 0).await;
    let at = if matches!(to, To::Address) { &two } else { &one };
    let (sni, number) = match to {
        To::Name => (Some("other"), 1),
        To::Credential => (None, 2),
        To::Address | To::Renewed => (None, 1),
    };
    if matches!(to, To::Renewed) {
        *token.lock().unwrap() = after;
        one.refuse(before);
    } else {
        let source = Source(number, Arc::new(Mutex::new(after)));
        running.clusters.add(spec(at, sni, source, declared));
    }
    if is_same {
        let route = |cluster: &Cluster| cluster.state().is_ready() && works(at, after) > 0;
        eventually("it goes on there", || running.fleet.get("a").ok().filter(&route)).await;
        assert!(running.fleet.get("a").unwrap().is_same(&first));
    } else {
        let is_new = |cluster: &Cluster| cluster.state().is_ready() && !cluster.is_same(&first);
        eventually("another one is engaged", || {
            running.fleet.get("a").ok().filter(is_new)
        })
        .await;
        if before != after || matches!(to, To::Address) {
            assert_eq!(
                works(at, after),
                0,
                "work for the old cluster has reached the new one"
            );
        }
    }
    drop(work);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_for_a_cluster_never_reaches_another_one_behind_the_same_description() {
    use To::*;
    // Whether it is the same cluster: without a declared identity, and with an equal one.
    let rows = [
        ("a@east", Address, "a@east", [true, true]),
        ("a@east", Address, "a@west", [false, false]),
        ("a@east", Address, "a@none", [false, false]),
        ("a@none", Address, "a@none", [false, true]),
        ("a@none", Name, "a@none", [false, true]),
        ("a@east", Name, "a@east", [true, true]),
        ("a@east", Credential, "b@east", [true, true]),
        ("a@east", Credential, "b@west", [false, false]),
        ("a@east", Credential, "b@none", [false, false]),
        ("a@east", Renewed, "b@east", [true, true]),
        ("a@east", Renewed, "b@west", [false, false]),
        ("a@east", Renewed, "b@none", [true, true]),
    ];
    join_all(rows.into_iter().flat_map(|(before, to, after, is_same)| {
        [
            follows(before, to, after, false, is_same[0]),
            follows(before, to, after, true, is_same[1]),
        ]
    }))
    .await;
}
