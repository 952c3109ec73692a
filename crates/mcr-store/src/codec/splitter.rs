//! Splits the JSON of an object into the JSON of a template and the values for its placeholders.

use super::{
    field::Field,
    placeholder::PLACEHOLDER_STR,
    scalar::{ObjectScalars, Scalar},
    timestamp::CompactTimestamp,
    values::{AS_JSON, PLAIN, TIMESTAMP, UNESCAPED},
    varint,
};

/// Splits an object into a template and its values. Reuses its buffers.
pub(super) struct TemplateSplitter {
    json: String,
    placeholders: usize,
    values: Vec<u8>,
}

impl TemplateSplitter {
    pub(super) const fn new() -> Self {
        Self {
            json: String::new(),
            placeholders: 0,
            values: Vec::new(),
        }
    }

    /// The JSON of the object's tail, with placeholders.
    pub(super) fn json(&self) -> &str {
        &self.json
    }

    /// How many placeholders [`json`](Self::json) has.
    pub(super) fn placeholders(&self) -> usize {
        self.placeholders
    }

    /// The encoded values, as [`TemplateValues`](super::values::TemplateValues) reads them.
    pub(super) fn values(&self) -> &[u8] {
        &self.values
    }

    /// The memory of the buffers, in bytes.
    pub(super) fn capacity(&self) -> usize {
        self.json.capacity() + self.values.capacity()
    }

    fn clear(&mut self) {
        self.json.clear();
        self.placeholders = 0;
        self.values.clear();
    }

    /// Splits the tail of an object. The tail consists of the last fields of the inner and of the outer one of two
    /// nested objects, in this order. `None` if a field is not contiguous in `text`.
    pub(super) fn split<'a>(
        &mut self,
        objects: [&mut dyn Iterator<Item = &'a Field<'a>>; 2],
        text: &'a str,
        scalars: &ObjectScalars<'_>,
    ) -> Option<()> {
        self.clear();
        for fields in objects {
            for field in fields {
                self.json.push(',');
                let start = field.start? as usize;
                let end = start + field.written(text)?.len();
                let of_field = scalars.of_field(&field.scalars)?;
                self.split_text(text.get(..end)?, start, of_field, scalars.escapes)?;
            }
            self.json.push('}');
        }
        Some(())
    }

    /// Splits the text that begins at `start`. `escapes` may contain escapes of names, before and between those of the
    /// scalars.
    pub(super) fn split_text(
        &mut self,
        text: &str,
        start: usize,
        scalars: &[Scalar],
        escapes: &[u32],
    ) -> Option<()> {
        let mut from = start;
        for scalar in scalars {
            self.json.push_str(text.get(from..scalar.start())?);
            self.json.push_str(PLACEHOLDER_STR);
            self.push_value(*scalar, text, escapes)?;
            from = scalar.end();
        }
        self.placeholders += scalars.len();
        self.json.push_str(text.get(from..)?);
        Some(())
    }

    /// Encodes only the values, for an object whose template is known.
    pub(super) fn split_values<'a>(
        &mut self,
        fields: impl Iterator<Item = &'a Field<'a>>,
        text: &str,
        scalars: &ObjectScalars<'_>,
    ) -> Option<()> {
        self.values.clear();
        for field in fields {
            for scalar in scalars.of_field(&field.scalars)? {
                self.push_value(*scalar, text, scalars.escapes)?;
            }
        }
        Some(())
    }

    fn push_value(&mut self, scalar: Scalar, text: &str, escapes: &[u32]) -> Option<()> {
        let values = &mut self.values;
        let written = scalar.of(text)?;
        if scalar.has_escapes() {
            let before = values.len();
            if push_unescaped(values, scalar, text, scalar.escapes_from(escapes)).is_none() {
                values.truncate(before);
                values.push(AS_JSON);
                push_text(values, text.get(scalar.start() - 1..scalar.end() + 1)?);
            }
        } else if let Some(timestamp) = CompactTimestamp::parse(written.as_bytes()) {
            values.push(TIMESTAMP);
            values.extend_from_slice(timestamp.as_compact().as_bytes());
        } else {
            push_text(values, written);
        }
        Some(())
    }
}

