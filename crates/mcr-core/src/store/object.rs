//! Objects as the fleet holds them: the JSON the API server sent, without what nobody reads.

use std::fmt;

use serde::de::DeserializeOwned;
use simdutf8::basic::from_utf8;

use super::{
    Form, ObjectKey, numbers, quoted,
    room::Room,
    shape::{Fillings, Shape},
    typed,
    uid::Uid,
};

/// One object of one cluster, as JSON with the few facts the fleet itself needs.
///
/// `metadata.managedFields` is dropped. What the facts say is not held in the JSON a second time, nor is what is the same in
/// other objects of the kind: the JSON is put together again when it is read.
pub struct Object {
    key: ObjectKey,
    uid: Uid,
    form: Form,
    /// Some [`Numbers`], the resource version, the generation as it was written, and the rest of the JSON, which follows
    /// upon the facts and is as the form says.
    held: Box<[u8]>,
}

/// What an object is made of.
pub(super) struct Parts<'a> {
    pub(super) key: ObjectKey,
    pub(super) uid: Uid,
    /// Whether it can be written as it was.
    pub(super) uid_is_whole: bool,
    /// Empty if it is not known, or is in the rest.
    pub(super) resource_version: &'a str,
    /// As it is written. Empty if there is none, or it is in the rest.
    pub(super) generation: &'a str,
    /// As the form says.
    pub(super) rest: &'a [u8],
    /// How long facts and rest are as JSON.
    pub(super) bytes: usize,
    pub(super) form: Form,
}

/// What there is to know of what is held.
#[derive(Clone, Copy, Default)]
struct Numbers {
    /// How long the object is as JSON.
    json: usize,
    uid_is_whole: bool,
    /// Where the resource version begins, the generation, and the rest.
    version: usize,
    generation: usize,
    rest: usize,
}

impl Numbers {
    fn read(held: &[u8]) -> Option<Self> {
        let (json, first) = numbers::read(held)?;
        let (version, second) = numbers::read(held.get(first..)?)?;
        let (generation, third) = numbers::read(held.get(first + second..)?)?;
        let at = first + second + third;
        Some(Self {
            json,
            uid_is_whole: generation % 2 == 1,
            version: at,
            generation: at + version,
            rest: at + version + generation / 2,
        })
    }
}

impl Object {
    pub(super) fn of(parts: Parts<'_>) -> Self {
        let Parts {
            resource_version: version,
            generation,
            rest,
            ..
        } = parts;
        let numbers = [
            parts.bytes,
            version.len(),
            2 * generation.len() + usize::from(parts.uid_is_whole),
        ];
        // As much as is needed: what is too much would be given back by copying all of it.
        let len: usize = numbers.iter().map(|number| numbers::len(*number)).sum();
        let mut held = Vec::with_capacity(len + version.len() + generation.len() + rest.len());
        numbers
            .iter()
            .for_each(|number| numbers::write(&mut held, *number));
        held.extend_from_slice(version.as_bytes());
        held.extend_from_slice(generation.as_bytes());
        held.extend_from_slice(rest);
        Self {
            key: parts.key,
            uid: parts.uid,
            form: parts.form,
            held: held.into(),
        }
    }

    fn numbers(&self) -> Numbers {
        // They were written when it was made.
        Numbers::read(&self.held).unwrap_or_default()
    }

    /// The object's name and namespace.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// `metadata.resourceVersion`.
    pub fn resource_version(&self) -> &str {
        let Numbers {
            version, generation, ..
        } = self.numbers();
        self.fact(version, generation)
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
        self.numbers().json
    }

    /// How many bytes of memory it takes.
    pub fn held_bytes(&self) -> usize {
        /// Of what is shared there are two counts beside it.
        const COUNTS: usize = 2 * size_of::<usize>();
        let name = (COUNTS + self.key.name.len()).next_multiple_of(align_of::<usize>());
        COUNTS + size_of::<Self>() + name + self.held.len()
    }

