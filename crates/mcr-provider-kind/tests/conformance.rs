//! The conformance suite (`mcr_testkit::conformance`), with an engine that is a shell script: with events and without.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::{sync::Arc, time::Duration};

use mcr_core::{ClusterName, Provider};
use mcr_testkit::conformance::{Ability, Ability::*, Draft, Subject};
use support::{ScriptedEngine, container};

struct Clusters<const EVENTS: bool>(ScriptedEngine);

impl<const EVENTS: bool> Clusters<EVENTS> {
    fn put_as(&self, draft: &Draft, status: &str) {
        let port = 1000 + draft.label()[1..].parse::<u16>().unwrap();
        let id = draft.uid().replace('-', "x");
        self.0.put(&id, &container(&draft.name(), &id, status, port));
        self.0.event("start", &draft.name());
    }

    fn conf(&self, draft: &Draft) {
        self.0.conf(&draft.uid().replace('-', "x"), &draft.kubeconfig());
    }
}

impl<const EVENTS: bool> Subject for Clusters<EVENTS> {
    // Not `Change`: only the port of a kind cluster can change. `engine/events.rs` has that case.
    const CAN: &'static [Ability] = &[Add, Rotate, Replace, Break, Suspend, Remove];

    async fn start() -> Self {
        Self(ScriptedEngine::start())
    }

    fn provider(&self) -> Arc<dyn Provider> {
        let builder = if EVENTS {
            self.0.reported()
        } else {
            self.0.asking()
        };
        Arc::new(
            builder
                .refresh_interval(Duration::from_millis(300))
                .build()
                .unwrap(),
        )
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn quiet(&self) -> Duration {
        Duration::from_millis(900)
    }

    async fn add(&mut self, draft: &Draft) -> ClusterName {
        self.conf(draft);
        self.put_as(draft, "running");
        ClusterName::new(draft.name()).unwrap()
    }

    async fn rotate(&mut self, draft: &Draft) {
        self.conf(draft);
    }

    async fn replace(&mut self, draft: &Draft) {
        self.remove(&Draft::new(draft.number())).await;
        self.add(draft).await;
    }

    async fn break_it(&mut self, draft: &Draft) -> ClusterName {
        self.0
            .conf(&draft.uid().replace('-', "x"), &draft.kubeconfig_cut_short());
        self.put_as(draft, "running");
        ClusterName::new(draft.name()).unwrap()
    }

    async fn repair(&mut self, draft: &Draft) {
        self.conf(draft);
    }

    async fn suspend(&mut self, draft: &Draft) {
        self.put_as(draft, "exited");
    }

    async fn resume(&mut self, draft: &Draft) {
        self.put_as(draft, "running");
    }

    async fn remove(&mut self, draft: &Draft) {
        self.0.remove(&draft.uid().replace('-', "x"));
        self.0.event("destroy", &draft.name());
    }
}

mod with_events {
    type WithEvents = super::Clusters<true>;
    mcr_testkit::provider_conformance!(WithEvents);
}

mod asking {
    type Asking = super::Clusters<false>;
    mcr_testkit::provider_conformance!(Asking);
}
