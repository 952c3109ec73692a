//! What the provider announces of the Secrets of a hub: the scenarios of `steps.yaml`.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::sync::Arc;

use mcr_core::Provider;
use mcr_provider_kubeconfig::KubeconfigProvider;
use mcr_testkit::steps::{HubProvider, Options};
use support::{loopback_policy, role};

struct Secrets;

impl HubProvider for Secrets {
    fn roles() -> &'static str {
        role()
    }

    fn start() -> Self {
        Self
    }

    fn provider(&self, client: kube::Client, options: &Options) -> Arc<dyn Provider> {
        let mut builder = KubeconfigProvider::builder()
            .client(client)
            .access_policy(loopback_policy());
        if options.has("all_namespaces") {
            builder = builder.all_namespaces();
        }
        if let Some(value) = options.text("label") {
            builder = builder.label("example.com/cluster", value);
        }
        if let Some(key) = options.text("key") {
            builder = builder.key(key);
        }
        Arc::new(builder.build().unwrap())
    }
}

mcr_testkit::steps!(
    Secrets, "steps.yaml";
    only_labelled_secrets_of_the_namespace_are_asked_for,
    forty_secrets_cost_one_list_and_their_labels_none,
    p_24_and_25_secrets_without_a_kubeconfig_are_broken_and_others_work,
    hostile_secrets_hurt_only_themselves_and_nothing_of_them_is_reported,
    a_hub_that_is_away_or_forbids_changes_nothing_and_is_reported_once,
    a_hub_that_was_never_listed_has_not_announced_everything,
    without_the_right_to_write_events_all_else_works_and_the_log_reports_so_once,
);
