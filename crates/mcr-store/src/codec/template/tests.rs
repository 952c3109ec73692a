use std::sync::Arc;

use proptest::prelude::*;
use serde_json::value::RawValue;

use crate::codec::{
    encoder::Encoder,
    encoding::Encoding,
    object::Object,
    placeholder::PLACEHOLDER_STR,
    scan::{Scanner, strategies},
    splitter::TemplateSplitter,
    template_registry::TemplateRegistry,
};

fn plain() -> Encoder {
    Encoder::plain(encoding())
}

fn encoding() -> Encoding {
    Encoding::new("v1", "ConfigMap")
}

fn parse(json: &str, encoder: &mut Encoder) -> Object {
    let raw: &RawValue = serde_json::from_str(json).unwrap();
    Object::parse(raw, encoder).unwrap()
}

fn uid(number: u32) -> String {
    format!("6e0c7b4e-0b7c-4b58-9d3e-{number:012}")
}

/// An object that is held with a template, because another object was encoded before.
fn templated(json: impl Fn(&str) -> String) -> Object {
    let mut encoder = Encoder::with_templates(Arc::new(TemplateRegistry::new(encoding())));
    assert!(
        parse(&json(&uid(1)), &mut encoder)
            .encoding()
            .template()
            .is_none()
    );
    parse(&json(&uid(2)), &mut encoder)
}

