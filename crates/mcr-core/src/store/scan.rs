//! Reads JSON without looking into values, with half of the instructions that serde_json takes to ignore them.
//!
//! What it reads, serde_json reads the same way. It declines what is no JSON, and what is deeper than anything in a cluster.
//! It does not say why: whoever is declined asks serde_json.

use std::borrow::Cow;

use super::{
    open::Text,
    scalar::{Scalar, Scalars},
    shape::HOLE,
};

/// A place in some JSON. Nothing is to be read any more once something was declined.
#[derive(Clone)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    /// What is not plain in the block of the place.
    special: u64,
    /// Which block that is.
    block: usize,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self::at(text, 0)
    }

    pub(super) fn at(text: &'a str, at: usize) -> Self {
        let block = at / BLOCK;
        Self {
            text,
            at,
            special: special_at(text.as_bytes(), block * BLOCK).unwrap_or_default(),
            block,
        }
    }

    /// Expects that no more than white space follows.
    pub(crate) fn end(mut self) -> Option<()> {
        self.peek().is_none().then_some(())
    }

    /// Reads an object; `field` is to read the value of each of its fields.
    pub(crate) fn object(
        &mut self,
        mut field: impl FnMut(&mut Self, Cow<'a, str>) -> Option<()>,
    ) -> Option<()> {
        self.expect(b'{')?;
        if self.accept(b'}') {
            return Some(());
        }
        loop {
            let name = self.name()?;
            field(self, name)?;
            if !self.accept(b',') {
                return self.expect(b'}');
            }
        }
    }

    /// Reads an array; `item` is to read each of its values.
    pub(crate) fn array(&mut self, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.expect(b'[')?;
        if self.accept(b']') {
            return Some(());
        }
        loop {
            item(self)?;
            if !self.accept(b',') {
                return self.expect(b']');
            }
        }
    }

    /// Passes over a value, which is given as it is written.
    pub(crate) fn value(&mut self) -> Option<&'a str> {
        self.peek()?;
        let mut end = self.clone();
        end.skip::<false>(&mut ())?;
        let value = self.text.get(self.at..end.at);
        *self = end;
        value
    }

    /// Passes over the value of a field whose name was just read, and notes its strings and its numbers; not the names of
    /// fields in it.
    #[inline(never)]
    pub(super) fn field(&mut self, name: &Cow<'a, str>, scalars: &mut Scalars) -> Option<FieldText<'a>> {
        let at = self.at.checked_sub(name.len() + Self::NAMED)?;
        let begins = self.at;
        self.peek()?;
        let mut end = self.clone();
        let first = scalars.noted();
        let mut own = Bounded::new(scalars);
        end.skip::<false>(&mut own)?;
        let are_all = own.are_all();
        if !are_all {
            scalars.truncate(first);
        }
        let value = self.text.get(self.at..end.at)?;
        let in_one_piece = are_all
            && self.at == begins
            && matches!(name, Cow::Borrowed(_))
            && self.text.as_bytes().get(begins - 2) == Some(&b'"');
        *self = end;
        Some(FieldText {
            value,
            at: in_one_piece.then_some(at),
        })
    }

    /// Passes over a value of what objects have in common; how many holes are in it.
    pub(super) fn holes(&mut self) -> Option<usize> {
        let mut holes = Holes {
            text: self.text,
            count: 0,
        };
        self.skip::<true>(&mut holes)?;
        Some(holes.count)
    }

    /// How many bytes a name has beyond itself, with the colon.
    pub(super) const NAMED: usize = 3;

    /// The strings and the numbers of a value. None if there are too many.
    pub(super) fn scalars(mut self) -> Option<Scalars> {
        let mut scalars = Scalars::default();
        let mut notes = Bounded::new(&mut scalars);
        self.skip::<false>(&mut notes)?;
        notes.are_all().then_some(scalars)
    }

    /// Passes over what is to stand before a string or a number, with its first quote, and over that. What is not there is
    /// not passed over.
    #[inline(always)]
    pub(super) fn scalar_upon(&mut self, before: &str, quoted: bool, notes: &mut Bounded<'_>) -> Option<()> {
        let at = self.at;
        let passed = self.literal(before).and_then(|()| self.scalar(quoted, notes));
        if passed.is_none() {
            self.at = at;
        }
        passed
    }

    #[inline(always)]
    fn scalar(&mut self, quoted: bool, notes: &mut Bounded<'_>) -> Option<()> {
        let start = self.at;
        let noted = notes.scalars.noted();
        let escapes = if quoted {
            let Some(escapes) = self.string(notes) else {
                notes.scalars.truncate(noted);
                return None;
            };
            escapes
        } else {
            self.number()?;
            false
        };
        let end = self.at - usize::from(quoted);
        notes.scalar(Scalar::new(start, end, escapes));
        Some(())
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// How much has been read.
    pub(super) fn place(&self) -> usize {
        self.at
    }

    /// Where the next byte is that is no white space.
    pub(super) fn next_place(&mut self) -> Option<usize> {
        self.peek()?;
        Some(self.at)
    }

    /// Passes over a null, if that is what is there.
    pub(crate) fn null(&mut self) -> bool {
        self.peek() == Some(b'n') && self.literal("null").is_some()
    }

    /// Reads what follows upon the first quote of a string. With escapes it is put together in `room`.
    #[inline(always)]
    pub(super) fn string_text<'r>(&mut self, room: &'r mut String) -> Option<Reading<'a, 'r>> {
        let start = self.at;
        if self.next_special()? == Special::Quote {
            return self.text.get(start..self.at - 1).map(Reading::AsWritten);
        }
        self.unescaped(start, room).map(Reading::Unescaped)
    }

    /// Reads a number that is whole and has at most 18 digits. Any other is left where it is.
    pub(super) fn integer(&mut self) -> Option<i64> {
        let (value, len) = integer(self.text.as_bytes().get(self.at..)?)?;
        self.at += len;
        Some(value)
    }

    /// The next byte that is no white space.
    #[inline(always)]
    pub(super) fn peek(&mut self) -> Option<u8> {
        match self.byte()? {
            byte if byte > b' ' => Some(byte),
            _ => self.peek_beyond_space(),
        }
    }

    /// Apart, as API servers send none.
    #[cold]
    fn peek_beyond_space(&mut self) -> Option<u8> {
        while matches!(self.byte()?, b' ' | b'\n' | b'\t' | b'\r') {
            self.at += 1;
        }
        self.byte()
    }

    #[inline(always)]
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline(always)]
    pub(super) fn accept(&mut self, byte: u8) -> bool {
        if self.peek() == Some(byte) {
            self.at += 1;
            return true;
        }
        false
    }

    #[inline(always)]
    pub(super) fn expect(&mut self, byte: u8) -> Option<()> {
        self.accept(byte).then_some(())
    }

    /// Reads the name of a field, as far as its value.
    #[inline(always)]
    fn name(&mut self) -> Option<Cow<'a, str>> {
        self.peek()?;
        // Copies of one's own are what compilers hold in registers.
        let mut end = self.clone();
        end.expect(b'"')?;
        let escapes = end.string(&mut ())?;
        let name = if escapes {
            Text::of(self.text.get(self.at..end.at)?)?
        } else {
            Cow::Borrowed(self.text.get(self.at + 1..end.at - 1)?)
        };
        end.expect(b':')?;
        *self = end;
        Some(name)
    }

    /// Passes over a value without recursion, as its depth is decided by whoever sent it; 127 are borne.
    /// Strings and numbers are noted, and where there may be `HOLES`, those.
    #[inline(always)]
    fn skip<const HOLES: bool>(&mut self, notes: &mut impl Notes) -> Option<()> {
        let mut around = Brackets::default();
        let mut name_is_next = false;
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    let start = self.at;
                    let escapes = self.string(notes)?;
                    if name_is_next {
                        self.expect(b':')?;
                        name_is_next = false;
                        continue;
                    }
                    notes.scalar(Scalar::new(start, self.at - 1, escapes));
                }
                _ if name_is_next => return None,
                b'{' => {
                    self.at += 1;
                    if !self.accept(b'}') {
                        around.open(true)?;
                        name_is_next = true;
                        continue;
                    }
                }
                b'[' => {
                    self.at += 1;
                    if !self.accept(b']') {
                        around.open(false)?;
                        continue;
                    }
                }
                b'n' => self.literal("null")?,
                b't' => self.literal("true")?,
                b'f' => self.literal("false")?,
                HOLE if HOLES => {
                    notes.scalar(Scalar::new(self.at, self.at + 1, false));
                    self.at += 1;
                }
                _ => {
                    let start = self.at;
                    self.number()?;
                    notes.scalar(Scalar::new(start, self.at, false));
                }
            }
            loop {
                let Some(object) = around.innermost_is_object() else {
                    return Some(());
                };
                match (self.peek()?, object) {
                    (b',', _) => {
                        self.at += 1;
                        name_is_next = object;
                        break;
                    }
                    (b'}', true) | (b']', false) => {
                        self.at += 1;
                        around.close();
                    }
                    _ => return None,
                }
            }
        }
    }

    /// Passes over what follows upon the first quote of a string, and says whether there is an escape in it.
    #[inline(always)]
    fn string(&mut self, notes: &mut impl Notes) -> Option<bool> {
        let mut escapes = false;
        while self.next_special()? == Special::Backslash {
            escapes = true;
            notes.escape(self.at - 1);
            if ESCAPED[usize::from(self.byte()?)] == 0 {
                code_point(self.text, self.at)?;
                self.at += CODE_POINT;
            }
            self.at += 1;
        }
        Some(escapes)
    }

    /// Passes over whatever of a string is plain, and over the quote or backslash that follows.
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
            // Control characters are to be escaped.
            _ => None,
        }
    }

    /// Reads the rest of a string upon its first backslash.
    #[inline(never)]
    fn unescaped<'r>(&mut self, start: usize, room: &'r mut String) -> Option<&'r str> {
        room.clear();
        let mut here = self.clone();
        let mut from = start;
        loop {
            room.push_str(here.text.get(from..here.at - 1)?);
            let escaped = ESCAPED[usize::from(here.byte()?)];
            if escaped != 0 {
                room.push(char::from(escaped));
            } else {
                let Some(character) = char::from_u32(code_point(here.text, here.at)?) else {
                    return self.unescaped_by_serde_json(start, room);
                };
                room.push(character);
                here.at += CODE_POINT;
            }
            here.at += 1;
            from = here.at;
            if here.next_special()? == Special::Quote {
                break;
            }
        }
        room.push_str(here.text.get(from..here.at - 1)?);
        *self = here;
        Some(room)
    }

    /// Characters that are written as two halves.
    #[cold]
    fn unescaped_by_serde_json<'r>(&mut self, start: usize, room: &'r mut String) -> Option<&'r str> {
        self.at = start;
        self.string(&mut ())?;
        *room = Text::of(self.text.get(start - 1..self.at)?)?.into_owned();
        Some(room)
    }

    #[inline(always)]
    pub(super) fn literal(&mut self, literal: &str) -> Option<()> {
        let rest = self.text.as_bytes().get(self.at..)?;
        rest.starts_with(literal.as_bytes()).then_some(())?;
        self.at += literal.len();
        Some(())
    }

    fn number(&mut self) -> Option<()> {
        self.at += usize::from(self.is_at(|byte| byte == b'-'));
        // A zero stands alone.
        if self.is_at(|byte| byte == b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.is_at(|byte| byte == b'.') {
            self.at += 1;
            self.digits()?;
        }
        if self.is_at(|byte| matches!(byte, b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(self.is_at(|byte| matches!(byte, b'+' | b'-')));
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.is_at(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn is_at(&self, is: impl FnOnce(u8) -> bool) -> bool {
        self.byte().is_some_and(is)
    }
}

/// Whoever wants to know what is passed over.
trait Notes {
    fn scalar(&mut self, scalar: Scalar);

    /// Told before the string that it is in, or of a name.
    fn escape(&mut self, at: usize);
}

impl Notes for () {
    fn scalar(&mut self, _: Scalar) {}

    fn escape(&mut self, _: usize) {}
}

/// Notes no more than [`SCALARS`], and more escapes only where these take no more memory.
pub(super) struct Bounded<'s> {
    scalars: &'s mut Scalars,
    /// How many there are when there are too many.
    too_many: usize,
}

impl<'s> Bounded<'s> {
    pub(super) fn new(scalars: &'s mut Scalars) -> Self {
        Self {
            too_many: scalars.count() + SCALARS,
            scalars,
        }
    }

    /// Whether nothing was left out.
    #[inline(always)]
    pub(super) fn are_all(&self) -> bool {
        self.scalars.count() < self.too_many
    }
}

impl Notes for Bounded<'_> {
    #[inline(always)]
    fn scalar(&mut self, scalar: Scalar) {
        if self.are_all() {
            self.scalars.push(scalar);
        }
    }

    #[inline(always)]
    fn escape(&mut self, at: usize) {
        // There are many of them, and mostly there is room.
        if self.scalars.has_room_for_escape() || self.are_all() {
            self.scalars.push_escape(at);
        }
    }
}

/// Counts the holes of what objects have in common, of which other strings are part as well.
struct Holes<'a> {
    text: &'a str,
    count: usize,
}

impl Notes for Holes<'_> {
    fn scalar(&mut self, scalar: Scalar) {
        let is_hole = self.text.as_bytes().get(scalar.start()) == Some(&HOLE);
        self.count += usize::from(is_hole);
    }

    fn escape(&mut self, _: usize) {}
}

