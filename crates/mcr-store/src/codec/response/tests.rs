use proptest::prelude::*;
use serde_json::{Value, value::RawValue};

use super::{event::scan_event, *};
use crate::{
    codec::{encoder::Encoder, encoding::Encoding, parsed::ParsedObject, raw_object::Item},
    key::ObjectKey,
};

#[test]
fn an_empty_go_list_has_null_items() {
    let page = parse_list(br#"{"metadata":{"resourceVersion":"1"},"items":null}"#).unwrap();
    assert!(page.items.is_empty());
}

#[test]
fn events_of_api_servers_are_scanned() {
    let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"n\u0061":"ü\n"},"managedFields":[{}]},"data":{"a":"\"\\"}}"#;
    for kind in ["ADDED", "MODIFIED", "DELETED"] {
        assert!(scan_event(&format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")).is_some());
    }
    assert!(scan_event(&format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}")).is_none());
}

#[test]
fn errors_of_truncated_bodies_do_not_quote_them() {
    let error = parse_list(br#"{"metadata":{"resourceVersion":"1"},"items":[{"data":{"token":"canary"#)
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "the list can't be read: ends in the middle (line 1, column 69)"
    );
    let error = parse_event(br#"{"type":"ADDED","object":{"data":"canary"#)
        .err()
        .unwrap();
    assert!(!error.to_string().contains("canary"));
}

#[test]
fn events_are_distinguished() {
    assert!(matches!(
        parse_event(br#"{"type":"ADDED","object":{}}"#),
        Ok(WatchEvent::Put(_))
    ));
    assert!(matches!(
        parse_event(br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#),
        Ok(WatchEvent::Bookmark { resource_version }) if resource_version == "9"
    ));
    assert!(matches!(
        parse_event(br#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#),
        Ok(WatchEvent::Error(status)) if status.code == 410
    ));
    assert_eq!(
        parse_event(br#"{"type":"canary","object":{}}"#)
            .err()
            .unwrap()
            .to_string(),
        "a watch event can't be read: of an unknown type"
    );
}

#[test]
fn a_status_is_read_from_whatever_a_proxy_sends() {
    assert_eq!(parse_status(502, b"<html>").code, 502);
    assert_eq!(
        parse_status(
            403,
            br#"{"kind":"Status","reason":"Forbidden","message":"no","code":403}"#
        )
        .reason,
        "Forbidden"
    );
    assert_eq!(
        parse_status(500, format!("{{\"message\":\"{}\"}}", "ü".repeat(600)).as_bytes())
            .message
            .len(),
        500
    );
}

/// JSON of objects and of other values, some of which no API server sends.
pub(super) fn item() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "labels",
        "managedFields",
        "metadata",
        "apiVersion",
        "spec",
        r"meta\u0064ata",
        r"n\u0061me",
        r"\ud800",
    ]);
    let value = prop::sample::select(vec![
        "null",
        "7",
        "1e999",
        "true",
        r#""a""#,
        r#""""#,
        r#""ü\n""#,
        r#""\ud800""#,
        r#""6e0c7b4e-0b7c-4b58-9d3e-0123456789ab""#,
        "{}",
        r#"[1, {"metadata": {}}]"#,
    ]);
    let field = |(name, value): (&str, String)| format!("\"{name}\":{value}");
    let object = |fields: Vec<String>| format!("{{{}}}", fields.join(", "));
    let inner = (name.clone(), value.clone().prop_map(str::to_owned)).prop_map(field);
    let metadata =
        (prop::collection::vec(inner, 0..6), any::<bool>()).prop_map(move |(mut fields, named)| {
            if named {
                fields.push(r#""name": "b""#.to_owned());
            }
            object(fields)
        });
    let outer = (
        name,
        prop_oneof![value.clone().prop_map(str::to_owned), metadata.clone()],
    )
        .prop_map(field);
    let whole = (prop::collection::vec(outer, 0..4), metadata, any::<bool>()).prop_map(
        move |(mut fields, metadata, there)| {
            if there {
                fields.insert(fields.len() / 2, format!("\"metadata\":{metadata}"));
            }
            object(fields)
        },
    );
    prop_oneof![6 => whole, 1 => value.prop_map(str::to_owned)]
}

/// The JSON of an encoded object, or the error.
pub(super) type Encoded = Result<String, (String, Option<ObjectKey>)>;

pub(super) fn encoded(item: Item<'_>) -> Encoded {
    let mut encoder = Encoder::plain(Encoding::new("v1", "ConfigMap"));
    let object = item.and_then(|object| object.encode(None, &mut encoder));
    let object = object.map_err(|error| (error.to_string(), error.key))?;
    Ok(String::from_utf8(object.to_json()).unwrap())
}

/// All that can be read of an event.
fn event_of(line: Result<WatchEvent<'_>, EventError>) -> Result<(String, Encoded), String> {
    match line.map_err(|error| error.to_string())? {
        WatchEvent::Put(event) => Ok(("put".to_owned(), encoded(event.item()))),
        WatchEvent::Deleted(event) => Ok(("deleted".to_owned(), encoded(event.item()))),
        WatchEvent::Bookmark { resource_version } => Err(resource_version),
        WatchEvent::Error(status) => Err(format!("{status:?}")),
    }
}

/// Lists and events, some of which no API server sends: a list and an event of its first object, with fields before and behind them
/// and perhaps a character that is another one.
pub(super) fn bodies() -> impl Strategy<Value = [String; 2]> {
    let field = prop::sample::select(vec![
        r#""kind":"ConfigMapList""#,
        r#""type":"ADDED""#,
        r#""type":"MODIFIED""#,
        r#""type":"DELETED""#,
        r#""type" : "BOOKMARK""#,
        r#""type":"ERROR""#,
        r#""t\u0079pe":"A\u0044DED""#,
        r#""metadata":{"resourceVersion":"1","continue":"next","selfLink":["\ud800"]}"#,
        r#""metadata":{"resourceVersion":null}"#,
        r#""metadata":{"resourceVersion":"1","resourceVersion":"2"}"#,
        r#""metadata":{"resourceVersion":1}"#,
        r#""metadata":null"#,
        r#""items":null"#,
        r#""items":{}"#,
        r#""object":{"metadata":{"resourceVersion":"9"}}"#,
        r#""object":null"#,
        r#""\ud800":1"#,
    ]);
    let fields = || prop::collection::vec(field.clone(), 0..3).prop_map(|fields| fields.join(","));
    let space = prop::sample::select(vec!["", " ", "\n\t"]);
    let other = prop::option::of((any::<prop::sample::Index>(), any::<char>()));
    let items = prop::collection::vec(item(), 0..4);
    (items, fields(), fields(), space, other).prop_map(|(items, before, after, space, other)| {
        let with = |own: String| {
            let fields = [&*before, &own, &*after]
                .into_iter()
                .filter(|field| !field.is_empty());
            let body = format!(
                "{{{space}{}}}\n",
                fields.collect::<Vec<_>>().join(&format!("{space},"))
            );
            let mut body: Vec<char> = body.chars().collect();
            if let Some((at, character)) = other {
                let at = at.index(body.len());
                body[at] = character;
            }
            body.into_iter().collect()
        };
        let list = items.join(&format!("{space},{space}"));
        let first = items.first().map_or("7", String::as_str);
        [
            with(format!("\"items\":[{list}{space}]")),
            with(format!("\"object\":{first}")),
        ]
    })
}

proptest! {
    #[test]
    fn serde_json_reads_events_the_same_way([_, event] in bodies()) {
        prop_assert_eq!(event_of(parse_event(event.as_bytes())), event_of(parse_event_by_part(&event)), "{}", event);
    }

    #[test]
    fn an_item_of_a_list_reads_the_same_as_by_itself(items in prop::collection::vec(item(), 0..5), after in any::<bool>()) {
        let items: Vec<Box<RawValue>> = items.into_iter().map(|item| RawValue::from_string(item).unwrap()).collect();
        let texts: Vec<&str> = items.iter().map(|item| item.get()).collect();
        let (metadata, list) = (r#""metadata":{"resourceVersion":"1"}"#, format!("\"items\": [{}]", texts.join(", ")));
        let body = if after { format!("{{{list},{metadata}}}") } else { format!("{{{metadata},{list}}}") };
        let page = parse_list(body.as_bytes()).unwrap();
        let alone = |item| encoded(ParsedObject::read_by_part(item).as_ref().map(ParsedObject::object).map_err(Clone::clone));
        let each: Vec<_> = items.iter().map(|item| alone(item)).collect();
        prop_assert_eq!(page.items.iter().map(encoded).collect::<Vec<_>>(), each.clone());
        for (item, alone) in texts.iter().zip(&each) {
            let line = format!("{{\"type\":\"ADDED\",\"object\":{item}}}");
            let Ok(WatchEvent::Put(event)) = parse_event(line.as_bytes()) else {
                return Err(TestCaseError::fail("another event"));
            };
            prop_assert_eq!(&encoded(event.item()), alone);
            let Ok(mut expected) = serde_json::from_str::<Value>(item) else { continue };
            if let Ok(json) = alone {
                expected["apiVersion"] = "v1".into();
                expected["kind"] = "ConfigMap".into();
                expected["metadata"].as_object_mut().unwrap().remove("managedFields");
                prop_assert_eq!(&serde_json::from_str::<Value>(json).unwrap(), &expected);
            } else {
                let name = expected.get("metadata").and_then(|metadata| metadata.get("name"));
                let facts = ["name", "namespace", "uid", "resourceVersion"];
                let wrong = |fact: &&str| expected["metadata"].get(*fact).is_some_and(|fact| !fact.is_string() && !fact.is_null());
                prop_assert!(name.is_none_or(Value::is_null) || facts.iter().any(wrong), "{item} is an object");
            }
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse_list(&bytes);
        let _ = parse_event(&bytes);
        let _ = parse_status(500, &bytes);
    }
}
