//! What every provider must do; see `mcr_testkit::conformance`. The hub is a simulated API server; `tests/real.rs` has real
//! ones.
//!
//! `Replace` is not declared: which cluster a kubeconfig leads to is not for this provider to know. A fleet finds out when it
//! connects, and the suite's clusters are at an address where nobody answers. P-21 in `tests/real.rs` is about that.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::sync::Arc;

use mcr_core::Provider;
use mcr_provider_kubeconfig::KubeconfigProvider;
use mcr_testkit::{
    conformance::{Ability, Ability::*, Described, Draft, Form, InHub},
    sim::SimCluster,
};
use serde_json::Value;
use support::{loopback_policy, secret};

struct Secrets<const ALL: bool>;

impl<const ALL: bool> Described for Secrets<ALL> {
    const CAN: &'static [Ability] = &[Add, Change, Rotate, Break, Delete, Remove];

    fn start() -> (Self, SimCluster) {
        (Self, SimCluster::new())
    }

    fn provider(&self, hub: &SimCluster) -> Arc<dyn Provider> {
        let mut builder = KubeconfigProvider::builder()
            .client(hub.client())
            .access_policy(loopback_policy());
        if ALL {
            builder = builder.all_namespaces();
        }
        Arc::new(builder.build().unwrap())
    }

    fn name(draft: &Draft) -> String {
        if ALL { Self::place(draft).1 } else { draft.name() }
    }

    fn place(draft: &Draft) -> (&'static str, String) {
        ("secrets", format!("default/{}", draft.name()))
    }

    fn objects(&self, draft: &Draft, form: Form) -> Vec<Value> {
        let kubeconfig = match form {
            Form::Broken => draft.kubeconfig_cut_short(),
            _ => draft.kubeconfig(),
        };
        let mut secret = secret("default", &draft.name(), &kubeconfig);
        secret["metadata"]["labels"]["version"] = draft.label().into();
        vec![secret]
    }
}

mod one_namespace {
    type OneNamespace = super::InHub<super::Secrets<false>>;
    mcr_testkit::provider_conformance!(OneNamespace);
}

mod all_namespaces {
    type AllNamespaces = super::InHub<super::Secrets<true>>;
    mcr_testkit::provider_conformance!(AllNamespaces);
}
