//! The conformance suite (`mcr_testkit::conformance`). Each cluster is a file with one context. The suite runs
//! with notifications and without.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use mcr_core::{ClusterName, Provider};
use mcr_provider_file::{Environment, FileProvider};
use mcr_testkit::conformance::{Ability, Draft, Subject};
use tempfile::TempDir;

struct Files<const NOTIFIED: bool>(TempDir);

impl<const NOTIFIED: bool> Files<NOTIFIED> {
    fn path(&self, draft: &Draft) -> PathBuf {
        self.0.path().join(format!("{}.kubeconfig", draft.name()))
    }

    fn name(&self, draft: &Draft) -> ClusterName {
        ClusterName::new(draft.name()).unwrap()
    }

    /// Renames a new file over the old one, as programs should.
    fn write(&self, draft: &Draft, content: &str) {
        let new = self.0.path().join("new");
        fs::write(&new, content).unwrap();
        fs::rename(new, self.path(draft)).unwrap();
    }
}

impl<const NOTIFIED: bool> Subject for Files<NOTIFIED> {
    const CAN: &'static [Ability] = &[
        Ability::Add,
        Ability::Change,
        Ability::Rotate,
        Ability::Break,
        Ability::Remove,
    ];

    async fn start() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn provider(&self) -> Arc<dyn Provider> {
        let poll = if NOTIFIED { 3_600_000 } else { 50 };
        let provider = FileProvider::builder()
            .environment(Environment::empty())
            .dir(self.0.path())
            .notifications(NOTIFIED)
            .poll_interval(Duration::from_millis(poll))
            .debounce(Duration::from_millis(50))
            .build();
        Arc::new(provider.unwrap())
    }

    async fn describe(&mut self, draft: &Draft) {
        self.write(draft, &draft.kubeconfig());
    }

    async fn add(&mut self, draft: &Draft) -> ClusterName {
        self.describe(draft).await;
        self.name(draft)
    }

    async fn break_it(&mut self, draft: &Draft) -> ClusterName {
        // Half-written, with the token in the written half.
        self.write(draft, &draft.torn_kubeconfig());
        self.name(draft)
    }

    async fn remove(&mut self, draft: &Draft) {
        fs::remove_file(self.path(draft)).unwrap();
    }
}

mod notified {
    type Notified = super::Files<true>;
    mcr_testkit::provider_conformance!(Notified);
}

mod polling {
    type Polling = super::Files<false>;
    mcr_testkit::provider_conformance!(Polling);
}
