use crate::{
    clusters::{member, on_clusters},
    common::baseline_rbac,
};

#[test]
fn a_baseline_is_kept_in_every_cluster_and_what_leaves_it_is_deleted() {
    on_clusters(|clusters| async move {
        baseline_rbac::story(&member(&clusters.berlin), &member(&clusters.lyon)).await;
    });
}