/// Reads a number that is whole and has at most 18 digits; how long it is.
pub(super) fn integer(json: &[u8]) -> Option<(i64, usize)> {
    let (negative, digits) = match json.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, json),
    };
    let mut value = 0;
    let mut len = 0;
    while let Some(digit @ b'0'..=b'9') = digits.get(len) {
        if len == 18 {
            return None;
        }
        value = value * 10 + i64::from(digit - b'0');
        len += 1;
    }
    // A zero stands alone; with a sign it is no integer.
    let zero = digits.first() == Some(&b'0') && (len > 1 || negative);
    if len == 0 || zero || matches!(digits.get(len), Some(b'.' | b'e' | b'E')) {
        return None;
    }
    Some((if negative { -value } else { value }, usize::from(negative) + len))
}

/// The arrays and objects around a place, a bit for each; the innermost is the lowest. One more bit, above the outermost,
/// tells how many there are.
struct Brackets(u128);

impl Default for Brackets {
    fn default() -> Self {
        Self(1)
    }
}

impl Brackets {
    fn open(&mut self, object: bool) -> Option<()> {
        (self.0.leading_zeros() > 0).then_some(())?;
        self.0 = self.0 << 1 | u128::from(object);
        Some(())
    }

    fn close(&mut self) {
        self.0 >>= 1;
    }

