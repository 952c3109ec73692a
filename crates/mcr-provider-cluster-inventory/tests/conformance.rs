//! What every provider must do; see `mcr_testkit::conformance`. The hub is a simulated API server.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::sync::Arc;

use mcr_core::Provider;
use mcr_provider_cluster_inventory::{
    ARGS_EXTENSION, AccessProviderConfig, AccessProviders, ArgsPolicy, ClusterInventoryProvider,
};
use mcr_testkit::{
    conformance::{Ability, Ability::*, Described, Draft, Form, InHub},
    sim::SimCluster,
};
use serde_json::{Value, json};
use support::{PROFILES, client, hub, loopback_policy, object};

/// The namespaces of the inventories.
const ONE: u8 = 0;
const ALL: u8 = 1;
/// Two of them, and a scheduler that has chosen all clusters.
const CHOSEN: u8 = 2;

/// With `SECRETS`, kubeconfigs are in Secrets. Without it profiles offer access, with the token as an argument of the plugin.
struct Profiles<const SPACES: u8, const SECRETS: bool>;

fn secret(draft: &Draft, kubeconfig: &str) -> Value {
    let kubeconfig = json!({"stringData": {"Config": kubeconfig}});
    object(&format!("secret {}", draft.name()), kubeconfig)
}

impl<const SPACES: u8, const SECRETS: bool> Described for Profiles<SPACES, SECRETS> {
    const CAN: &'static [Ability] = &[Add, Change, Rotate, Replace, Break, Suspend, Remove];

    fn start() -> (Self, SimCluster) {
        let hub = hub(SimCluster::builder());
        // The clusters of the suite, and its markers.
        let drafts: Vec<Draft> = (0..64).chain(1000..1064).map(Draft::new).collect();
        // The watches of profiles and of Secrets have no order. A profile that comes before its Secret is announced twice:
        // as one that waits, and as one that can be reached. So each cluster and marker of the suite has its Secret already.
        for draft in drafts.iter().filter(|_| SECRETS) {
            hub.create(secret(draft, &draft.kubeconfig())).unwrap();
        }
        if SPACES == CHOSEN {
            let reference =
                |draft: &Draft| json!({"clusterProfileRef": {"namespace": "default", "name": draft.name()}});
            for (index, drafts) in drafts.chunks(50).enumerate() {
                let names: Vec<Value> = drafts.iter().map(reference).collect();
                let decision = object(&format!("decision eu/{index}"), json!({"decisions": names}));
                hub.create(decision).unwrap();
            }
        }
        (Self, hub)
    }

    fn provider(&self, hub: &SimCluster) -> Arc<dyn Provider> {
        let plugin = AccessProviderConfig::new("p", "/plugins/p").args_policy(ArgsPolicy::Append);
        let plugins = AccessProviders::new([plugin.profile_args(["*"])]).unwrap();
        let mut builder = ClusterInventoryProvider::builder()
            .client(client(hub))
            .access_policy(loopback_policy(&[]).credential_plugins(plugins.plugin_policy()));
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

    fn name(draft: &Draft) -> String {
        match SPACES {
            ONE => draft.name(),
            _ => Self::place(draft).1,
        }
    }

    fn place(draft: &Draft) -> (&'static str, String) {
        (PROFILES, format!("default/{}", draft.name()))
    }

    fn objects(&self, draft: &Draft, form: Form) -> Vec<Value> {
        let (args, kubeconfig) = match form {
            Form::Broken => (json!([draft.token(), {}]), draft.kubeconfig_cut_short()),
            _ => (json!([draft.token()]), draft.kubeconfig()),
        };
        let health = if form == Form::Suspended { "False" } else { "True" };
        let extensions = json!([{"name": ARGS_EXTENSION, "extension": args}]);
        let profile = json!({
            "metadata": {"labels": {"version": draft.label()}},
            "status": {
                "conditions": [{
                    "type": "ControlPlaneHealthy", "status": health, "reason": "Why", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
                "accessProviders": [{"name": "p", "cluster": {"server": draft.server(), "extensions": extensions}}],
            },
        });
        let mut objects = vec![object(&format!("profile {}", draft.name()), profile)];
        if SECRETS {
            objects.insert(0, secret(draft, &kubeconfig));
        }
        objects
    }
}

mod one_namespace {
    type OneNamespace = super::InHub<super::Profiles<{ super::ONE }, false>>;
    mcr_testkit::provider_conformance!(OneNamespace);
}

mod all_namespaces {
    type AllNamespaces = super::InHub<super::Profiles<{ super::ALL }, false>>;
    mcr_testkit::provider_conformance!(AllNamespaces);
}

mod secrets {
    type Secrets = super::InHub<super::Profiles<{ super::ONE }, true>>;
    mcr_testkit::provider_conformance!(Secrets);
}

mod chosen_in_several_namespaces {
    type Chosen = super::InHub<super::Profiles<{ super::CHOSEN }, false>>;
    mcr_testkit::provider_conformance!(Chosen);
}
