//! What every provider must do; see `mcr_testkit::conformance`. The hub is a simulated API server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::sync::Arc;

use mcr_core::{ClusterName, Provider};
use mcr_provider_cluster_inventory::{
    ARGS_EXTENSION, AccessProviderConfig, AccessProviders, ArgsPolicy, ClusterInventoryProvider,
};
use mcr_testkit::{
    conformance::{Ability, Ability::*, Draft, Subject},
    sim::SimCluster,
};
use serde_json::{Value, json};
use support::{PROFILES, client, hub, locally, object};

const CAN: &[Ability] = &[Add, Change, Rotate, Replace, Break, Suspend, Remove];

/// The namespaces of the inventories.
const ONE: u8 = 0;
const ALL: u8 = 1;
/// Two of them, and a scheduler that has chosen all clusters.
const CHOSEN: u8 = 2;

/// With `SECRETS`, kubeconfigs are in Secrets. Without it profiles offer access, with the token as an argument of the plugin.
struct Profiles<const SPACES: u8, const SECRETS: bool>(SimCluster);

/// The numbers of the clusters of the suite, and of its markers.
fn numbers() -> impl Iterator<Item = usize> {
    (0..64).chain(1000..1064)
}

impl<const SPACES: u8, const SECRETS: bool> Profiles<SPACES, SECRETS> {
    fn key(draft: &Draft) -> String {
        format!("default/{}", draft.name())
    }

    fn name(draft: &Draft) -> ClusterName {
        let name = match SPACES {
            ONE => draft.name(),
            _ => Self::key(draft),
        };
        ClusterName::new(name).unwrap()
    }

    fn put_with(&self, draft: &Draft, args: Value, kubeconfig: &str, healthy: &str) {
        let (key, label) = (Self::key(draft), draft.label());
        if SECRETS {
            let secret = json!({"stringData": {"Config": kubeconfig}});
            self.0.apply(object(&format!("secret {key}"), secret)).unwrap();
        }
        let extensions = json!([{"name": ARGS_EXTENSION, "extension": args}]);
        let more = json!({
            "metadata": {"labels": {"version": label}},
            "status": {
                "conditions": [{
                    "type": "ControlPlaneHealthy", "status": healthy, "reason": "Why", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
                "accessProviders": [{"name": "p", "cluster": {"server": draft.server(), "extensions": extensions}}],
            },
        });
        self.0.apply(object(&format!("profile {key}"), more)).unwrap();
    }

    fn delete(&self, draft: &Draft) {
        self.0.delete(PROFILES, &Self::key(draft)).unwrap();
    }
}

impl<const SPACES: u8, const SECRETS: bool> Subject for Profiles<SPACES, SECRETS> {
    const CAN: &'static [Ability] = CAN;

    async fn start() -> Self {
        let hub = hub(SimCluster::builder());
        let keys: Vec<String> = numbers().map(|number| Self::key(&Draft::new(number))).collect();
        // The watches of profiles and of Secrets have no order. A profile that comes before its Secret is announced twice:
        // as one that waits, and as one that can be reached. So each cluster and marker of the suite has its Secret already.
        for key in keys.iter().filter(|_| SECRETS) {
            hub.create(object(&format!("secret {key}"), json!({}))).unwrap();
        }
        if SPACES == CHOSEN {
            for (index, keys) in keys.chunks(50).enumerate() {
                let names = keys.iter().filter_map(|key| key.split_once('/'));
                let names: Value =
                    names.map(|(namespace, name)| json!({"clusterProfileRef": {"namespace": namespace, "name": name}})).collect();
                let decision = object(&format!("decision eu/{index}"), json!({"decisions": names}));
                hub.create(decision).unwrap();
            }
        }
        Self(hub)
    }

    fn provider(&self) -> Arc<dyn Provider> {
        let plugin = AccessProviderConfig::new("p", "/plugins/p").args_policy(ArgsPolicy::Append);
        let plugins = AccessProviders::new([plugin.profile_args(["*"])]).unwrap();
        let mut builder = ClusterInventoryProvider::builder()
            .client(client(&self.0))
            .access_policy(locally(&[]).credential_plugins(plugins.plugin_policy()));
        builder = if SECRETS {
            builder.consumer_secrets("me")
        } else {
            builder.access_providers(plugins)
        };
        builder = match SPACES {
            ALL => builder.all_namespaces(),
            CHOSEN => builder.namespaces(["default", "eu"]).placement("web"),
            _ => builder,
        };
        Arc::new(builder.build().unwrap())
    }

    async fn put(&mut self, draft: &Draft) {
        self.put_with(draft, json!([draft.token()]), &draft.kubeconfig(), "True");
    }

    async fn add(&mut self, draft: &Draft) -> ClusterName {
        self.put(draft).await;
        Self::name(draft)
    }

    async fn replace(&mut self, draft: &Draft) {
        self.delete(draft);
        self.put(draft).await;
    }

    async fn break_it(&mut self, draft: &Draft) -> ClusterName {
        let args = json!([draft.token(), {}]);
        self.put_with(draft, args, &draft.kubeconfig_cut_short(), "True");
        Self::name(draft)
    }

    async fn suspend(&mut self, draft: &Draft) {
        self.put_with(draft, json!([draft.token()]), &draft.kubeconfig(), "False");
    }

    async fn remove(&mut self, draft: &Draft) {
        self.delete(draft);
    }
}

mod one_namespace {
    type OneNamespace = super::Profiles<{ super::ONE }, false>;
    mcr_testkit::provider_conformance!(OneNamespace);
}

mod all_namespaces {
    type AllNamespaces = super::Profiles<{ super::ALL }, false>;
    mcr_testkit::provider_conformance!(AllNamespaces);
}

mod secrets {
    type Secrets = super::Profiles<{ super::ONE }, true>;
    mcr_testkit::provider_conformance!(Secrets);
}

mod chosen_in_several_namespaces {
    type Chosen = super::Profiles<{ super::CHOSEN }, false>;
    mcr_testkit::provider_conformance!(Chosen);
}
