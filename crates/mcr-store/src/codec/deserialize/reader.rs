//! Reads JSON, or a template with its values, piece by piece.
//!
//! Most methods do not depend on the type that is decoded, because each method that does is compiled for every type.

use serde::de::Visitor;

use super::declined::{Declined, Result};
use crate::codec::{
    placeholder::{PLACEHOLDER_STR, QUOTED_PLACEHOLDER},
    scan::{ScannedString, Scanner, parse_integer},
    values::{TemplateValue, TemplateValues},
};

/// The most nested brackets. serde_json declines more, too.
const MAX_DEPTH: u8 = 127;

pub(super) type SerdeJson<'de> = serde_json::Deserializer<serde_json::de::SliceRead<'de>>;

pub(super) struct Reader<'de, 'r> {
    json: Scanner<'de>,
    /// The values, if the JSON is a template.
    values: Option<TemplateValues<'de>>,
    /// For strings whose escapes must be resolved.
    buffer: &'r mut String,
    /// How many brackets are open.
    depth: u8,
    /// Whether anything was declined. A type may continue after an error, but the scanner's position is then
    /// undefined.
    declined: bool,
}

impl<'de, 'r> Reader<'de, 'r> {
    #[inline]
    pub(super) fn new(json: &'de str, values: Option<TemplateValues<'de>>, buffer: &'r mut String) -> Self {
        Self {
            json: Scanner::new(json),
            values,
            buffer,
            depth: 0,
            declined: false,
        }
    }
}

