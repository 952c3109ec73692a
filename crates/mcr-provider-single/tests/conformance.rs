//! What every provider must do; see `mcr_testkit::conformance`.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use mcr_core::{Access, ClusterName, Provider, Trust};
use mcr_provider_single::SingleProvider;
use mcr_testkit::conformance::{Ability, Draft, Subject};

struct Single(SingleProvider);

fn hub() -> ClusterName {
    ClusterName::new("hub").unwrap()
}

impl Subject for Single {
    const CAN: &'static [Ability] = &[];

    async fn start() -> Self {
        let access = Access::kubeconfig(Draft::new(0).kubeconfig(), Trust::Trusted);
        Self(SingleProvider::new(hub(), access))
    }

    fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(self.0.clone())
    }

    fn fixed(&self) -> Vec<ClusterName> {
        vec![hub()]
    }
}

mcr_testkit::provider_conformance!(Single);
