//! The deserializer reads what serde_json reads, and the same way: [`Ask`] asks for any sequence of types.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    fmt::{self, Debug},
};

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Pod, Secret},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube_core::{DynamicObject, PartialObjectMeta};
use proptest::prelude::*;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};
use serde_json::{Value, json};

use self::ask::{Ask, Raw, Seen};
use super::*;
use crate::codec::{
    scan::{
        Scanner,
        strategies::{broken, json, number, string},
    },
    splitter::TemplateSplitter,
};

mod ask;

#[derive(Debug, PartialEq, Deserialize)]
struct Flat {
    #[serde(default)]
    text: String,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Debug, PartialEq, Deserialize)]
enum One {
    Struct { a: String, b: Option<Box<One>> },
}

fn read<T: DeserializeOwned>(text: &str) -> Option<T> {
    from_json(text, &mut "old content".to_owned())
}

/// Splits a document into a template and its values, and reads those. `None` if the document can't be split.
fn split<R>(text: &str, read: impl FnOnce(&str, TemplateValues<'_>) -> R) -> Option<R> {
    let scalars = Scanner::new(text).scalars()?;
    let mut splitter = TemplateSplitter::new();
    splitter.split_text(text, 0, scalars.from(0), scalars.escapes_from(0))?;
    let is_in_names = splitter.json().matches('\x7f').count() > splitter.placeholders();
    let values = str::from_utf8(splitter.values()).unwrap();
    (!is_in_names).then(|| read(splitter.json(), TemplateValues::of_tail(values)))
}

/// Checks that a template and its values, if they are accepted, read the same as the document. Returns whether they are.
#[track_caller]
fn same_with_template<T: DeserializeOwned + PartialEq + Debug>(text: &str) -> bool {
    let mut buffer = "old content".to_owned();
    let value = split(text, |template, values| {
        from_template::<T>(template, values, &mut buffer)
    })
    .flatten();
    if value.is_some() {
        assert_eq!(value, read::<T>(text), "{text}");
    }
    value.is_some()
}

fn by_serde_json<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}

/// Checks that the document reads the same as by serde_json. Returns whether both accept it.
#[track_caller]
fn same<T: DeserializeOwned + PartialEq + Debug>(text: &str) -> bool {
    let read = read::<T>(text);
    assert_eq!(read, by_serde_json::<T>(text), "{text}");
    same_with_template::<T>(text);
    read.is_some()
}

/// Checks that the document reads the same as by serde_json if it is accepted. Returns whether it is.
#[track_caller]
fn same_if_accepted<T: DeserializeOwned + PartialEq + Debug>(text: &str) -> bool {
    let read = read::<T>(text);
    if read.is_some() {
        assert_eq!(read, by_serde_json::<T>(text), "{text}");
    }
    same_with_template::<T>(text);
    read.is_some()
}

/// Checks that a script gets the same answers as from serde_json if the document is accepted. Returns whether it is.
fn same_answers(text: &str, script: &[u8]) -> bool {
    fn answers<'a>(script: &[u8], text: &'a str, values: Option<TemplateValues<'a>>) -> Option<Seen> {
        let script = RefCell::new(script.iter().copied());
        run(Ask(&script), text, values, &mut String::new())
    }
    let with_template = split(text, |template, values| answers(script, template, Some(values))).flatten();
    let seen = answers(script, text, None);
    if with_template.is_some() {
        assert_eq!(with_template, seen, "{text}");
    }
    let is_accepted = seen.is_some();
    if is_accepted {
        let script = RefCell::new(script.iter().copied());
        let mut json = serde_json::Deserializer::from_str(text);
        let expected = Ask(&script).deserialize(&mut json).ok();
        let expected = expected.filter(|_| json.end().is_ok());
        assert_eq!(seen, expected, "{text}");
    }
    is_accepted
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn any_value_is_read_as_by_serde_json(text in any_json()) {
        same::<Value>(&text);
        same::<Raw>(&text);
        same::<Flat>(&text);
        same::<Option<HashMap<String, Value>>>(&text);
    }

    #[test]
    fn strings_and_numbers_are_read_as_by_serde_json(text in prop_oneof![texts(), numbers()]) {
        same::<Value>(&text);
        same::<String>(&text);
        same::<Option<char>>(&text);
        same::<i64>(&text);
        same::<u64>(&text);
        same::<u8>(&text);
        same::<f64>(&text);
        same::<f32>(&text);
        same_if_accepted::<Vec<i128>>(&format!("[{text},{text}]"));
        same::<HashMap<String, u8>>(&format!("{{{text}:1}}"));
        same_if_accepted::<BTreeMap<u32, i8>>(&format!("{{\"{text}\":{text}}}"));
    }

    #[test]
    fn any_type_is_answered_as_by_serde_json(
        text in prop_oneof![3 => any_json(), 1 => texts(), 1 => numbers()],
        script in prop::collection::vec(0..100_u8, 0..50),
    ) {
        same_answers(&text, &script);
        // One type per document is the frequent case.
        for how in script.iter().take(5) {
            same_answers(&text, &[*how]);
            same_answers(&format!("[{text}, {text}]"), &[23, 1, *how, 9, 60, 50, *how]);
            same_answers(&format!("{{\"a\" : {text}, \"b\\n\":{text}}}"), &[26, 1, 14, 1, *how, 60, *how]);
        }
    }
}

