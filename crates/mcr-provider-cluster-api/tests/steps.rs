//! What the provider announces of a management cluster: the scenarios of `steps.yaml`, and its options.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use mcr_core::{BoxError, Provider};
use mcr_provider_cluster_api::{ClusterApiError, ClusterApiProvider, SecretKeyRef, v1beta2::Cluster};
use mcr_testkit::{
    sim::{SimCluster, SimRule},
    steps::{HubProvider, Options},
};
use serde_json::Value;
use support::builder;

const MANIFEST: &str = include_str!("../deploy/rbac.yaml");

fn annotation<'a>(cluster: &'a Cluster, name: &str) -> Option<&'a str> {
    let annotations = cluster.metadata.annotations.as_ref()?;
    annotations.get(name).map(String::as_str)
}

/// What the function for kubeconfigs gives whatever its Cluster has, and how often it was called.
#[derive(Default, Clone)]
struct Clusters {
    given: Arc<Mutex<Option<String>>>,
    calls: Arc<AtomicUsize>,
}

impl Clusters {
    /// By an annotation of the Cluster.
    async fn kubeconfig_of(self, cluster: Arc<Cluster>) -> Result<Option<Vec<u8>>, BoxError> {
        self.calls.fetch_add(1, SeqCst);
        let given = self.given.lock().unwrap().clone();
        if given.is_some() {
            return Ok(given.map(String::into_bytes));
        }
        match annotation(&cluster, "example.com/kubeconfig") {
            Some("panic") => panic!("sesame"),
            Some("error") => Err(format!("no ticket\n{}", ".".repeat(1000)).into()),
            Some("hang") => std::future::pending().await,
            Some("long") => Ok(Some(vec![b'#'; (1 << 20) + 1])),
            text => Ok(text.map(|text| text.as_bytes().to_vec())),
        }
    }
}

impl HubProvider for Clusters {
    fn roles() -> &'static str {
        MANIFEST
    }

    fn start() -> Self {
        Self::default()
    }

    fn act(&self, _: &SimCluster, _: &str, value: &Value) {
        *self.given.lock().unwrap() = value.as_str().map(str::to_owned);
    }

    fn count(&self, what: &str) -> Option<usize> {
        (what == "calls").then(|| self.calls.load(SeqCst))
    }

    fn provider(&self, client: kube::Client, options: &Options) -> Arc<dyn Provider> {
        let mut builder = builder(client)
            .infrastructure_kinds(options.texts("kinds"))
            .cluster_classes(options.texts("classes"));
        if options.has("all_namespaces") {
            builder = builder.all_namespaces();
        }
        if let Some(labels) = options.text("labels") {
            builder = builder.labels(labels);
        }
        if let Some(but) = options.text("but") {
            builder = builder.select(move |cluster| cluster.metadata.name.as_ref() != Some(&but));
        }
        if options.has("keep_while_busy") {
            builder = builder.keep_while(|cluster| annotation(cluster, "example.com/busy").is_some());
        }
        if options.has("up_by_annotation") {
            builder = builder
                .ready_when(|cluster| annotation(cluster, "example.com/up") == Some("yes"))
                .kubeconfig_secret(|cluster| {
                    let name = annotation(cluster, "example.com/secret");
                    let secret = SecretKeyRef::new(name.unwrap_or("access-of-a"), "config");
                    match annotation(cluster, "example.com/secret-namespace") {
                        Some(namespace) => secret.namespace(namespace),
                        None => secret,
                    }
                });
        }
        if options.has("by_function") {
            let this = self.clone();
            builder = builder.kubeconfig_of(Duration::from_secs(300), move |cluster| {
                this.clone().kubeconfig_of(cluster)
            });
        }
        Arc::new(builder.build().unwrap())
    }
}

mcr_testkit::steps!(
    Clusters, "steps.yaml";
    a_cluster_waits_with_the_reason_then_joins_with_what_its_cluster_reports,
    initialized_first_and_the_secret_later,
    a_pause_an_outage_and_a_status_change_nothing_and_cost_nothing,
    a_secret_that_goes_and_comes_back_is_one_upsert_with_the_new_credentials,
    another_cluster_of_the_name_is_another_and_an_orphan_secret_engages_nothing,
    a_deletion_timestamp_disengages_at_once,
    keep_while_keeps_a_cluster_that_is_being_deleted,
    what_does_not_match_is_not_announced_and_leaves,
    another_contract_has_its_own_readiness_and_secret,
    a_secret_of_another_namespace_is_read_again_each_minute,
    a_function_of_the_program_gives_kubeconfigs_and_its_faults_concern_only_its_cluster,
    a_hub_with_v1beta1_alone_is_read_as_v1beta1_and_followed_to_v1beta2,
    a_hub_without_cluster_api_gets_advice,
    a_right_that_is_missing_is_named_and_used_once_it_is_granted,
    broken_secrets_concern_only_their_own_cluster_and_are_reported_without_their_content,
    a_secret_that_the_hub_does_not_give_holds_up_nobody_and_is_in_no_log,
    forty_clusters_cost_one_list_of_each_kind_and_one_read_of_each_secret,
);

#[test]
fn the_page_has_the_rules_of_the_manifest() {
    let blocks = include_str!("../README.md").split("```yaml\n").skip(1);
    let page = blocks
        .filter_map(|block| block.split("```").next())
        .find(|block| block.contains("verbs"));
    let rules = |role: &str| format!("{:?}", SimRule::of_role(role).unwrap());
    assert_eq!(
        rules(page.unwrap().split("\n---").next().unwrap()),
        rules(MANIFEST)
    );
}

#[tokio::test]
async fn wrong_options_are_refused_and_right_ones_are_shown() {
    let client = SimCluster::new().client();
    let good = || builder(client.clone());
    for (built, error) in [
        (ClusterApiProvider::builder(), ClusterApiError::NoHub),
        (good().namespace("a/b"), ClusterApiError::Namespace("a/b".into())),
        (good().labels(" "), ClusterApiError::Labels(" ".into())),
        (
            good()
                .kubeconfig_secret(|_| SecretKeyRef::new("a", "b"))
                .kubeconfig_of(Duration::MAX, |_| async { Ok(None) }),
            ClusterApiError::TwoAccesses,
        ),
    ] {
        assert_eq!(built.build().unwrap_err(), error);
    }
    let provider = good()
        .labels("region in (eu,us),tier!=test")
        .cluster_classes(["gold"])
        .build()
        .unwrap();
    assert_eq!(provider.name(), "cluster-api");
    assert_eq!(
        provider
            .searched()
            .split(';')
            .next()
            .unwrap()
            .split(" of the hub")
            .next()
            .unwrap(),
        "clusters.cluster.x-k8s.io in namespace default with labels region in (eu,us),tier!=test, of ClusterClass gold"
    );
}
