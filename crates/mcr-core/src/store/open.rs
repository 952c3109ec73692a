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
    pattern::{Pattern, Patterns},
    quoted,
    scalar::{NotedOf, Own, Scalar, Scalars},
    scan::{FieldText, Scanner},
};

/// A field of a JSON object, its value as it is written.
pub(super) struct Field<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) value: &'a str,
    /// Where the quote before its name is in the text that it was read from; none if the two are not written in one piece.
    pub(super) at: Option<u32>,
    /// Where the strings and the numbers of the value are, among those of all fields that were read with it.
    pub(super) own: Own,
    /// What it is by its name.
    pub(super) known: Known,
}

/// What the fleet itself knows of objects, by the name of a field.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Known {
    /// In the metadata.
    Name,
    Namespace,
    Uid,
    ResourceVersion,
    Generation,
    /// Beside the metadata: `apiVersion` and `kind`.
    Type,
    Other,
}

impl Known {
    pub(super) fn by(name: &str) -> Self {
        match name {
            "name" => Self::Name,
            "namespace" => Self::Namespace,
            "uid" => Self::Uid,
            "resourceVersion" => Self::ResourceVersion,
            "generation" => Self::Generation,
            "apiVersion" | "kind" => Self::Type,
            _ => Self::Other,
        }
    }
}

impl<'a> Field<'a> {
    /// Of whose value nothing is known.
    pub(super) fn unread(name: Cow<'a, str>, value: &'a str) -> Self {
        Self {
            known: Known::by(&name),
            name,
            value,
            at: None,
            own: Own::default(),
        }
    }

    /// What it says if it is a string.
    pub(super) fn text(&self, noted: &NotedOf<'_>) -> Option<Cow<'a, str>> {
        match noted.own(&self.own) {
            Some([only]) if !only.escapes() => {
                let text = self.value.strip_prefix('"')?.strip_suffix('"')?;
                Some(Cow::Borrowed(text))
            }
            _ => Text::of(self.value),
        }
    }

    /// Both, as they are written.
    pub(super) fn whole(&self, text: &'a str) -> Option<&'a str> {
        let at = self.at? as usize;
        text.get(at..at + self.name.len() + Scanner::NAMED + self.value.len())
    }

    /// How long it is when it is written.
    pub(super) fn len(&self) -> usize {
        quoted::len_of(&self.name) + self.value.len() + 2
    }

    /// Writes it as one that follows upon another.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.push(b',');
        quoted::write(out, &self.name);
        out.push(b':');
        out.extend_from_slice(self.value.as_bytes());
    }
}

/// The objects of a list. What can't be read as an object has its fault in its place.
///
/// Apart, as whoever applies a list holds it all the while, for each watch of each cluster.
#[derive(Default)]
pub(crate) struct OpenObjects<'a>(Box<List<'a>>);

#[derive(Default)]
struct List<'a> {
    pieces: Pieces<'a>,
    patterns: Patterns<'a>,
    found: Vec<Result<Found, NotAnObject>>,
}

/// What is read of objects. Where it is of several, it stands one after the other: none takes memory of its own.
#[derive(Default)]
pub(super) struct Pieces<'a> {
    /// Where scalars are.
    pub(super) text: &'a str,
    pub(super) fields: Vec<Field<'a>>,
    pub(super) scalars: Scalars,
}

impl<'a> Pieces<'a> {
    /// Declined if there is more than places are counted in.
    fn of(text: &'a str) -> Option<Self> {
        Scalar::has_places(text).then(|| Self {
            text,
            ..Self::default()
        })
    }

    fn of_one(text: &'a str) -> Option<Self> {
        Some(Self {
            fields: Vec::with_capacity(FIELDS),
            scalars: Scalars::with_capacity(FIELDS),
            ..Self::of(text)?
        })
    }

    /// Reads the value of a field.
    #[inline(always)]
    fn read(&mut self, json: &mut Scanner<'a>, name: Cow<'a, str>) -> Option<()> {
        let first = self.scalars.noted().scalars;
        let FieldText { value, at } = json.field(&name, &mut self.scalars)?;
        self.fields.push(Field {
            known: Known::by(&name),
            name,
            value,
            at: at.and_then(|at| u32::try_from(at).ok()),
            own: Own::new(first..self.scalars.noted().scalars)?,
        });
        Some(())
    }

    /// Makes room for so many objects like the first one.
    fn reserve(&mut self, objects: usize) {
        let objects = objects.min(RESERVED);
        self.fields.reserve_exact(self.fields.len() * objects);
        self.scalars.reserve(objects);
    }
}

/// For more objects than these no room is made before they are read.
const RESERVED: usize = 512;

