//! Taking objects out of lists and events.

use std::{borrow::Cow, fmt, sync::Arc};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{
    Form, Object, ObjectKey,
    object::{Parts, describe},
    quoted,
    uid::Uid,
};

/// Why a piece of JSON is not an object.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct NotAnObject {
    reason: String,
    /// Its key, where the metadata at least was readable.
    pub(crate) key: Option<ObjectKey>,
    /// Whose it is, in a scope, where that is known.
    pub(crate) place: Option<Arc<str>>,
}

impl NotAnObject {
    pub(crate) fn at(mut self, place: &str) -> Self {
        self.place = Some(place.into());
        self
    }

    pub(crate) fn nameless(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            key: None,
            place: None,
        }
    }
}

/// Interns namespaces, so that the objects of one namespace share one string.
#[derive(Debug, Default)]
pub(crate) struct Namespaces(std::collections::HashSet<Arc<str>>);

impl Namespaces {
    fn intern(&mut self, namespace: &str) -> Arc<str> {
        if let Some(known) = self.0.get(namespace) {
            return known.clone();
        }
        let new: Arc<str> = namespace.into();
        self.0.insert(new.clone());
        new
    }
}

impl Object {
    /// Takes an object from the JSON of a list item or watch event.
    pub(crate) fn parse(
        json: &RawValue,
        form: &Form,
        namespaces: &mut Namespaces,
    ) -> Result<Self, NotAnObject> {
        OpenObject::open(json)?.close(None, form, namespaces)
    }
}

/// An object taken apart as far as its metadata, before it is known who is to hold it.
pub(crate) struct OpenObject<'a> {
    /// All but the metadata and the type.
    fields: Fields<'a>,
    metadata: ObjectMetadata<'a>,
}

impl<'a> OpenObject<'a> {
    pub(crate) fn open(json: &'a RawValue) -> Result<Self, NotAnObject> {
        let Opened { fields, metadata } = serde_json::from_str(json.get())
            .map_err(|e| NotAnObject::nameless(format!("not a JSON object: {}", describe(&e))))?;
        match metadata {
            Metadata::There(metadata) => Ok(Self {
                fields,
                metadata: ObjectMetadata(metadata),
            }),
            Metadata::Missing => Err(NotAnObject::nameless("the object has no metadata")),
            Metadata::Other => Err(NotAnObject::nameless("metadata is not a JSON object")),
        }
    }

    pub(crate) fn metadata(&self) -> &ObjectMetadata<'a> {
        &self.metadata
    }

    /// Makes the object, in another namespace than its own if one is given.
    pub(crate) fn close(
        &self,
        namespace: Option<&str>,
        form: &Form,
        namespaces: &mut Namespaces,
    ) -> Result<Object, NotAnObject> {
        let Self { fields, metadata } = self;
        let text = |name: &str| -> Result<Option<Cow<'a, str>>, NotAnObject> {
            metadata
                .text(name)
                .map_err(|()| NotAnObject::nameless(format!("metadata.{name} is not a string")))
        };
        let name = text("name")?.ok_or_else(|| NotAnObject::nameless("the object has no metadata.name"))?;
        let own = text("namespace")?.filter(|ns| !ns.is_empty());
        let key = ObjectKey {
            namespace: namespace.or(own.as_deref()).map(|ns| namespaces.intern(ns)),
            name: Arc::from(&*name),
        };
        let with_key = |e: NotAnObject| NotAnObject {
            key: Some(key.clone()),
            ..e
        };
        let uid_text = text("uid").map_err(with_key)?;
        let resource_version = text("resourceVersion").map_err(with_key)?.unwrap_or_default();
        let generation = metadata
            .0
            .get("generation")
            .map(RawValue::get)
            .filter(|text| text.parse::<i64>().is_ok())
            .unwrap_or_default();
        let uid = Uid::new(uid_text.as_deref().unwrap_or_default());
        let uid_is_whole = uid_text.is_some_and(|text| *text.as_bytes() == uid.text());

        // What the object itself says in its place.
        let is_rest = |name: &str| match name {
            "name" => false,
            "namespace" => key.namespace.is_none(),
            "uid" => !uid_is_whole,
            "resourceVersion" => resource_version.is_empty(),
            "generation" => generation.is_empty(),
            _ => true,
        };
        let metadata = || metadata.0.0.iter().filter(|(name, _)| is_rest(&name.0));
        let len = |(name, value): &(Text<'_>, &RawValue)| quoted::len(&name.0) + value.get().len() + 2;
        let rest = metadata().map(len).sum::<usize>() + fields.0.iter().map(len).sum::<usize>() + 2;

        let mut held = Vec::with_capacity(resource_version.len() + generation.len() + rest);
        held.extend_from_slice(resource_version.as_bytes());
        held.extend_from_slice(generation.as_bytes());
        metadata().for_each(|field| write_field(&mut held, field));
        held.push(b'}');
        fields.0.iter().for_each(|field| write_field(&mut held, field));
        held.push(b'}');
        Object::of(Parts {
            key: key.clone(),
            uid,
            uid_is_whole,
            resource_version: resource_version.len(),
            generation: generation.len(),
            held,
            form,
        })
        .map_err(|reason| with_key(NotAnObject::nameless(reason)))
    }
}

