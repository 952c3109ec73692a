//! The types of Gardener, compared with its published types: `data/schema.txt` has the fields of `core.gardener.cloud/v1beta1` that
//! are read, with their types in JSON.

#![allow(clippy::unwrap_used, reason = "tests")]

use mcr_provider_gardener::{
    v1alpha1::Cluster,
    v1beta1::{Project, Shoot},
};
use mcr_testkit::schema::filled;
use serde_json::{Value, json};

const SCHEMA: &str = include_str!("data/schema.txt");

/// An object of a kind with all published fields.
fn full(kind: &str) -> Value {
    let empty = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": kind, "metadata": {"name": "a"}});
    filled(empty, SCHEMA, kind)
}

/// A field of another type can't be decoded, and one of another name is lost.
#[test]
fn each_field_is_read_and_none_has_another_name() {
    let shoot: Shoot = serde_json::from_value(full("Shoot")).unwrap();
    assert_eq!(serde_json::to_value(shoot).unwrap(), full("Shoot"));
    let project: Project = serde_json::from_value(full("Project")).unwrap();
    assert_eq!(serde_json::to_value(project).unwrap(), full("Project"));
}

/// The Shoot of a Cluster is a whole Shoot, with its kind.
#[test]
fn a_cluster_has_a_shoot() {
    let cluster = json!({
        "apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Cluster", "metadata": {"name": "shoot--dev--a"},
        "spec": {"shoot": full("Shoot"), "seed": {"kind": "Seed"}, "cloudProfile": {"kind": "CloudProfile"}},
    });
    let mut read = serde_json::to_value(serde_json::from_value::<Cluster>(cluster.clone()).unwrap()).unwrap();
    for ignored in ["seed", "cloudProfile"] {
        read["spec"][ignored] = cluster["spec"][ignored].clone();
    }
    assert_eq!(read, cluster);
}

#[test]
fn everything_may_be_missing() {
    let empty =
        json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot", "metadata": {}, "spec": {}});
    serde_json::from_value::<Shoot>(empty.clone()).unwrap();
    let mut with_status = empty;
    with_status["status"] =
        json!({"lastOperation": {}, "credentials": {"rotation": {"certificateAuthorities": {}}}});
    serde_json::from_value::<Shoot>(with_status).unwrap();
}
