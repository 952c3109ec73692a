//! Whole stories about one example, on kind clusters.

use mcr_testkit::e2e::E2eCluster::{Alpha, Beta, Hub};

use crate::{
    cluster::{member, on_kind},
    common::{baseline_rbac, fleet_policy, sync, uniform},
};

#[test]
fn fleet_policy_is_kept_in_every_cluster() {
    on_kind(|e2e| async move {
        fleet_policy::story(&member(&e2e, Alpha).await, &member(&e2e, Beta).await).await;
    });
}

#[test]
fn baseline_rbac_is_kept_in_every_cluster() {
    on_kind(|e2e| async move {
        baseline_rbac::story(&member(&e2e, Alpha).await, &member(&e2e, Beta).await).await;
    });
}

#[test]
fn sync_local_to_remote_copies_from_the_hub() {
    on_kind(|e2e| async move {
        let (hub, alpha) = (member(&e2e, Hub).await, member(&e2e, Alpha).await);
        sync::story(&hub, &alpha, &member(&e2e, Beta).await).await;
    });
}

#[test]
fn uniform_runs_the_plain_reconciler_in_every_cluster() {
    on_kind(|e2e| async move {
        uniform::story([&member(&e2e, Alpha).await, &member(&e2e, Beta).await]).await;
    });
}
