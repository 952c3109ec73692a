//! A type that asks for any sequence of types.

use std::{cell::RefCell, fmt, iter::Copied, slice::Iter};

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor},
};
use serde_json::value::RawValue;

#[derive(Debug, Deserialize)]
pub(super) struct Raw(Box<RawValue>);

impl PartialEq for Raw {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

/// The value that a visitor of any type was given.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Seen {
    Unit,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Unsigned128(u128),
    Signed128(i128),
    Float(f64),
    Text(String),
    Borrowed(String),
    Bytes(Vec<u8>),
    None,
    Some(Box<Seen>),
    Newtype(Box<Seen>),
    List(Vec<Seen>),
    Object(Vec<(Seen, Seen)>),
    Variant(Box<Seen>, Option<Box<Seen>>),
    /// The value could not be read, and the type ignored the error.
    Swallowed,
}

/// A type that asks for the types of a script, one after the other, and for any type at its end. So a test can combine all
/// types with all JSON.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a>(pub(super) &'a RefCell<Copied<Iter<'a, u8>>>);

impl Ask<'_> {
    fn next(self) -> u8 {
        self.0.borrow_mut().next().unwrap_or(u8::MAX)
    }
}

impl<'de> DeserializeSeed<'de> for Ask<'_> {
    type Value = Seen;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Seen, D::Error> {
        match self.next() {
            0 => from.deserialize_bool(self),
            1 => from.deserialize_i8(self),
            2 => from.deserialize_i16(self),
            3 => from.deserialize_i32(self),
            4 => from.deserialize_i64(self),
            5 => from.deserialize_i128(self),
            6 => from.deserialize_u8(self),
            7 => from.deserialize_u16(self),
            8 => from.deserialize_u32(self),
            9 => from.deserialize_u64(self),
            10 => from.deserialize_u128(self),
            11 => from.deserialize_f32(self),
            12 => from.deserialize_f64(self),
            13 => from.deserialize_char(self),
            14 | 35..=45 => from.deserialize_str(self),
            15 => from.deserialize_string(self),
            16 => from.deserialize_bytes(self),
            17 => from.deserialize_byte_buf(self),
            18 => from.deserialize_option(self),
            19 => from.deserialize_unit(self),
            20 => from.deserialize_unit_struct("Unit", self),
            21 => from.deserialize_newtype_struct("Newtype", self),
            22 => Raw::deserialize(from).map(|Raw(raw)| Seen::Text(raw.get().to_owned())),
            23 => from.deserialize_seq(self),
            24 => from.deserialize_tuple(2, self),
            25 => from.deserialize_tuple_struct("Tuple", 2, self),
            26 | 46..=56 => from.deserialize_map(self),
            27 => from.deserialize_struct("Struct", &["a", "b"], self),
            28 => from.deserialize_enum("Enum", &["a", "b"], self),
            29 => from.deserialize_identifier(self),
            30 => from.deserialize_ignored_any(self),
            31..=34 => self.deserialize(from).or(Ok(Seen::Swallowed)),
            _ => from.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Ask<'_> {
    type Value = Seen;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }
    fn visit_unit<E>(self) -> Result<Seen, E> {
        Ok(Seen::Unit)
    }
    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Seen, E> {
        Ok(Seen::Bool(value))
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Seen, E> {
        // Some integer types are too small for the value.
        if self.next() == 7 {
            Err(E::custom("large"))
        } else {
            Ok(Seen::Unsigned(value))
        }
    }
    fn visit_i64<E>(self, value: i64) -> Result<Seen, E> {
        Ok(Seen::Signed(value))
    }
    fn visit_u128<E>(self, value: u128) -> Result<Seen, E> {
        Ok(Seen::Unsigned128(value))
    }
    fn visit_i128<E>(self, value: i128) -> Result<Seen, E> {
        Ok(Seen::Signed128(value))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Seen, E> {
        Ok(Seen::Float(value))
    }
    fn visit_str<E: de::Error>(self, value: &str) -> Result<Seen, E> {
        if self.next() == 7 {
            Err(E::custom("no"))
        } else {
            Ok(Seen::Text(value.to_owned()))
        }
    }
    fn visit_borrowed_str<E: de::Error>(self, value: &'de str) -> Result<Seen, E> {
        if self.next() == 7 {
            Err(E::custom("no"))
        } else {
            Ok(Seen::Borrowed(value.to_owned()))
        }
    }
    fn visit_bytes<E>(self, value: &[u8]) -> Result<Seen, E> {
        Ok(Seen::Bytes(value.to_owned()))
    }
    fn visit_none<E>(self) -> Result<Seen, E> {
        Ok(Seen::None)
    }
    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Seen, D::Error> {
        self.deserialize(from).map(|seen| Seen::Some(Box::new(seen)))
    }
    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<Seen, D::Error> {
        self.deserialize(from).map(|seen| Seen::Newtype(Box::new(seen)))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Seen, A::Error> {
        let mut seen = Vec::new();
        while self.next() != 7
            && let Some(item) = items.next_element_seed(self)?
        {
            seen.push(item);
        }
        Ok(Seen::List(seen))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Seen, A::Error> {
        let mut seen = Vec::new();
        loop {
            let name = match self.next() {
                // Errors of types: to end early, to ask for a value or a name twice, to ignore an error.
                7 => break,
                8 => Seen::Unit,
                9 => fields
                    .next_key_seed(self)
                    .unwrap_or_default()
                    .unwrap_or(Seen::Swallowed),
                10 => {
                    fields.next_key_seed(self)?;
                    continue;
                }
                _ => match fields.next_key_seed(self)? {
                    Some(name) => name,
                    None => break,
                },
            };
            seen.push((name, fields.next_value_seed(self)?));
        }
        Ok(Seen::Object(seen))
    }
    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<Seen, A::Error> {
        let (name, content) = variant.variant_seed(self)?;
        let content = match self.next() % 5 {
            0 => content.newtype_variant_seed(self).map(Some),
            1 => content.tuple_variant(2, self).map(Some),
            2 => content.struct_variant(&["a", "b"], self).map(Some),
            3 => Ok(None),
            _ => content.unit_variant().map(|()| None),
        };
        Ok(Seen::Variant(Box::new(name), content?.map(Box::new)))
    }
}
