//! Runs whole programs on simulated clusters that join, fail and come back.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod kinds;
mod operator;
mod report;
mod rollout;
mod rollout_decision;
mod sync;
mod two_clusters;
mod world;

#[path = "../../examples/database-operator.rs"]
#[allow(dead_code, reason = "the main function and its flags")]
mod database_operator;
#[path = "../../examples/fleet-report.rs"]
#[allow(dead_code, reason = "the main function and its flags")]
mod fleet_report;
#[path = "../../examples/progressive-rollout/main.rs"]
#[allow(dead_code, reason = "the main function and its flags")]
mod progressive_rollout;
#[path = "../../examples/published-kinds.rs"]
#[allow(dead_code, reason = "the main function")]
mod published_kinds;
#[path = "../../examples/secret-sync.rs"]
#[allow(dead_code, reason = "the main function and its flags")]
mod secret_sync;
#[path = "../../examples/sync-two-clusters.rs"]
#[allow(dead_code, reason = "the main function")]
mod sync_two_clusters;
