//! Reads JSON as a Rust type, with a scanner: strings are looked through in blocks, and those with escapes need no memory
//! beside what they become. What is held in a shape is read from that, its strings and numbers from what fills the holes.
//!
//! What it reads, serde_json reads the same way, as long as nothing in the program turns on its feature
//! `arbitrary_precision`, with which numbers are something else. What is rare is handed over to serde_json value by value, or
//! declined as a whole; then serde_json is asked, which also says what is wrong.

use std::{cell::Cell, fmt, marker::PhantomData};

use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};

use super::{
    scan::{Reading, Scanner, integer},
    shape::{A_HOLE, Filling, Fillings, QUOTED_HOLE},
};

/// Reads a document. `room` is for strings with escapes, and may hold anything.
pub(super) fn read<T: DeserializeOwned>(json: &str, room: &mut String) -> Option<T> {
    read_by(PhantomData, json, None, room)
}

/// Reads an object from what it has in common with others and what it says itself.
pub(super) fn read_shaped<'de, T: DeserializeOwned>(
    text: &'de str,
    fillings: Fillings<'de>,
    room: &mut String,
) -> Option<T> {
    read_by(PhantomData, text, Some(fillings), room)
}

fn read_by<'de, T: DeserializeSeed<'de>>(
    seed: T,
    json: &'de str,
    fillings: Option<Fillings<'de>>,
    room: &mut String,
) -> Option<T::Value> {
    let mut reader = Reader {
        json: Scanner::new(json),
        fillings,
        room,
        depth: 0,
        declined: false,
    };
    let shown_before = SHOWN.replace(false);
    let value = seed.deserialize(&mut reader);
    // One decode may be within another.
    let shown = SHOWN.replace(shown_before);
    reader.end()?;
    value.ok().filter(|_| !shown)
}

thread_local! {
    /// Whether somebody has looked at what an error says.
    static SHOWN: Cell<bool> = const { Cell::new(false) };
}

/// As many arrays and objects in one another as serde_json bears.
const DEPTH: u8 = 127;

/// What serde_json has types for that are no types of JSON.
const PRIVATE: &str = "$serde_json::private::";

struct Reader<'de, 'r> {
    json: Scanner<'de>,
    /// What the strings and numbers say, where there are holes in the JSON for them.
    fillings: Option<Fillings<'de>>,
    room: &'r mut String,
    depth: u8,
    /// A type may go on upon an error, and the scanner has lost its place then.
    declined: bool,
}

/// It says nothing: serde_json is asked again. Also if a type keeps what it says and does without the value.
struct Declined;

type Result<T> = std::result::Result<T, Declined>;

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SHOWN.set(true);
        f.write_str("declined")
    }
}

impl fmt::Debug for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Declined {}

impl de::Error for Declined {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

// What depends on no type is apart from what does, as that is compiled for each of them.
impl<'de> Reader<'de, '_> {
    fn end(self) -> Option<()> {
        (!self.declined).then_some(())?;
        let filled = self.fillings.is_none_or(|mut fillings| fillings.next().is_none());
        filled.then(|| self.json.end())?
    }

    #[cold]
    fn decline(&mut self) -> Declined {
        self.declined = true;
        Declined
    }

    #[inline(always)]
    fn unless_declined<T>(&mut self, read: Option<T>) -> Result<T> {
        read.ok_or_else(|| self.decline())
    }

    #[inline(always)]
    fn peek(&mut self) -> Result<u8> {
        let byte = self.json.peek();
        self.unless_declined(byte)
    }

    #[inline(always)]
    fn expect(&mut self, byte: u8) -> Result<()> {
        let expected = self.json.expect(byte);
        self.unless_declined(expected)
    }

    /// Whatever it is read as, it is a string.
    #[inline(always)]
    fn expect_name(&mut self) -> Result<()> {
        match self.peek()? {
            b'"' => Ok(()),
            _ => Err(self.decline()),
        }
    }

    fn literal(&mut self, literal: &str) -> Result<()> {
        let passed = self.json.literal(literal);
        self.unless_declined(passed)
    }

    fn open(&mut self, bracket: u8) -> Result<()> {
        self.expect(bracket)?;
        if self.depth == DEPTH {
            return Err(self.decline());
        }
        self.depth += 1;
        Ok(())
    }

    fn close(&mut self, bracket: u8) -> Result<()> {
        self.depth -= 1;
        self.expect(bracket)
    }

    /// Whether there is one more item or field, and as far as it.
    fn next(&mut self, first: &mut bool, closing: u8) -> Result<bool> {
        // Nothing is passed over any more: who goes on upon errors would not come to an end.
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

    /// What fills the hole that is here, if one is.
    #[inline(always)]
    fn filling(&mut self, hole: &str) -> Result<Option<Filling<'de>>> {
        let Some(fillings) = &mut self.fillings else {
            return Ok(None);
        };
        if self.json.literal(hole).is_none() {
            return Ok(None);
        }
        let filling = fillings.next();
        self.unless_declined(filling).map(Some)
    }