    /// Decodes the object. `K` may be asked up to three times for one object, the last time by serde_json: what it does beside
    /// making a value, it then does as often. Types that ask for JSON as it is written (`RawValue`), or that read numbers
    /// from the names of fields, are asked more than once each time.
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
        let shaped = self.form.shape();
        if let Some(decoded) = shaped.and_then(|shape| self.decode_shaped(shape, text)) {
            return Ok(decoded);
        }
        self.write_document(document);
        // Checked as a whole, which takes less than checking string by string.
        let read = from_utf8(document).ok().and_then(|json| typed::read(json, text));
        match read {
            Some(decoded) => Ok(decoded),
            None => self.decode_by_serde_json(document),
        }
    }

    /// Reads it without putting the JSON together. None for a few types that ask for what is written, as well as for what
    /// can't be decoded.
    pub(super) fn decode_shaped<K: DeserializeOwned>(&self, shape: &Shape, room: &mut String) -> Option<K> {
        // Checked as a whole, which takes less than checking string by string.
        let held = from_utf8(&self.held).ok()?;
        let numbers = Numbers::read(&self.held)?;
        let version = held.get(numbers.version..numbers.generation)?;
        let generation = held.get(numbers.generation..numbers.rest)?;
        let facts = self.facts(numbers.uid_is_whole, version, generation);
        let fillings = Fillings::new(facts, held.get(numbers.rest..)?);
        typed::read_shaped(shape.text(), fillings, room)
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
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = Vec::new();
        self.write_document(&mut json);
        json
    }

    fn fact(&self, from: usize, to: usize) -> &str {
        let bytes = self.held.get(from..to).unwrap_or_default();
        // They were text when they were put there.
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    fn generation_text(&self) -> &str {
        let Numbers { generation, rest, .. } = self.numbers();
        self.fact(generation, rest)
    }

    fn rest(&self) -> &[u8] {
        self.held.get(self.numbers().rest..).unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn form(&self) -> &Form {
        &self.form
    }

    /// The facts that are not in the rest, each in the place of what stands before it.
    fn facts<'a>(
        &'a self,
        uid_is_whole: bool,
        version: &'a str,
        generation: &'a str,
    ) -> [Option<Fact<'a>>; BEFORE_FACTS.len()] {
        [
            Some(Fact::Text(&self.key.name)),
            self.key.namespace.as_deref().map(Fact::Text),
            uid_is_whole.then_some(Fact::Uid(self.uid)),
            (!version.is_empty()).then_some(Fact::Text(version)),
            (!generation.is_empty()).then_some(Fact::Number(generation)),
        ]
    }

    /// The facts with what stands before each.
    fn head<'a>(
        &'a self,
        uid_is_whole: bool,
        version: &'a str,
        generation: &'a str,
    ) -> impl Iterator<Item = (&'static str, Fact<'a>)> {
        let facts = self.facts(uid_is_whole, version, generation);
        let head = BEFORE_FACTS.into_iter().zip(facts);
        head.filter_map(|(before, fact)| fact.map(|fact| (before, fact)))
    }

    fn own_head(&self) -> impl Iterator<Item = (&'static str, Fact<'_>)> {
        let numbers = self.numbers();
        self.head(
            numbers.uid_is_whole,
            self.fact(numbers.version, numbers.generation),
            self.fact(numbers.generation, numbers.rest),
        )
    }

    /// Puts the JSON together, in the place of what was there.
    fn write_document(&self, json: &mut Vec<u8>) {
        let prefix = self.form.prefix();
        json.clear();
        let len = prefix.len() + self.bytes();
        if json.capacity() < len {
            // Nothing to be moved over, and no more than is needed.
            *json = Vec::with_capacity(len);
        }
        json.extend_from_slice(prefix.as_bytes());
        for (before, fact) in self.own_head() {
            json.extend_from_slice(before.as_bytes());
            fact.write(json);
        }
        match self.form.shape() {
            Some(shape) => shape.write(std::str::from_utf8(self.rest()).unwrap_or_default(), json),
            None => json.extend_from_slice(self.rest()),
        }
    }
}

/// What stands before each of the facts that the rest of the JSON follows upon.
pub(super) const BEFORE_FACTS: [&str; 5] = [
    "\"metadata\":{\"name\":",
    ",\"namespace\":",
    ",\"uid\":",
    ",\"resourceVersion\":",
    ",\"generation\":",
];

/// Something an object knows of itself.
pub(super) enum Fact<'a> {
    Text(&'a str),
    Uid(Uid),
    /// As it is written.
    Number(&'a str),
}

impl Fact<'_> {
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
            .field("bytes", &self.bytes())
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
    use proptest::prelude::*;
    use serde_json::{Value, value::RawValue};

    use super::*;
    use crate::store::{Interner, NotAnObject, scan::tests};

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
            object.to_json(),
            br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"n"}}"#
        );
    }

    #[test]
    fn a_uid_that_is_no_uuid_is_held_as_it_is() {
        for uid in [
            "not-a-uuid",
            "6E0C7B4E-0B7C-4B58-9D3E-0123456789AB",
            "6e0c7b4e0b7c4b589d3e0123456789ab",
            "{6e0c7b4e-0b7c-4b58-9d3e-0123456789ab}",
            "",
        ] {
            let object = parse(&format!(r#"{{"metadata":{{"name":"a","uid":"{uid}"}}}}"#)).unwrap();
            let map: ConfigMap = object.decode().unwrap();
            assert_eq!(map.metadata.uid.as_deref(), Some(uid));
        }
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

    /// Fields, most of which the fleet knows by their names.
    fn fields() -> impl Strategy<Value = String> {
        let known = [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "generation",
            "apiVersion",
            "kind",
            r"n\u0061me",
            r"\u006bind",
            "managedFields",
            "1",
        ];
        let name =
            prop_oneof![4 => prop::sample::select(known.to_vec()).prop_map(str::to_owned), 1 => "[a-z]{0,3}"];
        let uid = "\"6e0c7b4e-0b7c-4b58-9d3e-00000000000[0-9]\"";
        let value = prop_oneof![
            2 => tests::string(),
            2 => uid,
            1 => "-?[0-9]",
            1 => Just("null".to_owned()),
            1 => tests::json(),
        ];
        let field = (name, value).prop_map(|(name, value)| format!("\"{name}\":{value},"));
        prop::collection::vec(field, 0..5).prop_map(|fields| fields.concat())
    }

    proptest! {
        #[test]
        fn an_object_says_what_it_was_read_from(
            [before, first, then, after] in [fields(), fields(), fields(), fields()],
            name in tests::string(),
        ) {
            let json = format!(r#"{{{before}"metadata":{{{first}"name":{name},{then}"end":1}},{after}"end":1}}"#);
            let Ok(mut expected) = serde_json::from_str::<Value>(&json) else {
                return Ok(());
            };
            expected["apiVersion"] = "v1".into();
            expected["kind"] = "ConfigMap".into();
            if let Some(metadata) = expected["metadata"].as_object_mut() {
                metadata.remove("managedFields");
            }
            if let Ok(object) = parse(&json) {
                let name = expected["metadata"]["name"].as_str();
                prop_assert_eq!(Some(&*object.key().name), name);
                prop_assert_eq!(object.decode::<Value>().ok(), Some(expected), "{}", json);
            }
        }
    }
}