    /// None if there is nothing around.
    fn innermost_is_object(&self) -> Option<bool> {
        (self.0 > 1).then_some(self.0 & 1 == 1)
    }
}

/// A field of more strings, numbers and escapes than these is held as it is, and an object of more makes no pattern: to
/// note them would take more memory than they do.
const SCALARS: usize = 1 << 14;

/// The value of a field.
pub(super) struct FieldText<'a> {
    pub(super) value: &'a str,
    /// Where the quote before its name is; none if that has escapes, if there is white space between the two, and if there
    /// are too many strings, numbers and escapes to be noted.
    pub(super) at: Option<usize>,
}

/// What ends the plain part of a string.
#[derive(PartialEq)]
enum Special {
    Quote,
    Backslash,
}

/// A string that was read.
pub(super) enum Reading<'a, 'r> {
    AsWritten(&'a str),
    Unescaped(&'r str),
}

/// What a byte stands for upon a backslash; zero if it may not stand there by itself.
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

/// How many digits the number of a character has.
const CODE_POINT: usize = 4;

/// Reads what follows upon a backslash, when that is the number of a character.
#[inline(never)]
fn code_point(text: &str, at: usize) -> Option<u32> {
    let digits = text.get(at..)?.strip_prefix('u')?.get(..CODE_POINT)?;
    let are_digits = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| are_digits)
}

/// So many bytes are looked at in one go: as many as a word has bits.
const BLOCK: usize = u64::BITS as usize;

/// Which bytes of the block that starts here are quotes, backslashes or control characters, a bit for each. None if there
/// are no bytes.
#[inline(never)]
fn special_at(bytes: &[u8], start: usize) -> Option<u64> {
    let rest = bytes.get(start..)?;
    if let Some(block) = rest.first_chunk() {
        return Some(special(block));
    }
    let mut block = [b' '; BLOCK];
    block.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    (!rest.is_empty()).then(|| special(&block))
}

/// The lowest bit is of the first byte. Written so that compilers make vector instructions of it.
fn special(block: &[u8; BLOCK]) -> u64 {
    /// A bit for each eighth of the block, so that all of it is in as many bytes as an eighth has.
    const EIGHTHS: [u8; BLOCK] = {
        let mut eighths = [0; BLOCK];
        let mut at = 0;
        while at < BLOCK {
            eighths[at] = 1 << (at / 8);
            at += 1;
        }
        eighths
    };
    let mut found = [0_u8; BLOCK];
    for ((found, byte), eighth) in found.iter_mut().zip(block).zip(EIGHTHS) {
        // Quotes and blanks change places, so that one comparison finds quotes and control characters.
        let is_special = (*byte ^ 2 <= b' ') | (*byte == b'\\');
        *found = if is_special { eighth } else { 0 };
    }
    let (quarters, _) = found.as_chunks();
    let all = quarters
        .iter()
        .fold(0, |all, quarter| all | u128::from_le_bytes(*quarter));
    transposed(all as u64 | (all >> 64) as u64)
}

/// Of eight times eight bits each in the place of the one that it mirrors: lines become columns.
fn transposed(bits: u64) -> u64 {
    let swap = |bits: u64, by: u32, which: u64| {
        let differ = (bits ^ (bits >> by)) & which;
        bits ^ differ ^ (differ << by)
    };
    let bits = swap(bits, 7, 0x00aa_00aa_00aa_00aa);
    let bits = swap(bits, 14, 0x0000_cccc_0000_cccc);
    swap(bits, 28, 0x0000_0000_f0f0_f0f0)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::{prelude::*, sample::Index};
    use serde::de::IgnoredAny;
    use serde_json::value::RawValue;

    use super::*;

    fn whole(text: &str) -> Option<&str> {
        let mut json = Scanner::new(text);
        let value = json.value()?;
        json.end()?;
        Some(value)
    }

    /// The names and values of an object.
    fn fields(text: &str) -> Option<Vec<(String, &str)>> {
        let mut fields = Vec::new();
        let mut json = Scanner::new(text);
        json.object(|value, name| {
            fields.push((name.into_owned(), value.value()?));
            Some(())
        })?;
        json.end()?;
        Some(fields)
    }

    /// White space, mostly none.
    fn space() -> impl Strategy<Value = &'static str> {
        prop_oneof![8 => Just(""), 1 => Just(" "), 1 => Just("\n \t\r")]
    }

