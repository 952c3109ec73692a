//! The items of arrays, the fields of objects, and the variants of enums.

use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::{
    declined::{Declined, Result},
    reader::Reader,
};

/// The prefix of the names with which serde_json marks its own types, such as `RawValue`.
pub(super) const PRIVATE: &str = "$serde_json::private::";

impl<'de> Reader<'de, '_> {
    pub(super) fn visit_object<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        self.open(b'{')?;
        match visitor.visit_map(Elements::new(self)) {
            Ok(value) => self.close(b'}').map(|()| value),
            Err(_) => Err(self.decline()),
        }
    }

    pub(super) fn visit_array<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        self.open(b'[')?;
        match visitor.visit_seq(Elements::new(self)) {
            Ok(value) => self.close(b']').map(|()| value),
            Err(_) => Err(self.decline()),
        }
    }
}

/// The items of an array, or the fields of an object.
struct Elements<'t, 'de, 'r> {
    reader: &'t mut Reader<'de, 'r>,
    first: bool,
}

impl<'t, 'de, 'r> Elements<'t, 'de, 'r> {
    fn new(reader: &'t mut Reader<'de, 'r>) -> Self {
        Self { reader, first: true }
    }
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de, '_> {
    type Error = Declined;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        if !self.reader.next(&mut self.first, b']')? {
            return Ok(None);
        }
        seed.deserialize(&mut *self.reader).map(Some)
    }
}

impl<'de> MapAccess<'de> for Elements<'_, 'de, '_> {
    type Error = Declined;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        if !self.reader.next(&mut self.first, b'}')? {
            return Ok(None);
        }
        seed.deserialize(FieldName(&mut *self.reader)).map(Some)
    }

    #[inline]
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        self.reader.expect(b':')?;
        seed.deserialize(&mut *self.reader)
    }
}

/// The name of a field. It is a string, whatever type the caller wants.
///
/// If the caller's type reads nothing, the name stays unread, and the reader declines the object at the colon.
/// Otherwise such a type would accept a field without a name, which is not JSON.
struct FieldName<'t, 'de, 'r>(&'t mut Reader<'de, 'r>);

macro_rules! decline_names {
    ($($deserialize:ident)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, _: V) -> Result<V::Value> {
            Err(self.0.decline())
        }
    )*};
}

impl<'de> Deserializer<'de> for FieldName<'_, 'de, '_> {
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
        self.0.expect_string()?;
        visitor.visit_enum(Variant {
            reader: self.0,
            is_name_only: true,
        })
    }

    // serde_json parses these types from the text of a name.
    decline_names! {
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

/// The variant of an enum: its name only, or an object with one field.
pub(super) struct Variant<'t, 'de, 'r> {
    pub(super) reader: &'t mut Reader<'de, 'r>,
    pub(super) is_name_only: bool,
}

impl<'t, 'de, 'r> Variant<'t, 'de, 'r> {
    fn content(self) -> Result<&'t mut Reader<'de, 'r>> {
        if self.is_name_only {
            return Err(self.reader.decline());
        }
        Ok(self.reader)
    }
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de, '_> {
    type Error = Declined;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self)> {
        let name = if self.is_name_only {
            seed.deserialize(&mut *self.reader)?
        } else {
            let name = seed.deserialize(FieldName(&mut *self.reader))?;
            self.reader.expect(b':')?;
            name
        };
        Ok((name, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de, '_> {
    type Error = Declined;

    fn unit_variant(self) -> Result<()> {
        if self.is_name_only {
            Ok(())
        } else {
            de::Deserialize::deserialize(self.reader)
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
