use crate::{
    clusters::{member, on_clusters},
    common::fleet_policy,
};

#[test]
fn a_policy_is_kept_in_every_cluster_and_given_up_where_it_is_not_meant() {
    on_clusters(|clusters| async move {
        fleet_policy::story(&member(&clusters.berlin), &member(&clusters.lyon)).await;
    });
}
