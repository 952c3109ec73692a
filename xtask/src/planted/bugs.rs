//! The planted bugs, and the test that catches each.

/// A bug, and the test that must fail with it.
pub(super) struct Planted {
    /// The name of the bug in `bugs.patch`.
    pub(super) name: &'static str,
    /// The number of the broken promise in `docs/design/promises.md`, or 0 if it is in `docs/design/sync.md`.
    pub(super) promise: u8,
    pub(super) test: Test,
}

/// Stands for the unit tests of a package, instead of a test program.
pub(super) const LIB: &str = "lib";

/// A test: `cargo test -p <package> --test <program> <name>`, or with `--lib`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Test {
    pub(super) package: &'static str,
    pub(super) program: &'static str,
    pub(super) name: &'static str,
}

const fn bug(
    promise: u8,
    name: &'static str,
    package: &'static str,
    program: &'static str,
    test: &'static str,
) -> Planted {
    Planted {
        name,
        promise,
        test: Test {
            package,
            program,
            name: test,
        },
    }
}

/// The promise is in `docs/design/sync.md`.
const SYNC: u8 = 0;
/// The test that catches most bugs of mcr-sync.
const PROTOCOL: &str =
    "sync_protocol_ends_in_agreement_and_never_leaves_an_orphan_or_touches_the_objects_of_others";

