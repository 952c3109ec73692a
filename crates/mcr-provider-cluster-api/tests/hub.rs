//! The provider on a simulated hub.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_core::{Change, ClusterState, Fleet, Provider, WatchRequest};
use mcr_provider_cluster_api::{ClusterApiProvider, SecretKeyRef};
use mcr_testkit::{
    discovery::address_and_token,
    sim::{SimCluster, SimFleet, SimRule, SimUser},
    waiting::{self, Background},
};
use serde_json::{Value, json};
use support::{
    PATIENCE, Received, builder, cluster, gets, hub, hub_of, initialized, kubeconfig, line, locally, secret,
};

const CLUSTERS: &str = "clusters.cluster.x-k8s.io";

fn provider(hub: &SimCluster) -> ClusterApiProvider {
    builder(hub).build().unwrap()
}

/// An engaged cluster `a` in the namespace `default`.
async fn engaged(hub: &SimCluster, received: &mut Received) {
    hub.create(secret("default", "a", kubeconfig("one"))).unwrap();
    hub.create(initialized(cluster("default", "a"))).unwrap();
    assert_eq!(received.until("synced").await, ["+a", "synced"]);
}

fn change(hub: &SimCluster, resource: &str, key: &str, change: impl FnOnce(&mut Value)) {
    let mut there = hub.get(resource, key).unwrap();
    change(&mut there);
    hub.update(there).unwrap();
}

#[tokio::test]
async fn a_cluster_waits_with_the_reason_then_joins_with_what_its_cluster_reports() {
    let hub = hub();
    let mut received = Received::of(&provider(&hub));
    assert_eq!(received.line().await, "synced");
    hub.create(cluster("default", "a")).unwrap();
    assert_eq!(
        received.line().await,
        "~a: the control plane is not initialized yet (phase Provisioning)"
    );
    hub.create(secret("default", "a", kubeconfig("one"))).unwrap();
    // Those that Cluster API makes beside it are never read.
    for other in ["a-ca", "a-etcd", "a-sa", "a-proxy"] {
        let mut secret = secret("default", "a", "key");
        secret["metadata"]["name"] = other.into();
        hub.create(secret).unwrap();
    }
    change(&hub, CLUSTERS, "default/a", |there| {
        *there = initialized(there.take())
    });
    let Change::Upsert(spec) = received.next().await else {
        panic!()
    };
    assert_eq!(spec.name, "a");
    assert_eq!(spec.labels["region"], "eu");
    let properties: Vec<_> = spec
        .properties
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(
        properties,
        [
            "class=quick-start",
            "cluster=a",
            "endpoint=10.0.0.1:6443",
            "infrastructure=DevCluster",
            "namespace=default",
            "version=v1.36.1",
        ]
    );
    assert_eq!(
        spec.identity.as_deref(),
        hub.get(CLUSTERS, "default/a").unwrap()["metadata"]["uid"].as_str()
    );
    let read: Vec<String> = hub
        .audit()
        .events()
        .filter(|event| event.verb == "get" && event.resource == "secrets")
        .map(|event| event.name.clone())
        .collect();
    assert_eq!(read, ["a-kubeconfig"]);
    let audit = hub.audit();
    for event in audit
        .events()
        .filter(|event| event.is_list("secrets") || event.is_watch_start("secrets"))
    {
        assert!(
            event
                .uri
                .contains("labelSelector=cluster.x-k8s.io%2Fcluster-name"),
            "{event:?}"
        );
    }
}

