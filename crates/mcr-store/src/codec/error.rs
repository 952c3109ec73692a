//! Errors of JSON that is not an object, and of objects that can't be decoded.

use crate::key::ObjectKey;

/// Why a JSON value is not a Kubernetes object. The text never quotes a value.
///
/// ```
/// use mcr_store::{Encoder, Encoding, Object};
///
/// # fn main() -> Result<(), serde_json::Error> {
/// let mut encoder = Encoder::plain(Encoding::new("v1", "ConfigMap"));
/// let json = serde_json::from_str(r#"{"metadata":{"name":"a","uid":7}}"#)?;
/// let error = Object::parse(json, &mut encoder).unwrap_err();
/// assert_eq!(error.to_string(), "metadata.uid is not a string");
/// assert_eq!(error.key.unwrap().to_string(), "a");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[error("{reason}")]
pub struct NotAnObject {
    reason: String,
    /// The key of the object, if its name and namespace could be read.
    pub key: Option<ObjectKey>,
}

impl NotAnObject {
    /// An error about an object whose key is not known.
    pub fn nameless(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            key: None,
        }
    }

    pub(super) fn with_key(self, key: &ObjectKey) -> Self {
        Self {
            key: Some(key.clone()),
            ..self
        }
    }
}

/// An object that can't be decoded as the Rust type that was asked for. The text names the object and never quotes a
/// value.
#[derive(Debug, Clone, thiserror::Error)]
#[error("object {key} can't be decoded as {target}: {reason}")]
#[non_exhaustive]
pub struct DecodeError {
    /// The key of the object.
    pub key: ObjectKey,
    /// The name of the Rust type.
    pub target: &'static str,
    /// The category of the error, with its position in the JSON: the result of [`describe`].
    pub reason: String,
}

impl DecodeError {
    pub(super) fn new<K>(key: &ObjectKey, error: &serde_json::Error) -> Self {
        Self {
            key: key.clone(),
            target: short_type_name::<K>(),
            reason: describe(error),
        }
    }
}

fn short_type_name<K>() -> &'static str {
    let name = std::any::type_name::<K>();
    // The last segment of a generic type's name would be one of its arguments.
    if name.contains('<') {
        name
    } else {
        name.rsplit("::").next().unwrap_or(name)
    }
}

/// The category of an error and its position in the JSON. Unlike the text of [`serde_json::Error`], this text never
/// quotes a value, which may be a secret.
///
/// ```
/// let error = serde_json::from_str::<Vec<u8>>("[1,\"secret\"]").unwrap_err();
/// assert!(error.to_string().contains("secret"));
/// assert_eq!(
///     mcr_store::describe(&error),
///     "valid JSON of another shape than expected (line 1, column 11)"
/// );
/// ```
pub fn describe(error: &serde_json::Error) -> String {
    describe_at(error, error.line(), error.column())
}

/// As [`describe`], with another position, because serde_json has read only a part of the JSON.
pub(super) fn describe_at(error: &serde_json::Error, line: usize, column: usize) -> String {
    let category = match error.classify() {
        serde_json::error::Category::Io => "could not be read",
        serde_json::error::Category::Syntax => "not valid JSON",
        serde_json::error::Category::Data => "valid JSON of another shape than expected",
        serde_json::error::Category::Eof => "ends in the middle",
    };
    format!("{category} (line {line}, column {column})")
}
