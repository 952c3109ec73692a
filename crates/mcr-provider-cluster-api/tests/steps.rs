//! What the provider announces of a management cluster: the scenarios of `steps.yaml`, and its options.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::sync::Arc;

use mcr_core::Provider;
use mcr_provider_cluster_api::{ClusterApiError, ClusterApiProvider, SecretKeyRef, v1beta2::Cluster};
use mcr_testkit::{
    sim::{SimCluster, SimRule},
    steps::{HubProvider, Options},
};
use support::builder;

const MANIFEST: &str = include_str!("../deploy/rbac.yaml");

fn annotation<'a>(cluster: &'a Cluster, name: &str) -> Option<&'a str> {
    let annotations = cluster.metadata.annotations.as_ref()?;
    annotations.get(name).map(String::as_str)
}

struct Clusters;

impl HubProvider for Clusters {
    fn roles() -> &'static str {
        MANIFEST
    }

    fn start() -> Self {
        Self
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
                    SecretKeyRef::new(name.unwrap_or("access-of-a"), "config")
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
