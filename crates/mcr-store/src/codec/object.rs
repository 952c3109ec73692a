//! Encoded objects.

use std::fmt;

use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use simdutf8::basic::from_utf8;

use super::{
    deserialize,
    encoding::Encoding,
    error::DecodeError,
    facts::{BEFORE_FACTS, Fact},
    scratch::Scratch,
    template::Template,
    uid::Uid,
    values::TemplateValues,
    varint,
};
use crate::key::ObjectKey;

/// One Kubernetes object, encoded.
///
/// An object holds its key, UID, resource version and generation, and all other strings and numbers. All other JSON is
/// in a template, which objects of the same layout share. An object without a template holds all of its JSON. No object
/// holds `metadata.managedFields`.
///
/// [`decode`](Self::decode) makes an owned value of a Rust type. The object does not keep that value.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mcr_store::{Encoder, Encoding, Object};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let json = r#"{"metadata":{"name":"a","namespace":"default","resourceVersion":"7"},"data":{"key":"value"}}"#;
/// let mut encoder = Encoder::plain(Encoding::new("v1", "ConfigMap"));
/// let object = Object::parse(serde_json::from_str(json)?, &mut encoder)?;
/// assert_eq!(object.key().to_string(), "default/a");
/// assert_eq!(object.resource_version(), "7");
///
/// let map: ConfigMap = object.decode()?;
/// assert_eq!(map.data.unwrap()["key"], "value");
/// # Ok(())
/// # }
/// ```
pub struct Object {
    key: ObjectKey,
    uid: Uid,
    encoding: Encoding,
    /// The [`Header`], the resource version, the generation as JSON text, and the tail. The tail consists of values if
    /// the encoding has a template, otherwise of JSON.
    held: Box<[u8]>,
}

/// The parts that an object is made of.
pub(super) struct ObjectParts<'a> {
    pub(super) key: ObjectKey,
    pub(super) uid: Uid,
    /// Whether the original text can be restored from the UID. If not, that text is in the tail.
    pub(super) uid_is_canonical: bool,
    /// Empty if the object has none, or if it is in the tail.
    pub(super) resource_version: &'a str,
    /// The generation as JSON text. Empty if the object has none, or if it is in the tail.
    pub(super) generation: &'a str,
    /// Values if the encoding has a template, otherwise JSON.
    pub(super) tail: &'a [u8],
    /// The length of the JSON of facts and tail, in bytes.
    pub(super) bytes: usize,
    pub(super) encoding: Encoding,
}

/// The lengths and positions of an object's parts.
#[derive(Clone, Copy, Default)]
struct Header {
    /// The length of the JSON of facts and tail.
    json: usize,
    uid_is_canonical: bool,
    /// The positions of the resource version, the generation and the tail.
    version: usize,
    generation: usize,
    tail: usize,
}

impl Header {
    fn read(held: &[u8]) -> Option<Self> {
        let (json, first) = varint::read(held)?;
        let (version, second) = varint::read(held.get(first..)?)?;
        // The lowest bit is `uid_is_canonical`.
        let (generation, third) = varint::read(held.get(first + second..)?)?;
        let at = first + second + third;
        Some(Self {
            json,
            uid_is_canonical: generation % 2 == 1,
            version: at,
            generation: at + version,
            tail: at + version + generation / 2,
        })
    }
}

impl Object {
    pub(super) fn new(parts: ObjectParts<'_>) -> Self {
        let ObjectParts {
            resource_version: version,
            generation,
            tail,
            ..
        } = parts;
        let header = [
            parts.bytes,
            version.len(),
            2 * generation.len() + usize::from(parts.uid_is_canonical),
        ];
        // With the exact capacity, the conversion into a box reuses the allocation.
        let len: usize = header.iter().map(|number| varint::len(*number)).sum();
        let mut held = Vec::with_capacity(len + version.len() + generation.len() + tail.len());
        header.iter().for_each(|number| varint::write(&mut held, *number));
        held.extend_from_slice(version.as_bytes());
        held.extend_from_slice(generation.as_bytes());
        held.extend_from_slice(tail);
        Self {
            key: parts.key,
            uid: parts.uid,
            encoding: parts.encoding,
            held: held.into(),
        }
    }