fn write_field(out: &mut Vec<u8>, (name, value): &(Text<'_>, &RawValue)) {
    out.push(b',');
    quoted::write(out, &name.0);
    out.push(b':');
    out.extend_from_slice(value.get().as_bytes());
}

/// What an object has, read in one go.
struct Opened<'a> {
    fields: Fields<'a>,
    metadata: Metadata<'a>,
}

impl<'a, 'de: 'a> Deserialize<'de> for Opened<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;
        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = Opened<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::with_capacity(4);
                let mut metadata = Metadata::Missing;
                while let Some(name) = map.next_key::<Text<'de>>()? {
                    match &*name.0 {
                        // Of fields of one name the last counts, as for whoever decodes the object.
                        "metadata" => metadata = map.next_value()?,
                        "apiVersion" | "kind" => drop(map.next_value::<IgnoredAny>()?),
                        _ => fields.push((name, map.next_value()?)),
                    }
                }
                Ok(Opened {
                    fields: Fields(fields),
                    metadata,
                })
            }
        }
        deserializer.deserialize_map(ObjectVisitor)
    }
}

enum Metadata<'a> {
    There(Fields<'a>),
    Missing,
    /// No JSON object.
    Other,
}

impl<'a, 'de: 'a> Deserialize<'de> for Metadata<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MetadataVisitor;
        impl<'de> Visitor<'de> for MetadataVisitor {
            type Value = Metadata<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::with_capacity(12);
                while let Some(name) = map.next_key::<Text<'de>>()? {
                    if name.0 == "managedFields" {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        fields.push((name, map.next_value()?));
                    }
                }
                Ok(Metadata::There(Fields(fields)))
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Metadata::Missing)
            }
            fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
                Ok(Metadata::Other)
            }
            fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
                Ok(Metadata::Other)
            }
            fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
                Ok(Metadata::Other)
            }
            fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
                Ok(Metadata::Other)
            }
            fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
                Ok(Metadata::Other)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Metadata::Other)
            }
        }
        deserializer.deserialize_any(MetadataVisitor)
    }
}

/// The metadata of an object, read as far as it is asked for.
pub struct ObjectMetadata<'a>(Fields<'a>);

impl<'a> ObjectMetadata<'a> {
    /// `metadata.name`.
    pub fn name(&self) -> Option<Cow<'a, str>> {
        self.text("name").ok().flatten()
    }

    /// `metadata.namespace`; none for cluster-scoped kinds.
    pub fn namespace(&self) -> Option<Cow<'a, str>> {
        self.text("namespace")
            .ok()
            .flatten()
            .filter(|namespace| !namespace.is_empty())
    }

    /// One annotation.
    pub fn annotation(&self, key: &str) -> Option<Cow<'a, str>> {
        self.entry("annotations", key)
    }

    /// One label.
    pub fn label(&self, key: &str) -> Option<Cow<'a, str>> {
        self.entry("labels", key)
    }

    fn entry(&self, map: &str, key: &str) -> Option<Cow<'a, str>> {
        let map: Fields<'a> = serde_json::from_str(self.0.get(map)?.get()).ok()?;
        text(map.get(key)?).ok()
    }

    fn text(&self, name: &str) -> Result<Option<Cow<'a, str>>, ()> {
        self.0.get(name).map(text).transpose()
    }
}

// Annotations may hold secrets.
impl fmt::Debug for ObjectMetadata<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectMetadata")
            .field("name", &self.name())
            .field("namespace", &self.namespace())
            .finish_non_exhaustive()
    }
}

fn text(raw: &RawValue) -> Result<Cow<'_, str>, ()> {
    serde_json::from_str::<Text<'_>>(raw.get())
        .map(|text| text.0)
        .map_err(|_| ())
}

/// The fields of a JSON object in their order, values untouched.
struct Fields<'a>(Vec<(Text<'a>, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// Of fields of one name the last counts, as for whoever decodes the object.
    fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0
            .iter()
            .rfind(|(n, _)| n.0 == name)
            .map(|(_, value)| *value)
            .filter(|value| value.get() != "null")
    }
}

impl<'a, 'de: 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::with_capacity(8);
                while let Some(entry) = map.next_entry()? {
                    fields.push(entry);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// A string that borrows where it has no escapes.
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

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
