//! The reader of a list whose body arrives in parts.
//!
//! The reader goes through the list in steps. It takes a step only when all bytes of the step have arrived, so it can
//! stop after any step and continue with the next part. A step reads a bracket, a comma, or a *unit*: the name of a
//! field, or a value.

use serde::Deserialize;
use serde_json::value::RawValue;
use simdutf8::compat::from_utf8;

use super::unit_end::UnitEnd;
use crate::codec::{
    error::describe_at,
    list::{RawObjects, Templates},
    response::list_page::{Body, Items, ListEnd, ListError, ListMeta},
    scan::Scanner,
    text::Text,
};

/// The longest object of a list, and the longest of any other single value: 16 MiB, as for the line of a watch.
pub(super) const MAX_VALUE: usize = crate::codec::line_decoder::MAX_LINE;

/// How far a list has been read.
#[derive(Default)]
pub(super) struct ListReader {
    place: Place,
    /// Whether the field `metadata` was read. It may be null.
    has_metadata: bool,
    metadata: Option<ListMeta>,
    items: Items<()>,
    /// The search for the end of the current unit, if the unit was not complete.
    unit_end: UnitEnd,
    /// The length of the last object.
    object_len: usize,
    /// The number of lines that were read.
    lines: usize,
    /// The number of bytes that were read of the last line.
    columns: usize,
    /// The sum of the lengths of all texts that were scanned, to test that no byte is scanned too often.
    #[cfg(test)]
    pub(super) scanned: usize,
}

/// What was read last in the list.
#[derive(Clone, Copy, Default, PartialEq)]
enum Place {
    #[default]
    Start,
    FirstField,
    Field,
    Value(ListField),
    BehindField,
    FirstItem,
    Item,
    BehindItem,
    End,
}

/// A field of the list.
#[derive(Clone, Copy, PartialEq)]
enum ListField {
    Metadata,
    Items,
    Other,
}

/// Why a step can't be taken.
enum Stop {
    /// More bytes are needed.
    Incomplete,
    /// The bytes are not a list.
    Malformed,
    TooLong,
}

