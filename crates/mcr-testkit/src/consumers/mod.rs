//! The conformance suite for consumers of the [Cluster Inventory API]: programs that find clusters in ClusterProfiles.
//!
//! A scenario is a file in the folder `consumers` of this crate: a provider file, ClusterProfiles, steps, and the fleet that a
//! consumer must have after each step. The README in that folder describes the format. It names nothing of mcr or of Rust, so
//! that other implementations can be driven by the same files.
//!
//! The author of a consumer writes a [`Consumer`]: how it is started, and which clusters it has.
//! [`consumer_conformance!`](crate::consumer_conformance) makes one test for each scenario. The suite brings the rest: a simulated
//! hub with the inventory, simulated clusters, and plugins that are programs. It sees by itself which plugins are run with which
//! arguments, and which clusters are reached with which credentials.
//!
//! A scenario that needs a [`Feature`] which [`Consumer::CAN`] does not have is skipped, and prints that to standard error.
//!
//! ```no_run
//! use mcr_testkit::consumers::{Consumer, Feature, Seen, Setup};
//! use std::collections::BTreeMap;
//!
//! struct MyConsumer(std::process::Child);
//!
//! impl Consumer for MyConsumer {
//!     const CAN: &'static [Feature] = &[Feature::Labels];
//!
//!     async fn start(setup: &Setup) -> Self {
//!         let mut program = std::process::Command::new("my-consumer");
//!         program.arg("--kubeconfig").arg(&setup.kubeconfig);
//!         program.arg("--clusterprofile-provider-file").arg(&setup.provider_file);
//!         Self(program.spawn().unwrap())
//!     }
//!     async fn fleet(&mut self) -> BTreeMap<String, Seen> {
//!         todo!("ask the program")
//!     }
//!     async fn stop(mut self) {
//!         self.0.kill().unwrap();
//!         self.0.wait().unwrap();
//!     }
//! }
//!
//! mcr_testkit::consumer_conformance!(MyConsumer);
//! ```
//!
//! [Cluster Inventory API]: https://github.com/kubernetes-sigs/cluster-inventory-api

mod consumer;
mod play;
mod scenario;
mod world;

pub use consumer::{Consumer, Feature, Reason, Seen, Setup, State};

use crate::suite::{fail, on_runtime};

/// Makes the tests of a [`Consumer`](crate::consumers::Consumer), in a module `consumer_conformance`.
#[macro_export]
macro_rules! consumer_conformance {
    ($consumer:ty) => {
        mod consumer_conformance {
            #[allow(unused_imports)]
            use super::*;
            $crate::for_each_scenario!($crate::consumer_conformance_test, $consumer);
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! consumer_conformance_test {
    ($consumer:ty; $($scenario:ident),* $(,)?) => {
        $(
            #[test]
            fn $scenario() {
                $crate::consumers::run::<$consumer>(stringify!($scenario));
            }
        )*
    };
}

/// The list of all scenarios: the names of their files.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_scenario {
    ($with:path, $argument:ty) => {
        $with! {
            $argument;
            a_profile_is_a_cluster,
            another_namespace_is_another_inventory,
            namespaces_are_not_merged,
            one_member_id_is_one_cluster,
            duplicates_are_resolved_alike_after_a_restart,
            duplicates_are_sought_among_the_selected,
            an_empty_member_id_joins_nothing,
            cluster_managers_are_selected,
            a_profile_that_leaves_the_selection_leaves_the_fleet,
            the_provider_file_orders_access_providers,
            arguments_of_profiles_are_ignored_by_default,
            arguments_of_profiles_are_appended,
            variables_of_profiles_are_added_if_they_do_not_exist,
            variables_of_profiles_replace,
            nothing_of_one_profile_reaches_the_plugin_of_another,
            the_plugin_gets_the_cluster_if_it_is_configured_so,
            the_plugin_gets_no_cluster_without_being_configured_so,
            v1alpha2_is_read_where_it_is_served,
            a_hub_of_v1alpha1_is_read,
            a_hub_of_v1alpha2_alone_is_read,
            credential_providers_are_a_fallback,
            a_path_of_a_certificate_authority_is_not_read,
            an_unhealthy_cluster_waits,
            a_cluster_without_health_waits,
            a_cluster_that_has_not_joined_waits,
            a_cluster_without_access_waits,
            a_cluster_with_unknown_access_waits,
            status_updates_alone_change_nothing,
            a_change_of_properties_is_shown,
            a_change_of_the_address_is_followed,
            a_change_of_the_access_provider_is_followed,
            a_deleted_profile_takes_its_cluster_along,
            a_profile_created_anew_is_another_cluster,
            extensions_of_a_wrong_form_concern_one_cluster,
            variables_that_choose_programs_are_refused,
            addresses_that_are_none_concern_one_cluster,
        }
    };
}

macro_rules! files {
    ($none:ty; $($scenario:ident),* $(,)?) => {
        const FILES: &[(&str, &str)] = &[$((
            stringify!($scenario),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/consumers/", stringify!($scenario), ".yaml")),
        )),*];
    };
}

for_each_scenario!(files, ());

/// The names and the texts of all scenarios.
///
/// ```
/// for (name, text) in mcr_testkit::consumers::scenarios() {
///     assert!(text.starts_with("about: "), "{name}");
/// }
/// ```
pub fn scenarios() -> &'static [(&'static str, &'static str)] {
    FILES
}

/// Runs the scenario of this name, on a tokio runtime of its own. The tests of
/// [`consumer_conformance!`](crate::consumer_conformance) call it.
///
/// # Panics
/// If there is no such scenario, or if the consumer does not do what the scenario expects. The message has the step, the fleet that
/// is expected and the fleet that the consumer has.
pub fn run<C: Consumer>(name: &str) {
    let Some((_, text)) = FILES.iter().find(|(known, _)| *known == name) else {
        fail(format!("there is no scenario {name:?}"))
    };
    let scenario = match scenario::Scenario::read(text) {
        Ok(scenario) => scenario,
        Err(error) => fail(format!("scenario {name}: {error}")),
    };
    if let Some(missing) = scenario.requires.iter().find(|feature| !C::CAN.contains(feature)) {
        use std::io::Write;
        let consumer = std::any::type_name::<C>();
        // Not with `println!`, because libtest hides the output of a test that passes.
        let _ = writeln!(
            std::io::stderr(),
            "conformance: skipped {name}: {consumer} does not declare {missing:?}"
        );
        return;
    }
    on_runtime(Box::pin(play::play::<C>(name, &scenario)));
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn every_file_is_in_the_list_and_is_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("consumers");
        let files: BTreeSet<String> = fs::read_dir(folder)
            .unwrap()
            .filter_map(|file| {
                Some(
                    file.unwrap()
                        .file_name()
                        .to_str()?
                        .strip_suffix(".yaml")?
                        .to_owned(),
                )
            })
            .collect();
        let listed: BTreeSet<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(files, listed);
        for (name, text) in FILES {
            let scenario = scenario::Scenario::read(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(
                !scenario.about.is_empty() && !scenario.source.is_empty(),
                "{name}"
            );
            assert!(!scenario.steps.is_empty(), "{name}");
        }
    }

    #[test]
    fn a_field_that_is_not_of_the_format_is_refused() {
        let error = scenario::Scenario::read("about: a\nsource: b\nsteps: []\nstep: 1\n").unwrap_err();
        assert!(error.contains("step"), "{error}");
    }
}
