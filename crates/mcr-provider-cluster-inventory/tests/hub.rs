//! What the provider says of a hub, which is a simulated API server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::sync::Arc;

use mcr_core::{Change, Provider};
use mcr_provider_cluster_inventory::{
    AccessProviderConfig, AccessProviders, ClusterInventoryError, ClusterInventoryProvider, MEMBER_ID_LABEL,
    PlacementDecisions,
};
use mcr_testkit::{
    discovery::address_and_token,
    sim::{SimCluster, SimRule, SimUser},
    waiting::eventually,
};
use serde_json::{Value, json};
use support::{
    PATIENCE, PROFILES, Received, builder, change, condition, crd, create_namespace, hub, hub_of, profile,
    providers, secret,
};

const SERVER: &str = "https://192.0.2.1:6443";

fn provider(hub: &SimCluster) -> ClusterInventoryProvider {
    builder(hub).access_providers(providers()).build().unwrap()
}

/// A ClusterProfile with access by the deprecated field only.
fn old_profile(name: &str) -> Value {
    let mut profile = profile("default", name, SERVER);
    let status = profile["status"].as_object_mut().unwrap();
    let access = status.remove("accessProviders").unwrap();
    status.insert("credentialProviders".into(), access);
    profile
}

fn server(change: &Change) -> String {
    let Change::Upsert(spec) = change else {
        panic!("{change:?}")
    };
    let shown = address_and_token(&spec.access);
    shown.split(' ').next().unwrap().trim_end_matches('/').to_owned()
}

#[tokio::test]
async fn inventory_17_hubs_of_v1alpha1_and_of_v1alpha2_are_read_as_the_newest_that_they_serve() {
    for (versions, read) in [
        (&["v1alpha1"][..], "v1alpha1"),
        (&["v1alpha1", "v1alpha2"], "v1alpha2"),
        (&["v1alpha2"], "v1alpha2"),
    ] {
        let hub = hub_of(SimCluster::builder(), versions);
        let mut profile = profile("default", "a", SERVER);
        profile["apiVersion"] = format!("multicluster.x-k8s.io/{read}").into();
        hub.create(profile).unwrap();
        let mut received = Received::of(&provider(&hub));
        assert_eq!(received.until("synced").await, ["+a", "synced"], "{versions:?}");
        let path = format!("/apis/multicluster.x-k8s.io/{read}/namespaces/default/clusterprofiles");
        let audit = hub.audit();
        assert_eq!(audit.count(|event| event.is_list("clusterprofiles")), 1);
        assert!(
            audit
                .events()
                .filter(|event| event.resource == "clusterprofiles")
                .all(|event| event.uri.starts_with(&path)),
            "{versions:?}"
        );
    }
}

#[tokio::test]
async fn inventory_17_access_providers_win_and_credential_providers_are_a_fallback() {
    let hub = hub();
    let mut both = old_profile("both");
    both["status"]["accessProviders"] =
        json!([{"name": "p", "cluster": {"server": "https://192.0.2.2:6443"}}]);
    hub.create(both).unwrap();
    let old = builder(&hub).access_providers(providers()).v1alpha1();
    let mut received = Received::of(&old.build().unwrap());
    assert_eq!(server(&received.next().await), "https://192.0.2.2:6443");
    assert_eq!(received.line().await, "synced");
    hub.create(old_profile("old")).unwrap();
    assert_eq!(server(&received.next().await), SERVER);
    // v1alpha2 does not have the field.
    let new = Received::of(&provider(&hub)).until("synced").await;
    assert!(
        new.contains(&"+both".to_owned())
            && new
                .iter()
                .any(|line| line.starts_with("~old: the cluster is ready, but can't be reached yet")),
        "{new:?}"
    );
}

