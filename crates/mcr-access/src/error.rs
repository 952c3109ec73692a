//! Errors, and names in their texts.

use std::{fmt, io, path::PathBuf};

use crate::unprintable::reason;

/// An error of any type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a kubeconfig or an endpoint can't be used.
///
/// The text says what is wrong, where, and what to do next. It fits into the status of an object or into a log line. It
/// contains names and paths, but never the content of a field, so it reveals no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The kubeconfig is empty.
    #[error(
        "the kubeconfig is empty; check that whatever writes it has finished, and that this is the right file or key"
    )]
    Empty,
    /// The kubeconfig is not valid YAML, or a field has the wrong type.
    #[error("the kubeconfig can't be read: {problem}{place}; correct it there")]
    Syntax {
        /// What is wrong.
        problem: &'static str,
        /// The position of the error.
        place: Place,
    },
    /// A name is not defined, or is defined more than once.
    #[error("{field}: {problem}")]
    Reference {
        /// The path of the field that refers to the name, or of the entry that is defined twice.
        field: String,
        /// What is wrong and what to do about it.
        problem: String,
    },
    /// A field is missing or has an unusable value.
    #[error("{field}: {problem}")]
    Invalid {
        /// The path of the field, for example `users[name="x"].user.client-key-data`.
        field: String,
        /// What is wrong and what to do about it.
        problem: String,
    },
    /// A field of an untrusted kubeconfig asks for something that the [`AccessPolicy`](crate::AccessPolicy) does not
    /// allow.
    #[error("{field}: {problem}")]
    Refused {
        /// The path of the field.
        field: String,
        /// What is refused and what to do about it.
        problem: String,
    },
    /// A field names a file that can't be read.
    #[error("{field}: can't read {}: {}; check that the file exists and that this process may read it", reason(&path.to_string_lossy()), kind)]
    Read {
        /// The path of the field.
        field: String,
        /// The path of the file.
        path: PathBuf,
        /// Why the file can't be read.
        kind: io::ErrorKind,
    },
}

/// A position in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The line, counted from 1. 0 means that the position is unknown.
    pub line: u64,
    /// The column, counted from 1.
    pub column: u64,
}

impl Place {
    pub(crate) const UNKNOWN: Self = Self { line: 0, column: 0 };
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return Ok(());
        }
        write!(f, " (line {}, column {})", self.line, self.column)
    }
}

impl AccessError {
    #[doc(hidden)]
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid {
            field: field.into(),
            problem: problem.into(),
        }
    }

    #[doc(hidden)]
    pub fn refused(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Refused {
            field: field.into(),
            problem: problem.into(),
        }
    }

    pub(crate) fn reference(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Reference {
            field: field.into(),
            problem: problem.into(),
        }
    }
}

/// Quotes and escapes a name from a kubeconfig, and cuts a long one.
pub(crate) fn quote(name: &str) -> String {
    const MAX_CHARS: usize = 80;
    match name.char_indices().nth(MAX_CHARS) {
        None => format!("{name:?}"),
        Some((end, _)) => format!("{:?}...", &name[..end]),
    }
}

/// Lists names for an error text: `there are "a", "b"`, or `there are none`. Of many names it lists the first five.
pub fn list_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const MAX_NAMES: usize = 5;
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        return "there are none".to_owned();
    }
    let mut text = names
        .iter()
        .take(MAX_NAMES)
        .map(|name| quote(name))
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > MAX_NAMES {
        text.push_str(&format!(" and {} more", names.len() - MAX_NAMES));
    }
    format!("there are {text}")
}
