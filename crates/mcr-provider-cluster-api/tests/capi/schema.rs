//! The list of fields that `tests/types.rs` compares the types with, against the published CRD.

use serde_json::Value;

use crate::{management::folder, manifests, on_capi};

/// The type that a schema gives to a path.
fn type_in(schema: &Value, path: &str) -> String {
    let mut at = schema;
    for name in path.split('.') {
        at = &at["properties"][name.trim_end_matches("[]")];
        for _ in 0..name.matches("[]").count() {
            at = &at["items"];
        }
    }
    let format = at["format"].as_str().map(|format| format!(":{format}"));
    format!(
        "{}{}",
        at["type"].as_str().unwrap_or("nothing"),
        format.unwrap_or_default()
    )
}

#[test]
fn the_list_of_fields_is_that_of_the_crd() {
    on_capi(async |_| {
        let mut crds = manifests::read(&folder().unwrap(), "core.yaml").into_iter();
        let clusters = crds
            .find(|crd| crd["spec"]["names"]["kind"] == "Cluster")
            .unwrap();
        let versions = clusters["spec"]["versions"].as_array().unwrap();
        for line in include_str!("../data/schema.txt").lines() {
            let [version, path, type_] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let version = versions.iter().find(|served| served["name"] == version).unwrap();
            assert_eq!(
                type_in(&version["schema"]["openAPIV3Schema"], path),
                type_,
                "{line}"
            );
        }
    });
}