    fn header(&self) -> Header {
        // `new` has written a valid header.
        Header::read(&self.held).unwrap_or_default()
    }

    /// The object's name and namespace.
    #[inline]
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// `metadata.resourceVersion`. Empty if the object has none.
    pub fn resource_version(&self) -> &str {
        let Header {
            version, generation, ..
        } = self.header();
        self.fact(version, generation)
    }

    /// `metadata.generation`. `None` for kinds that have none.
    pub fn generation(&self) -> Option<i64> {
        let Header { generation, tail, .. } = self.header();
        self.fact(generation, tail).parse().ok()
    }

    /// Whether `metadata.deletionTimestamp` is set. Reads the JSON of the object.
    pub fn is_deleting(&self) -> bool {
        #[derive(Deserialize)]
        struct Deletion {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            deletion_timestamp: Option<IgnoredAny>,
        }
        let deletion = self.decode::<Deletion>();
        deletion.is_ok_and(|deletion| deletion.metadata.deletion_timestamp.is_some())
    }

    /// Whether both objects have the same UID. Objects with the same key but different UIDs were created one after the
    /// other.
    #[inline]
    pub fn same_uid(&self, other: &Self) -> bool {
        self.uid == other.uid
    }

    /// The UID and the resource version, for comparisons after the object itself was dropped.
    pub fn incarnation(&self) -> Incarnation {
        Incarnation {
            uid: self.uid,
            version: self.resource_version().parse().unwrap_or_default(),
        }
    }

    /// Whether both objects have the same JSON, including the resource version. An equal version alone proves nothing:
    /// after an upgrade of the API server or of a CRD, an object may have other contents although nobody has written
    /// it.
    pub fn same_content(&self, other: &Self) -> bool {
        let same_form = self.key == other.key && self.encoding.is_same(&other.encoding);
        // Objects of two watches may have different templates for the same JSON.
        self.same_uid(other)
            && self.resource_version() == other.resource_version()
            && (std::ptr::eq(self, other)
                || (same_form && self.held == other.held)
                || self.to_json() == other.to_json())
    }

    /// The length of the object as JSON, in bytes, without `apiVersion` and `kind`.
    pub fn bytes(&self) -> usize {
        self.header().json
    }

    /// The memory that the object takes, in bytes: the object itself and its name. Does not include shared memory,
    /// which is the template and the namespace.
    pub fn held_bytes(&self) -> usize {
        /// The two reference counts of an `Arc`.
        const COUNTS: usize = 2 * size_of::<usize>();
        let name = (COUNTS + self.key.name.len()).next_multiple_of(align_of::<usize>());
        COUNTS + size_of::<Self>() + name + self.held.len()
    }

    /// Decodes the object as a Rust type.
    ///
    /// `K::deserialize` may run up to three times: for the template and its values, for the JSON, and finally for
    /// serde_json, which gives the error. It runs more than once only if the object is not a `K`, or if `K` needs the
    /// original JSON (`RawValue`) or has numbers as names of fields.
    ///
    /// # Errors
    /// [`DecodeError`] if the JSON is not a `K`. Its text names the object and the position in the JSON, never a value.
    pub fn decode<K: DeserializeOwned>(&self) -> Result<K, DecodeError> {
        let mut scratch = Scratch::take();
        let decoded = self.decode_in(&mut scratch);
        scratch.give_back();
        decoded
    }

    fn decode_in<K: DeserializeOwned>(&self, scratch: &mut Scratch) -> Result<K, DecodeError> {
        let Scratch { document, text, .. } = scratch;
        let template = self.encoding.template();
        if let Some(decoded) = template.and_then(|template| self.decode_template(template, text)) {
            return Ok(decoded);
        }
        self.write_document(document);
        // One UTF-8 check of the whole document is faster than a check of each string.
        let decoded = from_utf8(document)
            .ok()
            .and_then(|json| deserialize::from_json(json, text));
        match decoded {
            Some(decoded) => Ok(decoded),
            None => self.decode_by_serde_json(document),
        }
    }