#[tokio::test]
async fn initialized_first_and_the_secret_later() {
    let hub = hub();
    hub.create(initialized(cluster("default", "a"))).unwrap();
    // One without the label is invisible, as to Cluster API.
    let mut unlabelled = secret("default", "a", kubeconfig("one"));
    unlabelled["metadata"]["labels"] = json!({});
    hub.create(unlabelled).unwrap();
    let mut received = Received::of(&provider(&hub));
    assert_eq!(
        received.until("synced").await,
        [
            "~a: the control plane is initialized, but its kubeconfig is missing: no Secret a-kubeconfig with the label \
         cluster.x-k8s.io/cluster-name in namespace default",
            "synced",
        ]
    );
    assert_eq!(gets(&hub), 0);
    change(&hub, "secrets", "default/a-kubeconfig", |there| {
        there["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "a"});
    });
    assert_eq!(received.line().await, "+a");
    assert_eq!(gets(&hub), 1);
}

#[tokio::test]
async fn a_pause_an_outage_and_a_status_change_nothing_and_cost_nothing() {
    let hub = hub();
    let mut received = Received::of(&provider(&hub));
    engaged(&hub, &mut received).await;
    let condition = |type_: &str, status: &str| {
        json!({
            "type": type_, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    change(&hub, CLUSTERS, "default/a", |there| {
        there["spec"]["paused"] = true.into();
        there["metadata"]["annotations"] = json!({"cluster.x-k8s.io/paused": ""});
        there["status"]["phase"] = "Provisioning".into();
        there["status"]["conditions"] = json!([
            condition("Available", "False"),
            condition("RemoteConnectionProbe", "False"),
            condition("Paused", "True"),
        ]);
    });
    change(&hub, CLUSTERS, "default/a", |there| {
        there["metadata"]["labels"]["region"] = "us".into()
    });
    let Change::Upsert(spec) = received.next().await else {
        panic!()
    };
    assert_eq!(
        spec.labels["region"], "us",
        "the first that is said after all these"
    );
    assert_eq!(gets(&hub), 1);
}

#[tokio::test]
async fn a_secret_that_goes_and_comes_back_is_one_upsert_with_the_new_credentials() {
    let hub = hub();
    let mut received = Received::of(&provider(&hub));
    engaged(&hub, &mut received).await;
    hub.delete("secrets", "default/a-kubeconfig").unwrap();
    let gone = received.line().await;
    assert!(
        gone.starts_with("!a: Secret default/a-kubeconfig: no Secret a-kubeconfig with the label"),
        "{gone}"
    );
    hub.create(secret("default", "a", kubeconfig("two"))).unwrap();
    let Change::Upsert(spec) = received.next().await else {
        panic!()
    };
    assert!(address_and_token(&spec.access).ends_with(" two"));
    assert_eq!(gets(&hub), 2);
}

#[tokio::test]
async fn another_cluster_of_the_name_is_another_and_an_orphan_secret_engages_nothing() {
    let hub = hub();
    let mut received = Received::of(&provider(&hub));
    engaged(&hub, &mut received).await;
    hub.delete(CLUSTERS, "default/a").unwrap();
    assert_eq!(received.line().await, "-a");
    hub.create(cluster("default", "a")).unwrap();
    let waits = received.line().await;
    assert!(
        waits.starts_with("~a: the control plane is not initialized yet"),
        "{waits}"
    );
    change(&hub, CLUSTERS, "default/a", |there| {
        *there = initialized(there.take())
    });
    assert_eq!(received.line().await, "+a");
}

fn deleted_with_finalizer(hub: &SimCluster) {
    change(hub, CLUSTERS, "default/a", |there| {
        there["metadata"]["finalizers"] = json!(["cluster.cluster.x-k8s.io"]);
    });
    hub.delete(CLUSTERS, "default/a").unwrap();
}

#[tokio::test]
async fn a_deletion_timestamp_disengages_at_once() {
    let hub = hub();
    let mut received = Received::of(&provider(&hub));
    engaged(&hub, &mut received).await;
    deleted_with_finalizer(&hub);
    assert_eq!(received.line().await, "-a");
    // Not again by a new discovery.
    assert_eq!(Received::of(&provider(&hub)).line().await, "synced");
}

#[tokio::test]
async fn keep_while_keeps_a_cluster_that_is_being_deleted() {
    let hub = hub();
    let keep = |cluster: &mcr_provider_cluster_api::v1beta2::Cluster| {
        cluster
            .metadata
            .annotations
            .as_ref()
            .is_some_and(|all| all.contains_key("example.com/busy"))
    };
    let mut received = Received::of(&builder(&hub).keep_while(keep).build().unwrap());
    engaged(&hub, &mut received).await;
    change(&hub, CLUSTERS, "default/a", |there| {
        there["metadata"]["annotations"] = json!({"example.com/busy": "yes"});
    });
    deleted_with_finalizer(&hub);
    // It follows its Secret meanwhile.
    change(&hub, "secrets", "default/a-kubeconfig", |there| {
        there["data"]["value"] = support::base64(kubeconfig("two")).into();
    });
    assert_eq!(received.line().await, "+a");
    change(&hub, CLUSTERS, "default/a", |there| {
        there["metadata"]["annotations"] = json!({})
    });
    assert_eq!(received.line().await, "-a");
}

#[tokio::test]
async fn what_does_not_match_is_not_announced_and_leaves() {
    let hub = hub();
    for (name, kind, class, region) in [
        ("a", "AWSCluster", "gold", "eu"),
        ("b", "DevCluster", "gold", "eu"),
        ("c", "AWSCluster", "lead", "eu"),
        ("d", "AWSCluster", "gold", "us"),
        ("e", "AWSCluster", "gold", "eu"),
    ] {
        let mut object = cluster("default", name);
        object["spec"]["infrastructureRef"]["kind"] = kind.into();
        object["spec"]["topology"]["classRef"]["name"] = class.into();
        object["metadata"]["labels"]["region"] = region.into();
        hub.create(object).unwrap();
    }
    hub.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}}))
        .unwrap();
    hub.create(cluster("elsewhere", "f")).unwrap();
    let provider = builder(&hub)
        .labels("region=eu")
        .infrastructure_kinds(["AWSCluster", "AzureCluster"])
        .cluster_classes(["gold"])
        .select(|cluster| cluster.metadata.name.as_deref() != Some("e"))
        .build()
        .unwrap();
    let mut received = Received::of(&provider);
    let all = received.until("synced").await;
    assert!(all.len() == 2 && all[0].starts_with("~a"), "{all:?}");
    change(&hub, CLUSTERS, "default/a", |there| {
        there["metadata"]["labels"]["region"] = "us".into()
    });
    assert_eq!(received.line().await, "-a");
    change(&hub, CLUSTERS, "default/b", |there| {
        there["spec"]["infrastructureRef"]["kind"] = "AzureCluster".into()
    });
    assert!(received.line().await.starts_with("~b"));
    change(&hub, CLUSTERS, "default/b", |there| {
        there["spec"]["topology"]["classRef"]["name"] = "lead".into()
    });
    assert_eq!(received.line().await, "-b");

    let mut all = Received::of(&builder(&hub).all_namespaces().build().unwrap())
        .until("synced")
        .await;
    all.sort();
    let names: Vec<&str> = all.iter().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(
        names,
        [
            "synced",
            "~default/a",
            "~default/b",
            "~default/c",
            "~default/d",
            "~default/e",
            "~elsewhere/f"
        ]
    );
}

