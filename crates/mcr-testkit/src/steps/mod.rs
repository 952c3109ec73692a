//! Tests for a provider whose clusters are described by objects of a hub. The tests are data: a file of scenarios,
//! each with steps and the announcements that the provider makes after each step.
//!
//! The author of a provider implements [`HubProvider`]: how the provider is built, and what it needs in the hub.
//! [`steps!`](macro@crate::steps) makes one test from each scenario of a file. The suite provides the rest: a
//! simulated hub in paused time, a user with exactly the rights in the provider's manifest, and the comparison.
//!
//! ```
//! use std::sync::Arc;
//! use mcr_core::{Change, Discovery, Provider};
//! use mcr_testkit::steps::{HubProvider, Options};
//! # use futures::{StreamExt, stream};
//! # use tokio_util::sync::CancellationToken;
//!
//! /// Each ConfigMap of the namespace `default` is a cluster.
//! struct MapProvider(kube::Client);
//!
//! /// The world of a scenario.
//! struct Maps;
//!
//! impl HubProvider for Maps {
//!     fn roles() -> &'static str {
//!         "rules: [{apiGroups: [''], resources: [configmaps], verbs: [list, watch]}]"
//!     }
//!
//!     fn start() -> Self {
//!         Self
//!     }
//!
//!     fn provider(&self, client: kube::Client, _: &Options) -> Arc<dyn Provider> {
//!         Arc::new(MapProvider(client))
//!     }
//! }
//! # impl Provider for MapProvider {
//! #     fn name(&self) -> &str { "maps" }
//! #     fn discover(&self, _: CancellationToken) -> Discovery { stream::pending::<Result<Change, _>>().boxed() }
//! # }
//!
//! // mcr_testkit::steps!(Maps, "steps.yaml"; a_map_is_a_cluster, a_map_that_goes_takes_its_cluster_along);
//! ```
//!
//! # The file
//!
//! ```yaml
//! templates:
//!   map: {apiVersion: v1, kind: ConfigMap, metadata: {name: $(name), namespace: $(namespace)}}
//! given: [map there-from-the-start]
//! scenarios:
//!   a_map_that_goes_takes_its_cluster_along:
//!     - create: [map a, {map b: {data: {server: https://b}}}]
//!       expect: [+a, +b, +there-from-the-start, synced]
//!     - delete: [map a]
//!       expect: [-a]
//! ```
//!
//! An object is named by its template and its name or `namespace/name`. The default namespace is `default`. A map adds
//! a JSON merge patch to the object. A step does the following, in this order:
//!
//! | field | meaning |
//! | --- | --- |
//! | `about` | What happens, for people. |
//! | `rights` | The rights of the provider from now on: those of its manifest `without` some (`secrets`, `get secrets`), only `in` some namespaces. |
//! | `away` | Whether the hub is away: its watches end, and nothing listens at its address. |
//! | `answers` | What the hub answers from now on to requests whose path ends with this key: `{status, headers, body}`, `never`, or null for its own answer. |
//! | `do` | Actions of the [`HubProvider`], by their names. |
//! | `delete`, `create`, `apply`, `merge` | Objects to delete, to create, to replace or create, and merge patches for those that are there. A created object that has a UID is stored unchanged, as from a backup. |
//! | `repeat` | How often all of these are done. `$(round)` is the number of the round, with four digits. |
//! | `refuse` | Clusters that refuse their credentials. The fleet then requests new ones. |
//! | `expire` | All watches of the hub end, and its history is dropped, so that the provider's next watches get 410. |
//! | `provider` | A new provider with these options replaces the previous one. |
//! | `restart` | The discovery starts again, as after a failure. |
//!
//! Then these are compared with what happens:
//!
//! | field | meaning |
//! | --- | --- |
//! | `expect` | The announcements as [`line`](crate::discovery::line())s, or their number. Announcements of one cluster come in this order, those of several clusters in any order, and all stay on their side of `synced`. `...` stands for any text. Default: none. |
//! | `fails` | The error that ends the discovery. The next step starts another one. |
//! | `within` | How long the announcements may take, in the hub's time. Default: `10m`. |
//! | `after` | How long nothing may be announced before the first announcement. |
//! | `quiet` | How long nothing may be announced after the last announcement. Default: `1s`. |
//! | `fleet` | What the announced clusters have: `access` (as [`address_and_token`](crate::discovery::address_and_token)), `identity`, `labels`, `properties` (null: none of this name). |
//! | `requests` | How often the provider has sent a request in this step, such as `get secrets` or `list secrets`, or a counter of the [`HubProvider`]. |
//! | `uris` | A text in the path or query of each list and watch of a resource that the provider has sent in this step. |
//! | `events` | The events that the provider has written in this step: kind, namespace and name of the object, reason and note. |
//! | `warns` | How many logged warnings contained a text in this step. |
//!
//! In texts, `$(kubeconfig TOKEN)` is a kubeconfig of a cluster that does not answer, `$(repeat COUNT TEXT)` repeats a
//! text, and `$(uid OBJECT)` is the UID of an object. After each step, no announcement, event or log line may contain
//! the word `sesame`. Unless the scenario sets `rights`, no request of the provider may have been forbidden.

