use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::kinds::Kind;

/// A stored object: compact JSON, and the fields that selectors need.
///
/// `apiVersion` and `kind` are not stored: each version of a resource adds its own, and lists of built-in kinds have
/// none.
#[derive(Debug)]
pub struct Object {
    /// The key, as [`key`] makes it. Lists are sorted by it.
    pub key: Box<str>,
    pub version: u64,
    labels: Box<[(Box<str>, Box<str>)]>,
    body: Box<[u8]>,
}

#[derive(Deserialize)]
struct OnlyMetadata<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

impl Object {
    /// Makes a stored object of a logical cluster. The metadata must be complete except for the version.
    pub fn new(cluster: &str, mut value: Value, version: u64) -> Self {
        if let Some(object) = value.as_object_mut() {
            object.remove("apiVersion");
            object.remove("kind");
        }
        let metadata = metadata_mut(&mut value);
        metadata.insert("resourceVersion".to_owned(), version.to_string().into());
        let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default();
        let key = key(cluster, text("namespace"), text("name"));
        let labels = metadata.get("labels").and_then(Value::as_object);
        let labels = labels
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into())))
            .collect();
        Self {
            key: key.into(),
            version,
            labels,
            body: value.to_string().into_bytes().into(),
        }
    }

    pub fn namespace(&self) -> &str {
        self.path().split_once('/').map_or("", |(namespace, _)| namespace)
    }

    pub fn name(&self) -> &str {
        self.path().split_once('/').map_or(self.path(), |(_, name)| name)
    }

    /// The logical cluster. Empty if the server has no logical clusters.
    pub fn cluster(&self) -> &str {
        self.key.split_once("//").map_or("", |(cluster, _)| cluster)
    }

    /// `namespace/name`, or `name` for a cluster-wide object.
    pub fn path(&self) -> &str {
        self.key.split_once("//").map_or(&*self.key, |(_, path)| path)
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels
            .iter()
            .find(|(name, _)| &**name == key)
            .map(|(_, value)| &**value)
    }

    /// The object without `apiVersion` and `kind`.
    pub fn value(&self) -> Value {
        // This can't fail, because this module has written the JSON.
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The object in the form in which this version of its resource serves it.
    pub fn value_as(&self, kind: &Kind) -> Value {
        let mut value = self.value();
        value["apiVersion"] = kind.api_version().into();
        value["kind"] = (*kind.kind).into();
        value
    }

    pub fn body(&self) -> &[u8] {
        &self.body
    }

    pub fn write_as(&self, kind: &Kind, to: &mut Vec<u8>) {
        let (api_version, name) = (kind.api_version(), &kind.kind);
        to.extend_from_slice(format!("{{\"apiVersion\":\"{api_version}\",\"kind\":\"{name}\",").as_bytes());
        // The object has metadata, so it is never empty.
        to.extend_from_slice(self.body.get(1..).unwrap_or_default());
    }

    pub fn write_metadata(&self, to: &mut Vec<u8>) {
        let metadata = serde_json::from_slice::<OnlyMetadata<'_>>(&self.body).map(|only| only.metadata.get());
        to.extend_from_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#);
        to.extend_from_slice(metadata.unwrap_or("{}").as_bytes());
        to.push(b'}');
    }

    /// Removes the version, for the answer to a dry run.
    pub fn forget_version(&mut self) {
        let mut value = self.value();
        metadata_mut(&mut value).remove("resourceVersion");
        self.body = value.to_string().into_bytes().into();
    }

    /// The last state of a deleted object, with the version of the deletion.
    pub fn at(&self, version: u64) -> Self {
        Self::new(self.cluster(), self.value(), version)
    }
}

/// The key of an object: `namespace/name`, or `name` for a cluster-wide object. In a server with many logical
/// clusters, `cluster//` is added in front. That is unambiguous, because no name contains a slash.
pub fn key(cluster: &str, namespace: &str, name: &str) -> String {
    format!("{}{name}", prefix(cluster, namespace))
}

/// The common beginning of the keys in a namespace of a logical cluster. Empty strings select everything.
pub fn prefix(cluster: &str, namespace: &str) -> String {
    match (cluster, namespace) {
        ("", "") => String::new(),
        ("", namespace) => format!("{namespace}/"),
        (cluster, "") => format!("{cluster}//"),
        (cluster, namespace) => format!("{cluster}//{namespace}/"),
    }
}

/// The metadata. Inserts it if there is none.
pub fn metadata_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    let slot = &mut value["metadata"];
    if !slot.is_object() {
        *slot = json!({});
    }
    match slot {
        Value::Object(map) => map,
        _ => unreachable!("it was just made an object"),
    }
}

pub fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value["metadata"][field].as_str().unwrap_or_default()
}

pub fn has_finalizers(value: &Value) -> bool {
    value["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|finalizers| !finalizers.is_empty())
}

/// An object in a sorted set. Its key is not stored a second time.
#[derive(Clone, Debug)]
pub struct ByKey(pub Arc<Object>);

impl Borrow<str> for ByKey {
    fn borrow(&self) -> &str {
        &self.0.key
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for ByKey {}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key.cmp(&other.0.key)
    }
}