#[tokio::test]
async fn another_contract_has_its_own_readiness_and_secret() {
    let hub = hub();
    let mut object = cluster("default", "a");
    object["metadata"]["annotations"] = json!({"example.com/up": "no"});
    hub.create(object).unwrap();
    let mut other = secret("default", "a", "unused");
    other["metadata"]["name"] = "access-of-a".into();
    other["data"] = json!({"config": support::base64(kubeconfig("one"))});
    hub.create(other).unwrap();
    let provider = builder(&hub)
        .ready_when(|cluster| {
            cluster
                .metadata
                .annotations
                .as_ref()
                .is_some_and(|all| all["example.com/up"] == "yes")
        })
        .kubeconfig_secret(|cluster| {
            SecretKeyRef::new(
                format!(
                    "access-of-{}",
                    cluster.metadata.name.as_deref().unwrap_or_default()
                ),
                "config",
            )
        })
        .build()
        .unwrap();
    let mut received = Received::of(&provider);
    assert_eq!(
        received.line().await,
        "~a: the Cluster is not ready by the provider's `ready_when` (phase Provisioning)"
    );
    assert_eq!(received.line().await, "synced");
    change(&hub, CLUSTERS, "default/a", |there| {
        there["metadata"]["annotations"]["example.com/up"] = "yes".into()
    });
    assert_eq!(received.line().await, "+a");
    change(&hub, CLUSTERS, "default/a", |there| {
        there["metadata"]["annotations"]["example.com/up"] = "no".into()
    });
    change(&hub, CLUSTERS, "default/a", |there| {
        there["metadata"]["labels"]["region"] = "us".into()
    });
    assert_eq!(received.line().await, "+a", "ready once is ready for good");
}

