//! Raw objects: objects whose fields are known, before they are encoded.

use std::{ops::Range, sync::Arc};

use super::{
    encoder::Encoder,
    error::NotAnObject,
    escape,
    facts::{BEFORE_FACTS, InlineFacts},
    field::{Field, WellKnownField},
    fields::{ObjectFields, ParsedFields},
    list_template::ListTemplate,
    metadata::ObjectMetadata,
    object::{Object, ObjectParts},
    scalar::ObjectScalars,
    scratch::Scratch,
    template::TemplateKey,
    uid::Uid,
};
use crate::key::ObjectKey;

/// An item of a list, or the object of a watch event. It may turn out not to be an object.
pub type Item<'a> = Result<RawObject<'a>, NotAnObject>;

/// An object as it was sent: its fields are known, their values are not read yet. Borrows the body of the list or the
/// line of the watch.
///
/// A caller can read its [`metadata`](Self::metadata), and [`encode`](Self::encode) it or skip it.
///
/// ```
/// use mcr_store::{Encoder, Encoding, parse_list};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let body = br#"{"metadata":{"resourceVersion":"9"},"items":[
///     {"metadata":{"name":"a","labels":{"app":"web"}}},
///     {"metadata":{"name":"b"}}
/// ]}"#;
/// let mut encoder = Encoder::plain(Encoding::new("v1", "Namespace"));
/// let mut objects = Vec::new();
/// for item in parse_list(body)?.items.iter() {
///     let object = item?;
///     if object.metadata().label("app").is_some() {
///         objects.push(object.encode(None, &mut encoder)?);
///     }
/// }
/// assert_eq!(objects.len(), 1);
/// # Ok(())
/// # }
/// ```
pub struct RawObject<'a> {
    /// The fields before the metadata.
    pub(super) before: &'a [Field<'a>],
    pub(super) metadata: ObjectMetadata<'a>,
    /// The fields after the metadata.
    pub(super) after: &'a [Field<'a>],
    /// The text that was scanned.
    pub(super) text: &'a str,
    pub(super) scalars: ObjectScalars<'a>,
    /// The list template that the object matches.
    pub(super) list_template: Option<&'a ListTemplate>,
}

impl<'a> RawObject<'a> {
    pub(super) fn new(
        object: &ObjectFields,
        parsed: &'a ParsedFields<'a>,
        list_template: Option<&'a ListTemplate>,
    ) -> Self {
        let fields = |range: Range<usize>| parsed.fields.get(range).unwrap_or_default();
        Self {
            before: fields(object.all.start..object.metadata.start),
            metadata: ObjectMetadata(fields(object.metadata.clone())),
            after: fields(object.metadata.end..object.all.end),
            text: parsed.text,
            scalars: parsed.scalars.of_object(object.escapes.clone()),
            list_template,
        }
    }

