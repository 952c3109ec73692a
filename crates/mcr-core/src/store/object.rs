//! Objects as the fleet holds them: the JSON the API server sent, without what nobody reads.

use std::{borrow::Cow, fmt};

use serde::de::DeserializeOwned;

use super::{Form, ObjectKey, form::Common, packing::Damaged, quoted, room::Room, typed, uid::Uid};

/// One object of one cluster, as JSON with the few facts the fleet itself needs.
///
/// `metadata.managedFields` is dropped. What the facts say is not held in the JSON a second time, nor is what is the same in
/// other objects of the kind: the JSON is put together again when it is read.
pub struct Object {
    key: ObjectKey,
    uid: Uid,
    form: Form,
    /// The resource version, the generation as it was written, and the rest of the JSON, which follows upon the facts
    /// and is as the form says.
    held: Box<[u8]>,
    /// How long the JSON is.
    json: u32,
    resource_version: u16,
    generation: u8,
    /// Whether the UID can be written as it was.
    uid_is_whole: bool,
}

/// What an object is made of.
pub(super) struct Parts {
    pub(super) key: ObjectKey,
    pub(super) uid: Uid,
    pub(super) uid_is_whole: bool,
    /// How long it is; nothing if it is not known, or is in the rest.
    pub(super) resource_version: usize,
    /// How long it is as a text; nothing if there is none, or it is in the rest.
    pub(super) generation: usize,
    /// Both, and the rest.
    pub(super) held: Vec<u8>,
    /// How long the rest is as JSON.
    pub(super) rest: usize,
    pub(super) form: Form,
}

impl Object {
    /// What is refused here nobody sends who does not want to do harm.
    pub(super) fn of(parts: Parts) -> Result<Self, (&'static str, ObjectKey)> {
        let (Ok(resource_version), Ok(generation)) = (
            u16::try_from(parts.resource_version),
            u8::try_from(parts.generation),
        ) else {
            let reason = "metadata.resourceVersion or metadata.generation is too long";
            return Err((reason, parts.key));
        };
        let mut object = Self {
            resource_version,
            generation,
            key: parts.key,
            uid: parts.uid,
            uid_is_whole: parts.uid_is_whole,
            form: parts.form,
            json: 0,
            held: parts.held.into(),
        };
        let json = object.head_len() + parts.rest;
        match u32::try_from(json) {
            Ok(json) => object.json = json,
            Err(_) => return Err(("the object is larger than 4 GiB", object.key)),
        }
        Ok(object)
    }

    /// The object's name and namespace.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// `metadata.resourceVersion`.
    pub fn resource_version(&self) -> &str {
        self.fact(0, self.resource_version.into())
    }

    /// `metadata.generation`, for kinds that have one.
    pub fn generation(&self) -> Option<i64> {
        self.generation_text().parse().ok()
    }

    /// Whether both are the same object over time, and not two that had the same name one after the other.
    pub fn same_uid(&self, other: &Self) -> bool {
        self.uid == other.uid
    }

    /// How many bytes of JSON it has.
    pub fn bytes(&self) -> usize {
        self.json as usize
    }

    /// How many bytes of memory it takes.
    pub fn held_bytes(&self) -> usize {
        /// Of what is shared there are two counts beside it.
        const COUNTS: usize = 2 * size_of::<usize>();
        let name = (COUNTS + self.key.name.len()).next_multiple_of(align_of::<usize>());
        COUNTS + size_of::<Self>() + name + self.held.len()
    }

    /// Decodes the object. `K` may be asked twice for one object, the second time by serde_json: what it does beside
    /// making a value, it then does twice.
    ///
    /// # Errors
    /// [`DecodeError`] if the JSON is not a `K`. Its text names the object and the place in it, never a value.
    pub fn decode<K: DeserializeOwned>(&self) -> Result<K, DecodeError> {
        let mut room = Room::take();
        let decoded = self.decode_in(&mut room);
        room.give_back();
        decoded
    }

    fn decode_in<K: DeserializeOwned>(&self, room: &mut Room) -> Result<K, DecodeError> {
        let Room { document, text, .. } = room;
        self.write_document(document)
            .map_err(|error| self.damaged(&error, short_type_name::<K>()))?;
        // Checked as a whole, which takes less than checking string by string.
        let read = std::str::from_utf8(document)
            .ok()
            .and_then(|json| typed::read(json, text));
        match read {
            Some(decoded) => Ok(decoded),
            None => self.decode_by_serde_json(document),
        }
    }

    /// Also says why it can't be decoded.
    #[cold]
    fn decode_by_serde_json<K: DeserializeOwned>(&self, document: &[u8]) -> Result<K, DecodeError> {
        serde_json::from_slice(document).map_err(|error| DecodeError {
            key: self.key.clone(),
            target: short_type_name::<K>(),
            reason: describe(&error),
        })
    }