    /// Decodes the object without writing its JSON. `None` if it can't be decoded as a `K`, or if `K` can be decoded
    /// from JSON only. `buffer` may have any content.
    pub(super) fn decode_template<K: DeserializeOwned>(
        &self,
        template: &Template,
        buffer: &mut String,
    ) -> Option<K> {
        // One UTF-8 check of the whole is faster than a check of each string.
        let held = from_utf8(&self.held).ok()?;
        let header = Header::read(&self.held)?;
        let version = held.get(header.version..header.generation)?;
        let generation = held.get(header.generation..header.tail)?;
        let facts = self.facts(header.uid_is_canonical, version, generation);
        let values = TemplateValues::new(facts, held.get(header.tail..)?);
        deserialize::from_template(template.text(), values, buffer)
    }

    /// Decodes the JSON with serde_json, which gives the reason of a failure.
    #[cold]
    fn decode_by_serde_json<K: DeserializeOwned>(&self, document: &[u8]) -> Result<K, DecodeError> {
        serde_json::from_slice(document).map_err(|error| DecodeError::new::<K>(&self.key, &error))
    }

    /// The object as a JSON document, without `metadata.managedFields`.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = Vec::new();
        self.write_document(&mut json);
        json
    }

    fn fact(&self, from: usize, to: usize) -> &str {
        let bytes = self.held.get(from..to).unwrap_or_default();
        // `new` has copied a text into this range.
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn encoding(&self) -> &Encoding {
        &self.encoding
    }

    /// The facts that are not in the tail, in the order of [`BEFORE_FACTS`].
    fn facts<'a>(
        &'a self,
        uid_is_canonical: bool,
        version: &'a str,
        generation: &'a str,
    ) -> [Option<Fact<'a>>; BEFORE_FACTS.len()] {
        [
            Some(Fact::Text(&self.key.name)),
            self.key.namespace.as_deref().map(Fact::Text),
            uid_is_canonical.then_some(Fact::Uid(self.uid)),
            (!version.is_empty()).then_some(Fact::Text(version)),
            (!generation.is_empty()).then_some(Fact::Number(generation)),
        ]
    }

    /// Replaces the content of `json` with the JSON document of the object.
    fn write_document(&self, json: &mut Vec<u8>) {
        let prefix = self.encoding.prefix();
        json.clear();
        let len = prefix.len() + self.bytes();
        if json.capacity() < len {
            // A new allocation copies no old content and has the exact capacity.
            *json = Vec::with_capacity(len);
        }
        json.extend_from_slice(prefix.as_bytes());
        let header = self.header();
        let version = self.fact(header.version, header.generation);
        let generation = self.fact(header.generation, header.tail);
        let facts = self.facts(header.uid_is_canonical, version, generation);
        for (before, fact) in BEFORE_FACTS.into_iter().zip(facts) {
            if let Some(fact) = fact {
                json.extend_from_slice(before.as_bytes());
                fact.write(json);
            }
        }
        let tail = self.held.get(header.tail..).unwrap_or_default();
        match self.encoding.template() {
            Some(template) => template.write(std::str::from_utf8(tail).unwrap_or_default(), json),
            None => json.extend_from_slice(tail),
        }
    }
}

/// Identifies one of several objects that successively had the same name, and the version of its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incarnation {
    uid: Uid,
    /// The resource version, if it is a number. Otherwise 0, which is older than all others.
    version: u64,
}

impl Incarnation {
    /// Whether this object still exists after `deleted`, an object of the same name, was deleted: it has another UID,
    /// and it is not known to be older. The check is needed because a watch may repeat deletions: after a list whose
    /// pages are of several versions, the watch begins at the oldest of them.
    pub fn outlives(self, deleted: Self) -> bool {
        let unknown = Uid::read("").0;
        self.uid != deleted.uid
            && deleted.uid != unknown
            && (self.version == 0 || self.version >= deleted.version)
    }
}

// Does not show the JSON, because objects may be Secrets.
impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("key", &self.key)
            .field("resource_version", &self.resource_version())
            .field("bytes", &self.bytes())
            .finish()
    }
}

#[cfg(test)]
mod tests;
