use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    fmt::Debug,
    iter::Copied,
    slice::Iter,
};

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Pod, Secret},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::core::{DynamicObject, PartialObjectMeta};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::*;
use crate::store::{
    scan::tests::{broken, json, number, string},
    shape::Cutter,
};

fn read<T: DeserializeOwned>(text: &str) -> Option<T> {
    super::read(text, &mut "left by another".to_owned())
}

/// Has a document read from what would be in common with others, and what it says itself. None if it can't be parted.
fn parted<R>(text: &str, read: impl FnOnce(&str, Fillings<'_>) -> R) -> Option<R> {
    let scalars = Scanner::new(text).scalars()?;
    let mut cutter = Cutter::new();
    cutter.cut(text, 0, scalars.from(0), scalars.escapes_from(0))?;
    let is_in_names = cutter.common().matches('\x7f').count() > cutter.holes();
    let said = str::from_utf8(cutter.said()).unwrap();
    (!is_in_names).then(|| read(cutter.common(), Fillings::of_rest(said)))
}

/// Checks that a shape makes no difference, but that it may be declined, and returns whether it was not.
#[track_caller]
fn same_in_a_shape<T: DeserializeOwned + PartialEq + Debug>(text: &str) -> bool {
    let mut room = "left by another".to_owned();
    let parted = parted(text, |common, fillings| {
        read_shaped::<T>(common, fillings, &mut room)
    })
    .flatten();
    if parted.is_some() {
        assert_eq!(parted, read::<T>(text), "{text}");
    }
    parted.is_some()
}

fn by_serde_json<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}

/// Checks that both say the same, and returns whether they take it.
#[track_caller]
fn same<T: DeserializeOwned + PartialEq + Debug>(text: &str) -> bool {
    let read = read::<T>(text);
    assert_eq!(read, by_serde_json::<T>(text), "{text}");
    same_in_a_shape::<T>(text);
    read.is_some()
}

