//! Rust types that use every part of the deserializer, and documents for them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    fmt,
};

use proptest::prelude::*;
use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

use crate::codec::scan::strategies::{json, number, string};

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Everything {
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
pub(super) enum One {
    Unit,
    Newtype(String),
    Tuple(u8, Option<u8>),
    Struct { a: String, b: Option<Box<One>> },
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "kind")]
pub(super) enum Tagged {
    A { value: Option<f64> },
    B(BTreeMap<String, String>),
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "t", content = "c")]
pub(super) enum Beside {
    A(u8),
    B { text: String },
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum Untagged {
    Number(i32),
    Text(String),
    List(Vec<Untagged>),
    Float(f64),
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) enum Key {
    A,
    B,
}

#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct Wrapper(String);

#[derive(Debug, Default, PartialEq, Deserialize)]
pub(super) struct Unit;

#[derive(Debug, Default, PartialEq, Deserialize)]
pub(super) struct Point(i32, i32);

#[derive(Debug, Default, PartialEq, Deserialize)]
pub(super) struct Flat {
    #[serde(default)]
    text: String,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Strict {
    a: u8,
    b: Option<u8>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Raw(pub(super) Box<RawValue>);

impl PartialEq for Raw {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Bytes(Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BytesVisitor;
        impl<'de> Visitor<'de> for BytesVisitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Bytes, A::Error> {
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

/// A document for [`Everything`], in which some values may have another type.
pub(super) fn everything() -> impl Strategy<Value = String> {
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