fn any_json() -> impl Strategy<Value = String> {
    prop_oneof![3 => json(), 1 => broken(json())]
}

/// Strings, and texts that are nearly strings.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        string(),
        r#""(\\[ -~]|\\u[0-9a-fA-G+]{3,5}|\\u[dD][89abcdAB][0-9a-f]{2}|[ -~ü\x1f]){0,5}"?"#,
        "\"([ -!#-~]{0,80}(\\\\n|\\\\u003c|ü)){0,4}\"",
    ]
}

/// Numbers, and texts that are nearly numbers.
fn numbers() -> impl Strategy<Value = String> {
    prop_oneof![
        number(),
        "-?[01]{0,2}[.]?[0-9]{0,2}[eE+-]{0,2}[0-9]?",
        "-?[1-9][0-9]{15,21}"
    ]
}

#[test]
fn objects_of_api_servers_are_accepted() {
    let metadata = json!({
        "name": "a", "namespace": "n", "uid": "6e0c7b4e-0b7c-4b58-9d3e-0123456789ab", "resourceVersion": "7",
        "generation": 3, "creationTimestamp": "2026-11-22T06:14:24Z", "labels": {"app.kubernetes.io/name": "a"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{\"a\":\"<\\n>\"}\n"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u", "controller": true}],
    });
    let pod = json!({
        "containers": [{
            "name": "c", "image": "i:1", "command": ["sh", "-c", "echo \"ü\" && sleep 1\n"],
            "ports": [{"containerPort": 8080, "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "500m"}},
            "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 10},
            "readinessProbe": {"httpGet": {"path": "/", "port": 8080}},
        }],
        "terminationGracePeriodSeconds": 30, "nodeSelector": {}, "tolerations": [{"operator": "Exists"}],
    });
    let status = json!({"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": null}], "podIP": "10.0.0.1"});
    let schema = json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "a": {"type": "integer", "default": 1.5, "maximum": 7, "enum": [1, null, "x"], "example": {"deep": [1e3, {"x": []}]}},
            "b": {"type": "array", "items": {"type": "string", "pattern": "^\\d+$"}, "additionalProperties": false},
        },
    });
    let objects = [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": "ü\n\t\"", "y": ""}, "immutable": true}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"x": "Y2FuYXJ5"}, "type": "Opaque"}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod, "status": status}),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "status": {"replicas": 2},
            "spec": {
                "replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod},
                "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}, "type": "RollingUpdate"},
            },
        }),
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata,
            "spec": {
                "group": "g", "scope": "Namespaced", "names": {"kind": "K", "plural": "ks"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        }),
    ];
    fn is_accepted<T: DeserializeOwned + PartialEq + Debug>(text: &str) -> bool {
        same::<T>(text) && same_with_template::<T>(text)
    }
    for object in objects {
        for text in [
            object.to_string(),
            format!("{object:#}"),
            object.to_string().replace('<', "\\u003c"),
        ] {
            let accepted = match object["kind"].as_str() {
                Some("ConfigMap") => is_accepted::<ConfigMap>(&text),
                Some("Secret") => is_accepted::<Secret>(&text),
                Some("Pod") => is_accepted::<Pod>(&text),
                Some("Deployment") => is_accepted::<Deployment>(&text),
                _ => is_accepted::<CustomResourceDefinition>(&text),
            };
            assert!(accepted, "{text}");
            assert!(is_accepted::<DynamicObject>(&text), "{text}");
            let read = read::<PartialObjectMeta<ConfigMap>>(&text).unwrap();
            assert_eq!(
                read.metadata,
                serde_json::from_value(object["metadata"].clone()).unwrap()
            );
        }
    }
}

