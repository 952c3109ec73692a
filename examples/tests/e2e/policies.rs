use mcr_testkit::e2e::E2eCluster::{Alpha, Beta};

use crate::{
    cluster::{member, on_kind},
    common::{baseline_rbac, fleet_policy},
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
