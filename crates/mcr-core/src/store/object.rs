//! Objects as the fleet holds them: the JSON the API server sent, without what nobody reads.

use std::{
    borrow::Cow,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// The name of an object inside one cluster, with its namespace if its kind has one.
///
/// ```
/// use mcr_core::ObjectKey;
///
/// assert_eq!(ObjectKey::namespaced("default", "web").to_string(), "default/web");
/// assert_eq!(ObjectKey::cluster_scoped("node-1").to_string(), "node-1");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The namespace; none for cluster-scoped kinds.
    pub namespace: Option<Arc<str>>,
    /// The name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of an object in a namespace.
    pub fn namespaced(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: Some(namespace.into()),
            name: name.into(),
        }
    }

    /// The key of an object of a cluster-scoped kind.
    pub fn cluster_scoped(name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: None,
            name: name.into(),
        }
    }

    /// The key of an object; none if it has no name yet.
    pub fn of<K: kube::Resource>(object: &K) -> Option<Self> {
        let meta = object.meta();
        Some(Self {
            namespace: meta.namespace.as_deref().map(Arc::from),
            name: meta.name.as_deref().map(Arc::from)?,
        })
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The group, version and kind that a stored object is given back when it is decoded. List items carry none,
/// and holding the same two strings once per object would be a waste.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypePrefix(Arc<[u8]>);

impl TypePrefix {
    pub(crate) fn new(api_version: &str, kind: &str) -> Self {
        let quoted = |s: &str| serde_json::Value::from(s).to_string();
        Self(
            format!(
                "{{\"apiVersion\":{},\"kind\":{},",
                quoted(api_version),
                quoted(kind)
            )
            .into_bytes()
            .into(),
        )
    }
}

/// One object of one cluster, as JSON bytes with the few facts the fleet itself needs.
///
/// `metadata.managedFields` is dropped, and `apiVersion` and `kind` are held once per store.
pub struct Object {
    key: ObjectKey,
    uid: Uid,
    resource_version: Box<str>,
    generation: Option<i64>,
    prefix: TypePrefix,
    /// Starts with `"metadata":`: the opening brace belongs to the prefix.
    body: Box<[u8]>,
}

/// A UID in 16 bytes. UIDs that are not UUIDs (no API server makes any) are hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Uid(u128);

impl Uid {
    fn new(uid: &str) -> Self {
        let digits = uid.bytes().filter(|b| *b != b'-');
        let mut value = 0u128;
        let mut count = 0;
        for digit in digits {
            let Some(nibble) = char::from(digit).to_digit(16) else {
                return Self::hashed(uid);
            };
            value = value << 4 | u128::from(nibble);
            count += 1;
        }
        if count == 32 {
            Self(value)
        } else {
            Self::hashed(uid)
        }
    }

    fn hashed(uid: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        uid.hash(&mut hasher);
        Self(u128::from(hasher.finish()) << 64 | uid.len() as u128)
    }
}

impl Object {
    /// The object's name and namespace.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// `metadata.resourceVersion`.
    pub fn resource_version(&self) -> &str {
        &self.resource_version
    }

    /// `metadata.generation`, for kinds that have one.
    pub fn generation(&self) -> Option<i64> {
        self.generation
    }

    /// Whether both are the same object over time, and not two that had the same name one after the other.
    pub fn same_uid(&self, other: &Self) -> bool {
        self.uid == other.uid
    }

    /// How many bytes of JSON are held.
    pub fn bytes(&self) -> usize {
        self.body.len()
    }

    /// Decodes the object.
    ///
    /// # Errors
    /// [`DecodeError`] if the JSON is not a `K`. Its text names the object and the place in it, never a value.
    pub fn decode<K: DeserializeOwned>(&self) -> Result<K, DecodeError> {
        let mut json = Vec::with_capacity(self.prefix.0.len() + self.body.len());
        json.extend_from_slice(&self.prefix.0);
        json.extend_from_slice(&self.body);
        serde_json::from_slice(&json).map_err(|error| DecodeError {
            key: self.key.clone(),
            target: short_type_name::<K>(),
            reason: describe(&error),
        })
    }

    /// The object as a JSON document.
    pub fn to_json(&self) -> Vec<u8> {
        [&*self.prefix.0, &*self.body].concat()
    }
}

// Objects may be Secrets: what they hold is never shown.
impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("key", &self.key)
            .field("resource_version", &self.resource_version)
            .field("bytes", &self.body.len())
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
        prefix: &TypePrefix,
        namespaces: &mut Namespaces,
    ) -> Result<Self, NotAnObject> {
        OpenObject::open(json)?.close(None, prefix, namespaces)
    }
}

