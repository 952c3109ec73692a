//! The events of watches.

use serde::Deserialize;
use serde_json::value::RawValue;
use simdutf8::basic::from_utf8;

use super::status::Status;
use crate::codec::{
    error::{NotAnObject, describe},
    parsed::ParsedObject,
    raw_object::Item,
    scan::Scanner,
    text::Text,
};

/// A watch event: one line of the body of a watch.
pub enum WatchEvent<'a> {
    /// The object was added or modified: `ADDED` or `MODIFIED`.
    Put(EventObject<'a>),
    /// The object was deleted: `DELETED`. The object is its last state.
    Deleted(EventObject<'a>),
    /// The watch has reached this resource version: `BOOKMARK`.
    Bookmark {
        /// The resource version from which another watch can go on.
        resource_version: String,
    },
    /// The watch failed: `ERROR`.
    Error(Status),
}

/// The object of a watch event, which may turn out not to be an object.
pub struct EventObject<'a>(Result<ParsedObject<'a>, NotAnObject>);

impl EventObject<'_> {
    /// The raw object.
    ///
    /// # Errors
    /// [`NotAnObject`] if the value is not an object, or if its metadata is missing or not an object.
    pub fn item(&self) -> Item<'_> {
        match &self.0 {
            Ok(object) => Ok(object.object()),
            Err(error) => Err(error.clone()),
        }
    }

    /// The resource version from which another watch can go on after this event. `None` if the object has none, or is
    /// not an object.
    pub fn resource_version(&self) -> Option<String> {
        let object = self.0.as_ref().ok()?;
        Some(object.object().metadata().resource_version()?.into_owned())
    }
}

/// Why a line is not a watch event. The text never quotes the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a watch event can't be read: {0}")]
pub struct EventError(String);

/// Parses a watch event from one line of a watch's body, as [`LineDecoder`](crate::LineDecoder) returns it.
///
/// An object that can't be read does not fail the event: [`EventObject::item`] has the error.
///
/// ```
/// use mcr_store::{Encoder, Encoding, WatchEvent, parse_event};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let line = br#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"10"}}}"#;
/// let WatchEvent::Put(event) = parse_event(line)? else {
///     panic!("another event");
/// };
/// assert_eq!(event.resource_version().as_deref(), Some("10"));
///
/// let mut encoder = Encoder::plain(Encoding::new("v1", "Namespace"));
/// let object = event.item()?.encode(None, &mut encoder)?;
/// assert_eq!(object.key().to_string(), "a");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`EventError`] if the line is not JSON, or if type and object are not those of a watch event.
pub fn parse_event(line: &[u8]) -> Result<WatchEvent<'_>, EventError> {
    let text = from_utf8(line).map_err(|_| EventError("not UTF-8".into()))?;
    match scan_event(text) {
        Some(event) => Ok(event),
        None => parse_event_by_part(text),
    }
}

/// Scans an event with an object, as nearly all events are. `None` for any other line.
pub(super) fn scan_event(text: &str) -> Option<WatchEvent<'_>> {
    let (mut kind, mut object) = (None, None);
    let mut line = Scanner::new(text);
    line.object(|value, name| {
        let is_repeated = match &*name {
            "type" => kind.replace(value.value()?).is_some(),
            "object" => object.replace(ParsedObject::scan(value)?).is_some(),
            _ => {
                value.value()?;
                false
            }
        };
        (!is_repeated).then_some(())
    })?;
    line.end()?;
    let object = EventObject(Ok(object?));
    match kind? {
        r#""ADDED""# | r#""MODIFIED""# => Some(WatchEvent::Put(object)),
        r#""DELETED""# => Some(WatchEvent::Deleted(object)),
        _ => None,
    }
}

/// Parses a watch event with serde_json, with the same result as [`parse_event`] for any line. `parse_event` calls it
/// if the scanner declines the line.
///
/// # Errors
/// [`EventError`] if the line is not JSON, or if type and object are not those of a watch event.
pub fn parse_event_by_part(text: &str) -> Result<WatchEvent<'_>, EventError> {
    let line: Line<'_> = serde_json::from_str(text).map_err(|e| EventError(describe(&e)))?;
    let object = || EventObject(ParsedObject::read_by_part(line.object));
    match &*line.kind.0 {
        "ADDED" | "MODIFIED" => Ok(WatchEvent::Put(object())),
        "DELETED" => Ok(WatchEvent::Deleted(object())),
        "BOOKMARK" => Ok(WatchEvent::Bookmark {
            resource_version: bookmark_version(line.object)?,
        }),
        "ERROR" => serde_json::from_str(line.object.get())
            .map(WatchEvent::Error)
            .map_err(|e| EventError(format!("an ERROR whose status is {}", describe(&e)))),
        _ => Err(EventError("of an unknown type".into())),
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    object: &'a RawValue,
}

fn bookmark_version(object: &RawValue) -> Result<String, EventError> {
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
        .map_err(|e| EventError(format!("no resourceVersion in it: {}", describe(&e))))
}