#[tokio::test]
async fn inventory_17_a_ready_profile_without_access_waits_with_the_reason() {
    let hub = hub();
    let mut received = Received::of(&provider(&hub));
    assert_eq!(received.line().await, "synced");
    let mut bare = profile("default", "a", SERVER);
    bare["status"]["accessProviders"] = json!([]);
    hub.create(bare).unwrap();
    assert_eq!(
        received.line().await,
        "~a: the cluster is ready, but can't be reached yet: it has no access providers; its cluster manager, or an add-on of \
         it, writes them"
    );
    change(&hub, PROFILES, "default/a", |there| {
        there["status"]["accessProviders"] = json!([{"name": "q", "cluster": {"server": SERVER}}]);
    });
    let unknown = received.line().await;
    assert!(
        unknown.ends_with("it has the access providers \"q\", and this program knows \"p\"; add one of them to the provider file"),
        "{unknown}"
    );
    change(&hub, PROFILES, "default/a", |there| {
        there["status"]["accessProviders"][0]["name"] = "p".into();
    });
    let Change::Upsert(spec) = received.next().await else {
        panic!()
    };
    assert_eq!(spec.properties["version"], "v1.36.1");
    assert_eq!(spec.properties["region"], "eu");
    assert_eq!(spec.labels["x-k8s.io/cluster-manager"], "ocm");
    assert_eq!(
        spec.identity.as_deref(),
        hub.get(PROFILES, "default/a").unwrap()["metadata"]["uid"].as_str()
    );
}

#[tokio::test]
async fn inventory_17_health_that_goes_suspends_and_comes_back_by_the_condition_of_choice() {
    let hub = hub();
    hub.create(profile("default", "a", SERVER)).unwrap();
    let mut received = Received::of(&provider(&hub));
    assert_eq!(received.until("synced").await, ["+a", "synced"]);
    let joined = builder(&hub)
        .access_providers(providers())
        .ready_condition("Joined")
        .build()
        .unwrap();
    let mut joined = Received::of(&joined);
    assert_eq!(
        joined.until("synced").await,
        ["~a: the ClusterProfile has no condition Joined yet", "synced"]
    );
    change(&hub, PROFILES, "default/a", |there| {
        there["status"]["conditions"] = json!([
            condition("ControlPlaneHealthy", "False", "etcd is down"),
            condition("Joined", "True", ""),
        ]);
    });
    assert_eq!(
        received.line().await,
        "~a: the condition ControlPlaneHealthy is False (Why): etcd is down"
    );
    assert_eq!(joined.line().await, "+a");
    change(&hub, PROFILES, "default/a", |there| {
        there["status"]["conditions"] = json!([condition("ControlPlaneHealthy", "True", "")]);
    });
    assert_eq!(received.line().await, "+a");
}

#[tokio::test]
async fn inventory_17_two_namespaces_are_two_inventories() {
    let hub = hub();
    create_namespace(&hub, "elsewhere");
    for namespace in ["default", "elsewhere"] {
        let mut profile = profile(namespace, "a", SERVER);
        profile["metadata"]["labels"][MEMBER_ID_LABEL] = "m".into();
        hub.create(profile).unwrap();
    }
    let all = builder(&hub).access_providers(providers()).all_namespaces();
    let mut announced = Received::of(&all.build().unwrap()).until("synced").await;
    announced.sort();
    assert_eq!(announced, ["+default/a", "+elsewhere/a", "synced"]);
    let one = builder(&hub).access_providers(providers()).namespace("elsewhere");
    assert_eq!(
        Received::of(&one.build().unwrap()).until("synced").await,
        ["+a", "synced"]
    );
}