/// Of several tests that catch a bug, the fastest is named, because all of them run for every change.
#[rustfmt::skip]
pub(super) const BUGS: &[Planted] = &[
    bug(1, "slot-kept-while-waiting", "mcr-watch", "driver", "lists::a_place_among_the_lists_is_not_kept_by_a_server_that_is_silent"),
    bug(1, "silence-not-probed", "mcr-core", "traps", "dead::a_silent_cluster_is_found_out_by_a_probe_and_a_quiet_one_is_not"),
    bug(2, "lookup-takes-a-snapshot", "mcr-core", "model", "promises::promise_2_nothing_waits_inside_a_lookup"),
    bug(3, "connection-left-open", "mcr-core", "traps", "leaving::all_connections_of_a_removed_cluster_close_at_once"),
    bug(3, "watch-outlives-its-handles", "mcr-watch", "driver", "sharing::the_connection_of_a_watch_closes_with_its_last_handle"),
    bug(4, "another-uid-is-the-same", "mcr-core", "model", "promises::promise_4_same_name_other_identity_and_the_old_cache_is_never_readable_again"),
    bug(4, "old-store-stays-readable", "mcr-core", "model", "promises::promise_4_same_name_other_identity_and_the_old_cache_is_never_readable_again"),
    bug(4, "unreadable-uid-is-the-same", "mcr-core", "traps", "identity::work_for_a_cluster_never_reaches_another_one_behind_the_same_description"),
    bug(4, "duplicate-beside-the-hub", "mcr-core", "traps", "identity::the_hub_takes_the_place_of_its_other_name"),
    bug(5, "forbidden-kind-blocks-cluster", "mcr-core", "model", "promises::promise_5_one_kind_failing_leaves_the_clusters_other_kinds_running"),
    bug(6, "rotation-lists-again", "mcr-core", "model", "credentials::promise_6_any_rotation_costs_no_list_and_no_delete_is_missed_or_reported_twice"),
    bug(6, "success-proves-a-credential", "mcr-core", "traps", "answers::a_credential_that_works_is_not_replaced_by_one_that_proves_nothing"),
    bug(7, "plugin-run-for-each-401", "mcr-access", "exec", "a_401_bypasses_the_cache_once"),
    bug(7, "expired-credential-is-a-success", "mcr-access", "exec", "all_runs_of_a_plugin_are_paced_whatever_its_credentials_are_good_for"),
    bug(7, "credentials-not-renewed-in-time", "mcr-core", "fleet", "changes::credentials_are_renewed_before_they_expire_and_once_when_refused"),
    bug(8, "plugin-children-left", "mcr-access", "exec", "a_hung_plugin_is_killed_with_its_children"),
    bug(8, "plugin-stderr-logged", "mcr-access", "exec", "nothing_a_plugin_prints_is_logged"),
    bug(10, "turn-never-ends", "mcr", "queue", "fairness::a_cluster_with_a_hundred_times_the_items_delays_nobody_by_more_than_a_round"),
    bug(11, "no-cap-on-lists", "mcr-core", "model", "promises::promise_11_no_herd_of_lists_when_a_thousand_clusters_join"),
    bug(12, "relist-tells-no-deletes", "mcr-watch", "driver", "faults::what_was_deleted_during_each_fault_is_reported_as_deleted_once"),
    bug(12, "incomplete-list-deletes", "mcr-watch", "driver", "lists::a_list_that_never_completes_never_deletes"),
    bug(12, "delete-told-twice", "mcr-watch", "driver", "faults::what_was_never_held_is_not_reported_as_deleted"),
    bug(12, "equal-version-is-no-change", "mcr-watch", "driver", "relists::stores_and_hub_watches_equal_the_list_whatever_its_versions_are"),
    bug(12, "repeated-delete-deletes", "mcr-watch", "driver", "relists::what_a_watch_repeats_after_pages_of_several_versions_changes_nothing"),
    bug(13, "old-epoch-accepted", "mcr", "queue", "waiting::what_was_seen_in_an_earlier_epoch_is_refused"),
    bug(13, "runs-forgotten-on-leave", "mcr", "controllers", "runs::what_still_runs_for_a_cluster_that_was_released_is_not_run_beside_when_it_is_taken_in_again"),
    bug(14, "unreachable-without-reason", "mcr-core", "model", "promises::promise_14_silence_is_impossible"),
    bug(1, "unreachable-ends-no-requests", "mcr-core", LIB, "fleet::life::tests::the_link_is_up_only_while_the_cluster_is_ready_and_lost_only_when_it_is_unreachable"),
    bug(1, "silence-while-renewing-ignored", "mcr-core", LIB, "fleet::life::tests::the_page_has_the_table_of_events"),
    bug(1, "announcement-shortens-the-pauses", "mcr-core", LIB, "fleet::life::tests::only_an_attempt_that_succeeds_shortens_the_pauses_again"),
    bug(1, "link-down-wakes-nobody", "mcr-client", LIB, "link::tests::whoever_waits_for_the_link_learns_its_endpoint_and_when_it_is_down_or_another_one"),
    bug(3, "ended-engagement-goes-on", "mcr-core", LIB, "fleet::life::tests::an_ended_engagement_follows_no_event_any_more"),
    bug(4, "new-address-stays-ready", "mcr-core", LIB, "fleet::life::tests::the_endpoint_has_another_number_exactly_after_a_move"),
    bug(6, "moved-keeps-its-endpoint", "mcr-core", LIB, "fleet::life::tests::the_endpoint_has_another_number_exactly_after_a_move"),
    bug(7, "refused-never-pauses", "mcr-core", LIB, "fleet::life::tests::a_refusal_fetches_one_newer_credential_at_once_and_then_pauses"),
    bug(15, "broken-answer-quoted", "mcr-core", "traps", "secrets::the_client_of_a_cluster_leaks_nothing_of_a_broken_answer"),
    bug(16, "entry-left-per-name", "mcr-core", "memory", "promise_16_names_that_come_and_go_leave_nothing"),
    bug(SYNC, "sync-creates-before-the-record", "mcr-sync", "protocol", PROTOCOL),
    bug(SYNC, "sync-forgets-before-the-delete", "mcr-sync", "protocol", PROTOCOL),
    bug(SYNC, "sync-releases-although-a-target-is-left", "mcr-sync", "protocol", PROTOCOL),
    bug(SYNC, "sync-deletes-before-it-moves", "mcr-sync", "protocol", PROTOCOL),
    bug(SYNC, "sync-deletes-without-preconditions", "mcr-sync", "protocol", PROTOCOL),
    bug(SYNC, "sync-patches-any-version", "mcr-sync", "protocol", PROTOCOL),
    bug(SYNC, "sync-trusts-its-stores", "mcr-sync", "protocol", PROTOCOL),
    bug(SYNC, "sync-takes-away-for-absent", "mcr-sync", "protocol", PROTOCOL),
    bug(SYNC, "sync-takes-foreign-for-its-own", "mcr-sync", "protocol", PROTOCOL),
    bug(SYNC, "sync-takes-left-watch-for-deleted", "mcr-sync", "protocol", PROTOCOL),
    bug(SYNC, "sync-keeps-removed-fields", "mcr-sync", "protocol", PROTOCOL),
    bug(SYNC, "sync-abandons-without-a-word", "mcr-sync", "protocol", PROTOCOL),
    bug(SYNC, "sync-adopts-the-target-of-another", "mcr-sync", "protocol", PROTOCOL),
    bug(SYNC, "sync-forgets-a-name-that-is-taken", "mcr-sync", "life", "claims::sync_name_that_is_taken_by_another_object_is_used_once_it_is_free"),
    bug(SYNC, "sync-adopts-before-a-refusal", "mcr-sync", "life", "claims::sync_adoption_follows_only_a_creation_that_the_server_refused"),
    bug(SYNC, "sync-misses-a-second-claim", "mcr-sync", "protocol", PROTOCOL),
    bug(SYNC, "sync-writes-before-the-status-check", "mcr-sync", "input", "status::sync_kind_without_a_status_subresource_is_an_error_before_anything_is_written"),
    bug(SYNC, "sync-deletes-orphans-at-once", "mcr-sync", "life", "orphans::sync_the_grace_of_orphans_begins_anew_when_the_program_starts"),
    bug(SYNC, "sync-looks-for-its-sources-elsewhere", "mcr-sync", "input", "fleet::sync_source_of_a_watch_with_a_selector_is_reported_when_its_target_cluster_or_it_has_left"),
    bug(SYNC, "sync-believes-a-restored-backup", "mcr-sync", "input", "orphans::sync_source_that_vanishes_with_its_finalizer_while_the_program_runs_is_reported_and_its_target_stays"),
    bug(SYNC, "sync-gives-up-who-answers", "mcr-sync", "input", "places::sync_target_cluster_that_answers_is_never_given_up"),
    bug(SYNC, "sync-deletes-what-was-given-up", "mcr-sync", "input", "fleet::sync_target_that_was_given_up_stays_if_its_cluster_is_back_before_the_deletion_is_seen"),
];
