//! Why an access can't be used.

use std::{fmt, io, path::PathBuf};

/// Why an access can't be used: what is wrong, where, and what to do next.
///
/// The text is meant for the status of the object or the log line about the file that holds the kubeconfig. It
/// names fields, names and paths, never the content of a field, so it holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// There is nothing in the kubeconfig.
    #[error(
        "the kubeconfig is empty; check that whatever writes it has finished, and that this is the right file or key"
    )]
    Empty,
    /// The kubeconfig is not YAML, or its fields have the wrong form.
    #[error("the kubeconfig can't be read: {problem}{place}; correct it there")]
    Syntax {
        /// What is wrong.
        problem: &'static str,
        /// Where it is wrong.
        place: Place,
    },
    /// A name that is referred to is not defined, or more than once.
    #[error("{field}: {problem}")]
    Reference {
        /// The field that refers, or the entry.
        field: String,
        /// What is wrong and what to do about it.
        problem: String,
    },
    /// A field can't be used.
    #[error("{field}: {problem}")]
    Invalid {
        /// The path of the field, for example `users[name="x"].user.client-key-data`.
        field: String,
        /// What is wrong and what to do about it.
        problem: String,
    },
    /// A field asks for something that the [`AccessPolicy`](crate::AccessPolicy) does not allow to whoever wrote
    /// the kubeconfig.
    #[error("{field}: {problem}")]
    Refused {
        /// The path of the field.
        field: String,
        /// What is refused and what to do about it.
        problem: String,
    },
    /// A file that a field names can't be read.
    #[error("{field}: can't read {}: {}; check that the file exists and that this process may read it", path.display(), kind)]
    Read {
        /// The path of the field.
        field: String,
        /// The file.
        path: PathBuf,
        /// Why it can't be read.
        kind: io::ErrorKind,
    },
}

/// A place in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The line, from 1; 0 if it is not known.
    pub line: u64,
    /// The column, from 1.
    pub column: u64,
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

/// Shows a name that somebody else chose: quoted, escaped, and not longer than fits a line.
pub(crate) fn quote(name: &str) -> String {
    const MOST: usize = 80;
    match name.char_indices().nth(MOST) {
        None => format!("{name:?}"),
        Some((end, _)) => format!("{:?}...", &name[..end]),
    }
}

/// Lists names for a message; a few of them are enough to see what was meant.
pub fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const MOST: usize = 5;
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        return "there are none".to_owned();
    }
    let mut text = names
        .iter()
        .take(MOST)
        .map(|name| quote(name))
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > MOST {
        text.push_str(&format!(" and {} more", names.len() - MOST));
    }
    format!("there are {text}")
}