    /// A string as it is written. Some are long enough to reach over several blocks.
    pub(in crate::store) fn string() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => "[a-z :{}\\[\\],]{0,30}",
            1 => "[ü€😀\u{7f}]{1,3}",
            2 => prop::sample::select(vec![r#"\""#, r"\\", r"\/", r"\b", r"\f", r"\n", r"\r", r"\t", r"\u00e4", r"\uD83D\uDE00", r"\ud800"])
                .prop_map(str::to_owned),
        ];
        prop::collection::vec(piece, 0..6).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
    }

    pub(in crate::store) fn number() -> impl Strategy<Value = String> {
        let fraction = prop::option::of("[0-9]{1,20}")
            .prop_map(|digits| digits.map_or(String::new(), |digits| format!(".{digits}")));
        ("-?(0|[1-9][0-9]{0,20})", fraction, "([eE][+-]?[0-9]{1,4})?")
            .prop_map(|(whole, fraction, exponent)| whole + &fraction + &exponent)
    }

    pub(in crate::store) fn json() -> impl Strategy<Value = String> {
        let literal = prop::sample::select(vec!["null", "true", "false", "{}", "[]", "{ }", "[ ]"]);
        let leaf = prop_oneof![string(), number(), literal.prop_map(str::to_owned)];
        leaf.prop_recursive(6, 40, 5, |inner| {
            let inner = (space(), inner, space())
                .prop_map(|(before, value, after)| format!("{before}{value}{after}"))
                .boxed();
            let field = (space(), string(), space(), inner.clone())
                .prop_map(|(before, name, after, value)| format!("{before}{name}{after}:{value}"));
            prop_oneof![
                prop::collection::vec(inner, 1..5).prop_map(|items| format!("[{}]", items.join(","))),
                prop::collection::vec(field, 1..5).prop_map(|fields| format!("{{{}}}", fields.join(","))),
            ]
        })
    }

