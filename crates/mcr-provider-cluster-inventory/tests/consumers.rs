//! What every consumer of ClusterProfiles must do; see `mcr_testkit::consumers`.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::collections::BTreeMap;

use mcr_core::{Cluster, ClusterStatus, Fleet};
use mcr_provider_cluster_inventory::{AccessProviders, ClusterInventoryProvider};
use mcr_testkit::{
    consumers::{Consumer, Feature, Reason, Seen, Setup, State},
    waiting::Background,
};
use support::locally;

/// A fleet with this provider alone.
struct Mcr {
    fleet: Fleet,
    running: Background<()>,
    /// The namespace that the names of clusters leave out.
    namespace: Option<String>,
    /// The clusters that were seen, each with the number of times that it was another one.
    engaged: BTreeMap<String, (Cluster, u64)>,
}

impl Consumer for Mcr {
    const CAN: &'static [Feature] = &[
        Feature::AllNamespaces,
        Feature::Labels,
        Feature::Managers,
        Feature::ReadyCondition,
        Feature::V1Alpha1,
    ];

    async fn start(setup: &Setup) -> Self {
        let providers = AccessProviders::from_file(&setup.provider_file).unwrap();
        let policy = locally(&[]).credential_plugins(providers.plugin_policy());
        let mut builder = ClusterInventoryProvider::builder()
            .client(setup.hub.client())
            .access_providers(providers)
            .managers(&setup.managers);
        builder = match &setup.namespace {
            Some(namespace) => builder.namespace(namespace),
            None => builder.all_namespaces(),
        };
        if let Some(labels) = &setup.labels {
            builder = builder.labels(labels);
        }
        if let Some(ready) = &setup.ready {
            builder = builder.ready_condition(&**ready);
        }
        let fleet = Fleet::builder()
            .provider(builder.build().unwrap())
            .settings(|settings| settings.access_policy = policy)
            .build();
        let running = Background::start({
            let fleet = fleet.clone();
            |stop| async move { fleet.run(stop).await }
        });
        Self {
            fleet,
            running,
            namespace: setup.namespace.clone(),
            engaged: BTreeMap::new(),
        }
    }

    async fn fleet(&mut self) -> BTreeMap<String, Seen> {
        let clusters = self.fleet.snapshot().clusters;
        let seen = clusters
            .iter()
            .filter(|status| status.state != "Draining" && status.state != "Gone");
        seen.map(|status| self.seen(status)).collect()
    }

    async fn stop(self) {
        self.running.stop().await;
    }
}

impl Mcr {
    fn seen(&mut self, status: &ClusterStatus) -> (String, Seen) {
        let name = status.name.to_string();
        let (state, reason) = verdict(status);
        let seen = Seen {
            state,
            reason,
            properties: status.properties.clone(),
            engagement: self.engagement(&name),
        };
        match &self.namespace {
            Some(namespace) => (format!("{namespace}/{name}"), seen),
            None => (name, seen),
        }
    }

    fn engagement(&mut self, name: &str) -> u64 {
        let before = self.engaged.get(name).map_or(0, |(_, times)| *times);
        let Ok(now) = self.fleet.get(name) else {
            return before;
        };
        let same = self
            .engaged
            .get(name)
            .is_some_and(|(known, _)| known.is_same(&now));
        let times = if same { before } else { before + 1 };
        self.engaged.insert(name.to_owned(), (now, times));
        times
    }
}

fn verdict(status: &ClusterStatus) -> (State, Option<Reason>) {
    let reason = status.reason.as_deref().unwrap_or_default();
    let waits = [
        ("describes the same cluster", Reason::Duplicate),
        ("it has no access providers", Reason::NoAccess),
        ("and this program knows", Reason::UnknownAccessProvider),
        ("has no condition", Reason::NotKnown),
        ("is Unknown", Reason::NotKnown),
        ("is False", Reason::NotReady),
    ];
    match status.state {
        "Ready" => (State::Ready, None),
        "Suspended" => {
            let known = waits.iter().find(|(text, _)| reason.contains(text));
            (State::Waiting, known.map(|(_, reason)| *reason))
        }
        "Broken" => (State::Broken, Some(Reason::BadAccess)),
        _ => (State::Connecting, None),
    }
}

mcr_testkit::consumer_conformance!(Mcr);
