//! Reads strings and the names of fields.

use std::borrow::Cow;

use super::{
    blocks::{BLOCK, special_at},
    cursor::Scanner,
    recorder::Recorder,
};
use crate::codec::text::Text;

/// The content of a string.
pub(in crate::codec) enum ScannedString<'a, 'b> {
    /// The string has no escapes, so this is a part of the JSON.
    Borrowed(&'a str),
    /// The string has escapes, so this is its unescaped text in the buffer of the caller.
    Unescaped(&'b str),
}

/// A byte that ends the plain part of a string.
#[derive(PartialEq)]
enum Special {
    Quote,
    Backslash,
}

/// The byte that an escape of two bytes stands for, by its second byte. For example, the entry of `n` is a line feed,
/// because `\n` stands for one. An entry is zero if there is no such escape.
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

/// The number of hexadecimal digits in an escaped code point.
const CODE_POINT_DIGITS: usize = 4;

/// Reads an escaped code point, such as `u00e9`. `at` is the position of its `u`. `None` if there is no such escape.
#[inline(never)]
fn code_point(text: &str, at: usize) -> Option<u32> {
    let digits = text.get(at..)?.strip_prefix('u')?.get(..CODE_POINT_DIGITS)?;
    let are_digits = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| are_digits)
}

impl<'a> Scanner<'a> {
    /// Reads the name of a field and passes over the colon.
    #[inline(always)]
    pub(super) fn name(&mut self) -> Option<Cow<'a, str>> {
        self.peek()?;
        // A local copy, because the compiler keeps its fields in registers, which is faster.
        let mut end = self.clone();
        end.expect(b'"')?;
        let has_escapes = end.skip_string(&mut ())?;
        let name = if has_escapes {
            Text::of(self.text.get(self.at..end.at)?)?
        } else {
            Cow::Borrowed(self.text.get(self.at + 1..end.at - 1)?)
        };
        end.expect(b':')?;
        *self = end;
        Some(name)
    }

    /// Reads a string. The position is after its first quote. A string with escapes is unescaped into `buffer`.
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

    /// Skips a string. The position is after its first quote. Returns whether the string has escapes.
    #[inline(always)]
    pub(super) fn skip_string(&mut self, recorder: &mut impl Recorder) -> Option<bool> {
        let mut has_escapes = false;
        while self.next_special()? == Special::Backslash {
            has_escapes = true;
            recorder.escape(self.at - 1);
            if ESCAPED[usize::from(self.byte()?)] == 0 {
                code_point(self.text, self.at)?;
                self.at += CODE_POINT_DIGITS;
            }
            self.at += 1;
        }
        Some(has_escapes)
    }

    /// Skips the plain bytes of a string, and the quote or backslash after them.
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
            // It is a control character, which JSON allows only as an escape.
            _ => None,
        }
    }

    /// Unescapes a string. `start` is the position after its first quote. `self` is after its first backslash.
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
                here.at += CODE_POINT_DIGITS;
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

    /// Unescapes a string with UTF-16 surrogates. Such strings are rare, so serde_json is fast enough for them.
    #[cold]
    fn unescape_by_serde_json<'b>(&mut self, start: usize, buffer: &'b mut String) -> Option<&'b str> {
        self.at = start;
        self.skip_string(&mut ())?;
        *buffer = Text::of(self.text.get(start - 1..self.at)?)?.into_owned();
        Some(buffer)
    }
}
