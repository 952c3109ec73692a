//! Taking objects out of lists and events.

use std::{borrow::Cow, fmt, sync::Arc};

use super::{
    Interner, Object, ObjectKey,
    object::{BEFORE_FACTS, Parts},
    open::{Field, Known, Text, last},
    pattern::Pattern,
    quoted,
    room::Room,
    scalar::NotedOf,
    scan::Scanner,
    shape::{Alike, Rest},
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

#[cfg(any(test, feature = "fuzzing"))]
impl Object {
    /// Takes an object from its JSON.
    pub(crate) fn parse(
        json: &serde_json::value::RawValue,
        interner: &mut Interner,
    ) -> Result<Self, NotAnObject> {
        super::Opened::read(json)?.object().close(None, interner)
    }
}

/// What a list or an event brought.
pub(crate) type Item<'a> = Result<OpenObject<'a>, NotAnObject>;

/// An object taken apart as far as its metadata, before it is known who is to hold it.
pub(crate) struct OpenObject<'a> {
    /// All but the metadata: what stands before it, and after it.
    pub(super) before: &'a [Field<'a>],
    pub(super) metadata: ObjectMetadata<'a>,
    pub(super) after: &'a [Field<'a>],
    /// What all that was read from.
    pub(super) text: &'a str,
    /// Where the strings and numbers of all fields are.
    pub(super) noted: NotedOf<'a>,
    /// The one it fits.
    pub(super) pattern: Option<&'a Pattern<'a>>,
}