/// Checks that what is taken is what serde_json reads.
#[track_caller]
fn same_if_taken<T: DeserializeOwned + PartialEq + Debug>(text: &str) -> bool {
    let read = read::<T>(text);
    if read.is_some() {
        assert_eq!(read, by_serde_json::<T>(text), "{text}");
    }
    same_in_a_shape::<T>(text);
    read.is_some()
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Everything {
    text: String,
    maybe: Option<String>,
    list: Vec<i64>,
    pair: Option<(u8, String)>,
    inner: Option<Box<Everything>>,
    one: Option<One>,
    tagged: Option<Tagged>,
    beside: Option<Beside>,
    untagged: Option<Untagged>,
    map: HashMap<String, Option<bool>>,
    keyed: BTreeMap<Key, Wrapper>,
    wrapper: Wrapper,
    raw: Option<Raw>,
    float: f64,
    single: f32,
    tiny: u8,
    small: i16,
    huge: i128,
    vast: u128,
    flag: bool,
    letter: Option<char>,
    nothing: (),
    unit: Unit,
    point: Point,
    shared: Cow<'static, str>,
    bytes: Bytes,
    flat: Flat,
    strict: Option<Strict>,
}

#[derive(Debug, PartialEq, Deserialize)]
enum One {
    Unit,
    Newtype(String),
    Tuple(u8, Option<u8>),
    Struct { a: String, b: Option<Box<One>> },
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "kind")]
enum Tagged {
    A { value: Option<f64> },
    B(BTreeMap<String, String>),
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "t", content = "c")]
enum Beside {
    A(u8),
    B { text: String },
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Number(i32),
    Text(String),
    List(Vec<Untagged>),
    Float(f64),
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
enum Key {
    A,
    B,
}

#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Wrapper(String);

#[derive(Debug, Default, PartialEq, Deserialize)]
struct Unit;

#[derive(Debug, Default, PartialEq, Deserialize)]
struct Point(i32, i32);

#[derive(Debug, Default, PartialEq, Deserialize)]
struct Flat {
    #[serde(default)]
    text: String,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Strict {
    a: u8,
    b: Option<u8>,
}

#[derive(Debug, Deserialize)]
struct Raw(Box<RawValue>);

impl PartialEq for Raw {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

#[derive(Debug, Default, PartialEq)]
struct Bytes(Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct BytesVisitor;
        impl<'de> Visitor<'de> for BytesVisitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> std::result::Result<Bytes, E> {
                Ok(Bytes(bytes.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<Bytes, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = items.next_element()? {
                    bytes.push(byte);
                }
                Ok(Bytes(bytes))
            }
        }
        deserializer.deserialize_byte_buf(BytesVisitor)
    }
}

/// A document for [`Everything`] that may have some values of another shape.
fn everything() -> impl Strategy<Value = String> {
    let literal = |texts: &[&str]| {
        prop::sample::select(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    };
    let field = |names: &[&str], value: BoxedStrategy<String>| {
        (literal(names), value)
            .prop_map(|(name, value)| format!("\"{name}\":{value}"))
            .boxed()
    };
    let fields = prop_oneof![
        8 => field(&["text", "maybe", "wrapper", "shared", "bytes", "untagged", "letter", r"te\u0078t", "other"], string().boxed()),
        8 => field(&["float", "single", "huge", "vast", "untagged", "raw"], number().boxed()),
        2 => field(&["tiny", "small", "float", "untagged", "huge"], "-?(0|[1-9][0-9]{0,5})".boxed()),
        1 => field(&["letter"], "\"[aü😀]\"".boxed()),
        1 => field(&["list"], r" ?\[ ?(-?[1-9][0-9]{0,18}, ?){0,3}[0-9] ?\]".boxed()),
        1 => field(&["bytes", "untagged", "list"], r"\[[1-9]{1,2},\[?[0-9]\]?\]".boxed()),
        1 => field(&["pair"], (0..300, string()).prop_map(|(number, text)| format!("[{number}, {text}]")).boxed()),
        1 => field(&["flag", "maybe", "nothing", "unit", "text"], literal(&["true", "false", "null", " true", "nul"]).boxed()),
        1 => field(&["point"], literal(&["[1,2]", "[1]", "[1,2,3]", "[-1, -0]", "null"]).boxed()),
        1 => field(&["map"], string().prop_map(|name| format!("{{{name}: null , {name}:true}}")).boxed()),
        1 => field(&["keyed"], literal(&[r#"{"A":"x", "B":""}"#, r#"{"\u0041":"x"}"#, r#"{"C":"x"}"#, "{}"]).boxed()),
        2 => field(&["one"], literal(&[
            r#""Unit""#, r#"{"Unit":null}"#, r#"{ "Newtype" : "x\ty" }"#, r#"{"Tuple":[1, null]}"#, r#""Newtype""#, r#"{"Unit":null,"Unit":null}"#,
            r#"{"Struct":{"a":"\\","b":{"Struct":{"a":"","b":"Un\u0069t"}}}}"#, r#"{"Struct":["a", null]}"#, "{}", r#"{"Other":1}"#, r#""Other""#, "7",
        ]).boxed()),
        1 => field(&["tagged"], literal(&[r#"{"kind":"A","value":1.5}"#, r#"{"x":"\n","kind":"B"}"#, r#"{"kind":"C"}"#]).boxed()),
        1 => field(&["beside"], literal(&[r#"{"t":"A","c":1}"#, r#"{"c":{"text":"\n"},"t":"B"}"#, r#"{"t":"A"}"#]).boxed()),
        1 => field(&["strict"], literal(&[r#"{"a":1}"#, r#"{"a":1,"b":null}"#, r#"{"a":1,"c":2}"#, "{}", "[1]", "[1,2]"]).boxed()),
        2 => field(&["raw", "other", "maybe", "flat"], json().boxed()),
        1 => field(&["text", "list", "map", "float", "one", "tagged", "bytes", "inner"], json().boxed()),
    ];
    let object = |fields: Vec<String>| format!("{{{}}}", fields.join(","));
    let document = prop::collection::vec(fields, 0..8).prop_map(object);
    document.prop_recursive(3, 3, 1, |inner| {
        inner.prop_map(|inner| {
            format!(r#"{{"text":"\"","inner":{inner},"flat":{{"text":"a","more":{inner}}}}}"#)
        })
    })
}

/// What a visitor was given that takes anything.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Unit,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Unsigned128(u128),
    Signed128(i128),
    Float(f64),
    Text(String),
    Borrowed(String),
    Bytes(Vec<u8>),
    None,
    Some(Box<Seen>),
    Newtype(Box<Seen>),
    List(Vec<Seen>),
    Object(Vec<(Seen, Seen)>),
    Variant(Box<Seen>, Option<Box<Seen>>),
    /// It could not be read, and who asked does not mind.
    Swallowed,
}

/// Asks for one type after the other, as it is told, and in the end for any. So anything is asked of everything.
#[derive(Clone, Copy)]
struct Ask<'a>(&'a RefCell<Copied<Iter<'a, u8>>>);

impl Ask<'_> {
    fn next(self) -> u8 {
        self.0.borrow_mut().next().unwrap_or(u8::MAX)
    }
}

impl<'de> DeserializeSeed<'de> for Ask<'_> {
    type Value = Seen;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<Seen, D::Error> {
        match self.next() {
            0 => from.deserialize_bool(self),
            1 => from.deserialize_i8(self),
            2 => from.deserialize_i16(self),
            3 => from.deserialize_i32(self),
            4 => from.deserialize_i64(self),
            5 => from.deserialize_i128(self),
            6 => from.deserialize_u8(self),
            7 => from.deserialize_u16(self),
            8 => from.deserialize_u32(self),
            9 => from.deserialize_u64(self),
            10 => from.deserialize_u128(self),
            11 => from.deserialize_f32(self),
            12 => from.deserialize_f64(self),
            13 => from.deserialize_char(self),
            14 | 35..=45 => from.deserialize_str(self),
            15 => from.deserialize_string(self),
            16 => from.deserialize_bytes(self),
            17 => from.deserialize_byte_buf(self),
            18 => from.deserialize_option(self),
            19 => from.deserialize_unit(self),
            20 => from.deserialize_unit_struct("Unit", self),
            21 => from.deserialize_newtype_struct("Newtype", self),
            22 => Raw::deserialize(from).map(|Raw(raw)| Seen::Text(raw.get().to_owned())),
            23 => from.deserialize_seq(self),
            24 => from.deserialize_tuple(2, self),
            25 => from.deserialize_tuple_struct("Tuple", 2, self),
            26 | 46..=56 => from.deserialize_map(self),
            27 => from.deserialize_struct("Struct", &["a", "b"], self),
            28 => from.deserialize_enum("Enum", &["a", "b"], self),
            29 => from.deserialize_identifier(self),
            30 => from.deserialize_ignored_any(self),
            31..=34 => self.deserialize(from).or(Ok(Seen::Swallowed)),
            _ => from.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Ask<'_> {
    type Value = Seen;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }
    fn visit_unit<E>(self) -> std::result::Result<Seen, E> {
        Ok(Seen::Unit)
    }
    fn visit_bool<E: de::Error>(self, value: bool) -> std::result::Result<Seen, E> {
        Ok(Seen::Bool(value))
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> std::result::Result<Seen, E> {
        // As a type that is too small.
        if self.next() == 7 {
            Err(E::custom("large"))
        } else {
            Ok(Seen::Unsigned(value))
        }
    }
    fn visit_i64<E>(self, value: i64) -> std::result::Result<Seen, E> {
        Ok(Seen::Signed(value))
    }
    fn visit_u128<E>(self, value: u128) -> std::result::Result<Seen, E> {
        Ok(Seen::Unsigned128(value))
    }
    fn visit_i128<E>(self, value: i128) -> std::result::Result<Seen, E> {
        Ok(Seen::Signed128(value))
    }
    fn visit_f64<E>(self, value: f64) -> std::result::Result<Seen, E> {
        Ok(Seen::Float(value))
    }
    fn visit_str<E: de::Error>(self, value: &str) -> std::result::Result<Seen, E> {
        if self.next() == 7 {
            Err(E::custom("no"))
        } else {
            Ok(Seen::Text(value.to_owned()))
        }
    }
    fn visit_borrowed_str<E: de::Error>(self, value: &'de str) -> std::result::Result<Seen, E> {
        if self.next() == 7 {
            Err(E::custom("no"))
        } else {
            Ok(Seen::Borrowed(value.to_owned()))
        }
    }
    fn visit_bytes<E>(self, value: &[u8]) -> std::result::Result<Seen, E> {
        Ok(Seen::Bytes(value.to_owned()))
    }
    fn visit_none<E>(self) -> std::result::Result<Seen, E> {
        Ok(Seen::None)
    }
    fn visit_some<D: Deserializer<'de>>(self, from: D) -> std::result::Result<Seen, D::Error> {
        self.deserialize(from).map(|seen| Seen::Some(Box::new(seen)))
    }
    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> std::result::Result<Seen, D::Error> {
        self.deserialize(from).map(|seen| Seen::Newtype(Box::new(seen)))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<Seen, A::Error> {
        let mut seen = Vec::new();
        while self.next() != 7
            && let Some(item) = items.next_element_seed(self)?
        {
            seen.push(item);
        }
        Ok(Seen::List(seen))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> std::result::Result<Seen, A::Error> {
        let mut seen = Vec::new();
        loop {
            let name = match self.next() {
                // What no type should do: end early, ask for values or names twice, mind no error.
                7 => break,
                8 => Seen::Unit,
                9 => fields
                    .next_key_seed(self)
                    .unwrap_or_default()
                    .unwrap_or(Seen::Swallowed),
                10 => {
                    fields.next_key_seed(self)?;
                    continue;
                }
                _ => match fields.next_key_seed(self)? {
                    Some(name) => name,
                    None => break,
                },
            };
            seen.push((name, fields.next_value_seed(self)?));
        }
        Ok(Seen::Object(seen))
    }
    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> std::result::Result<Seen, A::Error> {
        let (name, content) = variant.variant_seed(self)?;
        let content = match self.next() % 5 {
            0 => content.newtype_variant_seed(self).map(Some),
            1 => content.tuple_variant(2, self).map(Some),
            2 => content.struct_variant(&["a", "b"], self).map(Some),
            3 => Ok(None),
            _ => content.unit_variant().map(|()| None),
        };
        Ok(Seen::Variant(Box::new(name), content?.map(Box::new)))
    }
}

/// Returns whether it was taken.
fn asked_the_same(text: &str, script: &[u8]) -> bool {
    fn seen<'a>(script: &[u8], text: &'a str, fillings: Option<Fillings<'a>>) -> Option<Seen> {
        let script = RefCell::new(script.iter().copied());
        read_by(Ask(&script), text, fillings, &mut String::new())
    }
    let in_a_shape = parted(text, |common, fillings| seen(script, common, Some(fillings))).flatten();
    let seen = seen(script, text, None);
    if in_a_shape.is_some() {
        assert_eq!(in_a_shape, seen, "{text}");
    }
    let taken = seen.is_some();
    if taken {
        let script = RefCell::new(script.iter().copied());
        let mut json = serde_json::Deserializer::from_str(text);
        let expected = Ask(&script).deserialize(&mut json).ok();
        let expected = expected.filter(|_| json.end().is_ok());
        assert_eq!(seen, expected, "{text}");
    }
    taken
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn any_value_is_read_as_by_serde_json(text in json()) {
        same::<Value>(&text);
        same::<Option<HashMap<String, Value>>>(&text);
        same::<Vec<Option<Untagged>>>(&text);
        same::<Raw>(&text);
        same::<Flat>(&text);
        same::<Everything>(&text);
    }

    #[test]
    fn broken_documents_are_declined_as_by_serde_json(text in broken(json()), typed in broken(everything())) {
        same::<Value>(&text);
        same::<Flat>(&typed);
        // In bytes serde_json bears control characters.
        same_if_taken::<Everything>(&typed);
    }

    #[test]
    fn types_are_read_as_by_serde_json(text in everything()) {
        same::<Everything>(&text);
        same::<Vec<Everything>>(&format!(" [ {text} ,{text}] "));
    }

    #[test]
    fn strings_are_read_as_by_serde_json(text in prop_oneof![
        string(),
        r#""(\\[ -~]|\\u[0-9a-fA-G+]{3,5}|\\u[dD][89abcdAB][0-9a-f]{2}|[ -~ü\x1f]){0,5}"?"#,
        "\"([ -!#-~]{0,80}(\\\\n|\\\\u003c|ü)){0,4}\"",
    ]) {
        same::<String>(&text);
        same_if_taken::<Bytes>(&text);
        same::<Option<char>>(&text);
        same::<HashMap<String, u8>>(&format!("{{{text}:1}}"));
    }

    #[test]
    fn numbers_are_read_as_by_serde_json(text in prop_oneof![number(), "-?[01]{0,2}[.]?[0-9]{0,2}[eE+-]{0,2}[0-9]?", "-?[1-9][0-9]{15,21}"]) {
        same::<Value>(&text);
        same::<i64>(&text);
        same::<u64>(&text);
        same::<u8>(&text);
        same::<f64>(&text);
        same::<f32>(&text);
        same::<i128>(&text);
        same::<u128>(&text);
        same::<Vec<i128>>(&format!("[{text},{text}]"));
        same_if_taken::<BTreeMap<u32, i8>>(&format!("{{\"{text}\":{text}}}"));
    }

    #[test]
    fn whatever_is_asked_for_is_answered_as_by_serde_json(
        text in prop_oneof![3 => json(), 1 => everything(), 1 => broken(json())],
        script in prop::collection::vec(0..100_u8, 0..50),
    ) {
        asked_the_same(&text, &script);
        // More often one kind of value than all of them.
        for how in script.iter().take(5) {
            asked_the_same(&text, &[*how]);
            asked_the_same(&format!("[{text}, {text}]"), &[23, 1, *how, 9, 60, 50, *how]);
            asked_the_same(&format!("{{\"a\" : {text}, \"b\\n\":{text}}}"), &[26, 1, 14, 1, *how, 60, *how]);
        }
    }
}

#[test]
fn objects_of_clusters_are_taken() {
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
    fn is_taken<T: DeserializeOwned + PartialEq + Debug>(text: &str) -> bool {
        same::<T>(text) && same_in_a_shape::<T>(text)
    }
    for object in objects {
        for text in [
            object.to_string(),
            format!("{object:#}"),
            object.to_string().replace('<', "\\u003c"),
        ] {
            let taken = match object["kind"].as_str() {
                Some("ConfigMap") => is_taken::<ConfigMap>(&text),
                Some("Secret") => is_taken::<Secret>(&text),
                Some("Pod") => is_taken::<Pod>(&text),
                Some("Deployment") => is_taken::<Deployment>(&text),
                _ => is_taken::<CustomResourceDefinition>(&text),
            };
            assert!(taken, "{text}");
            assert!(is_taken::<DynamicObject>(&text), "{text}");
            let read = read::<PartialObjectMeta<ConfigMap>>(&text).unwrap();
            assert_eq!(
                read.metadata,
                serde_json::from_value(object["metadata"].clone()).unwrap()
            );
        }
    }
}

#[test]
fn what_is_asked_for_is_mostly_taken() {
    let seen = |text: &str, script: &[u8]| {
        assert!(asked_the_same(text, script), "{text} {script:?}");
    };
    for number in ["0", "-0", "7", "-7", "1.5", "1e3", "123456789012345678901"] {
        for how in [4, 9, 12, 60] {
            seen(number, &[how, 1]);
        }
    }
    seen("[1, [ ] ,{}]", &[23, 1, 9, 1, 1, 23, 1, 1, 26]);
    seen(r#""\n""#, &[16]);
    seen("[1,2]", &[16, 1, 9, 1, 1, 9, 1]);
    seen(r#" {"a" : { "b":[null]}}"#, &[22]);
    seen(r#"{"a":"x"}"#, &[26, 1, 28, 14, 1, 3, 28, 14, 1, 3]);
    seen(r#"{"a":[1]}"#, &[28, 14, 1, 1, 1, 9, 1]);
    seen(r#"{"a":null}"#, &[28, 14, 1, 4]);
    // A value that nobody could read, and the next one.
    seen("[300,2]", &[23, 1, 31, 6, 7, 1, 9, 1]);
}

#[test]
fn as_deep_as_serde_json_goes() {
    let around = |depth: usize| "[{\"a\":".repeat(depth / 2) + "1" + &"}]".repeat(depth / 2);
    for depth in [2, 64, 126, 128, 130, 100_000] {
        assert_eq!(same::<Value>(&around(depth)), depth < 128, "{depth}");
        same_if_taken::<Vec<Raw>>(&around(depth));
        let ignored = format!(r#"{{"inner":{{"other":{}}}}}"#, around(depth));
        assert_eq!(same_if_taken::<Everything>(&ignored), depth < 128, "{depth}");
    }
    for depth in [1, 120, 127, 128, 129, 10_000] {
        let text = "{\"Struct\":{\"a\":\"\",\"b\":".repeat(depth) + "null" + &"}}".repeat(depth);
        assert_eq!(same::<Option<One>>(&text), depth < 64, "{depth}");
    }
}

#[test]
fn an_error_that_a_type_does_not_mind_loses_no_place() {
    #[derive(Debug, PartialEq)]
    struct Lenient<T>(Option<T>);
    impl<'de, T: Deserialize<'de>> Deserialize<'de> for Lenient<T> {
        fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
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
        same_if_taken::<Vec<Lenient<u8>>>(text);
        same_if_taken::<Vec<Lenient<Vec<u8>>>>(text);
        same_if_taken::<Vec<Lenient<HashMap<String, Vec<u8>>>>>(text);
        same_if_taken::<Lenient<Vec<Lenient<u8>>>>(text);
    }
    assert!(same_if_taken::<Vec<Lenient<u8>>>("[1,300]"));
}

#[test]
fn a_type_that_goes_on_upon_errors_comes_to_an_end() {
    #[derive(Debug, PartialEq)]
    struct Patient(Vec<String>);
    struct Visit;
    impl<'de> Visitor<'de> for Visit {
        type Value = Patient;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("anything with parts")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<Patient, A::Error> {
            let mut taken = Vec::new();
            loop {
                match items.next_element::<String>() {
                    Ok(Some(item)) => taken.push(item),
                    Ok(None) => return Ok(Patient(taken)),
                    Err(_) => {}
                }
            }
        }
        fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> std::result::Result<Patient, A::Error> {
            let mut taken = Vec::new();
            loop {
                match fields.next_entry::<String, String>() {
                    Ok(Some((_, value))) => taken.push(value),
                    Ok(None) => return Ok(Patient(taken)),
                    Err(_) => {}
                }
            }
        }
    }
    impl<'de> Deserialize<'de> for Patient {
        fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
            from.deserialize_any(Visit)
        }
    }
    for text in [
        r#"["a",null,"b"]"#,
        r#"["a",1]"#,
        r#"[true,"b"]"#,
        r#"{"a":1,"b":"c"}"#,
        r#"{"a":null}"#,
    ] {
        same_if_taken::<Patient>(text);
    }
    assert!(same::<Patient>(r#"["a","b"]"#));
}

#[test]
fn what_a_type_keeps_of_an_error_is_serde_jsons() {
    #[derive(Debug, PartialEq)]
    struct Told(std::result::Result<u8, String>);
    impl<'de> Deserialize<'de> for Told {
        fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
            Ok(Self(u8::deserialize(from).map_err(|error| format!("{error}"))))
        }
    }
    assert!(same_if_taken::<Vec<Told>>("[1,2]"));
    assert!(read::<Vec<Told>>("[1,300]").is_none());
    // Nor is it forgotten because something else is decoded meanwhile, which is taken.
    #[derive(Debug, PartialEq)]
    struct Around(String);
    impl<'de> Deserialize<'de> for Around {
        fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
            let told = u8::deserialize(from).unwrap_err();
            let told = format!("{told:?}");
            assert!(same_if_taken::<Vec<u8>>("[1,2]"));
            Ok(Self(told))
        }
    }
    assert!(read::<Around>("300").is_none());
}

#[test]
fn names_are_strings() {
    /// Asks for whatever is there.
    #[derive(Debug, PartialEq, Eq, Hash)]
    struct Any;
    impl<'de> Deserialize<'de> for Any {
        fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
            de::IgnoredAny::deserialize(from).map(|_| Any)
        }
    }
    for text in ["{1:2}", "{null:2}", "{[]:2}", r#"{{"a":1}:2}"#] {
        assert!(!same::<HashMap<Any, u8>>(text), "{text}");
        assert!(!same::<One>(text), "{text}");
    }
}
