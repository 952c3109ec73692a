//! Writes JSON strings with the escapes that serde_json uses.

use std::borrow::Cow;

/// The length of the text as a JSON string, with its quotes.
pub(super) fn len(text: &str) -> usize {
    serde_json::to_string(text).map_or(0, |json| json.len())
}

/// The length, as a JSON string, of a text that was read from JSON. Borrowed text had no escapes and needs none.
#[expect(clippy::ptr_arg, reason = "borrowed and owned text differ in length")]
pub(super) fn len_of(text: &Cow<'_, str>) -> usize {
    match text {
        Cow::Borrowed(plain) => plain.len() + 2,
        Cow::Owned(text) => len(text),
    }
}

pub(super) fn write(out: &mut Vec<u8>, text: &str) {
    // Writing into a Vec never fails.
    let _ = serde_json::to_writer(out, text);
}
