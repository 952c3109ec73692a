//! The functions of the user: calls of them, and the typed objects that they get.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::SyncError;

/// Calls a function of the user. A panic in it is an error of this source, as if the function had returned one. The message of the
/// panic is left out, because it may have values of a Secret.
pub(crate) fn call<A>(function: &'static str, call: impl FnOnce() -> A) -> Result<A, SyncError> {
    // Unwind safe in effect: what the function was to return is dropped, and it has got nothing that it could change.
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

/// Decodes an object as its type. The error of the decoder is left out: it quotes values, which may be those of a Secret.
pub(crate) fn typed<K: DeserializeOwned>(object: &Value) -> Result<K, String> {
    K::deserialize(object).map_err(|_| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        format!("the object {name} is not valid for its type")
    })
}
