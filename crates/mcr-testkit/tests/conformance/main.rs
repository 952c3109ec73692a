//! The conformance suite: a provider that does everything right passes it, and each of many wrong ones is caught.

// Clippy's exception for tests does not reach their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod memory;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use mcr_core::{ClusterName, Provider};
use mcr_testkit::conformance::{Ability, Ability::*, Draft, Subject, check, checks, run};
use memory::{Entry, Flaw, Memory, State, World};

/// A provider over a map in memory, with flaw number `F`.
struct Flawed<const F: usize> {
    world: World,
    provider: Arc<Memory>,
}

impl<const F: usize> Flawed<F> {
    fn set(&self, draft: &Draft, state: State) -> ClusterName {
        self.world.send_modify(|clusters| {
            let good = match state {
                State::Broken => clusters.get(&draft.name()).and_then(|entry| entry.good.clone()),
                _ => Some(draft.clone()),
            };
            let draft = draft.clone();
            clusters.insert(draft.name(), Entry { draft, state, good });
        });
        ClusterName::new(draft.name()).unwrap()
    }
}

impl<const F: usize> Subject for Flawed<F> {
    const CAN: &'static [Ability] = &[Add, Change, Rotate, Replace, Break, Suspend, Delete, Remove];

    async fn start() -> Self {
        let world = World::default();
        let provider = Arc::new(Memory::new(world.clone(), Flaw::ALL[F]));
        Self { world, provider }
    }
    fn provider(&self) -> Arc<dyn Provider> {
        self.provider.clone()
    }
    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }
    fn quiet(&self) -> Duration {
        Duration::from_millis(100)
    }
    async fn add(&mut self, draft: &Draft) -> ClusterName {
        self.set(draft, State::Good)
    }
    async fn change(&mut self, draft: &Draft) {
        self.set(draft, State::Good);
    }
    async fn rotate(&mut self, draft: &Draft) {
        self.set(draft, State::Good);
    }
    async fn replace(&mut self, draft: &Draft) {
        self.set(draft, State::Good);
    }
    async fn break_it(&mut self, draft: &Draft) -> ClusterName {
        self.set(draft, State::Broken)
    }
    async fn repair(&mut self, draft: &Draft) {
        self.set(draft, State::Good);
    }
    async fn suspend(&mut self, draft: &Draft) {
        self.set(draft, State::Suspended);
    }
    async fn resume(&mut self, draft: &Draft) {
        self.set(draft, State::Good);
    }
    async fn begin_deletion(&mut self, draft: &Draft) {
        self.set(draft, State::Deleting);
    }
    async fn finish_deletion(&mut self, draft: &Draft) {
        self.remove(draft).await;
    }
    async fn remove(&mut self, draft: &Draft) {
        self.world.send_modify(|clusters| {
            clusters.remove(&draft.name());
        });
    }
}

mod a_provider_without_flaws {
    use super::Flawed;

    type Faultless = Flawed<0>;
    mcr_testkit::provider_conformance!(Faultless);
}

/// A provider that can do nothing passes what is left, and reports what was skipped.
struct Nothing(Arc<Memory>);

impl Subject for Nothing {
    const CAN: &'static [Ability] = &[];

    async fn start() -> Self {
        Self(Arc::new(Memory::new(World::default(), Flaw::None)))
    }
    fn provider(&self) -> Arc<dyn Provider> {
        self.0.clone()
    }
}

mod a_provider_that_can_do_nothing {
    use super::Nothing;

    mcr_testkit::provider_conformance!(Nothing);
}

/// The message of a check that catches a flaw. In paused time, so that what never comes is soon waited for.
fn caught<const F: usize>(name: &str) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(check::<Flawed<F>>(name))));
    // A plain drop of the runtime would wait for blocking tasks that the flawed provider has left behind.
    runtime.shutdown_background();
    let error = result.err()?;
    Some(error.downcast_ref::<String>().cloned().unwrap_or_default())
}

macro_rules! flaws {
    ($($number:literal $flaw:ident: $check:ident, $words:literal;)*) => {
        $(
            #[test]
            #[allow(non_snake_case)]
            fn $flaw() {
                assert_eq!(Flaw::ALL[$number], Flaw::$flaw);
                let announced = caught::<$number>(stringify!($check)).expect("the flaw is caught");
                assert!(announced.contains($words), "{announced}");
                assert!(!announced.contains("canary-5e5a11fb-"), "the suite itself shows a secret: {announced}");
            }
        )*

        #[test]
        fn every_flaw_is_tried() {
            assert_eq!(Flaw::ALL.len(), 1 + [$($number),*].len());
        }
    };
}

flaws! {
    1 SyncedTwice: synced_comes_once_after_all_that_exists, "announces Synced once";
    2 SyncedFirst: synced_comes_once_after_all_that_exists, "existed before Synced";
    3 NeverSynced: the_stop_token_ends_the_discovery, "Synced";
    4 NeverRemoves: a_removed_cluster_is_removed_and_may_come_back, "a Remove of cluster-1";
    5 BrokenRemoves: a_broken_description_is_shown_and_removes_nothing, "Broken(cluster-0)";
    6 BrokenLeaks: a_broken_description_is_shown_and_removes_nothing, "secret";
    7 BrokenEnds: a_broken_description_leaves_the_neighbours_alone, "ended with an error";
    8 BrokenIsSilent: what_was_broken_from_the_start_is_announced_before_synced, "which is not announced";
    9 IgnoresStop: the_stop_token_ends_the_discovery, "did not end";
    10 LeaksTasks: a_discovery_leaves_nothing_behind, "left tasks";
    11 LeaksThreads: a_discovery_leaves_nothing_behind, "left tasks";
    12 RepeatsAll: nothing_is_announced_twice_without_a_change, "though nothing has changed";
    13 SameIdentity: another_cluster_of_the_same_name_has_another_identity, "neither removed nor";
    14 IdentityByToken: the_fleet_keeps_a_cluster_over_rotations_and_changes, "only its credentials";
    15 ForgetsRotations: a_rotation_is_an_upsert_with_the_new_credentials, "the new credentials";
    16 ForgetsSuspension: a_suspended_cluster_reports_so_and_stays, "Suspended and a reason";
    17 RemovesTheDeleting: a_cluster_being_deleted_stays_until_it_is_gone, "finalizers";
    18 RemembersItsRounds: a_restarted_discovery_reports_everything_anew, "was not there";
    19 LongName: the_provider_has_a_short_name, "can't be a label";
    20 RemovesLate: what_happens_to_a_cluster_is_reported_in_order, "";
    21 SuspendedIsRemoved: the_fleet_shows_a_suspended_cluster, "Suspended";
    22 LosesSome: many_clusters_at_once_are_all_announced, "40 clusters";
    23 TearsDown: a_rotation_is_an_upsert_with_the_new_credentials, "not a Remove";
}

#[test]
fn every_check_has_a_name_of_its_own() {
    let mut names = checks().to_vec();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), checks().len());
    let unknown = catch_unwind(|| run::<Nothing>("no_such_check")).unwrap_err();
    assert_eq!(
        unknown.downcast_ref::<String>().unwrap(),
        "there is no check \"no_such_check\""
    );
}
