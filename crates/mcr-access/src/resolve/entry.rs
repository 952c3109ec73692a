//! Reading the fields of a cluster or user entry.

use std::{
    ops::Deref,
    path::{Path, PathBuf},
};

use base64::Engine;

use crate::{
    error::AccessError, file_source::read_file, kubeconfig::KubeconfigAccess, policy::AccessPolicy,
    trust::Trust,
};

/// An entry of a kubeconfig, for errors that name its fields and for files that its fields name.
pub(super) struct Entry<'a> {
    /// The path of the entry, for example `clusters[name="a"].cluster`.
    pub(super) path: String,
    pub(super) access: &'a KubeconfigAccess,
    pub(super) policy: &'a AccessPolicy,
    /// Whether to read files now.
    pub(super) read_files: bool,
}

impl Entry<'_> {
    pub(super) fn invalid(&self, field: &str, problem: impl Into<String>) -> AccessError {
        AccessError::invalid(format!("{}.{field}", self.path), problem)
    }

    pub(super) fn refused(&self, field: &str, problem: impl Into<String>) -> AccessError {
        AccessError::refused(format!("{}.{field}", self.path), problem)
    }

    pub(super) fn is_untrusted(&self) -> bool {
        self.access.trust == Trust::Untrusted
    }

    /// Returns the absolute path of a file that a field names. `instead` is advice for the error text.
    ///
    /// # Errors
    /// If the policy does not allow the file.
    pub(super) fn allowed_path(
        &self,
        field: &str,
        path: &str,
        instead: &str,
    ) -> Result<PathBuf, AccessError> {
        let path = self.access.absolute(path);
        if self.is_untrusted() && !self.policy.allows_file(&path) {
            return Err(self.refused(
                field,
                format!(
                    "names a file, which untrusted kubeconfigs may not do; {instead}, or allow its folder with \
                     AccessPolicy::allow_files_under"
                ),
            ));
        }
        Ok(path)
    }

    pub(super) fn read(&self, field: &str, path: &Path) -> Result<Vec<u8>, AccessError> {
        read_file(path).map_err(|error| AccessError::Read {
            field: format!("{}.{field}", self.path),
            path: path.to_owned(),
            kind: error.kind(),
        })
    }
}

/// Drops a blank string: as in client-go, an empty field counts as a missing one.
pub(super) fn filled<T: Deref<Target = str>>(text: Option<T>) -> Option<T> {
    text.filter(|text| !text.trim().is_empty())
}

/// Decodes base64. The error is the end of a sentence that begins with the name of the field.
pub(super) fn base64(text: &str) -> Result<Vec<u8>, &'static str> {
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
