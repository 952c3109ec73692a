//! What the provider announces of a hub: the scenarios of `steps.yaml`, and its options.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::{sync::Arc, time::Duration};

use mcr_core::{PluginAddressError, PluginService, Provider, hub::OptionError as O};
use mcr_provider_cluster_inventory::{
    AccessProviderConfig, AccessProviders, AccessProvidersError, ClusterInventoryError as E,
    ClusterInventoryProvider, ClusterInventoryProviderBuilder, PlacementDecisions, SecretKeyRef,
};
use mcr_testkit::{
    sim::{SimCluster, SimRule},
    steps::{HubProvider, Options, kubeconfig},
};
use support::{MANIFEST, loopback_policy};

/// The service of the access provider `p`, which is never called.
fn service() -> AccessProviders {
    let service = PluginService::new(|_| async { Err("it is called".into()) });
    AccessProviders::new([AccessProviderConfig::new("p", "").service(service)]).unwrap()
}

/// The plugin of the access provider `p`, which is never run.
fn plugins() -> AccessProviders {
    let plugin = AccessProviderConfig::new("p", "/plugins/p").args(["SECRET"]);
    AccessProviders::new([plugin]).unwrap()
}

fn builder(client: kube::Client) -> ClusterInventoryProviderBuilder {
    ClusterInventoryProvider::builder()
        .client(client)
        .access_policy(loopback_policy(&[]).credential_plugins(plugins().plugin_policy()))
}

struct Profiles;

impl HubProvider for Profiles {
    fn roles() -> &'static str {
        MANIFEST
    }

    fn start() -> Self {
        Self
    }

    fn provider(&self, client: kube::Client, options: &Options) -> Arc<dyn Provider> {
        let mut builder = builder(client).managers(options.texts("managers"));
        builder = match options.text("access").as_deref() {
            _ if options.has("consumer") => builder.consumer_secrets(options.text("consumer").unwrap()),
            Some("secret") => builder.kubeconfig_secret(|profile| {
                SecretKeyRef::new(
                    format!("{}-for-me", profile.metadata.name.as_ref().unwrap()),
                    "Config",
                )
            }),
            Some("function") => builder.kubeconfig_of(Duration::from_secs(300), |profile| async move {
                match profile.property("region") {
                    Some("eu") => Ok(Some(kubeconfig("one").into())),
                    Some(region) => Err(format!("no clusters in {region}").into()),
                    None => Ok(None),
                }
            }),
            Some("service") => {
                let service = service();
                let policy = loopback_policy(&[]).credential_plugins(service.plugin_policy());
                builder.access_policy(policy).access_providers(service)
            }
            _ => builder.access_providers(plugins()),
        };
        if options.has("sticky") {
            builder = builder.sticky_readiness();
        }
        let namespaces = options.texts("namespaces");
        if !namespaces.is_empty() {
            builder = builder.namespaces(namespaces);
        }
        if options.has("all_namespaces") {
            builder = builder.all_namespaces();
        }
        if options.has("v1alpha1") {
            builder = builder.v1alpha1();
        }
        if let Some(labels) = options.text("labels") {
            builder = builder.labels(labels);
        }
        if let Some(condition) = options.text("ready_condition") {
            builder = builder.ready_condition(condition);
        }
        if let Some(region) = options.text("ready_in") {
            builder = builder.ready_when(move |profile| profile.property("region") == Some(&*region));
        }
        if let Some(but) = options.text("but") {
            builder = builder.select(move |profile| profile.metadata.name.as_ref() != Some(&but));
        }
        if let Some(placement) = options.text("placement") {
            builder = builder.placement(&*placement);
        }
        if let Some(decision) = options.text("decision") {
            let namespace = options.text("decisions_in").unwrap();
            builder = builder.placement(PlacementDecisions::of_decision(decision).namespace(namespace));
        }
        Arc::new(builder.build().unwrap())
    }
}

