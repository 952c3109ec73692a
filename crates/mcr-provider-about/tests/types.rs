//! The types of the About API, compared with the published CRD.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeSet;

use kube::Resource;
use mcr_provider_about::{v1alpha1, v1beta1};
use serde_json::{Value, json};

const CRD: &str = include_str!("data/clusterproperties.yaml");

/// The paths of all fields in a schema, and an object that has all of them.
fn sample(schema: &Value, at: &str, paths: &mut BTreeSet<String>) -> Value {
    match schema["type"].as_str().unwrap() {
        "string" => "text".into(),
        "object" => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            let fields = fields.map(|(name, schema)| {
                let path = format!("{at}/{name}");
                paths.insert(path.clone());
                (name.clone(), sample(schema, &path, paths))
            });
            fields.collect()
        }
        other => panic!("{at} is a new type of field: {other}"),
    }
}

fn paths(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    for (name, field) in value.as_object().into_iter().flatten() {
        let path = format!("{at}/{name}");
        paths(field, &path, found);
        found.insert(path);
    }
}

fn is_the_published<K>(version: &str, decode: impl Fn(Value) -> K, encode: impl Fn(&K) -> Value)
where
    K: Resource<DynamicType = ()>,
{
    let crd: Value = serde_saphyr::from_str(CRD).unwrap();
    let names = &crd["spec"]["names"];
    assert_eq!(crd["spec"]["scope"], "Cluster");
    assert_eq!(crd["spec"]["group"], *K::group(&()));
    assert_eq!(names["kind"], *K::kind(&()));
    assert_eq!(names["plural"], *K::plural(&()));
    assert_eq!(version, K::version(&()));
    let versions = crd["spec"]["versions"].as_array().unwrap();
    let schema = versions.iter().find(|found| found["name"] == version).unwrap();
    let mut published = BTreeSet::new();
    let mut object = sample(&schema["schema"]["openAPIV3Schema"], "", &mut published);
    object["apiVersion"] = format!("about.k8s.io/{version}").into();
    object["kind"] = "ClusterProperty".into();
    // A field of another type can't be decoded, and one of another name is lost.
    let mut ours = BTreeSet::new();
    paths(&encode(&decode(object)), "", &mut ours);
    assert!(published.contains("/spec/value"), "{published:?}");
    assert_eq!(ours, published, "in {version}");
    // What an API server may leave out.
    decode(json!({"apiVersion": "x", "kind": "ClusterProperty", "metadata": {}, "spec": {}}));
}

#[test]
fn each_field_of_the_published_schema_is_here_with_the_same_type_and_no_other() {
    is_the_published(
        "v1beta1",
        |object| serde_json::from_value::<v1beta1::ClusterProperty>(object).unwrap(),
        |ours| serde_json::to_value(ours).unwrap(),
    );
    is_the_published(
        "v1alpha1",
        |object| serde_json::from_value::<v1alpha1::ClusterProperty>(object).unwrap(),
        |ours| serde_json::to_value(ours).unwrap(),
    );
}
