//! Reading the fields of a cluster or user entry.

use std::ops::Deref;

use base64::Engine;

use crate::{error::AccessError, kubeconfig::KubeconfigAccess};

/// An entry of a kubeconfig, for errors that name its fields and for files that its fields name.
pub(super) struct Entry<'a> {
    /// The path of the entry, for example `clusters[name="a"].cluster`.
    pub(super) path: String,
    pub(super) access: &'a KubeconfigAccess,
}

impl Entry<'_> {
    pub(super) fn invalid(&self, field: &str, problem: impl Into<String>) -> AccessError {
        AccessError::invalid(format!("{}.{field}", self.path), problem)
    }

    pub(super) fn refused(&self, field: &str, problem: impl Into<String>) -> AccessError {
        AccessError::refused(format!("{}.{field}", self.path), problem)
    }
}

/// Drops a blank string: as in client-go, an empty field counts as a missing one.
pub(crate) fn filled<T: Deref<Target = str>>(text: Option<T>) -> Option<T> {
    text.filter(|text| !text.trim().is_empty())
}

/// Decodes base64. The error is the end of a sentence that begins with the name of the field.
pub(crate) fn base64(text: &str) -> Result<Vec<u8>, &'static str> {
    let engine = base64::engine::general_purpose::STANDARD;
    // Tried first: few texts have line breaks, and to remove them takes longer than to decode.
    if let Ok(bytes) = engine.decode(text.trim()) {
        return Ok(bytes);
    }
    if text.contains("-----BEGIN") {
        return Err("holds PEM as it is; encode it with base64 -w0 once more");
    }
    let text: String = text.split_whitespace().collect();
    engine
        .decode(text)
        .map_err(|_| "is not valid base64; encode the PEM with base64 -w0 and copy all of it")
}