fn old_cluster(name: &str) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "controlPlaneEndpoint": {"host": "", "port": 0},
            "infrastructureRef": {
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "AWSCluster", "name": name, "namespace": "default",
            },
            "topology": {"class": "quick-start", "version": "v1.31.0"},
        },
        "status": {
            "phase": "Provisioned", "infrastructureReady": true, "controlPlaneReady": false,
            "conditions": [{
                "type": "ControlPlaneInitialized", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    })
}

#[tokio::test]
async fn a_hub_with_v1beta1_alone_is_read_as_v1beta1_and_followed_to_v1beta2() {
    let hub = hub_of(SimCluster::builder(), &["v1beta1"]);
    hub.create(secret("default", "a", kubeconfig("one"))).unwrap();
    hub.create(old_cluster("a")).unwrap();
    let provider = provider(&hub);
    let mut received = Received::of(&provider);
    let Change::Upsert(spec) = received.next().await else {
        panic!()
    };
    assert_eq!(spec.properties["class"], "quick-start");
    assert_eq!(spec.properties["infrastructure"], "AWSCluster");
    assert_eq!(spec.properties.get("endpoint"), None);
    assert_eq!(received.line().await, "synced");
    // Cluster API is upgraded, and v1beta1 is served no more.
    hub.apply(support::crd(&["v1beta2"])).unwrap();
    hub.end_watches();
    hub.compact(hub.resource_version());
    let error = received.error().await;
    assert_eq!(
        error,
        "the hub serves Clusters as v1beta2 now, and as v1beta1 no more; they are listed again"
    );
    assert!(Received::of(&provider).until("synced").await.len() >= 2);
}

#[tokio::test]
async fn a_hub_without_cluster_api_gets_advice_and_tried_again() {
    let hub = SimCluster::new();
    let provider = provider(&hub);
    let error = Received::of(&provider).error().await;
    assert!(
        error.starts_with("the hub has no Cluster API") && error.contains("clusterctl init"),
        "{error}"
    );
    let fleet = Fleet::builder().provider(provider).build();
    let running = Background::start({
        let fleet = fleet.clone();
        |stop| async move { fleet.run(stop).await }
    });
    eventually("it is shown", || {
        fleet
            .snapshot()
            .providers
            .iter()
            .any(|provider| format!("{provider:?}").contains("clusterctl init"))
    })
    .await;
    hub.create(support::crd(&["v1beta2"])).unwrap();
    hub.create(cluster("default", "a")).unwrap();
    eventually("it is tried again", || fleet.clusters().len() == 1).await;
    running.stop().await;
}

