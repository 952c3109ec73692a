//! Values: the scalars of an object, in the order of the placeholders of its template.
//!
//! A value is encoded as its length plus [`PLAIN`], in the form of a [`varint`], followed by its text. A lower number
//! instead of the length marks one of three other encodings: [`TIMESTAMP`], [`UNESCAPED`] and [`AS_JSON`]. The values
//! of an object follow one another and are valid UTF-8.

use std::array;

use super::{
    escape,
    facts::{BEFORE_FACTS, Fact},
    timestamp::CompactTimestamp,
    uid::Uid,
    varint,
};

/// Marks a [`CompactTimestamp`], which has no length.
pub(super) const TIMESTAMP: u8 = 0;
/// Marks a string that is stored without its escapes. Its length follows.
pub(super) const UNESCAPED: u8 = 1;
/// Marks a string that is stored as JSON text, with quotes and escapes. Its length follows.
pub(super) const AS_JSON: u8 = 2;
/// The number that stands for the length zero. Lower numbers are marks.
pub(super) const PLAIN: usize = 3;

/// The value of a placeholder.
#[derive(Clone, Copy)]
pub(super) enum TemplateValue<'a> {
    /// A string without escapes, a number, or a fact.
    Plain(&'a str),
    /// A string, unescaped, that has escapes in JSON.
    Unescaped(&'a str),
    /// A string as JSON text, with quotes and escapes.
    Json(&'a str),
    Timestamp(CompactTimestamp),
    Uid(Uid),
}

impl TemplateValue<'_> {
    /// Writes the value without quotes. The output ends with the quote of the template if the value is a string.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Plain(text) => out.extend_from_slice(text.as_bytes()),
            Self::Unescaped(text) => {
                // `escape::write` writes both quotes, and the template has both as well.
                out.pop();
                escape::write(out, text);
                out.pop();
            }
            Self::Json(json) => {
                let inner = json.get(1..json.len().saturating_sub(1));
                out.extend_from_slice(inner.unwrap_or_default().as_bytes());
            }
            Self::Timestamp(timestamp) => out.extend_from_slice(&timestamp.text()),
            Self::Uid(uid) => out.extend_from_slice(&uid.text()),
        }
    }
}

/// The values of an object: its facts, then its encoded values.
pub(super) struct TemplateValues<'a> {
    facts: array::IntoIter<Option<Fact<'a>>, { BEFORE_FACTS.len() }>,
    encoded: &'a str,
}

impl<'a> TemplateValues<'a> {
    pub(super) fn new(facts: [Option<Fact<'a>>; BEFORE_FACTS.len()], encoded: &'a str) -> Self {
        Self {
            facts: facts.into_iter(),
            encoded,
        }
    }

    /// The values of the tail, without facts.
    pub(super) fn of_tail(encoded: &'a str) -> Self {
        Self::new([const { None }; BEFORE_FACTS.len()], encoded)
    }

    /// Reads a length or a mark.
    #[inline(always)]
    fn len(&mut self) -> Option<usize> {
        let (len, bytes) = varint::read(self.encoded.as_bytes())?;
        self.encoded = self.encoded.get(bytes..)?;
        Some(len)
    }

    #[inline(always)]
    fn text(&mut self, len: usize) -> Option<&'a str> {
        let (text, rest) = self.encoded.split_at_checked(len)?;
        self.encoded = rest;
        Some(text)
    }

    #[inline(always)]
    fn next_encoded(&mut self) -> Option<TemplateValue<'a>> {
        let len = self.len()?;
        if let Some(len) = len.checked_sub(PLAIN) {
            return self.text(len).map(TemplateValue::Plain);
        }
        self.next_marked(len)
    }

    fn next_marked(&mut self, mark: usize) -> Option<TemplateValue<'a>> {
        if mark == usize::from(TIMESTAMP) {
            let compact = self.text(CompactTimestamp::BYTES)?;
            return CompactTimestamp::from_compact(compact).map(TemplateValue::Timestamp);
        }
        let len = self.len()?.checked_sub(PLAIN)?;
        let text = self.text(len)?;
        Some(if mark == usize::from(UNESCAPED) {
            TemplateValue::Unescaped(text)
        } else {
            TemplateValue::Json(text)
        })
    }
}

impl<'a> Iterator for TemplateValues<'a> {
    type Item = TemplateValue<'a>;

    #[inline]
    fn next(&mut self) -> Option<TemplateValue<'a>> {
        for fact in self.facts.by_ref() {
            return Some(match fact {
                None => continue,
                Some(Fact::Text(text)) => TemplateValue::Plain(text),
                Some(Fact::Number(text)) => TemplateValue::Plain(text),
                Some(Fact::Uid(uid)) => TemplateValue::Uid(uid),
            });
        }
        self.next_encoded()
    }
}