    /// The object as a JSON document.
    ///
    /// # Errors
    /// [`DecodeError`] if what is held in a packed store is damaged, which nothing in this crate does.
    pub fn to_json(&self) -> Result<Vec<u8>, DecodeError> {
        let mut json = Vec::new();
        self.write_document(&mut json)
            .map_err(|error| self.damaged(&error, "JSON"))?;
        Ok(json)
    }

    fn damaged(&self, error: &Damaged, target: &'static str) -> DecodeError {
        DecodeError {
            key: self.key.clone(),
            target,
            reason: error.to_string(),
        }
    }

    fn fact(&self, from: usize, len: usize) -> &str {
        let bytes = self.held.get(from..from + len).unwrap_or_default();
        // They were text when they were put there.
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    fn generation_text(&self) -> &str {
        self.fact(self.resource_version.into(), self.generation.into())
    }

    fn rest(&self) -> &[u8] {
        let facts = usize::from(self.resource_version) + usize::from(self.generation);
        self.held.get(facts..).unwrap_or_default()
    }

    /// How long the rest is as JSON.
    pub(super) fn rest_bytes(&self) -> usize {
        self.bytes() - self.head_len().min(self.bytes())
    }

    /// The rest as JSON.
    pub(super) fn rest_json(&self) -> Result<Cow<'_, [u8]>, Damaged> {
        if let Common::Nothing = self.form.common() {
            return Ok(self.rest().into());
        }
        let mut json = Vec::with_capacity(self.rest_bytes());
        self.write_rest(&mut json)?;
        Ok(json.into())
    }

    fn write_rest(&self, json: &mut Vec<u8>) -> Result<(), Damaged> {
        match self.form.common() {
            Common::Nothing => json.extend_from_slice(self.rest()),
            Common::Shape(shape) => shape.write(self.rest(), json),
            Common::Dictionary(dictionary) => {
                let start = json.len();
                json.resize(start + self.rest_bytes(), 0);
                dictionary.unpack(self.rest(), json.get_mut(start..).unwrap_or_default())?;
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn form(&self) -> &Form {
        &self.form
    }

    pub(super) fn is_in_form(&self, form: &Form) -> bool {
        self.form.is(form)
    }

    /// The same object packed with the dictionary of a form; none if it is in that form, or would not get smaller.
    pub(crate) fn in_form(&self, form: &Form) -> Option<Self> {
        if self.is_in_form(form) {
            return None;
        }
        let dictionary = form.dictionary()?;
        let facts = self.held.len() - self.rest().len();
        let held = dictionary.pack(&self.rest_json().ok()?, |packed| {
            [self.held.get(..facts).unwrap_or_default(), packed].concat()
        })?;
        (held.len() < self.held.len()).then(|| Self {
            key: self.key.clone(),
            form: form.clone(),
            held: held.into(),
            ..*self
        })
    }

    /// The facts that the rest follows upon, each with what stands before it.
    fn facts(&self) -> [Option<(&'static str, Fact<'_>)>; 5] {
        let namespace = self.key.namespace.as_deref();
        let (version, generation) = (self.resource_version(), self.generation_text());
        [
            Some(("\"metadata\":{\"name\":", Fact::Text(&self.key.name))),
            namespace.map(|namespace| (",\"namespace\":", Fact::Text(namespace))),
            self.uid_is_whole.then_some((",\"uid\":", Fact::Uid(self.uid))),
            (!version.is_empty()).then_some((",\"resourceVersion\":", Fact::Text(version))),
            (!generation.is_empty()).then_some((",\"generation\":", Fact::Number(generation))),
        ]
    }

    fn head_len(&self) -> usize {
        let lens = |(before, fact): &(&str, Fact<'_>)| before.len() + fact.len();
        self.facts().iter().flatten().map(lens).sum()
    }

    /// Puts the JSON together, in the place of what was there.
    fn write_document(&self, json: &mut Vec<u8>) -> Result<(), Damaged> {
        let prefix = self.form.prefix();
        json.clear();
        let len = prefix.len() + self.bytes();
        if json.capacity() < len {
            // Nothing to be moved over, and no more than is needed.
            *json = Vec::with_capacity(len);
        }
        json.extend_from_slice(prefix);
        for (before, fact) in self.facts().iter().flatten() {
            json.extend_from_slice(before.as_bytes());
            fact.write(json);
        }
        self.write_rest(json)
    }
}

/// Something an object knows of itself.
enum Fact<'a> {
    Text(&'a str),
    Uid(Uid),
    /// As it is written.
    Number(&'a str),
}

impl Fact<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Text(text) => quoted::len(text),
            Self::Uid(_) => Uid::TEXT + 2,
            Self::Number(text) => text.len(),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => quoted::write(out, text),
            Self::Uid(uid) => {
                out.push(b'"');
                out.extend_from_slice(&uid.text());
                out.push(b'"');
            }
            Self::Number(text) => out.extend_from_slice(text.as_bytes()),
        }
    }
}

// Objects may be Secrets: what they hold is never shown.
impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("key", &self.key)
            .field("resource_version", &self.resource_version())
            .field("bytes", &self.json)
            .finish()
    }
}