    /// The metadata.
    #[inline]
    pub fn metadata(&self) -> &ObjectMetadata<'a> {
        &self.metadata
    }

    /// The JSON of the object, without `metadata.managedFields`. The metadata is its last field.
    pub fn json(&self) -> Vec<u8> {
        let object = |out: &mut Vec<u8>, fields: &mut dyn Iterator<Item = &Field<'_>>| {
            let start = out.len();
            out.push(b'{');
            fields.for_each(|field| field.write(out));
            if out.len() > start + 1 {
                // `Field::write` begins with a comma, and the first field needs none.
                out.remove(start + 1);
            }
            out.push(b'}');
        };
        let mut metadata = Vec::new();
        object(&mut metadata, &mut self.metadata.0.iter());
        let metadata = String::from_utf8_lossy(&metadata);
        let metadata = Field::unscanned("metadata".into(), &metadata);
        let mut json = Vec::new();
        let fields = self.before.iter().chain(self.after);
        object(&mut json, &mut fields.chain([&metadata]));
        json
    }

    /// Encodes the object. `namespace` replaces the namespace of the object in its key and in its JSON.
    ///
    /// # Errors
    /// [`NotAnObject`] if the name is missing, or if name, namespace, UID or resource version is not a string.
    pub fn encode(&self, namespace: Option<&str>, encoder: &mut Encoder) -> Result<Object, NotAnObject> {
        let [mut name, mut own_namespace, mut uid, mut version, mut generation] = [None; 5];
        for field in self.metadata.0 {
            // The last of several fields with one name counts, as in decoders.
            let fact = match field.known {
                WellKnownField::Name => &mut name,
                WellKnownField::Namespace => &mut own_namespace,
                WellKnownField::Uid => &mut uid,
                WellKnownField::ResourceVersion => &mut version,
                WellKnownField::Generation => &mut generation,
                WellKnownField::Type | WellKnownField::Other => continue,
            };
            *fact = (field.value != "null").then_some(field);
        }
        let text = |name: &str, field: Option<&Field<'a>>| {
            let error = || NotAnObject::nameless(format!("metadata.{name} is not a string"));
            let text = field.map(|field| field.text(&self.scalars).ok_or_else(error));
            text.transpose()
        };
        let name =
            text("name", name)?.ok_or_else(|| NotAnObject::nameless("the object has no metadata.name"))?;
        let own_namespace = text("namespace", own_namespace)?.filter(|ns| !ns.is_empty());
        let key = ObjectKey {
            namespace: namespace
                .or(own_namespace.as_deref())
                .map(|ns| encoder.namespace(ns)),
            name: Arc::from(&*name),
        };
        let uid = text("uid", uid).map_err(|e| e.with_key(&key))?;
        let resource_version = text("resourceVersion", version)
            .map_err(|e| e.with_key(&key))?
            .unwrap_or_default();
        let generation = generation
            .map(|field| field.value)
            .filter(|text| text.parse::<i64>().is_ok())
            .unwrap_or_default();
        let (uid, uid_is_canonical) = Uid::read(uid.as_deref().unwrap_or_default());

        let inline = InlineFacts {
            namespace: key.namespace.is_none(),
            uid: !uid_is_canonical,
            resource_version: resource_version.is_empty(),
            generation: generation.is_empty(),
        };
        let is_in_tail = |field: &&Field<'_>| match field.known {
            WellKnownField::Name => false,
            WellKnownField::Namespace => inline.namespace,
            WellKnownField::Uid => inline.uid,
            WellKnownField::ResourceVersion => inline.resource_version,
            WellKnownField::Generation => inline.generation,
            WellKnownField::Type | WellKnownField::Other => true,
        };
        let is_not_type = |field: &&Field<'_>| field.known != WellKnownField::Type;
        let metadata = || self.metadata.0.iter().filter(is_in_tail);
        let fields = || self.before.iter().chain(self.after).filter(is_not_type);
        let tail_len =
            metadata().map(Field::len).sum::<usize>() + fields().map(Field::len).sum::<usize>() + 2;
        let facts = [
            Some(escape::len_of(&name)),
            key.namespace.as_deref().map(|held| match own_namespace {
                Some(own) if own == held => escape::len_of(&own),
                _ => escape::len(held),
            }),
            uid_is_canonical.then_some(Uid::TEXT_LEN + 2),
            (!inline.resource_version).then(|| escape::len_of(&resource_version)),
            (!inline.generation).then_some(generation.len()),
        ];
        let with_name = |(before, fact): (&str, Option<usize>)| Some(before.len() + fact?);
        let facts_len: usize = BEFORE_FACTS.into_iter().zip(facts).filter_map(with_name).sum();

        let mut scratch = Scratch::take();
        let splitter = &mut scratch.splitter;
        let encoding = encoder.has_templates().then(|| {
            let known = self
                .list_template
                .and_then(|list_template| list_template.encoding.get());
            if let Some((_, encoding)) = known.filter(|(of, _)| *of == inline) {
                let split = splitter.split_values(metadata().chain(fields()), self.text, &self.scalars);
                return split.map(|()| encoding.clone());
            }
            splitter.split([&mut metadata(), &mut fields()], self.text, &self.scalars)?;
            let json = splitter.json();
            let encoding =
                encoder.encoding_for(TemplateKey { inline, json }, splitter.placeholders(), uid)?;
            if let Some(list_template) = self.list_template {
                let _ = list_template.encoding.set((inline, encoding.clone()));
            }
            Some(encoding)
        });
        let mut plain = Vec::new();
        let (tail, encoding) = match encoding.flatten() {
            Some(encoding) => (splitter.values(), encoding),
            None => {
                plain.reserve(tail_len);
                metadata().for_each(|field| field.write(&mut plain));
                plain.push(b'}');
                fields().for_each(|field| field.write(&mut plain));
                plain.push(b'}');
                (&*plain, encoder.plain_encoding().clone())
            }
        };
        let object = Object::new(ObjectParts {
            key,
            uid,
            uid_is_canonical,
            resource_version: &resource_version,
            generation,
            tail,
            bytes: facts_len + tail_len,
            encoding,
        });
        scratch.give_back();
        Ok(object)
    }
}