async fn eventually(what: &str, so: impl FnMut() -> bool) {
    waiting::eventually(PATIENCE, what, so).await;
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_and_used_once_it_is_granted() {
    let hub = hub();
    hub.create(secret("default", "a", kubeconfig("one"))).unwrap();
    hub.create(initialized(cluster("default", "a"))).unwrap();
    let user = |rules: &[SimRule]| {
        rules
            .iter()
            .cloned()
            .fold(SimUser::new("provider"), SimUser::rule)
    };
    let clusters = SimRule::new(["cluster.x-k8s.io"], ["clusters"], ["list", "watch"]);
    let watch = SimRule::new([""], ["secrets"], ["list", "watch"]);
    let get = SimRule::new([""], ["secrets"], ["get"]);
    let client = || hub.client_with_token("t");
    hub.set_user("t", user(&[clusters.clone(), watch.clone()]));
    let mut received = Received::of(&builder(&hub).client(client()).build().unwrap());
    let reported = received.line().await;
    assert!(
        reported.starts_with("!a: Secret default/a-kubeconfig, key \"value\"")
            && reported.contains("grant the verb get on secrets"),
        "{reported}"
    );
    assert_eq!(received.line().await, "synced", "others do not wait for it");
    hub.set_user("t", user(&[clusters, watch, get]));
    assert_eq!(received.line().await, "+a");
}

#[tokio::test]
async fn a_410_and_broken_watches_change_nothing() {
    let hub = hub();
    let mut received = Received::of(&provider(&hub));
    engaged(&hub, &mut received).await;
    for round in 0..3 {
        hub.end_watches();
        hub.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{round}"), "namespace": "default"}}))
            .unwrap();
        hub.compact(hub.resource_version());
    }
    change(&hub, CLUSTERS, "default/a", |there| {
        there["metadata"]["labels"]["region"] = "us".into()
    });
    assert_eq!(received.line().await, "+a");
    assert_eq!(gets(&hub), 1);
}

#[tokio::test]
async fn broken_secrets_concern_only_their_own_cluster_and_are_reported_without_their_content() {
    let hub = hub();
    let bomb = (1..12).fold("a0: &a0 [x]\n".to_owned(), |bomb, n| {
        format!(
            "{bomb}a{n}: &a{n} [{}]\n",
            vec![format!("*a{}", n - 1); 10].join(", ")
        )
    });
    let with = |from: &str, to: &str| kubeconfig("sesame").replace(from, to);
    let exec =
        "exec: {command: /bin/sh, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}";
    let broken = [
        ("garbage", vec![b'%'; 700_000], "Secret"),
        ("half", b"half: [sesame".to_vec(), "half"),
        ("bomb", bomb.into_bytes(), ""),
        ("exec", with("token: sesame", exec).into_bytes(), "asks to run"),
        (
            "file",
            with("token: sesame", "tokenFile: /etc/sesame").into_bytes(),
            "names a file",
        ),
        (
            "metadata",
            with("192.0.2.1:6443", "169.254.169.254").into_bytes(),
            "link-local or metadata",
        ),
        ("empty", Vec::new(), "is empty"),
    ];
    for (name, content, _) in &broken {
        hub.create(secret("default", name, content)).unwrap();
        hub.create(initialized(cluster("default", name))).unwrap();
    }
    let mut no_key = secret("default", "nokey", "");
    no_key["data"] = json!({"kubeconfig": support::base64(kubeconfig("sesame"))});
    hub.create(no_key).unwrap();
    hub.create(initialized(cluster("default", "nokey"))).unwrap();
    hub.create(secret("default", "zebra", kubeconfig("one"))).unwrap();
    hub.create(initialized(cluster("default", "zebra"))).unwrap();
    let mut received = Received::of(&provider(&hub));
    let all = received.until("synced").await;
    assert_eq!(all.len(), broken.len() + 3, "{all:?}");
    assert!(all.contains(&"+zebra".to_owned()), "{all:?}");
    for (name, _, problem) in broken
        .iter()
        .map(|(name, _, problem)| ((), name, problem))
        .map(|(u, n, p)| (n, u, p))
    {
        let reported = all
            .iter()
            .find(|line| line.starts_with(&format!("!{name}: Secret default/{name}-kubeconfig")))
            .unwrap();
        assert!(reported.contains(problem) && reported.len() < 1000, "{reported}");
    }
    assert!(
        all.iter()
            .any(|line| line.starts_with("!nokey") && line.contains("has no key \"value\"")),
        "{all:?}"
    );
    assert!(!all.join("\n").contains("sesame"), "{all:?}");
    // The events are written while the discovery goes on.
    let events = async {
        loop {
            let events = hub.list("events.events.k8s.io", "default");
            if events.len() > broken.len() {
                return events;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let events = tokio::select! {
        events = events => events,
        announced = received.next() => panic!("{}", line(&announced)),
    };
    for event in &events {
        assert_eq!(event["reason"], "KubeconfigBroken");
        assert_eq!(event["regarding"]["kind"], "Secret");
        assert!(
            event["regarding"]["name"]
                .as_str()
                .unwrap()
                .ends_with("-kubeconfig"),
            "{event}"
        );
    }
    assert!(!Value::from(events).to_string().contains("sesame"));
}

/// In a fleet: what waits is shown without a connection, and a rotation is no LIST.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_fleet_what_waits_is_not_dialled_and_a_rotation_lists_nothing() {
    let member = SimCluster::builder().name("a").build();
    let members = SimFleet::serve([member.clone()]).await.unwrap();
    let kubeconfig = members.kubeconfig("a").unwrap();
    let hub = hub();
    hub.create(secret("default", "a", &kubeconfig)).unwrap();
    hub.create(cluster("default", "a")).unwrap();
    let fleet = Fleet::builder()
        .provider(provider(&hub))
        .settings(|settings| settings.access_policy = locally())
        .build();
    let running = Background::start({
        let fleet = fleet.clone();
        |stop| async move { fleet.run(stop).await }
    });
    let state = |fleet: &Fleet| fleet.get("a").map(|cluster| cluster.state());
    eventually("it waits", || matches!(state(&fleet), Ok(ClusterState::Suspended { reason }) if reason.contains("not initialized"))).await;
    assert_eq!(member.audit().events().count(), 0, "nobody has dialled");
    change(&hub, CLUSTERS, "default/a", |there| {
        *there = initialized(there.take())
    });
    eventually("it is ready", || matches!(state(&fleet), Ok(ClusterState::Ready))).await;
    let cluster = fleet.get("a").unwrap();
    let maps = cluster.watch(WatchRequest::of::<ConfigMap>(), None).unwrap();
    eventually("its objects are listed", || maps.status().synced).await;

    // The kubeconfig is the same but for its credential.
    let token = member.admin_token();
    member.set_user("second", SimUser::new("second").rule(SimRule::all()));
    assert!(kubeconfig.contains(&token));
    let mark = hub.audit().mark();
    change(&hub, "secrets", "default/a-kubeconfig", |there| {
        there["data"]["value"] = support::base64(kubeconfig.replace(&token, "second")).into();
    });
    eventually("the new credential is used", || {
        member.audit().count(|event| event.user == "second") > 0
    })
    .await;
    assert_eq!(
        member.audit().count(|event| event.is_list("configmaps")),
        1,
        "no LIST but the first"
    );
    let since = hub.audit().since(mark);
    assert_eq!(
        since.count(|event| event.verb == "get" && event.resource == "secrets"),
        1
    );
    assert_eq!(since.count(|event| event.verb == "list"), 0);
    // The Secret goes and comes back.
    hub.delete("secrets", "default/a-kubeconfig").unwrap();
    eventually("the reason is shown", || {
        fleet
            .snapshot()
            .clusters
            .iter()
            .any(|cluster| format!("{cluster:?}").contains("no Secret a-kubeconfig"))
    })
    .await;
    assert!(
        matches!(state(&fleet), Ok(ClusterState::Ready)),
        "it stays engaged"
    );
    hub.create(secret("default", "a", &kubeconfig)).unwrap();
    eventually("it is used", || {
        !fleet
            .snapshot()
            .clusters
            .iter()
            .any(|cluster| format!("{cluster:?}").contains("no Secret a-kubeconfig"))
    })
    .await;
    assert_eq!(member.audit().count(|event| event.is_list("configmaps")), 1);
    drop(maps);
    running.stop().await;
}

#[tokio::test]
async fn the_provider_reports_where_it_looks_and_shows_no_secret() {
    let hub = hub();
    let provider: Arc<dyn Provider> = Arc::new(
        builder(&hub)
            .labels("a=b")
            .cluster_classes(["gold"])
            .build()
            .unwrap(),
    );
    assert_eq!(provider.name(), "cluster-api");
    let searched = provider.searched();
    assert!(
        searched.starts_with(
            "clusters.cluster.x-k8s.io in namespace default with labels a=b, of ClusterClass gold of the hub"
        ),
        "{searched}"
    );
    assert!(searched.contains("list, watch and get Secrets"), "{searched}");
}