/// An object that can't be read as the type it was asked for.
#[derive(Debug, Clone, thiserror::Error)]
#[error("object {key} can't be decoded as {target}: {reason}")]
#[non_exhaustive]
pub struct DecodeError {
    /// Which object.
    pub key: ObjectKey,
    /// The Rust type it was to become.
    pub target: &'static str,
    /// Where in the JSON, and what kind of fault it is.
    pub reason: String,
}

fn short_type_name<K>() -> &'static str {
    let name = std::any::type_name::<K>();
    // Only the last segment of a plain path; generic types keep their full name.
    if name.contains('<') {
        name
    } else {
        name.rsplit("::").next().unwrap_or(name)
    }
}

/// Says what kind of fault it is and where. serde_json's own text can quote values, which may be secrets.
pub(crate) fn describe(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        serde_json::error::Category::Io => "could not be read",
        serde_json::error::Category::Syntax => "not valid JSON",
        serde_json::error::Category::Data => "valid JSON of another shape than expected",
        serde_json::error::Category::Eof => "ends in the middle",
    };
    format!("{what} (line {}, column {})", error.line(), error.column())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::{DynamicObject, PartialObjectMeta};
    use serde_json::value::RawValue;

    use super::*;
    use crate::store::{Interner, NotAnObject};

    fn parse(json: &str) -> Result<Object, NotAnObject> {
        let raw: &RawValue = serde_json::from_str(json).unwrap();
        Object::parse(raw, &mut Interner::plain(Form::new("v1", "ConfigMap")))
    }

    #[test]
    fn an_object_loses_its_managed_fields_and_nothing_else() {
        let object = parse(
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"6e0c7b4e-0b7c-4b58-9d3e-0123456789ab","resourceVersion":"7","generation":3,"managedFields":[{"manager":"x"}],"labels":{"k\"ey":"v"}},"data":{"x":"ü\n"},"immutable":true}"#,
        )
        .unwrap();
        assert_eq!(object.key().to_string(), "n/a");
        assert_eq!(object.resource_version(), "7");
        assert_eq!(object.generation(), Some(3));
        let map: ConfigMap = object.decode().unwrap();
        assert_eq!(map.data.unwrap()["x"], "ü\n");
        assert_eq!(map.immutable, Some(true));
        assert_eq!(map.metadata.labels.unwrap()["k\"ey"], "v");
        assert!(map.metadata.managed_fields.is_none());
    }

    #[test]
    fn list_items_without_a_type_decode_as_any_type() {
        let object = parse(r#"{"metadata":{"name":"a","namespace":"n"}}"#).unwrap();
        assert!(object.decode::<ConfigMap>().is_ok());
        let dynamic: DynamicObject = object.decode().unwrap();
        assert_eq!(dynamic.types.unwrap().kind, "ConfigMap");
        assert!(object.decode::<PartialObjectMeta<ConfigMap>>().is_ok());
        assert_eq!(
            object.to_json().unwrap(),
            br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"n"}}"#
        );
    }

    #[test]
    fn what_is_no_object_is_told_by_its_fault() {
        let text = |json: &str| parse(json).unwrap_err().to_string();
        assert_eq!(
            text("[1]"),
            "not a JSON object: valid JSON of another shape than expected (line 1, column 0)"
        );
        assert_eq!(text("{}"), "the object has no metadata");
        assert_eq!(text(r#"{"metadata":{}}"#), "the object has no metadata.name");
        assert_eq!(
            text(r#"{"metadata":{"name":7}}"#),
            "metadata.name is not a string"
        );
    }

    #[test]
    fn of_fields_that_are_there_twice_the_last_counts() {
        let object = parse(
            r#"{"metadata":{"name":"x"},"metadata":{"name":"a","name":"b","namespace":"n","namespace":"m","resourceVersion":"1","resourceVersion":"2"}}"#,
        )
        .unwrap();
        let map: ConfigMap = object.decode().unwrap();
        assert_eq!(Some(object.key().clone()), ObjectKey::of(&map));
        assert_eq!(object.key().to_string(), "m/b");
        assert_eq!(
            Some(object.resource_version()),
            map.metadata.resource_version.as_deref()
        );
    }

    #[test]
    fn a_decode_error_names_the_object_and_no_value() {
        let object = parse(r#"{"metadata":{"name":"a","namespace":"n"},"data":"canary"}"#).unwrap();
        let error = object.decode::<ConfigMap>().unwrap_err().to_string();
        assert!(
            error.starts_with("object n/a can't be decoded as ConfigMap: valid JSON of another shape"),
            "{error}"
        );
        assert!(!error.contains("canary"), "{error}");
        assert!(!format!("{object:?}").contains("canary"));
    }
}