impl<'de> Reader<'de, '_> {
    /// Expects the end of the JSON and of the values.
    pub(super) fn end(self) -> Option<()> {
        (!self.declined).then_some(())?;
        let no_values_left = self.values.is_none_or(|mut values| values.next().is_none());
        no_values_left.then(|| self.json.end())?
    }

    #[cold]
    pub(super) fn decline(&mut self) -> Declined {
        self.declined = true;
        Declined
    }

    #[inline(always)]
    fn or_decline<T>(&mut self, read: Option<T>) -> Result<T> {
        read.ok_or_else(|| self.decline())
    }

    #[inline(always)]
    pub(super) fn peek(&mut self) -> Result<u8> {
        let byte = self.json.peek();
        self.or_decline(byte)
    }

    #[inline(always)]
    pub(super) fn expect(&mut self, byte: u8) -> Result<()> {
        let expected = self.json.expect(byte);
        self.or_decline(expected)
    }

    /// Checks that a string is next. Does not move.
    #[inline(always)]
    pub(super) fn expect_string(&mut self) -> Result<()> {
        match self.peek()? {
            b'"' => Ok(()),
            _ => Err(self.decline()),
        }
    }

    pub(super) fn literal(&mut self, literal: &str) -> Result<()> {
        let passed = self.json.literal(literal);
        self.or_decline(passed)
    }

    pub(super) fn open(&mut self, bracket: u8) -> Result<()> {
        self.expect(bracket)?;
        if self.depth == MAX_DEPTH {
            return Err(self.decline());
        }
        self.depth += 1;
        Ok(())
    }

    pub(super) fn close(&mut self, bracket: u8) -> Result<()> {
        self.depth -= 1;
        self.expect(bracket)
    }

    /// Goes to the next item or field. False if there is none.
    pub(super) fn next(&mut self, first: &mut bool, closing: u8) -> Result<bool> {
        // After an error the position does not move. Without this check, a type that continues after errors would loop
        // for ever.
        if self.declined {
            return Ok(false);
        }
        let byte = self.peek()?;
        if byte == closing {
            return Ok(false);
        }
        if !std::mem::take(first) {
            self.expect(b',')?;
            if self.peek()? == closing {
                return Err(self.decline());
            }
        }
        Ok(true)
    }

    /// Passes over a placeholder and returns its value. `Ok(None)` if no placeholder is here.
    #[inline(always)]
    fn value(&mut self, placeholder: &str) -> Result<Option<TemplateValue<'de>>> {
        let Some(values) = &mut self.values else {
            return Ok(None);
        };
        if self.json.literal(placeholder).is_none() {
            return Ok(None);
        }
        let value = values.next();
        self.or_decline(value).map(Some)
    }

    /// Passes over a JSON value, and over the values of its placeholders.
    pub(super) fn skip(&mut self) -> Result<()> {
        let passed = match &mut self.values {
            None => self.json.value().map(drop),
            Some(values) => self
                .json
                .placeholders()
                .filter(|placeholders| *placeholders == 0 || values.nth(placeholders - 1).is_some())
                .map(drop),
        };
        self.or_decline(passed)
    }

    #[inline(always)]
    pub(super) fn visit_text<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        self.peek()?;
        let Some(value) = self.value(QUOTED_PLACEHOLDER)? else {
            return self.visit_name(visitor);
        };
        match value {
            TemplateValue::Plain(text) => visitor.visit_borrowed_str(text),
            // This string has escapes in JSON, so serde_json would not lend its text either.
            TemplateValue::Unescaped(text) => visitor.visit_str(text),
            TemplateValue::Timestamp(timestamp) => visitor.visit_str(ascii_text(&timestamp.text())),
            TemplateValue::Uid(uid) => visitor.visit_str(ascii_text(&uid.text())),
            TemplateValue::Json(json) => {
                let mut json = Scanner::at(json, 1);
                match json.read_string(self.buffer) {
                    Some(ScannedString::Borrowed(text)) => visitor.visit_borrowed_str(text),
                    Some(ScannedString::Unescaped(text)) => visitor.visit_str(text),
                    None => Err(self.decline()),
                }
            }
        }
    }

    /// Visits a string that is in the JSON itself. Names of fields always are.
    #[inline(always)]
    pub(super) fn visit_name<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        self.expect(b'"')?;
        match self.json.read_string(self.buffer) {
            Some(ScannedString::Borrowed(text)) => visitor.visit_borrowed_str(text),
            Some(ScannedString::Unescaped(text)) => visitor.visit_str(text),
            None => Err(self.decline()),
        }
    }

    /// Lets serde_json read a value. Not for arrays and objects that the reader continues with, because serde_json
    /// does not know the current depth.
    pub(super) fn with_serde_json<T>(
        &mut self,
        read: impl FnOnce(&mut SerdeJson<'de>) -> serde_json::Result<T>,
    ) -> Result<T> {
        let value = match self.values {
            None => self.json.value(),
            // In a template, the only JSON value is that of a number's placeholder.
            Some(_) => match self.peek().and_then(|_| self.value(PLACEHOLDER_STR))? {
                Some(TemplateValue::Plain(number)) => Some(number),
                _ => None,
            },
        };
        let value = self.or_decline(value)?;
        self.text_with_serde_json(value, read)
    }

    fn text_with_serde_json<T>(
        &mut self,
        value: &'de str,
        read: impl FnOnce(&mut SerdeJson<'de>) -> serde_json::Result<T>,
    ) -> Result<T> {
        // From a slice, as everywhere else: serde_json's code is compiled for each type and each kind of input.
        let mut json = serde_json::Deserializer::from_slice(value.as_bytes());
        match read(&mut json) {
            Ok(value) if json.end().is_ok() => Ok(value),
            _ => Err(self.decline()),
        }
    }

    /// Visits a number. serde_json reads every number that is not a short integer, with `otherwise`.
    pub(super) fn visit_number<V: Visitor<'de>>(
        &mut self,
        visitor: V,
        otherwise: impl FnOnce(&mut SerdeJson<'de>, V) -> serde_json::Result<V::Value>,
    ) -> Result<V::Value> {
        self.peek()?;
        if let Some(value) = self.value(PLACEHOLDER_STR)? {
            let TemplateValue::Plain(text) = value else {
                return Err(self.decline());
            };
            return match parse_integer(text.as_bytes()) {
                Some((number, _)) => visit_integer(number, visitor),
                None => self.text_with_serde_json(text, |json| otherwise(json, visitor)),
            };
        }
        if !matches!(self.peek()?, b'-' | b'0'..=b'9') {
            return Err(self.decline());
        }
        match self.json.integer() {
            Some(number) => visit_integer(number, visitor),
            None => self.with_serde_json(|json| otherwise(json, visitor)),
        }
    }
}

fn visit_integer<'de, V: Visitor<'de>>(number: i64, visitor: V) -> Result<V::Value> {
    match u64::try_from(number) {
        Ok(number) => visitor.visit_u64(number),
        Err(_) => visitor.visit_i64(number),
    }
}

fn ascii_text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}
