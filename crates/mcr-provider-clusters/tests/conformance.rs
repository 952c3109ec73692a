//! What every provider must do; see `mcr_testkit::conformance`.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use mcr_core::{Access, ClusterName, ClusterSpec, Provider, Trust};
use mcr_provider_clusters::ClustersProvider;
use mcr_testkit::conformance::{Ability, Draft, Subject};

struct Clusters(ClustersProvider);

fn name(draft: &Draft) -> ClusterName {
    ClusterName::new(draft.name()).unwrap()
}

fn spec(draft: &Draft) -> ClusterSpec {
    ClusterSpec::new(
        name(draft),
        Access::kubeconfig(draft.kubeconfig(), Trust::Untrusted),
    )
    .identity(draft.uid())
    .label("version", draft.label())
}

impl Subject for Clusters {
    const CAN: &'static [Ability] = &[
        Ability::Add,
        Ability::Change,
        Ability::Rotate,
        Ability::Replace,
        Ability::Break,
        Ability::Suspend,
        Ability::Remove,
    ];

    async fn start() -> Self {
        Self(ClustersProvider::new())
    }

    fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(self.0.clone())
    }

    async fn describe(&mut self, draft: &Draft) {
        self.0.handle().add(spec(draft));
    }

    async fn add(&mut self, draft: &Draft) -> ClusterName {
        self.describe(draft).await;
        name(draft)
    }

    async fn break_it(&mut self, draft: &Draft) -> ClusterName {
        // What is said of a broken cluster comes from the caller here, who must leave secrets out.
        self.0
            .handle()
            .broken(name(draft), "an object", "it can't be read");
        name(draft)
    }

    async fn suspend(&mut self, draft: &Draft) {
        self.0.handle().add(spec(draft).suspended("hibernated"));
    }

    async fn remove(&mut self, draft: &Draft) {
        self.0.handle().remove(&name(draft));
    }
}

mcr_testkit::provider_conformance!(Clusters);