impl<'a> OpenObjects<'a> {
    /// Reads an array of objects. Declined as a whole if one of them is; [`OpenObjects::one_by_one`] tells which.
    pub(crate) fn scan(json: &mut Scanner<'a>) -> Option<Self> {
        let mut objects = Self::default();
        let List {
            pieces,
            patterns,
            found,
        } = &mut *objects.0;
        *pieces = Pieces::of(json.text())?;
        json.array(|item| {
            let object = match patterns.read(item, pieces) {
                Some(object) => object,
                None => {
                    let start = item.next_place()?;
                    let mut object = Found::scan(item, pieces)?;
                    let place = start..item.place();
                    let left = pieces.text.len() - place.end;
                    if found.is_empty() {
                        let more = left / place.len().max(1);
                        pieces.reserve(more);
                        found.reserve(more.min(RESERVED));
                    }
                    let more_may_come = left > place.len() / 2;
                    if more_may_come {
                        patterns.learn(place, pieces, &mut object);
                    }
                    object
                }
            };
            found.push(Ok(object));
            Some(())
        })?;
        Some(objects)
    }

    /// Reads items one by one, so that one that is no object spoils no other.
    pub(crate) fn one_by_one(items: &[&'a RawValue]) -> Self {
        let mut objects = Self::default();
        for item in items {
            let found = open(item, &mut objects.0.pieces.fields);
            objects.0.found.push(found);
        }
        objects
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.found.is_empty()
    }

    /// How many were read as others are written.
    #[cfg(test)]
    pub(super) fn fitted(&self) -> usize {
        self.0.patterns.fitted
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Item<'_>> {
        let List {
            pieces,
            patterns,
            found,
        } = &*self.0;
        found.iter().map(|found| match found {
            Ok(found) => Ok(found.object(pieces, patterns.get(found.pattern))),
            Err(error) => Err(error.clone()),
        })
    }
}

/// An object by itself.
pub(crate) struct Opened<'a> {
    pieces: Pieces<'a>,
    found: Found,
}

impl<'a> Opened<'a> {
    /// Declined if it is no object; [`Opened::open`] tells why.
    pub(crate) fn scan(json: &mut Scanner<'a>) -> Option<Self> {
        let mut pieces = Pieces::of_one(json.text())?;
        let found = Found::scan(json, &mut pieces)?;
        Some(Self { pieces, found })
    }

    /// Reads an object that nobody sent.
    pub(crate) fn read(json: &'a RawValue) -> Result<Self, NotAnObject> {
        let mut scanner = Scanner::new(json.get());
        match Self::scan(&mut scanner) {
            Some(opened) if scanner.end().is_some() => Ok(opened),
            _ => Self::open(json),
        }
    }

    /// Reads an object part by part, so that what is wrong with it can be said.
    pub(crate) fn open(json: &'a RawValue) -> Result<Self, NotAnObject> {
        let mut pieces = Pieces::default();
        let found = open(json, &mut pieces.fields)?;
        Ok(Self { pieces, found })
    }

    pub(crate) fn object(&self) -> OpenObject<'_> {
        self.found.object(&self.pieces, None)
    }
}

/// So many have most objects at most.
const FIELDS: usize = 16;

/// Of metadata what is never held.
const MANAGED_FIELDS: &str = "managedFields";

/// Where the fields of an object are among those of many.
pub(super) struct Found {
    pub(super) all: Range<usize>,
    pub(super) metadata: Range<usize>,
    /// Where its escapes are.
    pub(super) escapes: Range<usize>,
    /// The pattern it fits.
    pub(super) pattern: Option<usize>,
}

impl Found {
    /// Reads an object; its fields are added to those that are there.
    fn scan<'a>(json: &mut Scanner<'a>, pieces: &mut Pieces<'a>) -> Option<Self> {
        let start = pieces.fields.len();
        let first = pieces.scalars.noted().escapes;
        let mut metadata = None;
        json.object(|value, name| {
            if name != "metadata" {
                return pieces.read(value, name);
            }
            let from = pieces.fields.len();
            value.object(|value, name| {
                if name == MANAGED_FIELDS {
                    value.value()?;
                    return Some(());
                }
                pieces.read(value, name)
            })?;
            // Which of several counts is not decided here.
            let there_is_another = metadata.replace(from..pieces.fields.len()).is_some();
            (!there_is_another).then_some(())
        })?;
        Some(Self {
            all: start..pieces.fields.len(),
            metadata: metadata?,
            escapes: first..pieces.scalars.noted().escapes,
            pattern: None,
        })
    }

    fn object<'a>(&self, pieces: &'a Pieces<'a>, pattern: Option<&'a Pattern<'a>>) -> OpenObject<'a> {
        let fields = |range: Range<usize>| pieces.fields.get(range).unwrap_or_default();
        OpenObject {
            before: fields(self.all.start..self.metadata.start),
            metadata: ObjectMetadata(fields(self.metadata.clone())),
            after: fields(self.metadata.end..self.all.end),
            text: pieces.text,
            noted: pieces.scalars.of(self.escapes.clone()),
            pattern,
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
        escapes: 0..0,
        pattern: None,
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
                    fields.push(Field::unread(name, value.get()));
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