    /// Passes over a value.
    fn pass(&mut self) -> Result<()> {
        let passed = match &mut self.fillings {
            None => self.json.value().map(drop),
            Some(fillings) => self
                .json
                .holes()
                .filter(|holes| *holes == 0 || fillings.nth(holes - 1).is_some())
                .map(drop),
        };
        self.unless_declined(passed)
    }

    #[inline(always)]
    fn visit_text<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        self.peek()?;
        let Some(filling) = self.filling(QUOTED_HOLE)? else {
            return self.visit_name(visitor);
        };
        match filling {
            Filling::Plain(text) => visitor.visit_borrowed_str(text),
            // As if it were read from what is written.
            Filling::WithoutEscapes(text) => visitor.visit_str(text),
            Filling::Moment(moment) => visitor.visit_str(text_of(&moment.text())),
            Filling::Uid(uid) => visitor.visit_str(text_of(&uid.text())),
            Filling::Json(json) => {
                let mut json = Scanner::at(json, 1);
                match json.string_text(self.room) {
                    Some(Reading::AsWritten(text)) => visitor.visit_borrowed_str(text),
                    Some(Reading::Unescaped(text)) => visitor.visit_str(text),
                    None => Err(self.decline()),
                }
            }
        }
    }

    /// What is in no hole, as the name of a field never is.
    #[inline(always)]
    fn visit_name<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        self.expect(b'"')?;
        match self.json.string_text(self.room) {
            Some(Reading::AsWritten(text)) => visitor.visit_borrowed_str(text),
            Some(Reading::Unescaped(text)) => visitor.visit_str(text),
            None => Err(self.decline()),
        }
    }

    fn visit_object<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        self.open(b'{')?;
        match visitor.visit_map(Parts::of(self)) {
            Ok(value) => self.close(b'}').map(|()| value),
            Err(_) => Err(self.decline()),
        }
    }

    fn visit_array<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        self.open(b'[')?;
        match visitor.visit_seq(Parts::of(self)) {
            Ok(value) => self.close(b']').map(|()| value),
            Err(_) => Err(self.decline()),
        }
    }

    /// Has serde_json read a value. None that it goes into, as it does not know how deep that is already.
    fn hand_over<T>(&mut self, read: impl FnOnce(&mut SerdeJson<'de>) -> serde_json::Result<T>) -> Result<T> {
        let value = match self.fillings {
            None => self.json.value(),
            // Nor one with holes.
            Some(_) => match self.peek().and_then(|_| self.filling(A_HOLE))? {
                Some(Filling::Plain(number)) => Some(number),
                _ => None,
            },
        };
        let value = self.unless_declined(value)?;
        self.hand_over_text(value, read)
    }

    fn hand_over_text<T>(
        &mut self,
        value: &'de str,
        read: impl FnOnce(&mut SerdeJson<'de>) -> serde_json::Result<T>,
    ) -> Result<T> {
        // From bytes, so that this is compiled no more than once for a type.
        let mut json = serde_json::Deserializer::from_slice(value.as_bytes());
        match read(&mut json) {
            Ok(value) if json.end().is_ok() => Ok(value),
            _ => Err(self.decline()),
        }
    }

    fn visit_number<V: Visitor<'de>>(
        &mut self,
        visitor: V,
        otherwise: impl FnOnce(&mut SerdeJson<'de>, V) -> serde_json::Result<V::Value>,
    ) -> Result<V::Value> {
        self.peek()?;
        if let Some(filling) = self.filling(A_HOLE)? {
            let Filling::Plain(text) = filling else {
                return Err(self.decline());
            };
            return match integer(text.as_bytes()) {
                Some((number, _)) => visit_integer(number, visitor),
                None => self.hand_over_text(text, |json| otherwise(json, visitor)),
            };
        }
        if !matches!(self.peek()?, b'-' | b'0'..=b'9') {
            return Err(self.decline());
        }
        match self.json.integer() {
            Some(number) => visit_integer(number, visitor),
            None => self.hand_over(|json| otherwise(json, visitor)),
        }
    }
}

fn visit_integer<'de, V: Visitor<'de>>(number: i64, visitor: V) -> Result<V::Value> {
    match u64::try_from(number) {
        Ok(number) => visitor.visit_u64(number),
        Err(_) => visitor.visit_i64(number),
    }
}

/// What is known to be text.
fn text_of(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

type SerdeJson<'de> = serde_json::Deserializer<serde_json::de::SliceRead<'de>>;

macro_rules! numbers {
    ($($deserialize:ident)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            self.visit_number(visitor, |json, visitor| json.$deserialize(visitor))
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Reader<'de, '_> {
    type Error = Declined;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.peek()? {
            b'"' => self.visit_text(visitor),
            b'{' => self.visit_object(visitor),
            b'[' => self.visit_array(visitor),
            b'n' => self.deserialize_unit(visitor),
            b't' | b'f' => self.deserialize_bool(visitor),
            _ => self.visit_number(visitor, |json, visitor| json.deserialize_any(visitor)),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let value = self.peek()? == b't';
        self.literal(if value { "true" } else { "false" })?;
        visitor.visit_bool(value)
    }

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_f32 deserialize_f64
    }

    fn deserialize_i128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.hand_over(|json| json.deserialize_i128(visitor))
    }

    fn deserialize_u128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.hand_over(|json| json.deserialize_u128(visitor))
    }

    #[inline]
    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.visit_text(visitor)
    }

    #[inline]
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.visit_text(visitor)
    }

    #[inline]
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.visit_text(visitor)
    }

    #[inline]
    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.visit_text(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.peek()? {
            b'[' => self.visit_array(visitor),
            _ => self.hand_over(|json| json.deserialize_bytes(visitor)),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_bytes(visitor)
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.peek()? {
            b'n' => {
                self.literal("null")?;
                visitor.visit_none()
            }
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.peek()?;
        self.literal("null")?;
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        self.deserialize_unit(visitor)
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value> {
        if name.starts_with(PRIVATE) {
            return self.hand_over(|json| json.deserialize_newtype_struct(name, visitor));
        }
        visitor.visit_newtype_struct(self)
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.visit_array(visitor)
    }

    #[inline]
    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value> {
        self.visit_array(visitor)
    }

    #[inline]
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value> {
        self.visit_array(visitor)
    }

    #[inline]
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.visit_object(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        match self.peek()? {
            b'[' => self.visit_array(visitor),
            _ => self.visit_object(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        if self.peek()? == b'"' {
            return visitor.visit_enum(Variant {
                reader: self,
                is_alone: true,
            });
        }
        self.open(b'{')?;
        let variant = Variant {
            reader: &mut *self,
            is_alone: false,
        };
        match visitor.visit_enum(variant) {
            Ok(value) => self.close(b'}').map(|()| value),
            Err(_) => Err(self.decline()),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.pass()?;
        visitor.visit_unit()
    }
}

/// The items of an array, or the fields of an object.
struct Parts<'t, 'de, 'r> {
    reader: &'t mut Reader<'de, 'r>,
    first: bool,
}

impl<'t, 'de, 'r> Parts<'t, 'de, 'r> {
    fn of(reader: &'t mut Reader<'de, 'r>) -> Self {
        Self { reader, first: true }
    }
}

impl<'de> SeqAccess<'de> for Parts<'_, 'de, '_> {
    type Error = Declined;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        if !self.reader.next(&mut self.first, b']')? {
            return Ok(None);
        }
        seed.deserialize(&mut *self.reader).map(Some)
    }
}

impl<'de> MapAccess<'de> for Parts<'_, 'de, '_> {
    type Error = Declined;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        if !self.reader.next(&mut self.first, b'}')? {
            return Ok(None);
        }
        seed.deserialize(Name(&mut *self.reader)).map(Some)
    }

    #[inline]
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        self.reader.expect(b':')?;
        seed.deserialize(&mut *self.reader)
    }
}

