//! What the provider announces of a garden and of a seed: the scenarios of `garden.yaml` and `seed.yaml`, and its options.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use mcr_core::{Provider, hub::OptionError};
use mcr_garden_double::{Garden, Issued};
use mcr_provider_gardener::{GardenerError, GardenerProvider, GardenerProviderBuilder, Topology};
use mcr_testkit::{
    sim::{SimCluster, SimRule},
    steps::{HubProvider, Options, kubeconfig},
};
use serde_json::Value;
use support::{loopback_policy, secret};

const MANIFEST: &str = include_str!("../deploy/rbac.yaml");
const SEED_MANIFEST: &str = include_str!("../deploy/rbac-seed.yaml");

fn builder(client: kube::Client, options: &Options) -> GardenerProviderBuilder {
    let mut builder = GardenerProvider::builder()
        .client(client)
        .access_policy(loopback_policy())
        .projects(options.texts("projects"))
        .purposes(options.texts("purposes"))
        .seeds(options.texts("seeds"))
        .cloud_profiles(options.texts("cloud_profiles"));
    if let Some(labels) = options.text("labels") {
        builder = builder.labels(labels);
    }
    if let Some(only) = options.text("only") {
        builder = builder.select(move |shoot| shoot.metadata.name.as_ref() == Some(&only));
    }
    builder
}

/// A garden that issues what the scenario sets for each Shoot: null or nothing is another token each time.
struct Shoots {
    garden: Garden,
    issue: Arc<Mutex<HashMap<String, Value>>>,
}

async fn issued(answer: Value, number: usize) -> Issued {
    let status = answer["status"].as_u64().unwrap_or_default();
    if status > 0 {
        let message = answer["message"].as_str().unwrap_or("no");
        return Issued::refused(u16::try_from(status).unwrap(), message);
    }
    tokio::time::sleep(Duration::from_secs(
        answer["seconds"].as_u64().unwrap_or_default(),
    ))
    .await;
    let token = answer["token"].as_str().or(answer.as_str()).map(str::to_owned);
    let yaml = kubeconfig(&token.unwrap_or(format!("token-{number}")));
    let yaml = answer["kubeconfig"].as_str().unwrap_or(&yaml);
    Issued::kubeconfig(
        yaml,
        Duration::from_secs(60 * answer["minutes"].as_u64().unwrap_or(60)),
    )
}

impl HubProvider for Shoots {
    fn roles() -> &'static str {
        MANIFEST
    }

    fn start() -> Self {
        let issue = Arc::<Mutex<HashMap<String, Value>>>::default();
        let (known, numbers) = (issue.clone(), Mutex::new(HashMap::<String, usize>::new()));
        let garden = Garden::new(move |ask| {
            let answer = known.lock().unwrap().get(&ask.name).cloned().unwrap_or_default();
            let mut numbers = numbers.lock().unwrap();
            let number = numbers.entry(ask.name).or_default();
            *number += 1;
            issued(answer, *number)
        });
        Self { garden, issue }
    }

    fn provider(&self, client: kube::Client, options: &Options) -> Arc<dyn Provider> {
        let mut builder = builder(self.garden.client(client), options);
        builder = if options.has("all_namespaces") {
            builder.all_namespaces()
        } else {
            builder.namespace("garden-dev")
        };
        if options.has("viewer") {
            builder = builder.viewer();
        }
        Arc::new(builder.build().unwrap())
    }

    fn act(&self, _: &SimCluster, action: &str, value: &Value) {
        match action {
            "issue" => {
                let answers = value.as_object().unwrap().clone();
                self.issue.lock().unwrap().extend(answers);
            }
            _ => self.garden.set_away(value == "away"),
        }
    }

    fn count(&self, what: &str) -> Option<usize> {
        Some(self.garden.asked(what.strip_prefix("kubeconfigs of ")?))
    }
}

mod garden {
    mcr_testkit::steps!(
        super::Shoots, "garden.yaml";
        a_life_is_reported_step_by_step,
        one_that_runs_stays_connected_while_its_addresses_are_not_reported,
        a_garden_that_refuses_is_reported_and_asked_again,
        a_slow_garden_is_given_more_time,
        an_unusable_kubeconfig_is_reported_and_the_last_one_stays_in_use,
        names_are_those_of_projects_and_shoots,
        a_project_that_is_forbidden_is_asked_for_again_and_the_namespace_stands_for_it_then,
        shoots_are_selected_by_what_they_are,
        a_viewer_asks_for_less,
        a_kubeconfig_is_renewed_in_its_last_third_and_a_short_one_in_its_middle,
        a_garden_that_is_away_is_noticed_only_once_a_kubeconfig_has_expired,
        another_discovery_asks_for_nothing_that_is_still_valid_and_forgets_who_is_gone,
        a_shoot_that_cannot_be_decoded_has_its_kubeconfig_renewed,
    );
}

struct Seed;

impl HubProvider for Seed {
    fn roles() -> &'static str {
        SEED_MANIFEST
    }

    fn start() -> Self {
        Self
    }

    fn provider(&self, client: kube::Client, options: &Options) -> Arc<dyn Provider> {
        let mut builder = builder(client, options).topology(Topology::Seed);
        if let Some(namespace) = options.text("namespace") {
            builder = builder.namespace(namespace);
        }
        Arc::new(builder.build().unwrap())
    }

    /// Gardener will renew the kubeconfig of this Shoot in an hour.
    fn act(&self, seed: &SimCluster, _: &str, value: &Value) {
        seed.apply(secret(value.as_str().unwrap(), &kubeconfig("first")))
            .unwrap();
    }
}

mod seed {
    mcr_testkit::steps!(
        super::Seed, "seed.yaml";
        in_a_seed_a_life_is_reported_step_by_step,
        clusters_without_a_shoot_are_reported_and_names_need_no_project,
        in_a_seed_shoots_are_selected_by_what_they_are,
        in_a_seed_an_unusable_kubeconfig_is_reported_and_the_last_one_stays_in_use,
        a_seed_that_refuses_the_secret_is_reported,
        a_secret_is_read_again_once_gardener_should_have_renewed_it,
    );
}

#[test]
fn the_page_has_the_rules_of_the_manifests() {
    let rules = |manifest: &str| -> Vec<_> {
        manifest
            .split("\n---\n")
            .map(|role| format!("{:?}", SimRule::of_role(role).unwrap()))
            .collect()
    };
    let pages = include_str!("../README.md").split("```yaml").skip(1);
    for (page, manifest) in pages.zip([MANIFEST, SEED_MANIFEST]) {
        assert_eq!(rules(page.split("```").next().unwrap()), rules(manifest));
    }
}

#[tokio::test]
async fn options_that_a_seed_does_not_have_are_refused() {
    let seed = || {
        GardenerProvider::builder()
            .client(SimCluster::new().client())
            .topology(Topology::Seed)
    };
    let hour = Duration::from_secs(3600);
    for (built, error) in [
        (seed().viewer(), GardenerError::NotInSeed("viewer")),
        (seed().valid_for(hour), GardenerError::NotInSeed("valid_for")),
        (
            seed().labels("a of b"),
            GardenerError::Hub(OptionError::Labels("a of b".into())),
        ),
    ] {
        assert_eq!(built.build().unwrap_err(), error);
    }
}
