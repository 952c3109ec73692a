//! What every provider must do; see `mcr_testkit::conformance`. The hub is a simulated API server.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::sync::Arc;

use mcr_core::Provider;
use mcr_testkit::{
    conformance::{Ability, Ability::*, Described, Draft, Form, InHub},
    sim::SimCluster,
};
use serde_json::{Value, json};
use support::{CLUSTERS, builder, hub, object};

/// With `KEEP`, clusters stay while their Clusters are being deleted. Without it they leave at once.
struct Clusters<const ALL: bool, const KEEP: bool>;

impl<const ALL: bool, const KEEP: bool> Described for Clusters<ALL, KEEP> {
    const CAN: &'static [Ability] = if KEEP {
        &[Add, Change, Rotate, Replace, Break, Delete, Remove]
    } else {
        &[Add, Change, Rotate, Replace, Break, Remove]
    };

    fn start() -> (Self, SimCluster) {
        (Self, hub(SimCluster::builder()))
    }

    fn provider(&self, hub: &SimCluster) -> Arc<dyn Provider> {
        let mut builder = builder(hub.client());
        if ALL {
            builder = builder.all_namespaces();
        }
        if KEEP {
            builder = builder.keep_while(|_| true);
        }
        Arc::new(builder.build().unwrap())
    }

    fn name(draft: &Draft) -> String {
        if ALL { Self::place(draft).1 } else { draft.name() }
    }

    fn place(draft: &Draft) -> (&'static str, String) {
        (CLUSTERS, format!("default/{}", draft.name()))
    }

    fn objects(&self, draft: &Draft, form: Form) -> Vec<Value> {
        let kubeconfig = match form {
            Form::Broken => draft.kubeconfig_cut_short(),
            _ => draft.kubeconfig(),
        };
        let secret = json!({"stringData": {"value": kubeconfig}});
        let cluster = json!({"metadata": {"labels": {"version": draft.label()}}});
        vec![
            object(&format!("secret {}", draft.name()), secret),
            object(&format!("ready {}", draft.name()), cluster),
        ]
    }
}

mod one_namespace {
    type OneNamespace = super::InHub<super::Clusters<false, false>>;
    mcr_testkit::provider_conformance!(OneNamespace);
}

mod all_namespaces {
    type AllNamespacesAndKept = super::InHub<super::Clusters<true, true>>;
    mcr_testkit::provider_conformance!(AllNamespacesAndKept);
}
