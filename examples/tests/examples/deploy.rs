//! The manifests of `examples/deploy`, with the audit logs of the API servers as witnesses: what is granted is what is used.

use std::collections::BTreeSet;

use mcr_testkit::control_plane::ControlPlane;
use serde_json::json;

use crate::{
    clusters::{member, on_clusters},
    common::{
        deploy::{Deployed, OTHER_BASELINE, Right},
        kubectl::Kubectl,
        member::Member,
    },
};

/// The manifests on the hub and on berlin; none where there is no kubectl, which is logged.
fn deploy<'a>(
    example: &'static str,
    overlay: &str,
    hub: &'a Member,
    berlin: &'a Member,
) -> Option<Deployed<'a>> {
    let (Some(on_hub), Some(on_berlin)) = (Kubectl::new(&hub.kubeconfig), Kubectl::new(&berlin.kubeconfig))
    else {
        mcr_testkit::e2e::skipped(example, "there is no kubectl in KUBEBUILDER_ASSETS");
        return None;
    };
    Some(Deployed::new(
        example,
        overlay,
        (hub, on_hub),
        (berlin, on_berlin),
        json!({}),
    ))
}

/// What a user did at an API server, which must not have refused anything.
async fn used(plane: &ControlPlane, user: &str) -> BTreeSet<Right> {
    let log = plane.audit().await.unwrap();
    let mut used = BTreeSet::new();
    for event in log
        .events()
        .filter(|event| event.user == user && event.is_start() && !event.resource.is_empty())
    {
        assert_ne!(event.code, 403, "{event:?}");
        let answered = event.code < 300 || event.code == 404;
        // What everybody may who has credentials.
        if !answered || event.resource.starts_with("selfsubject") {
            continue;
        }
        let resource = match &*event.subresource {
            "" => event.resource.clone(),
            subresource => format!("{}/{subresource}", event.resource),
        };
        let right = |verb: &str| (event.group.clone(), resource.clone(), verb.to_owned());
        used.insert(right(&event.verb));
        // Server-side apply of what is not there: the API server asks whether this is allowed too.
        if event.verb == "patch" && event.code == 201 {
            used.insert(right("create"));
        }
    }
    used
}

async fn grants_what_is_used(deployed: &Deployed<'_>, hub: &ControlPlane, berlin: &ControlPlane) {
    let used = [
        used(hub, &deployed.hub_user()).await,
        used(berlin, &deployed.member_user()).await,
    ];
    assert_eq!(
        deployed.granted(),
        used,
        "granted on the hub and in the member, and used there"
    );
}

/// The overlay with leader election: it has all rights of the plain one.
#[test]
fn fleet_policy_runs_with_the_rights_of_its_manifests_and_uses_each_of_them() {
    on_clusters(|clusters| async move {
        let (hub, berlin) = (&member(&clusters.hub), &member(&clusters.berlin));
        let Some(deployed) = deploy("fleet-policy", "fleet-policy-replicas", hub, berlin) else {
            return;
        };
        let running = deployed.start();
        running.answers();
        running.keeps_the_policy().await;
        running.reports_broken_secrets();
        running.end(true);
        grants_what_is_used(&deployed, &clusters.hub, &clusters.berlin).await;
    });
}

#[test]
fn progressive_rollout_runs_with_the_rights_of_its_manifests_and_uses_each_of_them() {
    on_clusters(|clusters| async move {
        let (hub, berlin) = (&member(&clusters.hub), &member(&clusters.berlin));
        if let Some(kubectl) = Kubectl::new(&hub.kubeconfig) {
            kubectl.apply_rollout_crd();
        }
        let Some(deployed) = deploy("progressive-rollout", "progressive-rollout", hub, berlin) else {
            return;
        };
        let running = deployed.start();
        running.answers();
        running.rolls_out().await;
        running.reports_broken_secrets();
        running.end(true);
        grants_what_is_used(&deployed, &clusters.hub, &clusters.berlin).await;
    });
}

#[test]
fn baseline_rbac_runs_with_the_rights_of_its_manifests_and_uses_each_of_them() {
    on_clusters(|clusters| async move {
        let (hub, berlin) = (&member(&clusters.hub), &member(&clusters.berlin));
        let Some(deployed) = deploy("baseline-rbac", "baseline-rbac", hub, berlin) else {
            return;
        };
        let running = deployed.start();
        running.answers();
        running.keeps_the_baseline().await;
        running.reports_broken_secrets();
        running.end(true);
        let running = deployed.start_with(Some(OTHER_BASELINE));
        running.prunes().await;
        running.end(true);
        grants_what_is_used(&deployed, &clusters.hub, &clusters.berlin).await;
    });
}
