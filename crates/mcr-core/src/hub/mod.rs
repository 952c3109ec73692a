//! A kit for providers that find clusters in objects of a hub: Secrets, custom resources, or both.
//!
//! A provider that uses this kit adds three parts: the types of its objects, the facts that it reads from an object,
//! and, if its kind needs that, the requests that fetch credentials. The kit has the rest:
//!
//! | part | what it does |
//! | --- | --- |
//! | [`HubOptions`], [`Hub`] | check the shared options; start and log watches; name clusters |
//! | [`discovery`], [`Decide`] | run a discovery: the provider decides about events, and returns changes and tasks |
//! | [`Inventory`], [`Verdict`] | announce each change once, and `Synced` after all lists; remember clusters |
//! | [`Described`], [`Description`], [`decoded`] | describe a cluster by its object, in little memory |
//! | [`SecretContent`], [`Kubeconfig`], [`Judge`] | parse a kubeconfig once, and check it against the policies |
//! | [`Requests`], [`fetch`], [`fetch_secret`] | send single requests: limit them, and retry after a pause |
//! | [`KubeconfigOf`], [`ComputedKubeconfigs`] | call a function of the program for kubeconfigs |
//! | [`Versions`] | finds the version of a kind that the hub serves |
//! | [`Notice`], [`EventPublisher`] | publish Kubernetes events about Secrets that can't be used |
//!
//! This provider announces a cluster for each ConfigMap with a kubeconfig:
//!
//! ```
//! use std::sync::Arc;
//!
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::core::ApiResource;
//! use mcr_core::{Discovery, DiscoverySettings, HubEvent, Provider};
//! use mcr_core::hub::{self, Decide, Decoded, Described, Description, Hub, Inventory, Judge, Kubeconfig, Outcome, Running, Verdict};
//! use tokio::time::Instant;
//! use tokio_util::sync::CancellationToken;
//!
//! struct ConfigMaps(Hub);
//!
//! /// What is kept of a ConfigMap.
//! #[derive(PartialEq)]
//! struct Facts {
//!     description: Description,
//!     kubeconfig: Option<Kubeconfig>,
//! }
//!
//! impl Described for Facts {
//!     fn description(&self) -> &Description {
//!         &self.description
//!     }
//! }
//!
//! fn facts(mut map: ConfigMap) -> Option<Facts> {
//!     let text = map.data.as_mut().and_then(|data| data.remove("kubeconfig"));
//!     Some(Facts {
//!         kubeconfig: text.map(|text| Kubeconfig::new(text.into(), None)),
//!         description: Description::of(&map),
//!     })
//! }
//!
//! struct Decisions {
//!     hub: Hub,
//!     judge: Judge,
//!     inventory: Inventory<Facts>,
//! }
//!
//! impl Decide for Decisions {
//!     type Event = HubEvent<Decoded<Facts>>;
//!     const BLOCKS: bool = true; // parsing kubeconfigs takes long
//!
//!     fn decide(&mut self, events: Vec<Self::Event>, _: Instant) -> Outcome<Self::Event> {
//!         for event in events {
//!             match event {
//!                 HubEvent::Applied(key, facts) => {
//!                     let Some(name) = self.hub.cluster_name(&key) else { continue };
//!                     let object = format!("ConfigMap {key}");
//!                     let verdict = match facts.as_ref().map(|facts| &facts.kubeconfig) {
//!                         Ok(Some(kubeconfig)) => Some(match kubeconfig.parse(&self.judge) {
//!                             Ok(access) => Verdict::Good(access),
//!                             Err(problem) => Verdict::Broken { object, why: problem.text },
//!                         }),
//!                         Ok(None) => Some(Verdict::Waiting("it has no kubeconfig yet".into())),
//!                         Err(_) => None,
//!                     };
//!                     self.inventory.applied(&key, name, facts);
//!                     self.inventory.announce(&key, verdict);
//!                 }
//!                 HubEvent::Deleted(key) => self.inventory.deleted(&key),
//!                 HubEvent::Synced => self.inventory.listed(),
//!                 _ => {} // an outage of the hub, which the kit logs
//!             }
//!         }
//!         self.inventory.take_changes().into()
//!     }
//! }
//!
//! impl Provider for ConfigMaps {
//!     fn name(&self) -> &str {
//!         &self.0.name
//!     }
//!
//!     fn discover(&self, stop: CancellationToken) -> Discovery {
//!         self.discover_with(stop, &DiscoverySettings::default())
//!     }
//!
//!     fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
//!         let (hub, settings) = (self.0.clone(), settings.clone());
//!         hub::discovery(stop, async move {
//!             let requests = hub.objects(&ApiResource::erase::<ConfigMap>(&()));
//!             let (judge, inventory) = (hub.judge(&settings), Inventory::new("ConfigMap", requests.len(), Arc::default()));
//!             let watches = requests.into_iter().map(|request| {
//!                 hub.watch(request, &settings, |object| hub::decoded(object, facts), |event| event)
//!             });
//!             let watches: Vec<_> = watches.collect();
//!             Ok(Running::new(Decisions { hub, judge, inventory }).sources(watches))
//!         })
//!     }
//! }
//! ```

mod computed;
mod description;
mod discovery;
mod fetch;
mod inventory;
mod kubeconfig;
mod options;

pub use computed::{Called, ComputedKubeconfigs, KubeconfigOf, SecretKeyRef, kubeconfig_in_secret};
pub use description::{
    Closure, Decoded, Described, Description, Pairs, decoded, is_wanted, pairs, selection_in_words,
};
pub use discovery::{Decide, Outcome, Running, discovery};
pub(crate) use fetch::serves;
pub use fetch::{Refused, Versions, fetch, fetch_secret};
pub use inventory::{Entry, Inventory, Memory, Verdict};
pub use kubeconfig::{Judge, Kubeconfig, NoKubeconfig, SecretContent};
pub use options::{Hub, HubOptions, Namespaces, OptionError, Times};

pub use mcr_access::internal::{KubeconfigProblem, parse_rfc3339};
pub use mcr_client::internal::{Backoff, Request, Requests, Ticket, jitter};
pub use mcr_store::describe as describe_json_error;
pub use mcr_watch::internal::{EventPublisher, Notice, NoticeKind};
