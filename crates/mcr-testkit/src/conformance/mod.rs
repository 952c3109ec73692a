//! The conformance suite: one macro makes the tests of everything that a provider must do.
//!
//! The author of a provider implements [`Subject`]: the provider, and a small world (a folder, a hub, a registry) that
//! it watches and in which clusters can be added, changed and removed.
//! [`provider_conformance!`](crate::provider_conformance) makes one test for each promise. A test that needs an
//! ability which is not in [`Subject::CAN`] is skipped, and prints that to standard error.
//!
//! Give the suite its own test file, `tests/conformance.rs`: one test counts threads and files, and other tests in the
//! same process would disturb it.
//!
//! ```
//! use std::sync::Arc;
//! use mcr_core::{Change, ClusterName, ClusterSpec, Discovery, Provider};
//! use mcr_testkit::conformance::{Ability, Draft, Subject};
//!
//! # struct Fixed(ClusterSpec);
//! # impl Provider for Fixed {
//! #     fn name(&self) -> &str { "fixed" }
//! #     fn discover(&self, stop: tokio_util::sync::CancellationToken) -> Discovery {
//! #         use futures::{StreamExt, stream};
//! #         stream::iter([Ok(Change::Upsert(self.0.clone())), Ok(Change::Synced)])
//! #             .chain(stream::pending()).take_until(stop.cancelled_owned()).boxed()
//! #     }
//! # }
//! struct MyProvider {
//!     provider: Arc<Fixed>,
//! }
//!
//! impl Subject for MyProvider {
//!     const CAN: &'static [Ability] = &[]; // add, remove, … go here, with their methods below
//!
//!     async fn start() -> Self {
//!         let draft = Draft::new(0);
//!         let name = ClusterName::new(draft.name()).unwrap();
//!         let access = mcr_core::Access::kubeconfig(draft.kubeconfig(), mcr_core::Trust::Untrusted);
//!         Self { provider: Arc::new(Fixed(ClusterSpec::new(name, access))) }
//!     }
//!     fn provider(&self) -> Arc<dyn Provider> {
//!         self.provider.clone()
//!     }
//!     fn fixed(&self) -> Vec<ClusterName> {
//!         vec![self.provider.0.name.clone()]
//!     }
//! }
//!
//! mcr_testkit::provider_conformance!(MyProvider);
//! ```
//!
//! The clusters of the suite do not answer. The suite checks the announcements of the provider, and how a `Fleet`
//! reacts to them.

mod fleet;
#[cfg(feature = "sim")]
mod hub;
mod leaks;
mod listen;
mod stream;
mod subject;
mod tap;

use std::io::Write;

use parking_lot::RwLock;

#[cfg(feature = "sim")]
pub use hub::{Described, Form, InHub};
pub use subject::{Ability, CANARY, Draft, Subject};

use crate::suite::{fail, on_runtime};

/// Makes the tests of a [`Subject`](crate::conformance::Subject), in a module `conformance`.
#[macro_export]
macro_rules! provider_conformance {
    ($subject:ty) => {
        mod conformance {
            #[allow(unused_imports)]
            use super::*;
            $crate::for_each_check!($crate::provider_conformance_test, $subject);
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! provider_conformance_test {
    ($subject:ty; $($check:ident of $module:ident needs [$($need:ident)*]),* $(,)?) => {
        $(
            #[test]
            fn $check() {
                $crate::conformance::run::<$subject>(stringify!($check));
            }
        )*
    };
}

/// The list of all checks.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_check {
    ($with:path, $argument:ty) => {
        $with! {
            $argument;
            the_provider_has_a_short_name of stream needs [],
            synced_comes_once_after_all_that_exists of stream needs [],
            a_restarted_discovery_reports_everything_anew of stream needs [],
            nothing_is_announced_twice_without_a_change of stream needs [],
            many_clusters_at_once_are_all_announced of stream needs [Add],
            a_removed_cluster_is_removed_and_may_come_back of stream needs [Add Remove],
            what_happens_to_a_cluster_is_reported_in_order of stream needs [Add Change Remove],
            a_change_is_an_upsert of stream needs [Add Change],
            a_rotation_is_an_upsert_with_the_new_credentials of stream needs [Add Rotate],
            another_cluster_of_the_same_name_has_another_identity of stream needs [Add Replace],
            a_broken_description_is_shown_and_removes_nothing of stream needs [Add Break],
            a_broken_description_leaves_the_neighbours_alone of stream needs [Add Break],
            what_was_broken_from_the_start_is_announced_before_synced of stream needs [Add Break],
            a_repaired_description_is_an_upsert of stream needs [Add Break],
            a_suspended_cluster_reports_so_and_stays of stream needs [Add Suspend],
            a_cluster_being_deleted_stays_until_it_is_gone of stream needs [Add Delete],
            the_stop_token_ends_the_discovery of stream needs [],
            a_discovery_leaves_nothing_behind of leaks needs [],
            the_fleet_lets_a_removed_cluster_go_entirely of fleet needs [Add Remove],
            the_fleet_sweeps_what_a_restart_no_longer_names of fleet needs [Add Remove],
            the_fleet_replaces_a_cluster_of_another_identity of fleet needs [Add Replace],
            the_fleet_keeps_a_cluster_over_rotations_and_changes of fleet needs [Add Rotate],
            the_fleet_keeps_a_cluster_whose_description_broke of fleet needs [Add Break],
            the_fleet_shows_a_suspended_cluster of fleet needs [Add Suspend],
            the_fleet_keeps_a_cluster_being_deleted of fleet needs [Add Delete],
        }
    };
}

/// Checks that count threads and files run alone. All others run together.
static ALONE: RwLock<()> = RwLock::new(());

macro_rules! dispatch {
    ($subject:ty; $($check:ident of $module:ident needs [$($need:ident)*]),* $(,)?) => {
        /// Runs one check by its name, on a tokio runtime of its own. The tests of
        /// [`provider_conformance!`](crate::provider_conformance) call it.
        ///
        /// # Panics
        /// If the provider fails the check. The message contains the expected announcement and the announcements that
        /// were made.
        pub fn run<S: Subject>(check_name: &str) {
            if let Some(missing) = match check_name {
                $( stringify!($check) => missing::<S>(&[$(Ability::$need),*]), )*
                _ => fail(format!("there is no check {check_name:?}")),
            } {
                // Not with `println!`, because libtest hides the output of tests that pass.
                let subject = std::any::type_name::<S>();
                let _ = writeln!(
                    std::io::stderr(),
                    "conformance: skipped {check_name}: {subject} does not declare {missing:?}"
                );
                return;
            }
            let alone = check_name == "a_discovery_leaves_nothing_behind";
            let _turn = if alone { Err(ALONE.write()) } else { Ok(ALONE.read()) };
            on_runtime(check::<S>(check_name));
        }

        /// Runs one check on the current runtime, and skips none. [`run`] calls it.
        #[doc(hidden)]
        pub async fn check<S: Subject>(check: &str) {
            match check {
                $( stringify!($check) => Box::pin($module::$check::<S>()).await, )*
                _ => fail(format!("there is no check {check:?}")),
            }
        }

        /// The names of all checks.
        pub fn checks() -> &'static [&'static str] {
            &[$(stringify!($check)),*]
        }
    };
}

for_each_check!(dispatch, S);

fn missing<S: Subject>(needs: &[Ability]) -> Option<Vec<Ability>> {
    let missing: Vec<Ability> = needs
        .iter()
        .filter(|ability| !S::CAN.contains(ability))
        .copied()
        .collect();
    (!missing.is_empty()).then_some(missing)
}