mcr_testkit::steps!(
    Profiles, "steps.yaml";
    inventory_17_a_ready_profile_without_access_waits_with_the_reason,
    inventory_17_health_that_goes_suspends_and_comes_back_by_the_condition_of_choice,
    inventory_17_the_same_member_id_twice_is_one_cluster,
    a_profile_that_goes_takes_its_cluster_along_at_once,
    what_is_not_selected_is_not_announced_and_leaves,
    heartbeats_and_watches_that_break_change_nothing,
    secrets_of_the_consumer_are_followed_and_no_others_are_asked_for,
    the_secret_that_the_program_names_is_read_again_each_minute_while_its_cluster_is_ready,
    a_function_of_the_program_gives_kubeconfigs,
    a_service_of_the_operator_takes_the_place_of_a_program,
    sticky_readiness_keeps_what_was_ready_once,
    a_profile_created_anew_is_another_cluster_and_a_new_address_is_followed,
    the_best_version_that_the_hub_serves_is_read_and_credential_providers_are_a_fallback_of_v1alpha1,
    hostile_profiles_concern_only_their_own_cluster,
    a_hub_that_changes_its_version_is_listed_again,
    a_hub_without_the_api_gets_advice,
    several_namespaces_are_several_inventories_that_are_never_merged,
    a_namespace_that_cannot_be_read_takes_nothing_from_the_others,
    secrets_and_decisions_are_read_in_each_namespace,
    the_decisions_of_a_placement_are_one_set_and_no_others_are_asked_for,
    decisions_can_be_in_a_namespace_of_their_own_and_can_have_a_decision_key_only,
    a_hub_without_placement_decisions_or_the_right_to_read_them_gets_advice,
    each_option_needs_its_own_rule_and_no_other,
    a_hostile_decision_concerns_only_the_clusters_that_it_names,
);

#[test]
fn the_page_has_the_rules_of_the_manifest() {
    let page = include_str!("../README.md").split("```yaml").nth(1).unwrap();
    let rules = |role: &str| format!("{:?}", SimRule::of_role(role).unwrap());
    assert_eq!(rules(page.split("```").next().unwrap()), rules(MANIFEST));
}

/// Among them P-55 to P-58 of `docs/comparison.md`: there is exactly one way to reach clusters.
#[tokio::test]
async fn p_55_to_58_wrong_options_are_refused_and_right_ones_are_shown_without_arguments_of_plugins() {
    let hub = SimCluster::new();
    let bare = || builder(hub.client());
    let good = || bare().access_providers(plugins());
    let elsewhere = PlacementDecisions::of_decision("a").namespace("a/b");
    for (built, error) in [
        (
            ClusterInventoryProvider::builder().access_providers(plugins()),
            E::Hub(O::NoHub),
        ),
        (bare(), E::NoAccess),
        (good().consumer_secrets("me"), E::TwoAccesses),
        (bare().consumer_secrets("a b"), E::Consumer("a b".into())),
        (good().namespace("a.b"), E::Hub(O::Namespace("a.b".into()))),
        (good().namespaces([] as [&str; 0]), E::Hub(O::NoNamespace)),
        (good().namespaces(["a", "B"]), E::Hub(O::Namespace("B".into()))),
        (good().placement(""), E::Placement("".into())),
        (good().placement(elsewhere), E::Hub(O::Namespace("a/b".into()))),
        (good().labels("a\n"), E::Hub(O::Labels("a\n".into()))),
    ] {
        assert_eq!(built.build().unwrap_err(), error);
    }
    assert!(bare().consumer_secrets("me").build().is_ok());
    let named = good().kubeconfig_secret(|_| SecretKeyRef::new("a", "b"));
    assert_eq!(named.build().unwrap_err(), E::TwoAccesses);
    let at = |command: &str| AccessProviders::new([AccessProviderConfig::new("p", command)]);
    assert!(at("unix:///run/p.sock").is_ok());
    for address in ["unix://p.sock", "http://p", "https://me:SECRET@p"] {
        let error = at(address).unwrap_err();
        assert_eq!(
            error,
            AccessProvidersError::Service("p".into(), PluginAddressError::Address)
        );
        assert!(!error.to_string().contains("SECRET"));
    }
    let file = |data: &str| {
        let exec = r#"{"apiVersion": "client.authentication.k8s.io/v1", "command": "https://p"}"#;
        AccessProviders::from_json(format!(
            r#"{{"providers": [{{"name": "p", "execConfig": {exec}, "mcr.dev/certificateAuthorityData": "{data}"}}]}}"#
        ))
    };
    assert_eq!(
        file("%").unwrap_err(),
        AccessProvidersError::Authority("p".into())
    );
    assert!(matches!(
        file("c2VzYW1l").unwrap_err(),
        AccessProvidersError::Service(_, PluginAddressError::Tls(_))
    ));
    let provider = good()
        .labels("a=b")
        .managers(["ocm"])
        .namespaces(["eu", "us"])
        .build()
        .unwrap();
    assert_eq!(provider.name(), "cluster-inventory");
    let searched = provider.searched();
    for part in [
        "clusterprofiles.multicluster.x-k8s.io in namespace eu",
        "and clusterprofiles",
        "labels a=b",
        "manager ocm",
    ] {
        assert!(searched.contains(part), "{searched}");
    }
    let shown = format!("{provider:?}");
    assert!(
        shown.contains("ControlPlaneHealthy") && !shown.contains("SECRET"),
        "{shown}"
    );
}