/// An object taken apart as far as its metadata, before it is known who is to hold it.
pub(crate) struct OpenObject<'a> {
    fields: Fields<'a>,
    metadata: ObjectMetadata<'a>,
    len: usize,
}

impl<'a> OpenObject<'a> {
    pub(crate) fn open(json: &'a RawValue) -> Result<Self, NotAnObject> {
        let fields: Fields<'a> = serde_json::from_str(json.get())
            .map_err(|e| NotAnObject::nameless(format!("not a JSON object: {}", describe(&e))))?;
        let metadata = fields
            .get("metadata")
            .ok_or_else(|| NotAnObject::nameless("the object has no metadata"))?;
        let metadata = serde_json::from_str(metadata.get())
            .map_err(|e| NotAnObject::nameless(format!("metadata is not a JSON object: {}", describe(&e))))?;
        Ok(Self {
            fields,
            metadata: ObjectMetadata(metadata),
            len: json.get().len(),
        })
    }

    pub(crate) fn metadata(&self) -> &ObjectMetadata<'a> {
        &self.metadata
    }

    /// Makes the object, in another namespace than its own if one is given.
    pub(crate) fn close(
        &self,
        namespace: Option<&str>,
        prefix: &TypePrefix,
        namespaces: &mut Namespaces,
    ) -> Result<Object, NotAnObject> {
        let Self {
            fields,
            metadata,
            len,
        } = self;
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
        let uid = text("uid").map_err(with_key)?;
        let resource_version = text("resourceVersion").map_err(with_key)?;
        let generation = metadata
            .0
            .get("generation")
            .and_then(|raw| raw.get().parse().ok());

        let mut body = Vec::with_capacity(*len);
        body.extend_from_slice(b"\"metadata\":{");
        match namespace {
            None => {
                write_fields(&mut body, &metadata.0, &["managedFields"]);
            }
            Some(namespace) => {
                body.extend_from_slice(b"\"namespace\":");
                // Writing into a Vec can't fail.
                let _ = serde_json::to_writer(&mut body, namespace);
                let before = body.len();
                body.push(b',');
                if !write_fields(&mut body, &metadata.0, &["managedFields", "namespace"]) {
                    body.truncate(before);
                }
            }
        }
        body.push(b'}');
        let before = body.len();
        body.push(b',');
        if !write_fields(&mut body, fields, &["metadata", "apiVersion", "kind"]) {
            body.truncate(before);
        }
        body.push(b'}');
        Ok(Object {
            uid: Uid::new(uid.as_deref().unwrap_or_default()),
            resource_version: resource_version.as_deref().unwrap_or_default().into(),
            generation,
            prefix: prefix.clone(),
            body: body.into(),
            key,
        })
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

/// Writes all but the fields named; says whether any was written.
fn write_fields(out: &mut Vec<u8>, fields: &Fields<'_>, without: &[&str]) -> bool {
    let mut first = true;
    for (name, value) in &fields.0 {
        if without.contains(&&*name.0) {
            continue;
        }
        if !first {
            out.push(b',');
        }
        first = false;
        // Writing into a Vec can't fail, and a key that was read can be written.
        let _ = serde_json::to_writer(&mut *out, &*name.0);
        out.push(b':');
        out.extend_from_slice(value.get().as_bytes());
    }
    !first
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::{DynamicObject, PartialObjectMeta};

    use super::*;

    fn parse(json: &str) -> Result<Object, NotAnObject> {
        let raw: &RawValue = serde_json::from_str(json).unwrap();
        Object::parse(
            raw,
            &TypePrefix::new("v1", "ConfigMap"),
            &mut Namespaces::default(),
        )
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

    #[test]
    fn uids_are_told_apart() {
        let a = Uid::new("6e0c7b4e-0b7c-4b58-9d3e-0123456789ab");
        assert_ne!(a, Uid::new("6e0c7b4e-0b7c-4b58-9d3e-0123456789ac"));
        assert_eq!(a, Uid::new("6e0c7b4e-0b7c-4b58-9d3e-0123456789ab"));
        assert_ne!(Uid::new("not a uuid"), Uid::new("another"));
    }
}
