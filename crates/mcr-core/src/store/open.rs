//! Reads objects as far as the fields of their metadata; the values of fields stay untouched. A scanner does it, and
//! where that declines, serde_json, which says why.

use std::{borrow::Cow, fmt, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{
    ObjectMetadata, OpenObject,
    object::describe,
    parse::{Item, NotAnObject},
    quoted,
    scan::Scanner,
};

/// A field of a JSON object, its value as it is written.
pub(super) struct Field<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) value: &'a str,
}

impl Field<'_> {
    /// How long it is when it is written.
    pub(super) fn len(&self) -> usize {
        let name = match &self.name {
            // It was read without an escape, so it is written without one.
            Cow::Borrowed(name) => name.len() + 2,
            Cow::Owned(name) => quoted::len(name),
        };
        name + self.value.len() + 2
    }

    /// Writes it as one that follows upon another.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.push(b',');
        match &self.name {
            Cow::Borrowed(name) => quoted::write_plain(out, name),
            Cow::Owned(name) => quoted::write(out, name),
        }
        out.push(b':');
        out.extend_from_slice(self.value.as_bytes());
    }
}

/// The objects of a list. What can't be read as an object has its fault in its place.
#[derive(Default)]
pub(crate) struct OpenObjects<'a> {
    /// Of all of them, one after the other: none takes memory of its own.
    fields: Vec<Field<'a>>,
    found: Vec<Result<Found, NotAnObject>>,
}

impl<'a> OpenObjects<'a> {
    /// Reads an array of objects. Declined as a whole if one of them is; [`OpenObjects::one_by_one`] tells which.
    pub(crate) fn scan(json: &mut Scanner<'a>) -> Option<Self> {
        let mut objects = Self::default();
        json.array(|item| {
            let found = Found::scan(item, &mut objects.fields)?;
            objects.found.push(Ok(found));
            Some(())
        })?;
        Some(objects)
    }

    /// Reads items one by one, so that one that is no object spoils no other.
    pub(crate) fn one_by_one(items: &[&'a RawValue]) -> Self {
        let mut objects = Self::default();
        for item in items {
            let found = open(item, &mut objects.fields);
            objects.found.push(found);
        }
        objects
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Item<'_>> {
        self.found.iter().map(|found| match found {
            Ok(found) => Ok(found.object(&self.fields)),
            Err(error) => Err(error.clone()),
        })
    }
}

/// An object by itself.
pub(crate) struct Opened<'a> {
    fields: Vec<Field<'a>>,
    found: Found,
}

impl<'a> Opened<'a> {
    /// Declined if it is no object; [`Opened::open`] tells why.
    pub(crate) fn scan(json: &mut Scanner<'a>) -> Option<Self> {
        let mut fields = Vec::with_capacity(FIELDS);
        let found = Found::scan(json, &mut fields)?;
        Some(Self { fields, found })
    }

    pub(crate) fn open(json: &'a RawValue) -> Result<Self, NotAnObject> {
        let mut fields = Vec::with_capacity(FIELDS);
        let found = open(json, &mut fields)?;
        Ok(Self { fields, found })
    }

    pub(crate) fn object(&self) -> OpenObject<'_> {
        self.found.object(&self.fields)
    }
}

/// So many have most objects at most.
const FIELDS: usize = 16;

/// Of metadata what is never held.
const MANAGED_FIELDS: &str = "managedFields";

/// Where the fields of an object are among those of many.
struct Found {
    all: Range<usize>,
    metadata: Range<usize>,
}

impl Found {
    /// Reads an object; its fields are added to those that are there.
    fn scan<'a>(json: &mut Scanner<'a>, fields: &mut Vec<Field<'a>>) -> Option<Self> {
        let start = fields.len();
        let mut metadata = None;
        json.object(|value, name| {
            if name != "metadata" {
                let value = value.value()?;
                fields.push(Field { name, value });
                return Some(());
            }
            let from = fields.len();
            value.object(|value, name| {
                let json = value.value()?;
                if name != MANAGED_FIELDS {
                    fields.push(Field { name, value: json });
                }
                Some(())
            })?;
            // Which of several counts is not decided here.
            let there_is_another = metadata.replace(from..fields.len()).is_some();
            (!there_is_another).then_some(())
        })?;
        Some(Self {
            all: start..fields.len(),
            metadata: metadata?,
        })
    }

    fn object<'a>(&self, fields: &'a [Field<'a>]) -> OpenObject<'a> {
        let fields = |range: Range<usize>| fields.get(range).unwrap_or_default();
        OpenObject {
            before: fields(self.all.start..self.metadata.start),
            metadata: ObjectMetadata(fields(self.metadata.clone())),
            after: fields(self.metadata.end..self.all.end),
        }
    }
}

/// Reads an object part by part, so that what is wrong with it can be said.
fn open<'a>(json: &'a RawValue, fields: &mut Vec<Field<'a>>) -> Result<Found, NotAnObject> {
    let read = |json: &'a str| {
        let read = serde_json::from_str::<Fields<'a>>(json);
        read.map_err(|e| NotAnObject::nameless(format!("not a JSON object: {}", describe(&e))))
    };
    let Fields(top) = read(json.get())?;
    let metadata =
        last(&top, "metadata").ok_or_else(|| NotAnObject::nameless("the object has no metadata"))?;
    if !metadata.starts_with('{') {
        return Err(NotAnObject::nameless("metadata is not a JSON object"));
    }
    let Fields(held) = read(metadata)?;

    let start = fields.len();
    fields.extend(top.into_iter().filter(|field| field.name != "metadata"));
    let middle = fields.len();
    fields.extend(held.into_iter().filter(|field| field.name != MANAGED_FIELDS));
    Ok(Found {
        all: start..fields.len(),
        metadata: middle..fields.len(),
    })
}

/// Of fields of one name the last counts, as for whoever decodes the object.
pub(super) fn last<'a>(fields: &[Field<'a>], name: &str) -> Option<&'a str> {
    let field = fields.iter().rfind(|field| field.name == name)?;
    (field.value != "null").then_some(field.value)
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
                let mut fields = Vec::with_capacity(FIELDS);
                while let Some((Text(name), value)) = map.next_entry::<_, &RawValue>()? {
                    let value = value.get();
                    fields.push(Field { name, value });
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// A string that borrows where it has no escapes.
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl<'a> Text<'a> {
    /// What a JSON value says if it is a string.
    pub(super) fn of(value: &'a str) -> Option<Cow<'a, str>> {
        let plain = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        match plain {
            Some(plain) if !plain.as_bytes().contains(&b'\\') => Some(Cow::Borrowed(plain)),
            Some(_) => serde_json::from_str::<Text<'_>>(value).ok().map(|text| text.0),
            None => None,
        }
    }
}

impl<'a, 'de: 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
            fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text)))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}
