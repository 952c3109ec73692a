//! What the API server answers to lists and watches, taken apart without building objects.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use simdutf8::basic::from_utf8;

use crate::store::{Item, NotAnObject, OpenObjects, Opened, Scanner, Text, describe};

/// A list body, its items taken apart as far as their metadata.
pub(crate) struct ListPage<'a> {
    pub(crate) items: OpenObjects<'a>,
    pub(crate) resource_version: String,
    pub(crate) continue_token: Option<String>,
}

/// Why a list body is not a list. Texts never quote the body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadList {
    #[error("the list can't be read: {0}")]
    Json(String),
    #[error("the list has no metadata.resourceVersion, so it can't be watched from and counts as failed")]
    NoResourceVersion,
    #[error("the answer has no items: it is not a list")]
    NoItems,
}

/// Reads a list in one go. Only if that is declined it is read by serde_json, item by item, to tell a body that is no
/// list from a list with an item that is no object.
pub(crate) fn list_page(body: &[u8]) -> Result<ListPage<'_>, BadList> {
    let text = from_utf8(body).map_err(|_| BadList::Json("not UTF-8".into()))?;
    match Body::scan(text) {
        Some(body) => body.page(|items| items),
        None => list_page_by_item(text),
    }
}

pub(crate) fn list_page_by_item(text: &str) -> Result<ListPage<'_>, BadList> {
    serde_json::from_str::<Body<Vec<&RawValue>>>(text)
        .map_err(|e| BadList::Json(describe(&e)))?
        .page(|items| OpenObjects::one_by_one(&items))
}

#[derive(Deserialize)]
#[serde(bound = "I: Deserialize<'de>")]
struct Body<I> {
    metadata: Option<ListMeta>,
    #[serde(default)]
    items: Items<I>,
}

#[derive(Deserialize)]
struct ListMeta {
    #[serde(rename = "resourceVersion")]
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    continue_token: Option<String>,
}

/// `items: null` is what a Go server sends for an empty list; a body without the field is something else.
#[derive(Default)]
enum Items<I> {
    #[default]
    Missing,
    Null,
    There(I),
}

impl<'de, I: Deserialize<'de>> Deserialize<'de> for Items<I> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let items = Option::<I>::deserialize(deserializer)?;
        Ok(items.map_or(Self::Null, Self::There))
    }
}

impl<'a> Body<OpenObjects<'a>> {
    fn scan(text: &'a str) -> Option<Self> {
        let (mut metadata, mut items) = (None, None);
        let mut body = Scanner::new(text);
        body.object(|value, name| {
            let there_already = match &*name {
                "metadata" => {
                    let read = serde_json::from_str(value.value()?).ok()?;
                    metadata.replace(read).is_some()
                }
                "items" if value.null() => items.replace(Items::Null).is_some(),
                "items" => items.replace(Items::There(OpenObjects::scan(value)?)).is_some(),
                _ => {
                    value.value()?;
                    false
                }
            };
            (!there_already).then_some(())
        })?;
        body.end()?;
        Some(Self {
            metadata: metadata.flatten(),
            items: items.unwrap_or_default(),
        })
    }
}

impl<I> Body<I> {
    fn page<'a>(self, open: impl FnOnce(I) -> OpenObjects<'a>) -> Result<ListPage<'a>, BadList> {
        let meta = self.metadata.ok_or(BadList::NoResourceVersion)?;
        let items = match self.items {
            Items::There(items) => open(items),
            Items::Null => OpenObjects::default(),
            Items::Missing => return Err(BadList::NoItems),
        };
        let resource_version = meta
            .resource_version
            .filter(|rv| !rv.is_empty())
            .ok_or(BadList::NoResourceVersion)?;
        Ok(ListPage {
            items,
            resource_version,
            continue_token: meta.continue_token.filter(|token| !token.is_empty()),
        })
    }
}

/// One line of a watch.
pub(crate) enum WatchLine<'a> {
    /// Added or modified.
    Put(EventObject<'a>),
    Deleted(EventObject<'a>),
    Bookmark {
        resource_version: String,
    },
    Error(ApiStatus),
}

/// What an event says of an object, which may be no object.
pub(crate) struct EventObject<'a>(Result<Opened<'a>, NotAnObject>);

