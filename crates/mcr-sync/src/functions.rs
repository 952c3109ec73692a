//! Calls the functions of the user, and decodes the typed objects that they get.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::SyncError;

/// Calls a function of the user. A panic becomes an error, as if the function had returned one. The message of the
/// panic is left out, because it may contain values of a Secret.
pub(crate) fn call<A>(function: &'static str, call: impl FnOnce() -> A) -> Result<A, SyncError> {
    // `AssertUnwindSafe` holds: a panic drops the result of the function, and the function can change nothing else.
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| SyncError::Function {
        function,
        source: "it panicked, which is a fault in its code; the standard error of this program says where"
            .into(),
    })
}

/// Decodes an object as its type.
pub(crate) fn decode<K: DeserializeOwned>(function: &'static str, value: Value) -> Result<K, SyncError> {
    typed(&value).map_err(|error| SyncError::function(function, error.into()))
}

/// Decodes an object as its type. The error leaves out the text of the decoder, because the decoder quotes values,
/// and a value may be secret.
pub(crate) fn typed<K: DeserializeOwned>(object: &Value) -> Result<K, String> {
    K::deserialize(object).map_err(|_| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        format!("the object {name} is not valid for its type")
    })
}
