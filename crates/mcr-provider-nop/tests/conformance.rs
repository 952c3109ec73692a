//! What every provider must do; see `mcr_testkit::conformance`.

use std::sync::Arc;

use mcr_core::Provider;
use mcr_provider_nop::NopProvider;
use mcr_testkit::conformance::{Ability, Subject};

struct Nop;

impl Subject for Nop {
    const CAN: &'static [Ability] = &[];

    async fn start() -> Self {
        Self
    }

    fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(NopProvider::new())
    }
}

mcr_testkit::provider_conformance!(Nop);
