//! The provider of the documentation of the kit, on a simulated hub: what every provider must do.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ApiResource;
use mcr_core::hub::{
    self, Decide, Decoded, Described, Description, Hub, HubOptions, Inventory, Judge, Kubeconfig, Outcome,
    Running, Verdict,
};
use mcr_core::{AccessPolicy, AddressPolicy, ClusterName, Discovery, DiscoverySettings, HubEvent, Provider};
use mcr_testkit::{
    conformance::{Ability, Ability::*, Draft, Subject},
    sim::SimCluster,
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

struct ConfigMaps(Hub);

/// What is kept of a ConfigMap.
#[derive(PartialEq)]
struct Facts {
    description: Description,
    kubeconfig: Option<Kubeconfig>,
}

impl Described for Facts {
    fn description(&self) -> &Description {
        &self.description
    }
}

fn facts(mut map: ConfigMap) -> Option<Facts> {
    let text = map.data.as_mut().and_then(|data| data.remove("kubeconfig"));
    Some(Facts {
        kubeconfig: text.map(|text| Kubeconfig::new(text.into(), None)),
        description: Description::of(&map),
    })
}

struct Decisions {
    hub: Hub,
    judge: Judge,
    inventory: Inventory<Facts>,
}

impl Decide for Decisions {
    type Event = HubEvent<Decoded<Facts>>;
    const BLOCKS: bool = true; // parses kubeconfigs

    fn decide(&mut self, events: Vec<Self::Event>, _: Instant) -> Outcome<Self::Event> {
        for event in events {
            match event {
                HubEvent::Applied(key, facts) => {
                    let Some(name) = self.hub.cluster_name(&key) else {
                        continue;
                    };
                    let object = format!("ConfigMap {key}");
                    let verdict = match facts.as_ref().map(|facts| &facts.kubeconfig) {
                        Ok(Some(kubeconfig)) => Some(match kubeconfig.parse(&self.judge) {
                            Ok(access) => Verdict::Good(access),
                            Err(problem) => Verdict::Broken {
                                object,
                                why: problem.text,
                            },
                        }),
                        Ok(None) => Some(Verdict::Waiting("it has no kubeconfig yet".into())),
                        Err(_) => None,
                    };
                    self.inventory.applied(&key, name, facts);
                    self.inventory.announce(&key, verdict);
                }
                HubEvent::Deleted(key) => self.inventory.deleted(&key),
                HubEvent::Synced => self.inventory.listed(),
                _ => {} // an outage, which is logged
            }
        }
        self.inventory.take_changes().into()
    }
}

impl Provider for ConfigMaps {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let (hub, settings) = (self.0.clone(), settings.clone());
        hub::discovery(stop, async move {
            let requests = hub.objects(&ApiResource::erase::<ConfigMap>(&()));
            let (judge, inventory) = (
                hub.judge(&settings),
                Inventory::new("ConfigMap", requests.len(), Arc::default()),
            );
            let watches = requests.into_iter().map(|request| {
                hub.watch(
                    request,
                    &settings,
                    |object| hub::decoded(object, facts),
                    |event| event,
                )
            });
            let watches: Vec<_> = watches.collect();
            Ok(Running::new(Decisions {
                hub,
                judge,
                inventory,
            })
            .sources(watches))
        })
    }
}

struct Maps(SimCluster);

impl Maps {
    fn key(draft: &Draft) -> String {
        format!("default/{}", draft.name())
    }

    fn write(&self, draft: &Draft, kubeconfig: &str) {
        let name = draft.name();
        let mut wanted = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default", "labels": {"version": draft.label()}},
            "data": {"kubeconfig": kubeconfig},
        });
        // As they were, or this would lift them.
        if let Some(there) = self.0.get("configmaps", &Self::key(draft)) {
            wanted["metadata"]["finalizers"] = there["metadata"]["finalizers"].clone();
        }
        self.0.apply(wanted).unwrap();
    }

    fn finalizers(&self, draft: &Draft, finalizers: Value) {
        let mut there = self.0.get("configmaps", &Self::key(draft)).unwrap();
        there["metadata"]["finalizers"] = finalizers;
        self.0.update(there).unwrap();
    }

    fn name(draft: &Draft) -> ClusterName {
        ClusterName::new(draft.name()).unwrap()
    }
}

impl Subject for Maps {
    const CAN: &'static [Ability] = &[Add, Change, Rotate, Break, Delete, Remove];

    async fn start() -> Self {
        Self(SimCluster::new())
    }

    fn provider(&self) -> Arc<dyn Provider> {
        let mut options = HubOptions::new("config-maps");
        options.client = Some(self.0.client());
        // The clusters of the suite are on this machine, where untrusted kubeconfigs may not lead.
        options.access_policy =
            Some(AccessPolicy::default().addresses(AddressPolicy::default().allow_loopback(true)));
        Arc::new(ConfigMaps(options.check().unwrap()))
    }

    async fn put(&mut self, draft: &Draft) {
        self.write(draft, &draft.kubeconfig());
    }

    async fn add(&mut self, draft: &Draft) -> ClusterName {
        self.put(draft).await;
        Self::name(draft)
    }

    async fn break_it(&mut self, draft: &Draft) -> ClusterName {
        self.write(draft, &draft.kubeconfig_cut_short());
        Self::name(draft)
    }

    async fn begin_deletion(&mut self, draft: &Draft) {
        self.finalizers(draft, json!(["example.com/keep"]));
        self.0.delete("configmaps", &Self::key(draft)).unwrap();
    }

    async fn finish_deletion(&mut self, draft: &Draft) {
        self.finalizers(draft, json!([]));
    }

    async fn remove(&mut self, draft: &Draft) {
        self.0.delete("configmaps", &Self::key(draft)).unwrap();
    }
}

mcr_testkit::provider_conformance!(Maps);
