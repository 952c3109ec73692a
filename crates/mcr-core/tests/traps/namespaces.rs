//! Where requests go that name no namespace.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use mcr_core::{
    Access, Cluster, ClusterSpec, Credential, Endpoint, EndpointAccess, FleetEvent, HubEvent, HubWatch,
    KubeconfigAccess, StaticCredential, Trust, WatchRequest,
};
use mcr_testkit::waiting::eventually;
use tokio::{net::TcpListener, time::timeout};

use crate::harness::{MAPS, Running, follow, name, quiet_server, ready, silent, unreachable};

const LONG: Duration = Duration::from_secs(60);

/// Two contexts, of which the first is the current one.
fn kubeconfig(server: &str, namespace: &str, user: &str) -> KubeconfigAccess {
    let yaml = format!(
        "{{current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u, namespace: {namespace}}}}}, \
         {{name: other, context: {{cluster: c, user: u, namespace: of-the-other}}}}, \
         {{name: plain, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{server: \"{server}\"}}}}], users: [{{name: u, user: {{{user}}}}}]}}"
    );
    KubeconfigAccess::new(yaml, Trust::Trusted)
}

fn endpoint_access(server: &str, namespace: &str) -> Access {
    let credential = StaticCredential::new(Credential::token("t"));
    let mut access = EndpointAccess::new(Endpoint::new(server.parse().unwrap()), credential);
    access.default_namespace = namespace.into();
    access.into()
}

fn client(namespace: &str) -> Access {
    silent(namespace).into()
}

/// What a program gets that takes a client now.
fn namespace_of(cluster: &Cluster) -> String {
    cluster.client().default_namespace().to_owned()
}