#[test]
fn an_object_holds_only_its_values() {
    let json = |uid: &str| {
        format!(
            r#"{{"metadata":{{"name":"a","uid":"{uid}","resourceVersion":"7","creationTimestamp":"2026-11-22T09:27:48Z","labels":{{"app":"web"}}}},"data":{{"a.properties":"x = 1\n"}},"immutable":false,"n":[1.5e3,-2,{{}},[]]}}"#
        )
    };
    let object = templated(json);
    let facts = r#""metadata":{"name":"@","uid":"@","resourceVersion":"@""#;
    let tail = r#","creationTimestamp":"@","labels":{"app":"@"}},"data":{"a.properties":"@"},"immutable":false,"n":[@,@,{},[]]}"#;
    let template = object.encoding().template().unwrap();
    assert_eq!(template.key().json, tail.replace('@', PLACEHOLDER_STR));
    let whole = [encoding().prefix(), facts, tail].concat();
    assert_eq!(template.text(), whole.replace('@', PLACEHOLDER_STR));
    // In order: a longer varint of the JSON's length, the resource version, a mark and six bytes of a timestamp, and the
    // other values, each with its length. The unescaped string has a mark too.
    let values = object.held_bytes() - parse(r#"{"metadata":{"name":"a"}}"#, &mut plain()).held_bytes();
    assert_eq!(
        values + "}}".len(),
        1 + "7".len() + 7 + "_web".len() + "__x = 1\n".len() + "_1.5e3".len() + "_-2".len()
    );
    assert_eq!(object.to_json(), parse(&json(&uid(2)), &mut plain()).to_json());
}

#[test]
fn long_strings_are_restored() {
    let lens = [0, 60, 61, 62, 4_092, 4_093, 4_094, 262_140, 262_141];
    let plain_and_escaped = lens
        .into_iter()
        .flat_map(|len| [(len, ""), (len, r"\n"), (len, r"\/")]);
    for (len, escape) in plain_and_escaped.chain([(17_000_000, "")]) {
        let json = |uid: &str| {
            format!(
                r#"{{"metadata":{{"name":"a","uid":"{uid}"}},"data":{{"a":"{escape}{}","b":"c"}}}}"#,
                "x".repeat(len)
            )
        };
        let object = templated(json);
        let template = object.encoding().template().unwrap();
        let value: serde_json::Value = object.decode_template(template, &mut String::new()).unwrap();
        assert_eq!(
            value,
            serde_json::from_slice::<serde_json::Value>(&object.to_json()).unwrap()
        );
        assert_eq!(object.to_json(), parse(&json(&uid(2)), &mut plain()).to_json());
    }
}

#[test]
fn a_name_that_contains_a_placeholder_makes_no_template() {
    let json = |name: &str, value: &str, uid: &str| {
        format!(r#"{{"metadata":{{"name":"a","uid":"{uid}"}},"data":{{"{name}":"{value}"}}}}"#)
    };
    let mut encoder = Encoder::with_templates(Arc::new(TemplateRegistry::new(encoding())));
    for (number, name, value, has_template) in [
        (1, "k", "\x7f", false),
        (2, "k", "\x7f\x7f", true),
        (3, "\x7f", "v", false),
        (4, "\x7f", "w", false),
        (5, "\x7f", "\x7f", false),
    ] {
        let object = parse(&json(name, value, &uid(number)), &mut encoder);
        assert_eq!(object.encoding().template().is_some(), has_template, "{number}");
        let map: std::collections::BTreeMap<String, serde_json::Value> = object.decode().unwrap();
        assert_eq!(map["data"][name], value);
    }
}

#[test]
fn strings_lose_only_escapes_that_can_be_restored() {
    for (written, encoded) in [
        (r#"x\n\t\r\"\\y"#, "\u{1}\nx\n\t\r\"\\y"),
        (r"a < b\n", "\u{1}\u{9}a < b\n"),
        (r"a \u003c b", "\u{2}\u{f}\"a \\u003c b\""),
        (r"\n\/", "\u{2}\u{9}\"\\n\\/\""),
        (r"\b", "\u{2}\u{7}\"\\b\""),
        (r"\u000a", "\u{2}\u{b}\"\\u000a\""),
        (r"\ud83e\udd80", "\u{2}\u{11}\"\\ud83e\\udd80\""),
        ("ü\u{2028}", "\u{8}ü\u{2028}"),
    ] {
        let json =
            |uid: &str| format!(r#"{{"metadata":{{"name":"a","uid":"{uid}"}},"data":{{"a":"{written}"}}}}"#);
        let object = templated(json);
        let expected = parse(&json(&uid(2)), &mut plain());
        let mut splitter = TemplateSplitter::new();
        let text = format!("\"{written}\"");
        let scalars = Scanner::new(&text).scalars().unwrap();
        splitter
            .split_text(&text, 0, scalars.from(0), scalars.escapes_from(0))
            .unwrap();
        assert_eq!(str::from_utf8(splitter.values()), Ok(encoded));
        assert_eq!(object.to_json(), expected.to_json());
        assert_eq!(
            object.decode::<serde_json::Value>().unwrap(),
            expected.decode::<serde_json::Value>().unwrap()
        );
    }
}

#[test]
fn debug_shows_nothing_of_a_template() {
    let object = templated(|uid| format!(r#"{{"metadata":{{"name":"a","uid":"{uid}"}},"canary":"canary"}}"#));
    assert!(object.encoding().template().is_some());
    assert!(!format!("{:?} {object:?}", object.encoding()).contains("canary"));
}

const ESCAPES: &str = r#""\u00e4\"\n""#;

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "\"[a-z]{1,6}\"",
        Just(ESCAPES.to_owned()),
        Just("\"\"".to_owned())
    ]
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![4 => strategies::json(), 1 => Just("\"2026-11-22T09:27:48Z\"".to_owned())]
}

proptest! {
    #[test]
    fn an_object_reads_the_same_with_a_template(
        before in prop::collection::vec((name(), value()), 0..3),
        metadata in prop::collection::vec((name(), value()), 0..4),
        after in prop::collection::vec((name(), value()), 0..3),
    ) {
        let fields = |fields: &[(String, String)]| {
            fields.iter().map(|(name, value)| format!("{name}:{value},")).collect::<String>()
        };
        let (before, metadata, after) = (fields(&before), fields(&metadata), fields(&after));
        let json = |uid: &str| {
            format!(r#"{{{before}"metadata":{{{metadata}"uid":"{uid}","name":"a"}},{after}"end":null}}"#)
        };
        let object = templated(json);
        let expected = parse(&json(&uid(2)), &mut plain());
        // A name with escapes is not contiguous, so there is no template.
        let has_escapes = [&before, &metadata, &after].iter().any(|fields| fields.contains(ESCAPES));
        // A name that contains a placeholder allows no template either.
        if !json("").contains(PLACEHOLDER_STR) {
            prop_assert_eq!(object.encoding().template().is_none(), has_escapes);
        }
        prop_assert_eq!(object.bytes(), expected.bytes());
        prop_assert_eq!(encoding().prefix().len() + object.bytes(), expected.to_json().len());
        prop_assert_eq!(object.to_json(), expected.to_json());
        let decoded = expected.decode::<serde_json::Value>().ok();
        prop_assert_eq!(&object.decode::<serde_json::Value>().ok(), &decoded);
        if let Some(template) = object.encoding().template() {
            prop_assert_eq!(object.decode_template::<serde_json::Value>(template, &mut String::new()), decoded);
        }
    }
}
