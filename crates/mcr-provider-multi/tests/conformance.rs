//! The conformance suite. One child whose clusters come and go, beside one that stays as it is; both two levels deep.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use mcr_core::{Access, ClusterName, ClusterSpec, Provider, Trust};
use mcr_provider_clusters::ClustersProvider;
use mcr_provider_multi::MultiProvider;
use mcr_testkit::conformance::{Ability, Ability::*, Draft, Subject};

struct Multi {
    provider: MultiProvider,
    child: ClustersProvider,
}

impl Multi {
    fn name(draft: &Draft) -> ClusterName {
        ClusterName::new(format!("outer#child#{}", draft.name())).unwrap()
    }

    fn spec(draft: &Draft) -> ClusterSpec {
        ClusterSpec::new(
            ClusterName::new(draft.name()).unwrap(),
            Access::kubeconfig(draft.kubeconfig(), Trust::Untrusted),
        )
        .identity(draft.uid())
        .label("version", draft.label())
    }
}

fn other() -> Draft {
    Draft::new(99)
}

impl Subject for Multi {
    const CAN: &'static [Ability] = &[Add, Change, Rotate, Replace, Break, Suspend, Remove];

    async fn start() -> Self {
        let child = ClustersProvider::new();
        let fixed = ClustersProvider::builder().cluster(Self::spec(&other())).build();
        let inner = MultiProvider::builder()
            .child_as("child", child.clone())
            .child_as("other", fixed)
            .build()
            .unwrap();
        let outer = MultiProvider::builder().child_as("outer", inner);
        let provider = outer.build().unwrap();
        Self { provider, child }
    }

    fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(self.provider.clone())
    }

    fn fixed(&self) -> Vec<ClusterName> {
        vec![ClusterName::new(format!("outer#other#{}", other().name())).unwrap()]
    }

    async fn put(&mut self, draft: &Draft) {
        self.child.handle().add(Self::spec(draft));
    }

    async fn add(&mut self, draft: &Draft) -> ClusterName {
        self.put(draft).await;
        Self::name(draft)
    }

    async fn replace(&mut self, draft: &Draft) {
        self.put(draft).await;
    }

    async fn break_it(&mut self, draft: &Draft) -> ClusterName {
        let name = ClusterName::new(draft.name()).unwrap();
        self.child.handle().broken(name, "an object", "it can't be read");
        Self::name(draft)
    }

    async fn suspend(&mut self, draft: &Draft) {
        self.child.handle().add(Self::spec(draft).suspended("hibernated"));
    }

    async fn remove(&mut self, draft: &Draft) {
        let name = ClusterName::new(draft.name()).unwrap();
        self.child.handle().remove(&name);
    }
}

mcr_testkit::provider_conformance!(Multi);
