//! Strings as serde_json writes them.

use std::borrow::Cow;

/// How long it becomes.
pub(super) fn len(text: &str) -> usize {
    serde_json::to_string(text).map_or(0, |json| json.len())
}

/// The same for what was read from JSON: without an escape it is written without one.
#[expect(clippy::ptr_arg, reason = "what was read without an escape is borrowed")]
pub(super) fn len_of(read: &Cow<'_, str>) -> usize {
    match read {
        Cow::Borrowed(plain) => plain.len() + 2,
        Cow::Owned(text) => len(text),
    }
}

pub(super) fn write(out: &mut Vec<u8>, text: &str) {
    // A Vec takes everything.
    let _ = serde_json::to_writer(out, text);
}
