use proptest::prelude::*;
use serde_json::value::RawValue;

use crate::codec::{
    encoder::Encoder,
    encoding::Encoding,
    list::{RawObjects, Templates},
    raw_object::Item,
    scan::{Scanner, strategies},
    template_registry::TemplateRegistry,
};

/// The object with other strings and numbers, which are taken in their order and again from the first.
fn with_scalars(object: &str, strings: &[String], numbers: &[String]) -> String {
    let mut varied = String::new();
    let (mut strings, mut numbers) = (strings.iter().cycle(), numbers.iter().cycle());
    let mut from = 0;
    for scalar in Scanner::new(object).scalars().unwrap().from(0) {
        let (start, end) = (scalar.start(), scalar.end());
        varied.push_str(&object[from..start]);
        let quoted = object[..start].ends_with('"');
        let content = |text: &String| text[1..text.len() - 1].to_owned();
        let other = if quoted {
            strings.next().map(content)
        } else {
            numbers.next().cloned()
        };
        varied.push_str(other.as_deref().unwrap_or(&object[start..end]));
        from = end;
    }
    varied + &object[from..]
}

/// All that can be read of a raw object, and the JSON of the encoded object.
#[derive(Debug, PartialEq)]
struct Read {
    json: Vec<u8>,
    fields: Vec<(String, String)>,
    encoded: Option<Vec<u8>>,
}

fn read<'a>(objects: &'a RawObjects<'a>) -> Vec<Read> {
    let encoding = || Encoding::new("v1", "ConfigMap");
    let templates = std::sync::Arc::new(TemplateRegistry::new(encoding()));
    let mut encoder = Encoder::with_templates(templates);
    let mut namespace = None;
    let read_one = |item: Item<'_>| {
        let object = item.unwrap();
        let all = object.before.iter().chain(object.after).chain(object.metadata.0);
        let fields = all.map(|field| {
            if let Some(written) = field.written(object.text) {
                assert_eq!(written, format!("\"{}\":{}", field.name, field.value));
            }
            (field.name.clone().into_owned(), field.value.to_owned())
        });
        // A caller may replace the namespace of some objects and not of others.
        namespace = if namespace.is_none() { Some("n") } else { None };
        let encoded = object.encode(namespace, &mut encoder).ok().map(|object| {
            let json = object.to_json();
            assert_eq!(encoding().prefix().len() + object.bytes(), json.len());
            json
        });
        Read {
            json: object.json(),
            fields: fields.collect(),
            encoded,
        }
    };
    objects.iter().map(read_one).collect()
}

/// Scans an array of objects. `None` if any item is declined.
fn scan(list: &str) -> Option<RawObjects<'_>> {
    let (mut json, mut all) = (Scanner::new(list), RawObjects::new(list, Templates::default())?);
    json.expect(b'[')?;
    loop {
        all.scan_item(&mut json)?;
        if !json.accept(b',') {
            return json.expect(b']').map(|()| all);
        }
    }
}

/// Checks that a list reads the same as its items by themselves. Returns the hits.
fn same(list: &str) -> Result<usize, TestCaseError> {
    let items: Vec<&RawValue> = serde_json::from_str(list).unwrap();
    let by_item = RawObjects::read_by_item(&items);
    let Some(scanned) = scan(list) else {
        let may_be_declined =
            by_item.iter().any(|item| item.is_err()) || list.contains("metadata\":{\"metadata");
        prop_assert!(may_be_declined, "{}", list);
        return Ok(0);
    };
    prop_assert_eq!(read(&scanned), read(&by_item), "{}", list);
    Ok(scanned.hits())
}

fn object() -> impl Strategy<Value = String> {
    let known = [
        r#""name""#,
        r#""namespace""#,
        r#""uid""#,
        r#""generation""#,
        r#""apiVersion""#,
        r#""kind""#,
    ];
    let name = prop_oneof![
        4 => "\"[a-z]{1,3}\"",
        1 => prop::sample::select(known.to_vec()).prop_map(str::to_owned),
    ]
    .boxed();
    let fields = || prop::collection::vec((name.clone(), strategies::json()), 0..4);
    let text = |fields: Vec<(String, String)>| {
        fields
            .iter()
            .map(|(name, value)| format!("{name}:{value},"))
            .collect::<String>()
    };
    let facts = prop::sample::select(vec![
        "",
        r#""uid":"u","resourceVersion":"","#,
        r#""namespace":"n","uid":"6e0c7b4e-0b7c-4b58-9d3e-000000000001","resourceVersion":"7","#,
        r#""namespace":"","uid":null,"resourceVersion":null,"#,
    ]);
    (fields(), fields(), facts, strategies::string(), strategies::number(), strategies::json()).prop_map(
        move |(before, metadata, facts, name, number, last)| {
            format!(
                r#"{{{}"metadata":{{{}"name":{name},{facts}"managedFields":[{{"time":"x","f:a":{{}}}}],"generation":{number}}},"last":{last}}}"#,
                text(before),
                text(metadata)
            )
        },
    )
}

