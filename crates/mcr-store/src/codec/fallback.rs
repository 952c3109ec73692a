//! Reads the fields of an object with serde_json. Used for objects that the scanner declines. If serde_json declines
//! them too, its error is the reason.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{
    error::{NotAnObject, describe},
    field::{Field, last_value},
    fields::{MANAGED_FIELDS, ObjectFields, TYPICAL_FIELDS},
    text::Text,
};

/// Reads an object and adds its fields to `fields`.
pub(super) fn read_fields<'a>(
    json: &'a RawValue,
    fields: &mut Vec<Field<'a>>,
) -> Result<ObjectFields, NotAnObject> {
    let read = |json: &'a str| {
        let read = serde_json::from_str::<Fields<'a>>(json);
        read.map_err(|e| NotAnObject::nameless(format!("not a JSON object: {}", describe(&e))))
    };
    let Fields(top) = read(json.get())?;
    let metadata =
        last_value(&top, "metadata").ok_or_else(|| NotAnObject::nameless("the object has no metadata"))?;
    if !metadata.starts_with('{') {
        return Err(NotAnObject::nameless("metadata is not a JSON object"));
    }
    let Fields(metadata) = read(metadata)?;

    let start = fields.len();
    fields.extend(top.into_iter().filter(|field| field.name != "metadata"));
    let middle = fields.len();
    fields.extend(metadata.into_iter().filter(|field| field.name != MANAGED_FIELDS));
    Ok(ObjectFields {
        all: start..fields.len(),
        metadata: middle..fields.len(),
        escapes: 0..0,
        list_template: None,
    })
}

/// The fields of a JSON object in their order.
struct Fields<'a>(Vec<Field<'a>>);

impl<'a, 'de: 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::with_capacity(TYPICAL_FIELDS);
                while let Some((Text(name), value)) = map.next_entry::<_, &RawValue>()? {
                    fields.push(Field::unscanned(name, value.get()));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}