#[test]
fn common_types_are_accepted() {
    let accepted = |text: &str, script: &[u8]| {
        assert!(same_answers(text, script), "{text} {script:?}");
    };
    for number in ["0", "-0", "7", "-7", "1.5", "1e3", "123456789012345678901"] {
        for how in [4, 9, 12, 60] {
            accepted(number, &[how, 1]);
        }
    }
    accepted("[1, [ ] ,{}]", &[23, 1, 9, 1, 1, 23, 1, 1, 26]);
    accepted(r#""\n""#, &[16]);
    accepted("[1,2]", &[16, 1, 9, 1, 1, 9, 1]);
    accepted(r#" {"a" : { "b":[null]}}"#, &[22]);
    accepted(r#"{"a":"x"}"#, &[26, 1, 28, 14, 1, 3, 28, 14, 1, 3]);
    accepted(r#"{"a":[1]}"#, &[28, 14, 1, 1, 1, 9, 1]);
    accepted(r#"{"a":null}"#, &[28, 14, 1, 4]);
    // A type ignores the error of one value and reads the next one.
    accepted("[300,2]", &[23, 1, 31, 6, 7, 1, 9, 1]);
}

#[test]
fn depth_is_bounded_as_by_serde_json() {
    let nested = |depth: usize| "[{\"a\":".repeat(depth / 2) + "1" + &"}]".repeat(depth / 2);
    for depth in [2, 64, 126, 128, 130, 100_000] {
        assert_eq!(same::<Value>(&nested(depth)), depth < 128, "{depth}");
        same_if_accepted::<Vec<Raw>>(&nested(depth));
        let ignored = format!(r#"{{"other":{}}}"#, nested(depth));
        let accepted = same_if_accepted::<HashMap<String, IgnoredAny>>(&ignored);
        assert_eq!(accepted, depth < 128, "{depth}");
    }
    for depth in [1, 120, 127, 128, 129, 10_000] {
        let text = "{\"Struct\":{\"a\":\"\",\"b\":".repeat(depth) + "null" + &"}}".repeat(depth);
        assert_eq!(same::<Option<One>>(&text), depth < 64, "{depth}");
    }
}

#[test]
fn a_type_that_ignores_an_error_reads_the_rest_or_is_declined() {
    #[derive(Debug, PartialEq)]
    struct Lenient<T>(Option<T>);
    impl<'de, T: Deserialize<'de>> Deserialize<'de> for Lenient<T> {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            Ok(Self(T::deserialize(from).ok()))
        }
    }
    for text in [
        "[1,2]",
        "[1,300]",
        "[1,\"x\"]",
        "[1,[1]]",
        "[1,{\"a\":[300]}]",
        "[1,{\"a\":[300]]",
        "[1,",
        "[1,]",
        "[1,nul]",
    ] {
        same_if_accepted::<Vec<Lenient<u8>>>(text);
        same_if_accepted::<Vec<Lenient<Vec<u8>>>>(text);
        same_if_accepted::<Vec<Lenient<HashMap<String, Vec<u8>>>>>(text);
        same_if_accepted::<Lenient<Vec<Lenient<u8>>>>(text);
    }
    assert!(same_if_accepted::<Vec<Lenient<u8>>>("[1,300]"));
}

#[test]
fn a_type_that_goes_on_after_errors_comes_to_an_end() {
    #[derive(Debug, PartialEq)]
    struct Patient(Vec<String>);
    struct Visit;
    impl<'de> Visitor<'de> for Visit {
        type Value = Patient;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Patient, A::Error> {
            let mut items_read = Vec::new();
            loop {
                match items.next_element::<String>() {
                    Ok(Some(item)) => items_read.push(item),
                    Ok(None) => return Ok(Patient(items_read)),
                    Err(_) => {}
                }
            }
        }
    }
    impl<'de> Deserialize<'de> for Patient {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            from.deserialize_seq(Visit)
        }
    }
    for text in [r#"["a",null,"b"]"#, r#"["a",1]"#, r#"[true,"b"]"#] {
        same_if_accepted::<Patient>(text);
    }
    assert!(same::<Patient>(r#"["a","b"]"#));
}

#[test]
fn a_type_that_keeps_the_text_of_an_error_gets_that_of_serde_json() {
    #[derive(Debug, PartialEq)]
    struct Kept(Result<u8, String>);
    impl<'de> Deserialize<'de> for Kept {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            Ok(Self(u8::deserialize(from).map_err(|error| format!("{error}"))))
        }
    }
    assert!(same_if_accepted::<Vec<Kept>>("[1,2]"));
    assert!(read::<Vec<Kept>>("[1,300]").is_none());
    // A nested decoding that succeeds does not hide that the text was shown.
    #[derive(Debug, PartialEq)]
    struct Around(String);
    impl<'de> Deserialize<'de> for Around {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            let kept = u8::deserialize(from).unwrap_err();
            let kept = format!("{kept:?}");
            assert!(same_if_accepted::<Vec<u8>>("[1,2]"));
            Ok(Self(kept))
        }
    }
    assert!(read::<Around>("300").is_none());
}

#[test]
fn names_are_strings() {
    /// Accepts any value.
    #[derive(Debug, PartialEq, Eq, Hash)]
    struct Any;
    impl<'de> Deserialize<'de> for Any {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            IgnoredAny::deserialize(from).map(|_| Any)
        }
    }
    for text in ["{1:2}", "{null:2}", "{[]:2}", r#"{{"a":1}:2}"#] {
        assert!(!same::<HashMap<Any, u8>>(text), "{text}");
        assert!(!same::<One>(text), "{text}");
    }
}
