use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::{Value, value::RawValue};

use super::*;
use crate::codec::{
    encoder::Encoder, encoding::Encoding, object::Object, template_registry::TemplateRegistry,
};

/// The capacities of the buffers for documents and for strings.
fn kept() -> (usize, usize) {
    let scratch = Scratch::take();
    let kept = (scratch.document.capacity(), scratch.text.capacity());
    scratch.give_back();
    kept
}

/// The capacity of the splitter.
fn kept_by_splitter() -> usize {
    let scratch = Scratch::take();
    let kept = scratch.splitter.capacity();
    scratch.give_back();
    kept
}

fn object(text: &str) -> Object {
    let json = serde_json::json!({"metadata": {"name": "a"}, "data": {"text": text}}).to_string();
    let raw: &RawValue = serde_json::from_str(&json).unwrap();
    Object::parse(raw, &mut Encoder::plain(Encoding::new("v1", "ConfigMap"))).unwrap()
}

#[test]
fn large_buffers_are_not_kept() {
    let value: Value = object(&"\n".repeat(MAX_KEPT)).decode().unwrap();
    assert_eq!(value["data"]["text"].as_str().map(str::len), Some(MAX_KEPT));
    assert_eq!(kept(), (0, MAX_KEPT));
    assert!(object(&"\n".repeat(MAX_KEPT + 1)).decode::<Value>().is_ok());
    assert_eq!(kept(), (0, 0));
}

#[test]
fn the_buffers_of_a_large_splitter_are_not_kept() {
    let mut encoder =
        Encoder::with_templates(Arc::new(TemplateRegistry::new(Encoding::new("v1", "ConfigMap"))));
    let mut encode = |len: usize| {
        let json =
            serde_json::json!({"metadata": {"name": "a"}, "data": {"text": "x".repeat(len)}}).to_string();
        let raw: &RawValue = serde_json::from_str(&json).unwrap();
        Object::parse(raw, &mut encoder).unwrap();
    };
    encode(MAX_KEPT / 4);
    assert!(kept_by_splitter() > MAX_KEPT / 4);
    encode(MAX_KEPT + 1);
    assert_eq!(kept_by_splitter(), 0);
}

#[test]
fn a_type_may_decode_while_it_is_decoded() {
    struct Within(Value);
    impl<'de> Deserialize<'de> for Within {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let inner: Value = object("inner\n").decode().unwrap();
            assert_eq!(inner["data"]["text"], "inner\n");
            Value::deserialize(deserializer).map(Within)
        }
    }
    for _ in 0..2 {
        let Within(outer) = object("outer\n").decode().unwrap();
        assert_eq!(outer["data"]["text"], "outer\n");
    }
}