impl ListReader {
    /// Reads `bytes`, which begin where the previous call has stopped. Returns the items, and how many bytes were
    /// read.
    pub(super) fn read<'a>(
        &mut self,
        bytes: &'a [u8],
        list_templates: Templates<'a>,
    ) -> Result<(RawObjects<'a>, usize), ListError> {
        if self.unit_end.is_pending() && !self.unit_end.find(bytes) {
            return match bytes.len() {
                ..=MAX_VALUE => Ok(Default::default()),
                _ => Err(ListError::TooLong),
            };
        }
        #[cfg(test)]
        {
            self.scanned += bytes.len();
        }
        let text = beginning(bytes)?;
        let mut json = Scanner::new(text);
        let (mut items, may_scan) = match RawObjects::new(text, list_templates) {
            Some(items) => (items, true),
            None => (RawObjects::default(), false),
        };
        let (consumed, stop) = loop {
            let Some(start) = json.next_position() else {
                break (text.len(), Stop::Incomplete);
            };
            if let Err(stop) = self.step(&mut json, bytes, start, &mut items, may_scan) {
                break (start, stop);
            }
        };
        let (read, rest) = bytes.split_at_checked(consumed).unwrap_or_default();
        self.count_lines(read);
        match stop {
            Stop::Incomplete if rest.len() <= MAX_VALUE => Ok((items, consumed)),
            Stop::Malformed => Err(self.error(text.get(consumed..).unwrap_or_default())),
            Stop::Incomplete | Stop::TooLong => Err(ListError::TooLong),
        }
    }

    /// Takes one step, which begins at `start`.
    fn step<'a>(
        &mut self,
        json: &mut Scanner<'a>,
        bytes: &[u8],
        start: usize,
        items: &mut RawObjects<'a>,
        may_scan: bool,
    ) -> Result<(), Stop> {
        let next = json.peek().ok_or(Stop::Incomplete)?;
        let rest = bytes.get(start..).unwrap_or_default();
        // An object that is shorter than the previous one may be cut off. This search is faster than scanning a part
        // of an object in vain.
        if self.place == Place::Item && rest.len() < self.object_len && !self.unit_end.find(rest) {
            return Err(Stop::Incomplete);
        }
        let place = match (self.place, next) {
            (Place::FirstItem | Place::Item, b'{') if may_scan && items.scan_item(json).is_some() => {
                self.object_len = json.position() - start;
                check_length(self.object_len)?;
                self.unit_end = UnitEnd::default();
                self.place = Place::BehindItem;
                return Ok(());
            }
            (Place::Start, b'{') => Place::FirstField,
            (Place::BehindField, b',') => Place::Field,
            (Place::FirstField | Place::BehindField, b'}') => Place::End,
            (Place::Value(ListField::Items), b'[') => {
                self.items = Items::Present(());
                Place::FirstItem
            }
            (Place::BehindItem, b',') => Place::Item,
            (Place::FirstItem | Place::BehindItem, b']') => Place::BehindField,
            // If the body is a string, a number or a literal, serde_json refuses it only after it has read all of it.
            (Place::Start, b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n')
            | (Place::FirstField | Place::Field, b'"')
            | (Place::Value(_) | Place::FirstItem | Place::Item, _) => {
                return self.unit(json, bytes, start, items);
            }
            _ => return Err(Stop::Malformed),
        };
        *json = Scanner::at(json.text(), start + 1);
        self.place = place;
        Ok(())
    }

    /// Reads the name of a field, or a value, with serde_json.
    fn unit<'a>(
        &mut self,
        json: &mut Scanner<'a>,
        bytes: &[u8],
        start: usize,
        items: &mut RawObjects<'a>,
    ) -> Result<(), Stop> {
        if !self.unit_end.find(bytes.get(start..).unwrap_or_default()) {
            return Err(Stop::Incomplete);
        }
        let text = json.text();
        let mut rest = serde_json::Deserializer::from_str(text.get(start..).unwrap_or_default());
        let value = <&RawValue>::deserialize(&mut rest).map_err(|_| Stop::Malformed)?;
        check_length(value.get().len())?;
        *json = Scanner::at(text, start + value.get().len());
        self.place = match self.place {
            Place::FirstItem | Place::Item => {
                items.read_item(value);
                Place::BehindItem
            }
            Place::Value(field) => {
                self.value(field, value.get()).ok_or(Stop::Malformed)?;
                Place::BehindField
            }
            Place::FirstField | Place::Field => {
                json.expect(b':').ok_or(Stop::Malformed)?;
                Place::Value(self.field(value.get()).ok_or(Stop::Malformed)?)
            }
            Place::Start | Place::BehindField | Place::BehindItem | Place::End => {
                return Err(Stop::Malformed);
            }
        };
        self.unit_end = UnitEnd::default();
        Ok(())
    }

    /// The field of this name. `None` if the list already had this field, or if serde_json can't read the name.
    fn field(&self, name: &str) -> Option<ListField> {
        let (field, is_repeated) = match &*Text::of(name)? {
            "metadata" => (ListField::Metadata, self.has_metadata),
            "items" => (ListField::Items, !matches!(self.items, Items::Missing)),
            _ => (ListField::Other, false),
        };
        (!is_repeated).then_some(field)
    }

    /// Reads the value of a field. `None` if the value has another type.
    fn value(&mut self, field: ListField, value: &str) -> Option<()> {
        match field {
            ListField::Metadata => {
                self.metadata = serde_json::from_str(value).ok()?;
                self.has_metadata = true;
            }
            ListField::Items if value == "null" => self.items = Items::Null,
            ListField::Items => return None,
            ListField::Other => {}
        }
        Some(())
    }

    /// Ends the list. `rest` are the bytes that were not read.
    pub(super) fn finish(self, rest: &[u8]) -> Result<ListEnd, ListError> {
        let rest = from_utf8(rest).map_err(|_| not_utf8())?;
        if self.place != Place::End {
            return Err(self.error(rest));
        }
        let body = Body {
            metadata: self.metadata,
            items: self.items,
        };
        Ok(body.parts()?.0)
    }

    /// The error that serde_json would have for the whole list. `rest` is the unread part of the list.
    fn error(&self, rest: &str) -> ListError {
        if self.place == Place::Start && rest.starts_with('[') {
            return ListError::NoItems;
        }
        let before = self.substitute();
        match serde_json::from_str::<Body<Vec<&RawValue>>>(&(before.clone() + rest)) {
            Ok(_) => ListError::Json("not valid JSON".into()),
            Err(error) => {
                let column = match error.line() {
                    1 => self.columns + error.column().saturating_sub(before.len()),
                    _ => error.column(),
                };
                ListError::Json(describe_at(&error, self.lines + error.line(), column))
            }
        }
    }

    /// A short text that replaces everything that was read. After it, serde_json reads the rest in the same way.
    fn substitute(&self) -> String {
        let in_items = matches!(self.place, Place::FirstItem | Place::Item | Place::BehindItem);
        // No numbers, because a following point or letter `e` would be a part of the number.
        let mut fields = vec![r#""":null"#];
        if self.has_metadata {
            fields.push(r#""metadata":null"#);
        }
        if !in_items && !matches!(self.items, Items::Missing) {
            fields.push(r#""items":null"#);
        }
        let fields = fields.join(",");
        match self.place {
            Place::Start => String::new(),
            Place::FirstField => "{".to_owned(),
            Place::Field => format!("{{{fields},"),
            Place::Value(ListField::Metadata) => format!(r#"{{{fields},"metadata":"#),
            Place::Value(ListField::Items) => format!(r#"{{{fields},"items":"#),
            Place::Value(ListField::Other) => format!(r#"{{{fields},"":"#),
            Place::BehindField => format!("{{{fields}"),
            Place::FirstItem => format!(r#"{{{fields},"items":["#),
            Place::Item => format!(r#"{{{fields},"items":[null,"#),
            Place::BehindItem => format!(r#"{{{fields},"items":[null"#),
            Place::End => format!("{{{fields}}}"),
        }
    }

    fn count_lines(&mut self, read: &[u8]) {
        let lines = memchr::memchr_iter(b'\n', read).count();
        self.lines += lines;
        if lines == 0 {
            self.columns += read.len();
        } else {
            self.columns = read.rsplit(|byte| *byte == b'\n').next().map_or(0, <[u8]>::len);
        }
    }
}

fn check_length(value: usize) -> Result<(), Stop> {
    (value <= MAX_VALUE).then_some(()).ok_or(Stop::TooLong)
}

/// The bytes as text, without an incomplete character at the end.
fn beginning(bytes: &[u8]) -> Result<&str, ListError> {
    let whole = match from_utf8(bytes) {
        Ok(text) => return Ok(text),
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Err(_) => return Err(not_utf8()),
    };
    from_utf8(bytes.get(..whole).unwrap_or_default()).map_err(|_| not_utf8())
}

fn not_utf8() -> ListError {
    ListError::Json("not UTF-8".into())
}