impl EventObject<'_> {
    pub(crate) fn item(&self) -> Item<'_> {
        match &self.0 {
            Ok(opened) => Ok(opened.object()),
            Err(error) => Err(error.clone()),
        }
    }

    /// Where the watch goes on from after it.
    pub(crate) fn resource_version(&self) -> Option<String> {
        let opened = self.0.as_ref().ok()?;
        Some(opened.object().metadata().resource_version()?.into_owned())
    }
}

/// The parts of a `Status` that decide what to do.
#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(crate) struct ApiStatus {
    pub(crate) code: u16,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) details: Option<StatusDetails>,
}

#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct StatusDetails {
    pub(crate) retry_after_seconds: Option<u32>,
}

/// Why a line is not a watch event. Never quotes the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a watch event can't be read: {0}")]
pub(crate) struct BadLine(String);

/// Reads a line in one go if it is of an object, as nearly all are. Only if that is declined it is read by serde_json,
/// part by part.
pub(crate) fn watch_line(line: &[u8]) -> Result<WatchLine<'_>, BadLine> {
    let text = from_utf8(line).map_err(|_| BadLine("not UTF-8".into()))?;
    match scanned_line(text) {
        Some(line) => Ok(line),
        None => watch_line_by_part(text),
    }
}

fn scanned_line(text: &str) -> Option<WatchLine<'_>> {
    let (mut kind, mut object) = (None, None);
    let mut line = Scanner::new(text);
    line.object(|value, name| {
        let there_already = match &*name {
            "type" => kind.replace(value.value()?).is_some(),
            "object" => object.replace(Opened::scan(value)?).is_some(),
            _ => {
                value.value()?;
                false
            }
        };
        (!there_already).then_some(())
    })?;
    line.end()?;
    let object = EventObject(Ok(object?));
    match kind? {
        r#""ADDED""# | r#""MODIFIED""# => Some(WatchLine::Put(object)),
        r#""DELETED""# => Some(WatchLine::Deleted(object)),
        _ => None,
    }
}

pub(crate) fn watch_line_by_part(text: &str) -> Result<WatchLine<'_>, BadLine> {
    let line: Line<'_> = serde_json::from_str(text).map_err(|e| BadLine(describe(&e)))?;
    let object = || EventObject(Opened::open(line.object));
    match &*line.kind.0 {
        "ADDED" | "MODIFIED" => Ok(WatchLine::Put(object())),
        "DELETED" => Ok(WatchLine::Deleted(object())),
        "BOOKMARK" => Ok(WatchLine::Bookmark {
            resource_version: resource_version_of(line.object)?,
        }),
        "ERROR" => serde_json::from_str(line.object.get())
            .map(WatchLine::Error)
            .map_err(|e| BadLine(format!("an ERROR whose status is {}", describe(&e)))),
        _ => Err(BadLine("of an unknown type".into())),
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    object: &'a RawValue,
}

fn resource_version_of(object: &RawValue) -> Result<String, BadLine> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Meta,
    }
    #[derive(Deserialize)]
    struct Meta {
        #[serde(rename = "resourceVersion")]
        resource_version: String,
    }
    serde_json::from_str::<Object>(object.get())
        .map(|object| object.metadata.resource_version)
        .map_err(|e| BadLine(format!("no resourceVersion in it: {}", describe(&e))))
}

/// The `Status` in an error answer; where there is none (a proxy's HTML page), the code alone.
pub(crate) fn status(code: u16, body: &[u8]) -> ApiStatus {
    let mut status: ApiStatus = serde_json::from_slice(body).unwrap_or_default();
    status.code = code;
    status
        .message
        .truncate(status.message.floor_char_boundary_at(500));
    status
}

trait FloorCharBoundary {
    fn floor_char_boundary_at(&self, at: usize) -> usize;
}