mod hub;
mod play;
mod scenario;
mod subject;

use std::collections::BTreeSet;

use serde_json::{Value, json};

pub use scenario::kubeconfig;
pub use subject::{HubProvider, Options};

use crate::{sim::SimCluster, suite::fail};

/// Makes the tests of a [`HubProvider`](crate::steps::HubProvider): one for each scenario of a file. The path of the
/// file is relative to the file with the tests.
#[macro_export]
macro_rules! steps {
    ($provider:ty, $file:literal; $($scenario:ident),* $(,)?) => {
        $(
            #[test]
            fn $scenario() {
                $crate::steps::run::<$provider>(include_str!($file), stringify!($scenario));
            }
        )*

        #[test]
        fn each_scenario_is_a_test() {
            $crate::steps::are_all(include_str!($file), &[$(stringify!($scenario)),*]);
        }
    };
}

/// The templates of a file, for tests that are not scenarios.
#[derive(Debug)]
pub struct Templates(scenario::File);

impl Templates {
    /// The templates of this file.
    ///
    /// # Panics
    /// If the file can't be read.
    pub fn of(file: &str) -> Self {
        Self(scenario::File::read(file))
    }

    /// An object by its template and name, with a merge patch; see the [format](self#the-file).
    ///
    /// # Panics
    /// If there is no such template, or if it has a placeholder that needs a scenario.
    pub fn object(&self, named: &str, more: &Value) -> Value {
        let mut object = self.0.object(named, Some(more));
        let no_uid = |named: &str| fail(format!("there is no {named}"));
        scenario::replace(&mut object, &|text| scenario::fill(text, 0, &no_uid));
        object
    }

    /// Creates the objects of `given` in a hub.
    ///
    /// # Panics
    /// If the hub refuses one.
    pub fn prepare(&self, hub: &SimCluster) {
        for named in &self.0.given {
            let (name, more) = named.parts();
            let object = self.object(name, more.unwrap_or(&json!({})));
            hub.create(object).unwrap_or_else(|error| fail(error));
        }
    }
}

/// Runs a scenario of a file, in its own tokio runtime with paused time. The tests of [`steps!`](macro@crate::steps)
/// call it.
///
/// # Panics
/// If the provider does not behave as in the scenario. The message contains the step and what was announced.
pub fn run<P: HubProvider>(file: &str, scenario: &str) {
    let file = scenario::File::read(file);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap_or_else(|error| fail(error));
    runtime.block_on(play::play::<P>(&file, scenario));
}

/// Fails unless `listed` are all scenarios of a file.
///
/// # Panics
/// With the names that differ.
pub fn are_all(file: &str, listed: &[&str]) {
    let file = scenario::File::read(file);
    let there: BTreeSet<&str> = file.scenarios.keys().map(String::as_str).collect();
    let listed: BTreeSet<&str> = listed.iter().copied().collect();
    let differ: Vec<_> = there.symmetric_difference(&listed).collect();
    if !differ.is_empty() {
        fail(format!(
            "these are only in the file or only in the list of tests: {differ:?}"
        ));
    }
}