async fn becomes(cluster: &Cluster, namespace: &str) {
    let name = cluster.name();
    eventually(LONG, &format!("clients of {name} are of {namespace}"), || {
        namespace_of(cluster) == namespace
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_taken_before_the_first_connection_has_the_default_namespace_of_its_cluster() {
    // Connections are taken, and nobody is there who would answer.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "t").unwrap();
    let of = |user: &str| kubeconfig(&server, "team", user);
    let file = format!("tokenFile: {}", file.display());
    let program = "exec: {apiVersion: client.authentication.k8s.io/v1, command: /nowhere/login, interactiveMode: Never}";
    let read = |access: KubeconfigAccess| Access::from(access.parse().unwrap());
    let mut cases: BTreeMap<&str, (Access, &str)> = BTreeMap::from([
        ("token", (of("token: t").into(), "team")),
        ("token, parsed before", (read(of("token: t")), "team")),
        ("file", (of(&file).into(), "team")),
        ("file, parsed before", (read(of(&file)), "team")),
        (
            "file that is not there",
            (of("tokenFile: /nowhere/token").into(), "team"),
        ),
        ("program", (of(program).into(), "team")),
        (
            "chosen context",
            (of("token: t").context("other").into(), "of-the-other"),
        ),
        (
            "no namespace",
            (of("token: t").context("plain").into(), "default"),
        ),
        (
            "unusable",
            (KubeconfigAccess::new("{", Trust::Trusted).into(), "default"),
        ),
        ("endpoint", (endpoint_access(&server, "team"), "team")),
        ("client", (client("team"), "team")),
    ]);
    let long: String = (0..2_000)
        .map(|i| format!("- {{name: x{i}, context: {{cluster: c, user: u, namespace: n{i}}}}}\n"))
        .collect();
    let long = format!(
        "contexts:\n{long}clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\nusers: [{{name: u, user: {{token: t}}}}]"
    );
    cases.insert(
        "one of many",
        (
            KubeconfigAccess::new(long, Trust::Trusted)
                .context("x1234")
                .into(),
            "n1234",
        ),
    );
    let running = Running::start();
    let mut events = running.fleet.subscribe();
    for (case, (access, _)) in &cases {
        running.clusters.add(ClusterSpec::new(name(case), access.clone()));
    }
    let asleep = ClusterSpec::new(name("asleep"), of("token: t").into());
    running.clusters.add(asleep.suspended("for a test"));
    cases.insert("asleep", (client(""), "team"));
    while !cases.is_empty() {
        let event = timeout(LONG, events.next()).await.expect("all are told");
        if let FleetEvent::Engaged(cluster) = event {
            let (_, expected) = cases.remove(cluster.name().as_str()).unwrap();
            assert_eq!(namespace_of(&cluster), expected, "{}", cluster.name());
        }
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_default_namespace_is_that_of_clients_taken_later_and_lists_nothing() {
    let server = quiet_server().await;
    let address = format!("http://{}", server.address);
    let at = |namespace: &str| kubeconfig(&address, namespace, "token: t");
    let running = Running::start();
    let announce = |access: Access| running.clusters.add(ClusterSpec::new(name("a"), access));
    announce(at("one").into());
    let cluster = eventually(LONG, "it joins", || running.fleet.get("a").ok()).await;
    let (watch, _changes) = follow(&cluster, WatchRequest::of::<ConfigMap>());
    ready(&cluster).await;
    eventually(LONG, "it is listed", || watch.status().synced).await;
    let first = cluster.client();
    assert_eq!(first.default_namespace(), "one");

    announce(at("two").into());
    becomes(&cluster, "two").await;
    let maps = Api::<ConfigMap>::default_namespaced(cluster.client());
    maps.list(&Default::default()).await.unwrap();
    let maps = Api::<ConfigMap>::default_namespaced(first);
    maps.list(&Default::default()).await.unwrap();
    for namespace in ["one", "two"] {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        assert_eq!(server.lists(&path).len(), 1, "{namespace}");
    }

    announce(endpoint_access(&address, "three"));
    becomes(&cluster, "three").await;
    // With other credentials, too.
    announce(kubeconfig(&address, "four", "token: u").into());
    becomes(&cluster, "four").await;
    assert_eq!(server.lists(MAPS).len(), 1);
    // Not of a description that is not taken: the last good one goes on.
    announce(kubeconfig(&address, "unused", "tokenFile: /nowhere/token").into());
    let warned = || !running.fleet.snapshot().clusters[0].warnings.is_empty();
    eventually(LONG, "it is not taken", warned).await;
    assert_eq!(namespace_of(&cluster), "four");
    // And in another place, where nobody answers yet.
    announce(client("five"));
    becomes(&cluster, "five").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_default_namespace_counts_for_a_cluster_that_is_not_connected() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    let running = Running::start();
    let announce = |access: Access| running.clusters.add(ClusterSpec::new(name("a"), access));
    let asleep = |access: Access| {
        running
            .clusters
            .add(ClusterSpec::new(name("a"), access).suspended("for a test"))
    };
    announce(kubeconfig(&server, "one", "token: t").into());
    let cluster = eventually(LONG, "it joins", || running.fleet.get("a").ok()).await;
    assert_eq!(namespace_of(&cluster), "one");
    announce(kubeconfig(&server, "two", "tokenFile: /nowhere/token").into());
    becomes(&cluster, "two").await;
    unreachable(&cluster, "").await;
    announce(kubeconfig(&server, "three", "tokenFile: /nowhere/token").into());
    becomes(&cluster, "three").await;
    announce(KubeconfigAccess::new("{", Trust::Trusted).into());
    announce(endpoint_access(&server, "four"));
    becomes(&cluster, "four").await;
    asleep(client("five"));
    becomes(&cluster, "five").await;
    asleep(client("six"));
    becomes(&cluster, "six").await;
    running.stop().await;
}

/// Files on a share that does not answer keep the threads that read them.
#[test]
fn a_cluster_joins_with_its_default_namespace_while_every_thread_that_reads_files_is_stuck() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (release, stuck) = std::sync::mpsc::channel::<()>();
        let stuck = tokio::task::spawn_blocking(move || stuck.recv());
        let running = Running::start();
        let access = kubeconfig("http://127.0.0.1:1", "team", "token: t");
        running.clusters.add(ClusterSpec::new(name("a"), access.into()));
        let cluster = eventually(LONG, "it joins", || running.fleet.get("a").ok()).await;
        assert_eq!(namespace_of(&cluster), "team");
        release.send(()).unwrap();
        stuck.await.unwrap().unwrap();
        running.stop().await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_what_can_not_be_a_namespace_is_refused_and_nothing_is_asked() {
    let server = quiet_server().await;
    let running = Running::start();
    let cluster = running.join("a", &server.kubeconfig()).await;
    ready(&cluster).await;
    let request = WatchRequest::of::<ConfigMap>().namespace("../secrets");
    let (watch, changes) = follow(&cluster, request.clone());
    let refusal = "\"../secrets\" can't be the name of a namespace";
    let problem = || watch.status().problem.map(|problem| problem.error);
    let problem = eventually(LONG, "it is refused", problem).await;
    assert!(problem.to_string().contains(refusal), "{problem}");
    assert_eq!(
        (problem.reason(), problem.is_blocked()),
        ("invalid_request", true)
    );
    assert!(changes.statuses().iter().any(|status| status.problem.is_some()));
    assert!(cluster.kinds()[0].blocked);
    let mut hub = HubWatch::new(silent("default"), request);
    let event = timeout(LONG, hub.next()).await.expect("it is told");
    assert!(
        matches!(&event, HubEvent::Failing(problem) if problem.error.to_string().contains(refusal)),
        "{event:?}"
    );
    assert_eq!(server.asked().len(), 0);
    running.stop().await;
}
