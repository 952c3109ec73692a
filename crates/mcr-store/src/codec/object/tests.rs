use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::{DynamicObject, PartialObjectMeta};
use proptest::prelude::*;
use serde_json::{Value, value::RawValue};

use super::*;
use crate::codec::{
    encoder::Encoder, error::NotAnObject, scan::strategies, template_registry::TemplateRegistry,
};

fn parse(json: &str) -> Result<Object, NotAnObject> {
    let raw: &RawValue = serde_json::from_str(json).unwrap();
    Object::parse(raw, &mut Encoder::plain(Encoding::new("v1", "ConfigMap")))
}

#[test]
fn an_object_loses_its_managed_fields_and_nothing_else() {
    let object = parse(
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"6e0c7b4e-0b7c-4b58-9d3e-0123456789ab","resourceVersion":"7","generation":3,"managedFields":[{"manager":"x"}],"labels":{"k\"ey":"v"}},"data":{"x":"ü\n"},"immutable":true}"#,
    )
    .unwrap();
    assert_eq!(object.key().to_string(), "n/a");
    assert_eq!(object.resource_version(), "7");
    assert_eq!(object.generation(), Some(3));
    let map: ConfigMap = object.decode().unwrap();
    assert_eq!(map.data.unwrap()["x"], "ü\n");
    assert_eq!(map.immutable, Some(true));
    assert_eq!(map.metadata.labels.unwrap()["k\"ey"], "v");
    assert!(map.metadata.managed_fields.is_none());
}

#[test]
fn an_object_with_a_deletion_timestamp_is_being_deleted() {
    let deleting = |json: &str| parse(json).unwrap().is_deleting();
    assert!(deleting(
        r#"{"metadata":{"name":"a","deletionTimestamp":"2026-01-02T03:04:05Z"}}"#
    ));
    assert!(!deleting(r#"{"metadata":{"name":"a","deletionTimestamp":null}}"#));
    assert!(!deleting(
        r#"{"metadata":{"name":"a"},"deletionTimestamp":"2026-01-02T03:04:05Z"}"#
    ));
}

#[test]
fn list_items_without_a_type_decode_as_any_type() {
    let object = parse(r#"{"metadata":{"name":"a","namespace":"n"}}"#).unwrap();
    assert!(object.decode::<ConfigMap>().is_ok());
    let dynamic: DynamicObject = object.decode().unwrap();
    assert_eq!(dynamic.types.unwrap().kind, "ConfigMap");
    assert!(object.decode::<PartialObjectMeta<ConfigMap>>().is_ok());
    assert_eq!(
        object.to_json(),
        br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"n"}}"#
    );
}

#[test]
fn content_is_compared_whatever_the_templates_and_the_resource_versions() {
    let parse = |encoder: &mut Encoder, version: u64, x: &str| {
        let json = format!(
            r#"{{"metadata":{{"name":"a","namespace":"n","uid":"u","resourceVersion":"{version}"}},"data":{{"x":"{x}"}}}}"#
        );
        Object::parse(serde_json::from_str(&json).unwrap(), encoder).unwrap()
    };
    let templates =
        || Encoder::with_templates(TemplateRegistry::new(Encoding::new("v1", "ConfigMap")).into());
    let (mut plain, mut one, mut two) = (
        Encoder::plain(Encoding::new("v1", "ConfigMap")),
        templates(),
        templates(),
    );
    let object = parse(&mut one, 7, "1");
    for encoder in [&mut plain, &mut one, &mut two] {
        assert!(object.same_content(&parse(encoder, 7, "1")));
        assert!(
            !object.same_content(&parse(encoder, 7, "2")),
            "another shard has this version"
        );
        assert!(!object.same_content(&parse(encoder, 8, "1")));
    }
}

#[test]
fn an_error_reports_why_json_is_not_an_object() {
    let text = |json: &str| parse(json).unwrap_err().to_string();
    assert_eq!(
        text("[1]"),
        "not a JSON object: valid JSON of another shape than expected (line 1, column 0)"
    );
    assert_eq!(text("{}"), "the object has no metadata");
    assert_eq!(text(r#"{"metadata":{}}"#), "the object has no metadata.name");
    assert_eq!(
        text(r#"{"metadata":{"name":7}}"#),
        "metadata.name is not a string"
    );
}

#[test]
fn a_decode_error_names_the_object_and_no_value() {
    let object = parse(r#"{"metadata":{"name":"a","namespace":"n"},"data":"canary"}"#).unwrap();
    let error = object.decode::<ConfigMap>().unwrap_err().to_string();
    assert!(
        error.starts_with("object n/a can't be decoded as ConfigMap: valid JSON of another shape"),
        "{error}"
    );
    assert!(!error.contains("canary"), "{error}");
    assert!(!format!("{object:?}").contains("canary"));
}

/// Fields, most of them with well-known names.
fn fields() -> impl Strategy<Value = String> {
    let known = [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "apiVersion",
        "kind",
        r"n\u0061me",
        r"\u006bind",
        "managedFields",
        "1",
    ];
    let name =
        prop_oneof![4 => prop::sample::select(known.to_vec()).prop_map(str::to_owned), 1 => "[a-z]{0,3}"];
    let uid = "\"6e0c7b4e-0b7c-4b58-9d3e-00000000000[0-9]\"";
    let value = prop_oneof![
        2 => strategies::string(),
        2 => uid,
        1 => "-?[0-9]",
        1 => Just("null".to_owned()),
        1 => strategies::json(),
    ];
    let field = (name, value).prop_map(|(name, value)| format!("\"{name}\":{value},"));
    prop::collection::vec(field, 0..5).prop_map(|fields| fields.concat())
}

proptest! {
    #[test]
    fn an_object_decodes_as_the_json_that_it_was_read_from(
        [before, first, then, after] in [fields(), fields(), fields(), fields()],
        name in strategies::string(),
    ) {
        let json = format!(r#"{{{before}"metadata":{{{first}"name":{name},{then}"end":1}},{after}"end":1}}"#);
        let Ok(mut expected) = serde_json::from_str::<Value>(&json) else {
            return Ok(());
        };
        expected["apiVersion"] = "v1".into();
        expected["kind"] = "ConfigMap".into();
        if let Some(metadata) = expected["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        if let Ok(object) = parse(&json) {
            let name = expected["metadata"]["name"].as_str();
            prop_assert_eq!(Some(&*object.key().name), name);
            prop_assert_eq!(object.decode::<Value>().ok(), Some(expected), "{}", json);
        }
    }
}
