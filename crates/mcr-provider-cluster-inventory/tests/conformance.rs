//! What every provider must do; see `mcr_testkit::conformance`. The hub is a simulated API server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{path::Path, sync::Arc};

use mcr_core::{ClusterName, Provider};
use mcr_provider_cluster_inventory::{
    ARGS_EXTENSION, AccessProviderConfig, AccessProviders, ArgsPolicy, ClusterInventoryProvider,
};
use mcr_testkit::{
    conformance::{Ability, Draft, Subject},
    sim::SimCluster,
};
use serde_json::{Value, json};
use support::{PROFILES, client, condition, extended, hub, locally, profile, secret};

const CAN: &[Ability] = &[
    Ability::Add,
    Ability::Change,
    Ability::Rotate,
    Ability::Replace,
    Ability::Break,
    Ability::Suspend,
    Ability::Remove,
];

/// With `SECRETS`, kubeconfigs are in Secrets. Without it profiles offer access, with the token as an argument of the plugin.
struct Profiles<const ALL: bool, const SECRETS: bool>(SimCluster);

impl<const ALL: bool, const SECRETS: bool> Profiles<ALL, SECRETS> {
    fn key(draft: &Draft) -> String {
        format!("default/{}", draft.name())
    }

    fn name(draft: &Draft) -> ClusterName {
        ClusterName::new(if ALL { Self::key(draft) } else { draft.name() }).unwrap()
    }

    fn profile(draft: &Draft) -> Value {
        let wanted = profile("default", &draft.name(), &draft.server());
        let mut wanted = extended(wanted, &[(ARGS_EXTENSION, json!([draft.token()]))]);
        wanted["metadata"]["labels"]["version"] = draft.label().into();
        wanted
    }

    fn put(&self, draft: &Draft) {
        self.put_with(Self::profile(draft), draft, &draft.kubeconfig());
    }

    fn put_with(&self, profile: Value, draft: &Draft, kubeconfig: &str) {
        if SECRETS {
            self.0
                .apply(secret("default", &draft.name(), kubeconfig))
                .unwrap();
        }
        self.0.apply(profile).unwrap();
    }

    fn delete(&self, draft: &Draft) {
        self.0.delete(PROFILES, &Self::key(draft)).unwrap();
    }
}

impl<const ALL: bool, const SECRETS: bool> Subject for Profiles<ALL, SECRETS> {
    const CAN: &'static [Ability] = CAN;

    async fn start() -> Self {
        let hub = hub();
        if SECRETS {
            // The watches of profiles and of Secrets have no order. A profile that is told before its Secret is announced twice:
            // as one that waits, and as one that can be reached. So each cluster and marker of the suite has its Secret already.
            for draft in (0..64).chain(1000..1064).map(Draft::new) {
                hub.create(secret("default", &draft.name(), draft.kubeconfig()))
                    .unwrap();
            }
        }
        Self(hub)
    }

    fn provider(&self) -> Arc<dyn Provider> {
        let mut builder = ClusterInventoryProvider::builder()
            .client(client(&self.0))
            .access_policy(locally(&[Path::new("/plugins/p")]));
        builder = match SECRETS {
            true => builder.consumer_secrets("me"),
            false => {
                let plugin = AccessProviderConfig::new("p", "/plugins/p").args_policy(ArgsPolicy::Append);
                builder.access_providers(AccessProviders::new([plugin]).unwrap())
            }
        };
        if ALL {
            builder = builder.all_namespaces();
        }
        Arc::new(builder.build().unwrap())
    }

    async fn add(&mut self, draft: &Draft) -> ClusterName {
        self.put(draft);
        Self::name(draft)
    }

    async fn change(&mut self, draft: &Draft) {
        self.put(draft);
    }

    async fn rotate(&mut self, draft: &Draft) {
        self.put(draft);
    }

    async fn replace(&mut self, draft: &Draft) {
        self.delete(draft);
        self.put(draft);
    }

    async fn break_it(&mut self, draft: &Draft) -> ClusterName {
        // Cut short, with the token in what is left.
        let content = draft.kubeconfig();
        let at = content.find(&draft.token()).unwrap() + draft.token().len();
        let args = json!([draft.token(), {}]);
        let profile = extended(Self::profile(draft), &[(ARGS_EXTENSION, args)]);
        self.put_with(profile, draft, &content[..at]);
        Self::name(draft)
    }

    async fn repair(&mut self, draft: &Draft) {
        self.put(draft);
    }

    async fn suspend(&mut self, draft: &Draft) {
        let mut profile = Self::profile(draft);
        profile["status"]["conditions"] = json!([condition("ControlPlaneHealthy", "False", "etcd is down")]);
        self.put_with(profile, draft, &draft.kubeconfig());
    }

    async fn resume(&mut self, draft: &Draft) {
        self.put(draft);
    }

    async fn remove(&mut self, draft: &Draft) {
        self.delete(draft);
    }
}

mod one_namespace {
    type OneNamespace = super::Profiles<false, false>;
    mcr_testkit::provider_conformance!(OneNamespace);
}

mod all_namespaces {
    type AllNamespaces = super::Profiles<true, false>;
    mcr_testkit::provider_conformance!(AllNamespaces);
}

mod secrets {
    type Secrets = super::Profiles<false, true>;
    mcr_testkit::provider_conformance!(Secrets);
}