/// The name of a field: always a string, whatever it is asked for.
/// Only a type that does not ask for it would be given the value of a field without one, which no JSON has.
struct Name<'t, 'de, 'r>(&'t mut Reader<'de, 'r>);

macro_rules! numbers_in_quotes {
    ($($deserialize:ident)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, _: V) -> Result<V::Value> {
            Err(self.0.decline())
        }
    )*};
}

impl<'de> Deserializer<'de> for Name<'_, 'de, '_> {
    type Error = Declined;

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.0.visit_name(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value> {
        if name.starts_with(PRIVATE) {
            return Err(self.0.decline());
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.0.expect_name()?;
        visitor.visit_enum(Variant {
            reader: self.0,
            is_alone: true,
        })
    }

    numbers_in_quotes! {
        deserialize_bool
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64
        deserialize_bytes deserialize_byte_buf
    }

    serde::forward_to_deserialize_any! {
        char str string unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// One of several: a name alone, or an object with a single field.
struct Variant<'t, 'de, 'r> {
    reader: &'t mut Reader<'de, 'r>,
    is_alone: bool,
}

impl<'t, 'de, 'r> Variant<'t, 'de, 'r> {
    fn content(self) -> Result<&'t mut Reader<'de, 'r>> {
        if self.is_alone {
            return Err(self.reader.decline());
        }
        Ok(self.reader)
    }
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de, '_> {
    type Error = Declined;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self)> {
        let name = if self.is_alone {
            seed.deserialize(&mut *self.reader)?
        } else {
            let name = seed.deserialize(Name(&mut *self.reader))?;
            self.reader.expect(b':')?;
            name
        };
        Ok((name, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de, '_> {
    type Error = Declined;

    fn unit_variant(self) -> Result<()> {
        match self.is_alone {
            true => Ok(()),
            false => de::Deserialize::deserialize(self.reader),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value> {
        seed.deserialize(self.content()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value> {
        self.content()?.visit_array(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.content()?.deserialize_struct("", fields, visitor)
    }
}

#[cfg(test)]
mod tests;