#[tokio::test]
async fn inventory_17_the_same_member_id_twice_is_one_cluster() {
    let hub = hub();
    for (name, manager) in [("a", "karmada"), ("b", "ocm")] {
        let mut profile = profile("default", name, SERVER);
        profile["metadata"]["labels"][MEMBER_ID_LABEL] = "m".into();
        profile["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        profile["spec"]["clusterManager"]["name"] = manager.into();
        hub.create(profile).unwrap();
    }
    let mut received = Received::of(&provider(&hub));
    let announced = received.until("synced").await;
    assert!(
        announced.contains(&"+a".to_owned())
            && announced
                .iter()
                .any(|line| line.starts_with("~b: ClusterProfile a is older and describes the same cluster")),
        "{announced:?}"
    );
    // Only among those that are selected.
    let ocm = builder(&hub).access_providers(providers()).managers(["ocm"]);
    assert_eq!(
        Received::of(&ocm.build().unwrap()).until("synced").await,
        ["+b", "synced"]
    );
    hub.delete(PROFILES, "default/a").unwrap();
    assert_eq!(received.line().await, "-a");
    assert_eq!(received.line().await, "+b");
}

#[tokio::test]
async fn inventory_17_a_profile_that_goes_takes_its_cluster_along_at_once() {
    let hub = hub();
    hub.create(profile("default", "a", SERVER)).unwrap();
    let mut finalized = profile("default", "b", SERVER);
    finalized["metadata"]["finalizers"] = json!(["example.com/late"]);
    hub.create(finalized).unwrap();
    let mut received = Received::of(&provider(&hub));
    assert_eq!(received.until("synced").await.len(), 3);
    hub.delete(PROFILES, "default/a").unwrap();
    assert_eq!(received.line().await, "-a");
    // A deletionTimestamp is enough.
    hub.delete(PROFILES, "default/b").unwrap();
    assert_eq!(received.line().await, "-b");
    assert!(hub.get(PROFILES, "default/b").is_some());
    // Another one under the name is another cluster.
    hub.create(profile("default", "a", SERVER)).unwrap();
    assert_eq!(received.line().await, "+a");
}

/// The published CRD lets nobody change the manager. A hub without this rule may.
#[tokio::test]
async fn inventory_17_a_profile_that_changes_its_manager_is_the_same_cluster_or_is_not_selected_any_more() {
    let hub = hub();
    hub.create(profile("default", "a", SERVER)).unwrap();
    let mut all = Received::of(&provider(&hub));
    let Change::Upsert(before) = all.next().await else {
        panic!()
    };
    assert_eq!(all.line().await, "synced");
    let ocm = builder(&hub).access_providers(providers()).managers(["ocm"]);
    let mut ocm = Received::of(&ocm.build().unwrap());
    assert_eq!(ocm.until("synced").await, ["+a", "synced"]);
    change(&hub, PROFILES, "default/a", |there| {
        there["spec"]["clusterManager"]["name"] = "karmada".into()
    });
    let Change::Upsert(now) = all.next().await else {
        panic!()
    };
    assert_eq!(
        (&*before.properties["manager"], &*now.properties["manager"]),
        ("ocm", "karmada")
    );
    assert_eq!(before.identity, now.identity);
    assert_eq!(ocm.line().await, "-a");
}

#[tokio::test]
async fn what_is_not_selected_is_not_announced_and_leaves() {
    let hub = hub();
    for (name, manager, region) in [
        ("a", "ocm", "eu"),
        ("b", "karmada", "eu"),
        ("c", "ocm", "us"),
        ("d", "ocm", "eu"),
    ] {
        let mut profile = profile("default", name, SERVER);
        profile["spec"]["clusterManager"]["name"] = manager.into();
        profile["metadata"]["labels"]["region"] = region.into();
        hub.create(profile).unwrap();
    }
    let provider = builder(&hub)
        .access_providers(providers())
        .labels("region=eu")
        .managers(["ocm"])
        .select(|profile| profile.metadata.name.as_deref() != Some("d"))
        .build()
        .unwrap();
    let mut received = Received::of(&provider);
    assert_eq!(received.until("synced").await, ["+a", "synced"]);
    change(&hub, PROFILES, "default/a", |there| {
        there["metadata"]["labels"]["region"] = "us".into()
    });
    assert_eq!(received.line().await, "-a");
    assert!(
        hub.audit()
            .events()
            .any(|event| event.is_list("clusterprofiles") && event.uri.contains("labelSelector=region%3Deu"))
    );
}

#[tokio::test]
async fn own_predicates_report_what_is_ready() {
    let hub = hub();
    hub.create(profile("default", "a", SERVER)).unwrap();
    let provider = builder(&hub)
        .access_providers(providers())
        .ready_when(|profile| profile.property("region") == Some("us"))
        .build()
        .unwrap();
    let mut received = Received::of(&provider);
    assert_eq!(
        received.line().await,
        "~a: the ClusterProfile is not ready by the provider's `ready_when`"
    );
    assert_eq!(received.line().await, "synced");
    change(&hub, PROFILES, "default/a", |there| {
        there["status"]["properties"][0]["value"] = "us".into()
    });
    assert_eq!(received.line().await, "+a");
}

#[tokio::test]
async fn secrets_of_the_consumer_are_followed_and_no_others_are_asked_for() {
    let kubeconfig = |token: &str| {
        format!(
            "current-context: one\n\
             contexts: [{{name: one, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: '{SERVER}'}}}}]\n\
             users: [{{name: u, user: {{token: {token}}}}}]\n"
        )
    };
    let hub = hub();
    hub.create(profile("default", "a", SERVER)).unwrap();
    let mut other = secret("default", "a", kubeconfig("other"));
    other["metadata"]["name"] = "for-another".into();
    other["metadata"]["labels"]["x-k8s.io/cluster-inventory-consumer"] = "another".into();
    hub.create(other).unwrap();
    let rules = [
        SimRule::new(["multicluster.x-k8s.io"], ["clusterprofiles"], ["list", "watch"]),
        SimRule::new([""], ["secrets"], ["list", "watch"]),
    ];
    hub.set_user(
        "t",
        rules.into_iter().fold(SimUser::new("provider"), SimUser::rule),
    );
    let provider = builder(&hub)
        .client(hub.client_with_token("t"))
        .consumer_secrets("me")
        .build()
        .unwrap();
    let mut received = Received::of(&provider);
    let announced = received.until("synced").await;
    assert!(
        announced.len() == 2 && announced[0].starts_with("~a: the cluster is ready, but"),
        "{announced:?}"
    );
    hub.create(secret("default", "a", kubeconfig("one"))).unwrap();
    let Change::Upsert(spec) = received.next().await else {
        panic!()
    };
    let text = |spec: &mcr_core::ClusterSpec| address_and_token(&spec.access);
    assert!(text(&spec).ends_with(" one"));
    change(&hub, "secrets", "default/a-for-me", |there| {
        there["data"]["Config"] = support::base64(kubeconfig("two")).into();
    });
    let Change::Upsert(spec) = received.next().await else {
        panic!()
    };
    assert!(text(&spec).ends_with(" two"));
    hub.delete("secrets", "default/a-for-me").unwrap();
    let gone = received.line().await;
    assert!(
        gone.starts_with("!a: ClusterProfile default/a: no Secret in namespace default"),
        "{gone}"
    );
    for event in hub
        .audit()
        .events()
        .filter(|event| event.resource == "secrets" && event.user == "provider")
    {
        assert!(
            event
                .uri
                .contains("labelSelector=x-k8s.io%2Fcluster-inventory-consumer%3Dme"),
            "{event:?}"
        );
    }
}

#[tokio::test]
async fn hostile_profiles_concern_only_their_own_cluster() {
    let hub = hub();
    let mut expected = Vec::new();
    let mut add = |name: &'static str, problem: &'static str, change: fn(&mut Value)| {
        let mut hostile = profile("default", name, SERVER);
        change(&mut hostile);
        hub.create(hostile).unwrap();
        expected.push((name, problem));
    };
    add("metadata", "link-local or metadata", |there| {
        there["status"]["accessProviders"][0]["cluster"]["server"] = "https://169.254.169.254/".into();
    });
    add("proxy", "names a proxy", |there| {
        there["status"]["accessProviders"][0]["cluster"]["proxy-url"] = "http://sesame.example:1".into();
    });
    add("insecure", "insecure-skip-tls-verify", |there| {
        there["status"]["accessProviders"][0]["cluster"]["insecure-skip-tls-verify"] = true.into();
    });
    add("ca", "certificate-authority-data", |there| {
        there["status"]["accessProviders"][0]["cluster"]["certificate-authority-data"] = "c2VzYW1l".into();
    });
    add("form", "", |there| {
        there["status"]["accessProviders"] = "sesame".into()
    });
    add("deep", "", |there| {
        let mut deep = json!("sesame");
        for _ in 0..100 {
            deep = json!([deep]);
        }
        there["status"]["accessProviders"][0]["cluster"]["server"] = "no address".into();
        there["status"]["accessProviders"][0]["cluster"]["extensions"] =
            json!([{"name": "client.authentication.k8s.io/exec", "extension": {"x": deep}}]);
    });
    hub.create(profile("default", "zebra", SERVER)).unwrap();
    let config = AccessProviderConfig::new("p", "/plugins/p").provide_cluster_info(true);
    let provider = builder(&hub)
        .access_providers(AccessProviders::new([config]).unwrap())
        .build()
        .unwrap();
    let announced = Received::of(&provider).until("synced").await;
    assert_eq!(announced.len(), expected.len() + 2, "{announced:#?}");
    assert!(announced.contains(&"+zebra".to_owned()), "{announced:#?}");
    for (name, problem) in expected {
        let reported = announced
            .iter()
            .find(|line| line.starts_with(&format!("!{name}: ClusterProfile default/{name}")))
            .unwrap_or_else(|| panic!("{name} in {announced:#?}"));
        assert!(reported.contains(problem) && reported.len() < 1000, "{reported}");
    }
    assert!(!announced.join("\n").contains("sesame"), "{announced:#?}");
}

#[tokio::test]
async fn a_hub_that_changes_its_version_is_listed_again() {
    let hub = hub_of(SimCluster::builder(), &["v1alpha1"]);
    hub.create(profile("default", "a", SERVER)).unwrap();
    let provider = provider(&hub);
    let mut received = Received::of(&provider);
    assert_eq!(received.until("synced").await, ["+a", "synced"]);
    hub.apply(crd(&["v1alpha2"])).unwrap();
    hub.end_watches();
    hub.compact(hub.resource_version());
    assert_eq!(
        received.error().await,
        "the hub serves ClusterProfiles as v1alpha2 now, and as v1alpha1 no more; they are listed again"
    );
    assert_eq!(Received::of(&provider).until("synced").await, ["+a", "synced"]);
}

/// Until the CRD is there again, the hub serves no version of it at all.
#[tokio::test]
async fn a_hub_whose_crd_is_replaced_is_listed_again_once_the_new_one_is_there() {
    let hub = hub_of(SimCluster::builder(), &["v1alpha1"]);
    hub.create(profile("default", "a", SERVER)).unwrap();
    let provider = provider(&hub);
    let mut received = Received::of(&provider);
    assert_eq!(received.until("synced").await, ["+a", "synced"]);
    let mark = hub.audit().mark();
    hub.apply(crd(&["v1beta7"])).unwrap();
    hub.end_watches();
    hub.compact(hub.resource_version());
    let asked = || {
        hub.audit()
            .since(mark)
            .count(|event| event.uri == "/apis/multicluster.x-k8s.io/v1alpha1")
            > 0
    };
    let error = received.error();
    tokio::pin!(error);
    let asked = eventually(PATIENCE, "the hub is asked for its versions", asked);
    tokio::select! {
        error = &mut error => panic!("{error}"),
        () = asked => {}
    }
    hub.apply(crd(&["v1alpha2"])).unwrap();
    assert!(
        error
            .await
            .starts_with("the hub serves ClusterProfiles as v1alpha2 now")
    );
    assert_eq!(Received::of(&provider).until("synced").await, ["+a", "synced"]);
}

#[tokio::test]
async fn the_option_v1alpha1_needs_a_hub_that_serves_it() {
    let hub = hub_of(SimCluster::builder(), &["v1alpha2"]);
    let provider = builder(&hub)
        .access_providers(providers())
        .v1alpha1()
        .build()
        .unwrap();
    let error = Received::of(&provider).error().await;
    assert!(
        error.starts_with(
            "the hub does not serve ClusterProfile of multicluster.x-k8s.io as v1alpha1; leave out"
        ),
        "{error}"
    );
}

#[tokio::test]
async fn a_hub_without_the_api_and_one_that_forbids_to_ask_get_advice() {
    let hub = SimCluster::new();
    let error = Received::of(&provider(&hub)).error().await;
    assert!(
        error.starts_with("the hub has no Cluster Inventory API")
            && error.contains("Install or upgrade its CRD"),
        "{error}"
    );
    hub.create(crd(&["v1beta7"])).unwrap();
    let error = Received::of(&provider(&hub)).error().await;
    assert!(
        error.starts_with("the hub has no Cluster Inventory API") && error.contains("newer version"),
        "{error}"
    );
}

#[tokio::test]
async fn other_kinds_of_the_group_report_nothing_about_the_version_of_cluster_profiles() {
    // The Multi-Cluster Services API has the same group, and versions of its own.
    let mut other = crd(&["v1alpha1", "v1alpha2"]);
    other["metadata"]["name"] = "serviceexports.multicluster.x-k8s.io".into();
    other["spec"]["names"] = json!({
        "kind": "ServiceExport", "listKind": "ServiceExportList", "plural": "serviceexports", "singular": "serviceexport",
    });
    let hub = SimCluster::new();
    hub.create(other).unwrap();
    let error = Received::of(&provider(&hub)).error().await;
    assert!(
        error.starts_with("the hub has no Cluster Inventory API"),
        "{error}"
    );
    hub.create(crd(&["v1alpha1"])).unwrap();
    hub.create(profile("default", "a", SERVER)).unwrap();
    assert_eq!(
        Received::of(&provider(&hub)).until("synced").await,
        ["+a", "synced"]
    );
}

#[tokio::test]
async fn broken_watches_change_nothing() {
    let hub = hub();
    hub.create(profile("default", "a", SERVER)).unwrap();
    let mut received = Received::of(&provider(&hub));
    assert_eq!(received.until("synced").await, ["+a", "synced"]);
    for round in 0..3 {
        hub.end_watches();
        hub.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{round}"), "namespace": "default"}}))
            .unwrap();
        hub.compact(hub.resource_version());
    }
    change(&hub, PROFILES, "default/a", |there| {
        there["status"]["version"]["kubernetes"] = "v1.37.0".into()
    });
    let Change::Upsert(spec) = received.next().await else {
        panic!()
    };
    assert_eq!(spec.properties["version"], "v1.37.0");
}

#[tokio::test]
async fn wrong_options_are_refused_with_what_to_do() {
    use ClusterInventoryError as E;
    let hub = hub();
    let error = |builder: mcr_provider_cluster_inventory::ClusterInventoryProviderBuilder| {
        builder.build().unwrap_err()
    };
    let good = || builder(&hub).access_providers(providers());
    assert_eq!(
        error(ClusterInventoryProvider::builder().access_providers(providers())),
        E::NoHub
    );
    assert_eq!(error(builder(&hub)), E::NoAccess);
    assert_eq!(error(good().consumer_secrets("me")), E::TwoAccesses);
    for wrong in ["", "-", "a b", "a/b", "x-", &"x".repeat(64)] {
        assert_eq!(
            error(builder(&hub).consumer_secrets(wrong)),
            E::Consumer(wrong.into())
        );
    }
    for wrong in ["", "A", "a.b", "-a"] {
        assert_eq!(error(good().namespace(wrong)), E::Namespace(wrong.into()));
    }
    assert_eq!(error(good().namespaces([] as [&str; 0])), E::NoNamespace);
    assert_eq!(error(good().namespaces(["a", "B"])), E::Namespace("B".into()));
    assert_eq!(error(good().placement("")), E::Placement("".into()));
    let elsewhere = PlacementDecisions::of_decision("a").namespace("a/b");
    assert_eq!(error(good().placement(elsewhere)), E::Namespace("a/b".into()));
    for wrong in ["", " ", "a\n"] {
        assert_eq!(error(good().labels(wrong)), E::Labels(wrong.into()));
    }
    assert!(good().build().is_ok());
}

#[tokio::test]
async fn the_provider_reports_where_it_looks_and_shows_no_argument() {
    let hub = hub();
    let plugin = AccessProviderConfig::new("p", "/plugins/p").args(["SECRET"]);
    let provider: Arc<dyn Provider> = Arc::new(
        builder(&hub)
            .access_providers(AccessProviders::new([plugin]).unwrap())
            .labels("a=b")
            .managers(["ocm"])
            .build()
            .unwrap(),
    );
    assert_eq!(provider.name(), "cluster-inventory");
    let searched = provider.searched();
    assert!(
        searched.starts_with(
            "clusterprofiles.multicluster.x-k8s.io in namespace default with labels a=b, of cluster manager ocm of the hub"
        ),
        "{searched}"
    );
    let shown = format!(
        "{:?}",
        builder(&hub).access_providers(providers()).build().unwrap()
    );
    assert!(
        shown.contains("ControlPlaneHealthy") && shown.contains("\"p\"") && !shown.contains("SECRET"),
        "{shown}"
    );
}
