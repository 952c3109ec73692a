//! The types of the Cluster Inventory API, compared with its published schema.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use mcr_provider_cluster_inventory::{v1alpha1, v1alpha2};
use mcr_testkit::schema::{filled, paths};
use serde_json::{Value, json};

/// The paths and types of the published schemas: of ClusterProfile in the CRD with v1alpha1 and in the types of v1alpha2, and of
/// PlacementDecision in its CRD.
const SCHEMA: &str = include_str!("data/schema.txt");

fn full(version: &str) -> Value {
    all_fields(version, version, "ClusterProfile")
}

fn all_fields(word: &str, version: &str, kind: &str) -> Value {
    let api_version = format!("multicluster.x-k8s.io/{version}");
    let empty = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
    filled(empty, SCHEMA, word)
}

#[test]
fn each_field_of_the_published_schema_is_here_with_the_same_type_and_no_other() {
    for version in ["v1alpha1", "v1alpha2"] {
        let full = full(version);
        // A field of another type can't be decoded, and one of another name is lost.
        let decoded = match version {
            "v1alpha1" => serde_json::to_value(
                serde_json::from_value::<v1alpha1::ClusterProfile>(full.clone()).unwrap(),
            ),
            _ => serde_json::to_value(
                serde_json::from_value::<v1alpha2::ClusterProfile>(full.clone()).unwrap(),
            ),
        };
        let (published, ours) = (paths(&full), paths(&decoded.unwrap()));
        assert!(published.len() > 30, "{published:?}");
        assert_eq!(ours, published, "in {version}");
    }
}

#[test]
fn a_placement_decision_has_the_fields_of_the_published_schema_and_no_other() {
    let full = all_fields("PlacementDecision", "v1alpha1", "PlacementDecision");
    let decision: v1alpha1::PlacementDecision = serde_json::from_value(full.clone()).unwrap();
    assert_eq!(serde_json::to_value(&decision).unwrap(), full);
    assert_eq!(decision.decisions[0].cluster_profile_ref.namespace, "text");
    // A scheduler that has chosen nothing.
    let empty = json!({
        "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "PlacementDecision", "metadata": {}, "decisions": [],
    });
    let empty: v1alpha1::PlacementDecision = serde_json::from_value(empty).unwrap();
    assert!(empty.decisions.is_empty() && empty.scheduler_name.is_empty());
}

#[test]
fn a_profile_is_the_same_in_both_versions_but_for_what_v1alpha2_has_dropped() {
    let new: v1alpha2::ClusterProfile = serde_json::from_value(full("v1alpha2")).unwrap();
    let old: v1alpha1::ClusterProfile = serde_json::from_value(full("v1alpha1")).unwrap();
    let mut converted = v1alpha2::ClusterProfile::from(old);
    assert_eq!(converted.spec, new.spec);
    assert_eq!(converted.status, new.status);
    converted.metadata = new.metadata.clone();
    assert_eq!(converted, new);
    assert_eq!(new.condition("text").unwrap().status, "text");
    assert_eq!(new.property("text"), Some("text"));
    assert_eq!((new.condition("other"), new.property("other")), (None, None));
}

#[test]
fn what_a_cluster_manager_may_leave_out_may_be_missing() {
    for profile in [
        json!({"apiVersion": "multicluster.x-k8s.io/v1alpha2", "kind": "ClusterProfile", "metadata": {}, "spec": {}}),
        json!({
            "apiVersion": "multicluster.x-k8s.io/v1alpha2", "kind": "ClusterProfile", "metadata": {},
            "spec": {"clusterManager": {"name": "a"}}, "status": {"accessProviders": [{"name": "p"}]},
        }),
    ] {
        serde_json::from_value::<v1alpha2::ClusterProfile>(profile.clone()).unwrap();
        serde_json::from_value::<v1alpha1::ClusterProfile>(profile).unwrap();
    }
}