fn push_text(values: &mut Vec<u8>, text: &str) {
    varint::write(values, text.len() + PLAIN);
    values.extend_from_slice(text.as_bytes());
}

/// Encodes a string without its escapes. `escapes` begins with the escapes of the string. `None` if
/// [`escape::write`](super::escape::write) would not restore the original text.
fn push_unescaped(values: &mut Vec<u8>, scalar: Scalar, text: &str, escapes: &[u32]) -> Option<()> {
    let (mut from, end) = (scalar.start(), scalar.end());
    values.push(UNESCAPED);
    // Reserves bytes for the length, which is at most this one. The final length overwrites them when it is known.
    let len_at = values.len();
    varint::write(values, end - from + PLAIN);
    let text_at = values.len();
    let reserved = end - from + LINE;
    values.resize(text_at + reserved, 0);
    let mut to = values.get_mut(text_at..)?;
    let mut text = text.as_bytes().get(from..)?;
    for at in escapes {
        let at = *at as usize;
        if at >= end {
            break;
        }
        let line = at.checked_sub(from)?;
        copy(to, text, line)?;
        let unescaped = UNESCAPED_BYTES[usize::from(*text.get(line + 1)?)];
        if unescaped == 0 {
            return None;
        }
        *to.get_mut(line)? = unescaped;
        (_, to) = to.split_at_mut_checked(line + 1)?;
        text = text.get(line + 2..)?;
        from = at + 2;
    }
    let line = end.checked_sub(from)?;
    copy(to, text, line)?;
    let mut len = reserved - to.len() + line;
    values.truncate(text_at + len);
    len += PLAIN;
    for byte in values.get_mut(len_at..text_at)? {
        *byte = *byte & varint::MORE | (len & varint::MAX_IN_A_BYTE) as u8;
        len >>= varint::BITS;
    }
    Some(())
}

/// Most lines of a text are at most this long.
const LINE: usize = 64;

/// Copies `len` bytes. May overwrite further bytes of `to`, up to [`LINE`] in total.
#[inline(always)]
fn copy(to: &mut [u8], from: &[u8], len: usize) -> Option<()> {
    match (to.first_chunk_mut::<LINE>(), from.first_chunk::<LINE>()) {
        // Compilers inline a copy of constant length.
        (Some(to), Some(from)) if len <= LINE => *to = *from,
        _ => copy_exactly(to.get_mut(..len)?, from.get(..len)?),
    }
    Some(())
}

#[inline(never)]
fn copy_exactly(to: &mut [u8], from: &[u8]) {
    to.copy_from_slice(from);
}

/// The byte that a backslash and this byte stand for, if serde_json writes it the same way. Otherwise zero.
const UNESCAPED_BYTES: [u8; 256] = {
    let mut unescaped = [0; 256];
    unescaped[b'n' as usize] = b'\n';
    unescaped[b'r' as usize] = b'\r';
    unescaped[b't' as usize] = b'\t';
    unescaped[b'"' as usize] = b'"';
    unescaped[b'\\' as usize] = b'\\';
    unescaped
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{
        scan::Scanner,
        values::{TemplateValue, TemplateValues},
    };

    #[test]
    fn lines_of_every_length_are_unescaped_wherever_the_text_ends() {
        let line = |len: usize| format!("{}\\n", "x".repeat(len));
        let lens = (0..3 * LINE).chain((0..3 * LINE).rev());
        let lines: String = lens.map(line).collect();
        let expected: String = serde_json::from_str(&format!("\"{lines}\"")).unwrap();
        for behind in (0..2 * LINE).step_by(7) {
            let text = format!("\"{lines}\"{}", " ".repeat(behind));
            let scalars = Scanner::new(&text).scalars().unwrap();
            let mut splitter = TemplateSplitter::new();
            splitter
                .split_text(&text, 0, scalars.from(0), scalars.escapes_from(0))
                .unwrap();
            let values = str::from_utf8(splitter.values()).unwrap();
            match TemplateValues::of_tail(values).next() {
                Some(TemplateValue::Unescaped(text)) => assert_eq!(text, expected),
                _ => panic!("the string is not held without its escapes"),
            }
        }
    }
}