/// Strings for the values of facts. Some are canonical UIDs.
fn strings() -> impl Strategy<Value = Vec<String>> {
    let uid = "\"6e0c7b4e-0b7c-4b58-9d3e-00000000000[0-9]\"";
    prop::collection::vec(
        prop_oneof![2 => strategies::string(), 1 => uid, 1 => Just("\"\"".to_owned())],
        1..9,
    )
}

proptest! {
    #[test]
    fn objects_that_match_read_the_same_as_by_themselves(
        first in object(),
        others in prop::collection::vec((strings(), prop::collection::vec(strategies::number(), 1..9)), 1..5),
    ) {
        let others: Vec<String> = others.iter().map(|(strings, numbers)| with_scalars(&first, strings, numbers)).collect();
        let list = format!("[{first},{}]", others.join(","));
        same(&list)?;
        // The blanks behind the list make room for another object, so the first is never taken for the last.
        let hits = same(&(list + &" ".repeat(first.len())))?;
        prop_assert_eq!(hits, others.len());
    }

    #[test]
    fn objects_that_nearly_match_read_the_same_as_by_themselves(
        (first, other) in object().prop_flat_map(|first| (Just(first.clone()), strategies::broken(Just(first)))),
        third in object(),
    ) {
        if serde_json::from_str::<&RawValue>(&other).is_ok() {
            same(&format!("[{first},{other},{third},{other} , {first}]"))?;
        }
    }
}

#[test]
fn an_object_that_seems_to_be_the_last_makes_no_list_template() {
    let item = |text: &str| format!(r#"{{"metadata":{{"name":"a"}},"data":"{text}"}}"#);
    let (long, short) = (item(&"x".repeat(199)), item(""));
    let list = |first: &str, other: &str, count: usize| {
        let others = [",", other].concat().repeat(count);
        same(&format!("[{first}{others}]")).unwrap()
    };
    assert_eq!(list(&long, &short, 1), 0);
    assert_eq!(list(&short, &long, 1), 1);
    // The second object makes a list template, and the third matches it.
    assert_eq!(list(&long, &short, 2), 1);
    assert_eq!(list(&long, &short, 4), 4);
}

#[test]
fn objects_with_more_escapes_than_are_recorded_read_the_same() {
    let item = |escapes: usize| {
        let text = r"\n".repeat(escapes);
        format!(r#"{{"metadata":{{"name":"a\"{escapes}"}},"data":{{"a":"{text}","b":"\t"}}}}"#)
    };
    for max in [16_380, 16_381, 16_382, 16_383, 16_384, 40_000] {
        for counts in [[1, max, 2, max], [max, 1, max, 2], [max, max, 1, max]] {
            same(&format!("[{}]", counts.map(item).join(","))).unwrap();
        }
    }
}

#[test]
fn an_object_with_much_text_beside_its_scalars_makes_no_list_template() {
    let hits = |name: usize| {
        let item = format!(r#"{{"metadata":{{"name":"a"}},"{}":1}}"#, "x".repeat(name));
        same(&format!("[{item},{item},{item}]")).unwrap()
    };
    assert_eq!(hits(60 << 10), 2);
    assert_eq!(hits(64 << 10), 0);
}

#[test]
fn list_templates_are_given_up_after_many_misses() {
    let item = |number: usize| format!(r#"{{"metadata":{{"name":"a","f{number}":1}}}}"#);
    let list = |numbers: Vec<usize>| {
        format!(
            "[{}]",
            numbers.into_iter().map(item).collect::<Vec<_>>().join(",")
        )
    };
    assert_eq!(same(&list((0..100).collect())).unwrap(), 0);
    let list = list((0..20).chain([1; 10]).collect());
    assert_eq!(same(&list).unwrap(), 0);
    // Objects that alternate between two layouts match two list templates.
    let pairs: Vec<String> = (0..200).map(|number| item(number % 2)).collect();
    assert_eq!(same(&format!("[{}]", pairs.join(","))).unwrap(), 198);
}