impl FloorCharBoundary for String {
    fn floor_char_boundary_at(&self, at: usize) -> usize {
        (0..=at.min(self.len()))
            .rev()
            .find(|i| self.is_char_boundary(*i))
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::store::{Form, Interner, ObjectKey};

    #[test]
    fn a_list_without_a_resource_version_is_a_failed_list() {
        let text = |body: &str| list_page(body.as_bytes()).err().unwrap().to_string();
        assert!(
            text(r#"{"metadata":{},"items":[]}"#).starts_with("the list has no metadata.resourceVersion")
        );
        assert!(text(r#"{"metadata":{"resourceVersion":""},"items":[]}"#).starts_with("the list has no"));
        assert!(text(r#"{"items":[]}"#).starts_with("the list has no"));
        assert_eq!(
            text(r#"{"metadata":{"resourceVersion":"1"}}"#),
            "the answer has no items: it is not a list"
        );
        let object = r#"{"metadata":{"resourceVersion":"1"},"spec":{"volume":{"items":[]}}}"#;
        assert_eq!(text(object), "the answer has no items: it is not a list");
    }

    #[test]
    fn an_empty_go_list_has_null_items() {
        let page = list_page(br#"{"metadata":{"resourceVersion":"1"},"items":null}"#).unwrap();
        assert!(page.items.is_empty());
    }

    #[test]
    fn what_servers_send_is_read_in_one_go() {
        let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"n\u0061":"ü\n"},"managedFields":[{}]},"data":{"a":"\"\\"}}"#;
        let list = format!(
            "{{\"kind\":\"List\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"1\",\"continue\":\"next\"}},\"items\":[{object},{object}]}}\n"
        );
        assert!(Body::scan(&list).is_some());
        let pretty: Value = serde_json::from_str(&list).unwrap();
        assert!(Body::scan(&serde_json::to_string_pretty(&pretty).unwrap()).is_some());
        assert!(Body::scan(r#"{"metadata":{"resourceVersion":"1"},"items":null}"#).is_some());
        for kind in ["ADDED", "MODIFIED", "DELETED"] {
            assert!(scanned_line(&format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")).is_some());
        }
        assert!(scanned_line(&format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}")).is_none());
    }

    #[test]
    fn truncated_bodies_are_told_without_quoting_them() {
        let error = list_page(br#"{"metadata":{"resourceVersion":"1"},"items":[{"data":{"token":"canary"#)
            .err()
            .unwrap();
        assert_eq!(
            error.to_string(),
            "the list can't be read: ends in the middle (line 1, column 69)"
        );
        let error = watch_line(br#"{"type":"ADDED","object":{"data":"canary"#)
            .err()
            .unwrap();
        assert!(!error.to_string().contains("canary"));
    }

    #[test]
    fn lines_are_told_apart() {
        assert!(matches!(
            watch_line(br#"{"type":"ADDED","object":{}}"#),
            Ok(WatchLine::Put(_))
        ));
        assert!(matches!(
            watch_line(br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#),
            Ok(WatchLine::Bookmark { resource_version }) if resource_version == "9"
        ));
        assert!(matches!(
            watch_line(br#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#),
            Ok(WatchLine::Error(status)) if status.code == 410
        ));
        assert_eq!(
            watch_line(br#"{"type":"canary","object":{}}"#)
                .err()
                .unwrap()
                .to_string(),
            "a watch event can't be read: of an unknown type"
        );
    }

    #[test]
    fn a_status_is_read_from_whatever_a_proxy_sends() {
        assert_eq!(status(502, b"<html>").code, 502);
        assert_eq!(
            status(
                403,
                br#"{"kind":"Status","reason":"Forbidden","message":"no","code":403}"#
            )
            .reason,
            "Forbidden"
        );
        assert_eq!(
            status(500, format!("{{\"message\":\"{}\"}}", "ü".repeat(600)).as_bytes())
                .message
                .len(),
            500
        );
    }

    /// JSON of objects and of what is none, also such as no API server sends.
    fn item() -> impl Strategy<Value = String> {
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

    /// The JSON that is held of an item, or what is wrong with it.
    fn held(item: Item<'_>) -> Result<String, (String, Option<ObjectKey>)> {
        let mut interner = Interner::plain(Form::new("v1", "ConfigMap"));
        let object = item.and_then(|object| object.close(None, &mut interner));
        let object = object.map_err(|error| (error.to_string(), error.key))?;
        Ok(String::from_utf8(object.to_json()).unwrap())
    }

    /// All that is read of a list, and all that is read of an event.
    type Read<T> = Result<(T, Vec<Result<Vec<u8>, String>>), String>;

    fn all_of<'a>(items: impl Iterator<Item = Item<'a>>) -> Vec<Result<Vec<u8>, String>> {
        items
            .map(|item| {
                item.map(|object| object.json())
                    .map_err(|error| error.to_string())
            })
            .collect()
    }

    fn page_of(page: Result<ListPage<'_>, BadList>) -> Read<(String, Option<String>)> {
        let page = page.map_err(|error| error.to_string())?;
        Ok((
            (page.resource_version, page.continue_token),
            all_of(page.items.iter()),
        ))
    }

    fn event_of(line: Result<WatchLine<'_>, BadLine>) -> Read<String> {
        match line.map_err(|error| error.to_string())? {
            WatchLine::Put(event) => Ok(("put".to_owned(), all_of([event.item()].into_iter()))),
            WatchLine::Deleted(event) => Ok(("deleted".to_owned(), all_of([event.item()].into_iter()))),
            WatchLine::Bookmark { resource_version } => Ok((resource_version, Vec::new())),
            WatchLine::Error(status) => Ok((format!("{status:?}"), Vec::new())),
        }
    }

    /// What is around the objects, also as no API server sends it.
    fn around() -> impl Strategy<Value = (String, String)> {
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
        let fields = || {
            prop::collection::vec(field.clone(), 0..3)
                .prop_map(|fields| fields.iter().map(|field| format!("{field},")).collect::<String>())
        };
        (
            fields(),
            fields().prop_map(|fields| fields.trim_end_matches(',').to_owned()),
        )
    }

    proptest! {
        #[test]
        fn what_is_read_in_one_go_serde_json_reads_the_same_way(
            items in prop::collection::vec(item(), 0..4),
            (before, after) in around(),
            space in prop::sample::select(vec!["", " ", "\n\t"]),
            mutated in prop::option::of((any::<prop::sample::Index>(), any::<char>())),
        ) {
            let last = if after.is_empty() { String::new() } else { format!(",{after}") };
            let list = format!("{{{space}{before}\"items\":[{}]{last}}}\n", items.join(&format!(",{space}")));
            let event = items.first().map(|item| format!("{{{before}{space}\"object\":{item}{last}}}"));
            for text in [Some(list), event].into_iter().flatten() {
                let text = match &mutated {
                    Some((at, character)) => {
                        let at = at.index(text.chars().count());
                        text.chars().enumerate().map(|(index, old)| if index == at { *character } else { old }).collect()
                    }
                    None => text,
                };
                prop_assert_eq!(page_of(list_page(text.as_bytes())), page_of(list_page_by_item(&text)), "{}", text);
                prop_assert_eq!(event_of(watch_line(text.as_bytes())), event_of(watch_line_by_part(&text)), "{}", text);
            }
        }

        #[test]
        fn a_list_says_of_each_item_what_it_says_by_itself(items in prop::collection::vec(item(), 0..5), after in any::<bool>()) {
            let items: Vec<Box<RawValue>> = items.into_iter().map(|item| RawValue::from_string(item).unwrap()).collect();
            let texts: Vec<&str> = items.iter().map(|item| item.get()).collect();
            let (metadata, list) = (r#""metadata":{"resourceVersion":"1"}"#, format!("\"items\": [{}]", texts.join(", ")));
            let body = if after { format!("{{{list},{metadata}}}") } else { format!("{{{metadata},{list}}}") };
            let page = list_page(body.as_bytes()).unwrap();
            let alone = |item| held(Opened::open(item).as_ref().map(Opened::object).map_err(Clone::clone));
            let each: Vec<_> = items.iter().map(|item| alone(item)).collect();
            prop_assert_eq!(page.items.iter().map(held).collect::<Vec<_>>(), each.clone());
            for (item, alone) in texts.iter().zip(&each) {
                let line = format!("{{\"type\":\"ADDED\",\"object\":{item}}}");
                let Ok(WatchLine::Put(event)) = watch_line(line.as_bytes()) else {
                    return Err(TestCaseError::fail("another line"));
                };
                prop_assert_eq!(&held(event.item()), alone);
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
            let _ = list_page(&bytes);
            let _ = watch_line(&bytes);
            let _ = status(500, &bytes);
        }
    }
}