impl<'a> OpenObject<'a> {
    pub(crate) fn metadata(&self) -> &ObjectMetadata<'a> {
        &self.metadata
    }

    /// All of its JSON but `metadata.managedFields`.
    pub(crate) fn json(&self) -> Vec<u8> {
        let object = |out: &mut Vec<u8>, fields: &mut dyn Iterator<Item = &Field<'_>>| {
            let start = out.len();
            out.push(b'{');
            fields.for_each(|field| field.write(out));
            if out.len() > start + 1 {
                // The first field follows upon none.
                out.remove(start + 1);
            }
            out.push(b'}');
        };
        let mut metadata = Vec::new();
        object(&mut metadata, &mut self.metadata.0.iter());
        let metadata = String::from_utf8_lossy(&metadata);
        let metadata = Field::unread("metadata".into(), &metadata);
        let mut json = Vec::new();
        let fields = self.before.iter().chain(self.after);
        object(&mut json, &mut fields.chain([&metadata]));
        json
    }

    /// Makes the object, in another namespace than its own if one is given.
    pub(crate) fn close(
        &self,
        namespace: Option<&str>,
        interner: &mut Interner,
    ) -> Result<Object, NotAnObject> {
        let [mut name, mut own, mut uid, mut version, mut generation] = [None; 5];
        for field in self.metadata.0 {
            // Of fields of one name the last counts, as for whoever decodes the object.
            let fact = match field.known {
                Known::Name => &mut name,
                Known::Namespace => &mut own,
                Known::Uid => &mut uid,
                Known::ResourceVersion => &mut version,
                Known::Generation => &mut generation,
                Known::Type | Known::Other => continue,
            };
            *fact = (field.value != "null").then_some(field);
        }
        let text = |name: &str, field: Option<&Field<'a>>| {
            let fault = || NotAnObject::nameless(format!("metadata.{name} is not a string"));
            let text = field.map(|field| field.text(&self.noted).ok_or_else(fault));
            text.transpose()
        };
        let name =
            text("name", name)?.ok_or_else(|| NotAnObject::nameless("the object has no metadata.name"))?;
        let own = text("namespace", own)?.filter(|ns| !ns.is_empty());
        let key = ObjectKey {
            namespace: namespace.or(own.as_deref()).map(|ns| interner.namespace(ns)),
            name: Arc::from(&*name),
        };
        let with_key = |e: NotAnObject, key: &ObjectKey| NotAnObject {
            key: Some(key.clone()),
            ..e
        };
        let uid = text("uid", uid).map_err(|e| with_key(e, &key))?;
        let resource_version = text("resourceVersion", version)
            .map_err(|e| with_key(e, &key))?
            .unwrap_or_default();
        let generation = generation
            .map(|field| field.value)
            .filter(|text| text.parse::<i64>().is_ok())
            .unwrap_or_default();
        let (uid, uid_is_whole) = Uid::read(uid.as_deref().unwrap_or_default());

        let rest = Rest {
            namespace: key.namespace.is_none(),
            uid: !uid_is_whole,
            resource_version: resource_version.is_empty(),
            generation: generation.is_empty(),
        };
        let is_rest = |field: &&Field<'_>| match field.known {
            Known::Name => false,
            Known::Namespace => rest.namespace,
            Known::Uid => rest.uid,
            Known::ResourceVersion => rest.resource_version,
            Known::Generation => rest.generation,
            Known::Type | Known::Other => true,
        };
        let is_held = |field: &&Field<'_>| field.known != Known::Type;
        let metadata = || self.metadata.0.iter().filter(is_rest);
        let fields = || self.before.iter().chain(self.after).filter(is_held);
        let len = metadata().map(Field::len).sum::<usize>() + fields().map(Field::len).sum::<usize>() + 2;
        let facts = [
            Some(quoted::len_of(&name)),
            key.namespace.as_deref().map(|held| match own {
                Some(own) if own == held => quoted::len_of(&own),
                _ => quoted::len(held),
            }),
            uid_is_whole.then_some(Uid::TEXT + 2),
            (!rest.resource_version).then(|| quoted::len_of(&resource_version)),
            (!rest.generation).then_some(generation.len()),
        ];
        let with_name = |(name, fact): (&str, Option<usize>)| Some(name.len() + fact?);
        let facts: usize = BEFORE_FACTS.into_iter().zip(facts).filter_map(with_name).sum();

        let mut room = Room::take();
        let cutter = &mut room.cutter;
        let form = interner.is_shaping().then(|| {
            let known = self.pattern.and_then(|pattern| pattern.form.get());
            if let Some((_, form)) = known.filter(|(of, _)| *of == rest) {
                let parted = cutter.part_alike(metadata().chain(fields()), self.text, &self.noted);
                return parted.map(|()| form.clone());
            }
            cutter.part([&mut metadata(), &mut fields()], self.text, &self.noted)?;
            let json = cutter.common();
            let form = interner.shaped(Alike { rest, json }, cutter.holes(), uid)?;
            if let Some(pattern) = self.pattern {
                let _ = pattern.form.set((rest, form.clone()));
            }
            Some(form)
        });
        let mut plain = Vec::new();
        let (held, form) = match form.flatten() {
            Some(form) => (cutter.said(), form),
            None => {
                plain.reserve(len);
                metadata().for_each(|field| field.write(&mut plain));
                plain.push(b'}');
                fields().for_each(|field| field.write(&mut plain));
                plain.push(b'}');
                (&*plain, interner.form().clone())
            }
        };
        let object = Object::of(Parts {
            key,
            uid,
            uid_is_whole,
            resource_version: &resource_version,
            generation,
            rest: held,
            bytes: facts + len,
            form,
        });
        room.give_back();
        Ok(object)
    }
}

/// The metadata of an object, read as far as it is asked for.
pub struct ObjectMetadata<'a>(pub(super) &'a [Field<'a>]);

impl<'a> ObjectMetadata<'a> {
    /// `metadata.name`.
    pub fn name(&self) -> Option<Cow<'a, str>> {
        self.text("name")
    }

    /// `metadata.namespace`; none for cluster-scoped kinds.
    pub fn namespace(&self) -> Option<Cow<'a, str>> {
        self.text("namespace").filter(|namespace| !namespace.is_empty())
    }

    /// One annotation.
    pub fn annotation(&self, key: &str) -> Option<Cow<'a, str>> {
        self.entry("annotations", key)
    }

    /// One label.
    pub fn label(&self, key: &str) -> Option<Cow<'a, str>> {
        self.entry("labels", key)
    }

    /// `metadata.resourceVersion`, unless it is empty.
    pub(crate) fn resource_version(&self) -> Option<Cow<'a, str>> {
        self.text("resourceVersion").filter(|version| !version.is_empty())
    }

    fn entry(&self, map: &str, key: &str) -> Option<Cow<'a, str>> {
        let mut entry = None;
        Scanner::new(last(self.0, map)?).object(|value, name| {
            let value = value.value()?;
            if name == key {
                entry = Some(value);
            }
            Some(())
        })?;
        Text::of(entry?)
    }

    fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        Text::of(last(self.0, name)?)
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
