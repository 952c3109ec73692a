//! Strings as JSON has them.

use std::borrow::Cow;

/// Whether it is written as it is.
fn is_plain(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\')
}

/// How long it becomes.
pub(super) fn len(text: &str) -> usize {
    if is_plain(text) {
        text.len() + 2
    } else {
        escaped(text).len()
    }
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
    if is_plain(text) {
        write_plain(out, text);
    } else {
        out.extend_from_slice(escaped(text).as_bytes());
    }
}

/// Writes what is known to need no escape.
pub(super) fn write_plain(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

/// Writes it without quotes, with the escapes that it needs.
pub(super) fn write_escaped(out: &mut Vec<u8>, text: &str) {
    if is_plain(text) {
        out.extend_from_slice(text.as_bytes());
    } else {
        let escaped = escaped(text);
        let inner = escaped.get(1..escaped.len().saturating_sub(1));
        out.extend_from_slice(inner.unwrap_or_default().as_bytes());
    }
}

fn escaped(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn strings_are_written_as_serde_json_does(text in any::<String>()) {
            let mut written = Vec::new();
            super::write(&mut written, &text);
            prop_assert_eq!(&written, &serde_json::to_vec(&text).unwrap());
            prop_assert_eq!(written.len(), super::len(&text));
        }
    }
}