    /// A text with one byte more, less or another, or without its end.
    pub(in crate::store) fn broken(text: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
        let byte = prop_oneof![
            any::<u8>(),
            prop::sample::select(br#""\/{}[]:,0123456789.-+eEntfu"#.to_vec())
        ];
        (text, any::<Index>(), byte, 0..4).prop_filter_map("no text any more", |(text, at, byte, how)| {
            let mut bytes = text.into_bytes();
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                _ => bytes.truncate(at),
            }
            String::from_utf8(bytes).ok()
        })
    }

    #[test]
    fn depth_is_bounded() {
        let around = |depth: usize| {
            let open = "[{\"a\":".repeat(depth / 2) + "1" + &"}]".repeat(depth / 2);
            if depth.is_multiple_of(2) {
                open
            } else {
                format!("[{open}]")
            }
        };
        for depth in [0, 1, 2, 126, 127] {
            assert!(whole(&around(depth)).is_some(), "{depth}");
        }
        for depth in [128, 129, 100_000] {
            assert!(whole(&around(depth)).is_none(), "{depth}");
        }
        assert!(whole(&"[".repeat(127)).is_none());
        assert!(whole(&("[".repeat(127) + &"]".repeat(126) + "}")).is_none());
    }

    #[test]
    fn no_more_is_noted_than_there_may_be() {
        // With room for more escapes, and without.
        for (room, most) in [(SCALARS, 2 * SCALARS), (1, SCALARS)] {
            let mut scalars = Scalars::with_capacity(room);
            let mut notes = Bounded::new(&mut scalars);
            for at in 0..4 * SCALARS {
                notes.escape(at);
                notes.scalar(Scalar::new(at, at, false));
                assert_eq!(notes.are_all(), 2 * (at + 1) < SCALARS, "{at}");
            }
            let noted = scalars.noted();
            assert_eq!(noted.scalars, SCALARS / 2);
            assert!(noted.escapes <= most, "{}", noted.escapes);
        }
    }

