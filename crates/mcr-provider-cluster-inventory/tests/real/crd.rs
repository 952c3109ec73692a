//! The list of fields that the types are compared with, against the published CRD.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{folder, yaml};

const SCHEMA: &str = include_str!("../data/schema.txt");

/// The fields of a schema with their types, as lines of `schema.txt`.
fn fields(schema: &Value, version: &str, at: &str, found: &mut BTreeSet<String>) {
    if !at.is_empty() {
        let type_ = schema["type"].as_str().unwrap();
        let format = schema["format"].as_str().map(|format| format!(":{format}"));
        found.insert(format!("{version} {at} {type_}{}", format.unwrap_or_default()));
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        if at.is_empty() && !["spec", "status"].contains(&&**name) {
            continue;
        }
        let dot = if at.is_empty() { "" } else { "." };
        fields(field, version, &format!("{at}{dot}{name}"), found);
    }
    if schema["items"].is_object() {
        fields(&schema["items"], version, &format!("{at}[]"), found);
    }
}

#[test]
fn the_list_of_fields_is_that_of_the_crd() {
    let Some(folder) = folder("fields") else { return };
    let crd = yaml(&folder.join("clusterprofiles.yaml"));
    for version in crd["spec"]["versions"].as_array().unwrap() {
        let name = version["name"].as_str().unwrap();
        let mut there = BTreeSet::new();
        fields(&version["schema"]["openAPIV3Schema"], name, "", &mut there);
        let of_version = |line: &&str| line.split(' ').next() == Some(name);
        let here = SCHEMA.lines().filter(of_version).map(str::to_owned).collect();
        assert_eq!(there, here);
    }
}
