//! What every provider must do; see `mcr_testkit::conformance`. The garden is a stand-in on a simulated API server, the seed is one.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use mcr_core::Provider;
use mcr_garden_double::Garden;
use mcr_provider_gardener::{GardenerProvider, GardenerProviderBuilder, Topology};
use mcr_testkit::{
    conformance::{Ability, Ability::*, Described, Draft, Form, InHub},
    sim::SimCluster,
};
use serde_json::{Value, json};
use support::{GARDEN, SEED, SHOOTS, hour, loopback_policy, object, secret, server};

const DELETED_AT_ONCE: &[Ability] = &[Add, Change, Rotate, Replace, Break, Suspend, Remove];
const KEPT: &[Ability] = &[Add, Change, Rotate, Replace, Break, Suspend, Delete, Remove];

fn kubeconfig(draft: &Draft, form: Form) -> String {
    match form {
        Form::Broken => draft.kubeconfig_cut_short(),
        _ => draft.kubeconfig(),
    }
}

fn built(builder: GardenerProviderBuilder, keep: bool) -> Arc<dyn Provider> {
    let builder = builder.access_policy(loopback_policy());
    let builder = if keep {
        builder.keep_while(|_| true)
    } else {
        builder
    };
    Arc::new(builder.build().unwrap())
}

/// The Shoots of a garden, and the kubeconfigs that it issues. With `KEEP`, clusters stay while their Shoots are being deleted.
/// Without it they leave at once.
struct Shoots<const ALL: bool, const KEEP: bool> {
    garden: Garden,
    issue: Arc<Mutex<HashMap<String, String>>>,
}

impl<const ALL: bool, const KEEP: bool> Described for Shoots<ALL, KEEP> {
    const CAN: &'static [Ability] = if KEEP { KEPT } else { DELETED_AT_ONCE };

    fn start() -> (Self, SimCluster) {
        let issue = Arc::<Mutex<HashMap<String, String>>>::default();
        let known = issue.clone();
        let garden = Garden::new(move |ask| {
            let answer = hour(known.lock().unwrap()[&ask.name].clone());
            async move { answer }
        });
        (Self { garden, issue }, server(&GARDEN))
    }

    fn provider(&self, hub: &SimCluster) -> Arc<dyn Provider> {
        let builder = GardenerProvider::builder().client(self.garden.client(hub.client()));
        let builder = if ALL {
            builder.all_namespaces()
        } else {
            builder.namespace("garden-dev")
        };
        built(builder, KEEP)
    }

    fn name(draft: &Draft) -> String {
        format!("dev/{}", draft.name())
    }

    fn place(draft: &Draft) -> (&'static str, String) {
        (SHOOTS, format!("garden-dev/{}", draft.name()))
    }

    /// The garden issues another kubeconfig from now on. The phase of the rotation makes the provider ask for it.
    fn objects(&self, draft: &Draft, form: Form) -> Vec<Value> {
        let mut issue = self.issue.lock().unwrap();
        issue.insert(draft.name(), kubeconfig(draft, form));
        let broken = if form == Form::Broken { "broken" } else { "good" };
        let phase = format!("{broken} {} {}", draft.label(), draft.token());
        let more = json!({
            "metadata": {"labels": {"version": draft.label()}},
            "spec": {"hibernation": {"enabled": form == Form::Suspended}},
            "status": {"credentials": {"rotation": {"certificateAuthorities": {"phase": phase}}}},
        });
        vec![object(
            &GARDEN,
            &format!("shoot garden-dev/{}", draft.name()),
            more,
        )]
    }
}

/// The Shoots of a seed. With `KEEP`, clusters stay while their Shoots are being deleted.
struct InSeed<const KEEP: bool>;

fn cluster(draft: &Draft, form: Form, mut metadata: Value) -> Value {
    metadata["uid"] = draft.uid().into();
    metadata["labels"] = json!({"version": draft.label()});
    let hibernation = json!({"enabled": form == Form::Suspended});
    let shoot = json!({"metadata": metadata, "spec": {"hibernation": hibernation}});
    object(
        &SEED,
        &format!("cluster {}", draft.name()),
        json!({"spec": {"shoot": shoot}}),
    )
}

impl<const KEEP: bool> Described for InSeed<KEEP> {
    const CAN: &'static [Ability] = if KEEP { KEPT } else { DELETED_AT_ONCE };

    fn start() -> (Self, SimCluster) {
        (Self, server(&SEED))
    }

    fn provider(&self, hub: &SimCluster) -> Arc<dyn Provider> {
        let builder = GardenerProvider::builder()
            .client(hub.client())
            .topology(Topology::Seed);
        built(builder, KEEP)
    }

    fn name(draft: &Draft) -> String {
        format!("dev/{}", draft.name())
    }

    fn place(draft: &Draft) -> (&'static str, String) {
        let key = format!("shoot--dev--{}", draft.name());
        ("clusters.extensions.gardener.cloud", key)
    }

    fn objects(&self, draft: &Draft, form: Form) -> Vec<Value> {
        let namespace = format!("namespace shoot--dev--{}", draft.name());
        vec![
            object(&SEED, &namespace, json!({})),
            secret(&draft.name(), &kubeconfig(draft, form)),
            cluster(draft, form, json!({})),
        ]
    }

    /// That of the Shoot, of which the Cluster is a copy.
    fn begin_deletion(&self, hub: &SimCluster, draft: &Draft) {
        let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        hub.apply(cluster(draft, Form::Good, deleted)).unwrap();
    }

    fn finish_deletion(&self, hub: &SimCluster, draft: &Draft) {
        let (resource, key) = Self::place(draft);
        hub.delete(resource, &key).unwrap();
    }
}

mod in_seed {
    type InSeed = super::InHub<super::InSeed<false>>;
    mcr_testkit::provider_conformance!(InSeed);
}

mod in_seed_and_kept {
    type InSeedAndKept = super::InHub<super::InSeed<true>>;
    mcr_testkit::provider_conformance!(InSeedAndKept);
}

mod one_namespace {
    type OneNamespace = super::InHub<super::Shoots<false, false>>;
    mcr_testkit::provider_conformance!(OneNamespace);
}

mod all_namespaces {
    type AllNamespacesAndKept = super::InHub<super::Shoots<true, true>>;
    mcr_testkit::provider_conformance!(AllNamespacesAndKept);
}
