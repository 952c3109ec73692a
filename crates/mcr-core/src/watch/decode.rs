//! What the API server answers to lists and watches, taken apart without building objects.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::store::{Text, describe};

/// A list body: its items untouched.
#[derive(Debug)]
pub(crate) struct ListPage<'a> {
    pub(crate) items: Vec<&'a RawValue>,
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

pub(crate) fn list_page(body: &[u8]) -> Result<ListPage<'_>, BadList> {
    #[derive(Deserialize)]
    struct Meta {
        #[serde(rename = "resourceVersion")]
        resource_version: Option<String>,
        #[serde(rename = "continue")]
        continue_token: Option<String>,
    }
    // `items: null` is what a Go server sends for an empty list; a body without the field is something else.
    #[derive(Deserialize)]
    struct Body<'a> {
        metadata: Option<Meta>,
        #[serde(borrow, default)]
        items: Items<'a>,
    }
    #[derive(Default)]
    enum Items<'a> {
        #[default]
        Missing,
        Null,
        There(Vec<&'a RawValue>),
    }
    impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let items = Option::<Vec<&'a RawValue>>::deserialize(deserializer)?;
            Ok(items.map_or(Self::Null, Self::There))
        }
    }

    let body_text = std::str::from_utf8(body).map_err(|_| BadList::Json("not UTF-8".into()))?;
    let parsed: Body<'_> = serde_json::from_str(body_text).map_err(|e| BadList::Json(describe(&e)))?;
    let meta = parsed.metadata.ok_or(BadList::NoResourceVersion)?;
    let items = match parsed.items {
        Items::There(items) => items,
        Items::Null => Vec::new(),
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

/// One line of a watch.
#[derive(Debug)]
pub(crate) enum WatchLine<'a> {
    Added(&'a RawValue),
    Modified(&'a RawValue),
    Deleted(&'a RawValue),
    Bookmark { resource_version: String },
    Error(ApiStatus),
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

pub(crate) fn watch_line(line: &[u8]) -> Result<WatchLine<'_>, BadLine> {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(borrow, rename = "type")]
        kind: Text<'a>,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let text = std::str::from_utf8(line).map_err(|_| BadLine("not UTF-8".into()))?;
    let line: Line<'_> = serde_json::from_str(text).map_err(|e| BadLine(describe(&e)))?;
    match &*line.kind.0 {
        "ADDED" => Ok(WatchLine::Added(line.object)),
        "MODIFIED" => Ok(WatchLine::Modified(line.object)),
        "DELETED" => Ok(WatchLine::Deleted(line.object)),
        "BOOKMARK" => Ok(WatchLine::Bookmark {
            resource_version: resource_version_of(line.object)?,
        }),
        "ERROR" => serde_json::from_str(line.object.get())
            .map(WatchLine::Error)
            .map_err(|e| BadLine(format!("an ERROR whose status is {}", describe(&e)))),
        _ => Err(BadLine("of an unknown type".into())),
    }
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

/// The resource version of an object in an event, to go on from.
pub(crate) fn resource_version(object: &RawValue) -> Option<String> {
    resource_version_of(object)
        .ok()
        .filter(|version| !version.is_empty())
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

    use super::*;

    #[test]
    fn a_list_without_a_resource_version_is_a_failed_list() {
        let text = |body: &str| list_page(body.as_bytes()).unwrap_err().to_string();
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
    fn truncated_bodies_are_told_without_quoting_them() {
        let error = list_page(br#"{"metadata":{"resourceVersion":"1"},"items":[{"data":{"token":"canary"#)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "the list can't be read: ends in the middle (line 1, column 69)"
        );
        let error = watch_line(br#"{"type":"ADDED","object":{"data":"canary"#).unwrap_err();
        assert!(!error.to_string().contains("canary"));
    }

    #[test]
    fn lines_are_told_apart() {
        assert!(matches!(
            watch_line(br#"{"type":"ADDED","object":{}}"#),
            Ok(WatchLine::Added(_))
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
                .unwrap_err()
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

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = list_page(&bytes);
            let _ = watch_line(&bytes);
            let _ = status(500, &bytes);
        }
    }
}
