//! What every provider must do; see `mcr_testkit::conformance`. One child whose clusters come and go, beside one that
//! stays as it is; and the same two levels deep.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use mcr_core::{Access, ClusterName, ClusterSpec, Provider, Trust};
use mcr_provider_clusters::ClustersProvider;
use mcr_provider_multi::MultiProvider;
use mcr_testkit::conformance::{Ability, Draft, Subject};

struct Multi<const NESTED: bool> {
    provider: MultiProvider,
    child: ClustersProvider,
}

impl<const NESTED: bool> Multi<NESTED> {
    fn name(draft: &Draft) -> ClusterName {
        let prefix = if NESTED { "outer#child" } else { "child" };
        ClusterName::new(format!("{prefix}#{}", draft.name())).unwrap()
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

impl<const NESTED: bool> Subject for Multi<NESTED> {
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
        let child = ClustersProvider::new();
        let fixed = ClustersProvider::builder().cluster(Self::spec(&other())).build();
        let mut provider = MultiProvider::builder()
            .child_as("child", child.clone())
            .child_as("other", fixed)
            .build()
            .unwrap();
        if NESTED {
            let outer = MultiProvider::builder().child_as("outer", provider);
            provider = outer.build().unwrap();
        }
        Self { provider, child }
    }

    fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(self.provider.clone())
    }

    fn fixed(&self) -> Vec<ClusterName> {
        let prefix = if NESTED { "outer#other" } else { "other" };
        vec![ClusterName::new(format!("{prefix}#{}", other().name())).unwrap()]
    }

    async fn describe(&mut self, draft: &Draft) {
        self.child.handle().add(Self::spec(draft));
    }

    async fn add(&mut self, draft: &Draft) -> ClusterName {
        self.describe(draft).await;
        Self::name(draft)
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

mod one_level {
    type OneLevel = super::Multi<false>;
    mcr_testkit::provider_conformance!(OneLevel);
}

mod two_levels {
    type TwoLevels = super::Multi<true>;
    mcr_testkit::provider_conformance!(TwoLevels);
}
