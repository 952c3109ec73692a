//! Strings and the names of fields.

use std::borrow::Cow;

use super::{
    blocks::{BLOCK, special_at},
    cursor::Scanner,
    recorder::Recorder,
};
use crate::codec::text::Text;

/// The content of a string.
pub(in crate::codec) enum ScannedString<'a, 'b> {
    /// A part of the JSON, which has no escapes.
    Borrowed(&'a str),
    /// A text in the buffer, without the escapes of the JSON.
    Unescaped(&'b str),
}

/// A byte that ends the plain part of a string.
#[derive(PartialEq)]
enum Special {
    Quote,
    Backslash,
}

/// The byte that the escape of a backslash and this byte stands for. Zero for bytes that make no escape of two bytes.
const ESCAPED: [u8; 256] = {
    let mut escaped = [0; 256];
    let mut rest: &[(u8, u8)] = &[
        (b'"', b'"'),
        (b'\\', b'\\'),
        (b'/', b'/'),
        (b'b', 0x08),
        (b'f', 0x0c),
        (b'n', b'\n'),
        (b'r', b'\r'),
        (b't', b'\t'),
    ];
    while let [(byte, stands_for), after @ ..] = rest {
        escaped[*byte as usize] = *stands_for;
        rest = after;
    }
    escaped
};

/// The digits of a code point.
const CODE_POINT: usize = 4;

/// Reads the code point of an escape. `at` is behind the backslash. `None` if no code point is there.
#[inline(never)]
fn code_point(text: &str, at: usize) -> Option<u32> {
    let digits = text.get(at..)?.strip_prefix('u')?.get(..CODE_POINT)?;
    let are_digits = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| are_digits)
}

impl<'a> Scanner<'a> {
    /// Reads the name of a field and passes over the colon.
    #[inline(always)]
    pub(super) fn name(&mut self) -> Option<Cow<'a, str>> {
        self.peek()?;
        // A local copy, because compilers keep its fields in registers.
        let mut end = self.clone();
        end.expect(b'"')?;
        let has_escapes = end.string(&mut ())?;
        let name = if has_escapes {
            Text::of(self.text.get(self.at..end.at)?)?
        } else {
            Cow::Borrowed(self.text.get(self.at + 1..end.at - 1)?)
        };
        end.expect(b':')?;
        *self = end;
        Some(name)
    }

    /// Reads a string from behind its first quote. If it has escapes, unescapes it into `buffer`.
    #[inline(always)]
    pub(in crate::codec) fn read_string<'b>(
        &mut self,
        buffer: &'b mut String,
    ) -> Option<ScannedString<'a, 'b>> {
        let start = self.at;
        if self.next_special()? == Special::Quote {
            return self.text.get(start..self.at - 1).map(ScannedString::Borrowed);
        }
        self.unescape(start, buffer).map(ScannedString::Unescaped)
    }

    /// Passes over a string from behind its first quote. Returns whether it has escapes.
    #[inline(always)]
    pub(super) fn string(&mut self, recorder: &mut impl Recorder) -> Option<bool> {
        let mut has_escapes = false;
        while self.next_special()? == Special::Backslash {
            has_escapes = true;
            recorder.escape(self.at - 1);
            if ESCAPED[usize::from(self.byte()?)] == 0 {
                code_point(self.text, self.at)?;
                self.at += CODE_POINT;
            }
            self.at += 1;
        }
        Some(has_escapes)
    }

    /// Passes over the plain bytes of a string and over the quote or backslash behind them.
    #[inline(always)]
    fn next_special(&mut self) -> Option<Special> {
        let bytes = self.text.as_bytes();
        let block = self.at / BLOCK;
        if block != self.block {
            self.block = block;
            self.special = special_at(bytes, block * BLOCK)?;
        }
        let mut ahead = self.special >> (self.at % BLOCK);
        while ahead == 0 {
            self.block += 1;
            self.at = self.block * BLOCK;
            self.special = special_at(bytes, self.at)?;
            ahead = self.special;
        }
        self.at += ahead.trailing_zeros() as usize + 1;
        match bytes.get(self.at - 1)? {
            b'"' => Some(Special::Quote),
            b'\\' => Some(Special::Backslash),
            // JSON requires escapes for control characters.
            _ => None,
        }
    }

    /// Unescapes a string that starts at `start`. The position is behind its first backslash.
    #[inline(never)]
    fn unescape<'b>(&mut self, start: usize, buffer: &'b mut String) -> Option<&'b str> {
        buffer.clear();
        let mut here = self.clone();
        let mut from = start;
        loop {
            buffer.push_str(here.text.get(from..here.at - 1)?);
            let escaped = ESCAPED[usize::from(here.byte()?)];
            if escaped != 0 {
                buffer.push(char::from(escaped));
            } else {
                let Some(character) = char::from_u32(code_point(here.text, here.at)?) else {
                    return self.unescape_by_serde_json(start, buffer);
                };
                buffer.push(character);
                here.at += CODE_POINT;
            }
            here.at += 1;
            from = here.at;
            if here.next_special()? == Special::Quote {
                break;
            }
        }
        buffer.push_str(here.text.get(from..here.at - 1)?);
        *self = here;
        Some(buffer)
    }

    /// Reads a string that has surrogates.
    #[cold]
    fn unescape_by_serde_json<'b>(&mut self, start: usize, buffer: &'b mut String) -> Option<&'b str> {
        self.at = start;
        self.string(&mut ())?;
        *buffer = Text::of(self.text.get(start - 1..self.at)?)?.into_owned();
        Some(buffer)
    }
}