    proptest! {
        #[test]
        fn values_are_passed_over(before in " {0,70}", values in prop::collection::vec((space(), json(), space()), 1..4)) {
            let array: Vec<String> = values.iter().map(|(before, value, after)| format!("{before}{value}{after}")).collect();
            let array = format!("{before}[{}] ", array.join(","));
            let mut found = Vec::new();
            let mut json = Scanner::new(&array);
            let read = json.array(|item| {
                found.push(item.value()?);
                Some(())
            });
            prop_assert!(read.and_then(|()| json.end()).is_some(), "{array}");
            prop_assert_eq!(found, values.iter().map(|(_, value, _)| value.as_str()).collect::<Vec<_>>());
        }

        #[test]
        fn the_same_is_declined_as_by_serde_json(text in broken(json())) {
            let raw = serde_json::from_str::<&RawValue>(&text).ok();
            prop_assert_eq!(whole(&text), raw.map(RawValue::get), "{}", text);
            prop_assert_eq!(fields(&text), read_by_serde_json(&text), "{}", text);
        }

        #[test]
        fn anything_is_declined_as_by_serde_json(text in prop_oneof![
            r#"[ "\\/{}\[\]:,0-9.+eEntrufalsnü\n\x00-]{0,12}"#,
            // All that is nearly a number, and all that is nearly a string.
            "-?[01]{0,2}[.]?[0-9]{0,2}[eE+-]{0,2}[0-9]?",
            r#""(\\[ -~]|\\[u"\\/bfnrtUx][0-9a-gA-G]{3,5}|[ -~\x1f]){0,3}"?"#,
            "(nul|tru|fals|nulx|True)[el]?",
            r#"[\[{](("a"|1|[}\]]) ?[:,]? ?){0,5}[}\]]{0,2}"#,
        ]) {
            prop_assert_eq!(whole(&text).is_some(), serde_json::from_str::<IgnoredAny>(&text).is_ok());
        }

        #[test]
        fn special_bytes_are_found_where_they_are(block in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(br#""\ !#[]"#.to_vec())], 0..200), start in 0_usize..200) {
            let is = |at: usize| block.get(start + at).is_some_and(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f));
            let found = special_at(&block, start).unwrap_or_default();
            prop_assert_eq!((0..BLOCK).map(|at| found >> at & 1 == 1).collect::<Vec<_>>(), (0..BLOCK).map(is).collect::<Vec<_>>());
        }
    }

    fn read_by_serde_json(text: &str) -> Option<Vec<(String, &str)>> {
        struct Fields<'a>(Vec<(String, &'a str)>);
        impl<'de: 'a, 'a> serde::Deserialize<'de> for Fields<'a> {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl<'de> serde::de::Visitor<'de> for Visitor {
                    type Value = Fields<'de>;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> Result<Self::Value, A::Error> {
                        let mut fields = Vec::new();
                        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                            fields.push((name, value.get()));
                        }
                        Ok(Fields(fields))
                    }
                }
                deserializer.deserialize_map(Visitor)
            }
        }
        serde_json::from_str::<Fields<'_>>(text)
            .ok()
            .map(|fields| fields.0)
    }
}
