//! Reading the fields of one entry of a kubeconfig, with errors that say which.

use std::{
    ops::Deref,
    path::{Path, PathBuf},
};

use base64::Engine;

use crate::{AccessError, AccessPolicy, KubeconfigAccess, Trust, file};

pub(crate) struct Fields<'a> {
    /// The path of the entry.
    pub(crate) at: String,
    pub(crate) access: &'a KubeconfigAccess,
    pub(crate) policy: &'a AccessPolicy,
    /// Whether files that are named may be read now.
    pub(crate) read: bool,
}

impl Fields<'_> {
    pub(crate) fn invalid(&self, field: &str, problem: impl Into<String>) -> AccessError {
        AccessError::invalid(format!("{}.{field}", self.at), problem)
    }

    pub(crate) fn refused(&self, field: &str, problem: impl Into<String>) -> AccessError {
        AccessError::refused(format!("{}.{field}", self.at), problem)
    }

    pub(crate) fn is_untrusted(&self) -> bool {
        self.access.trust == Trust::Untrusted
    }

    /// The path of a file that a field names, if it may name one.
    pub(crate) fn file(&self, field: &str, path: &str, instead: &str) -> Result<PathBuf, AccessError> {
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

    pub(crate) fn read(&self, field: &str, path: &Path) -> Result<Vec<u8>, AccessError> {
        file::read(path).map_err(|error| AccessError::Read {
            field: format!("{}.{field}", self.at),
            path: path.to_owned(),
            kind: error.kind(),
        })
    }
}

/// As in Go, an empty text is as good as none.
pub(crate) fn filled<T: Deref<Target = str>>(text: Option<T>) -> Option<T> {
    text.filter(|text| !text.trim().is_empty())
}

pub(crate) fn base64(text: &str) -> Result<Vec<u8>, &'static str> {
    let engine = base64::engine::general_purpose::STANDARD;
    // Few are broken into lines, and to look for the breaks takes longer than to decode.
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
