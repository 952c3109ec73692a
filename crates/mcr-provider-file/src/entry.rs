//! One context of a file, before its cluster has a name.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use mcr_core::{ClusterName, InvalidClusterName};

use crate::diff::Desired;

/// A context of a file, or a file whose contexts are unknown.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) file: PathBuf,
    pub(crate) context: Option<Arc<str>>,
    pub(crate) desired: Desired,
}

impl Entry {
    pub(crate) fn new(file: &Path, context: Option<Arc<str>>, desired: Desired) -> Self {
        Self {
            file: file.to_owned(),
            context,
            desired,
        }
    }

    /// A broken context of a file, or a broken file.
    pub(crate) fn of_error(file: &Path, context: Option<Arc<str>>, error: &dyn fmt::Display) -> Self {
        let object = match &context {
            Some(context) => format!("file {}, context {}", shown(file), quoted(context)),
            None => format!("file {}", shown(file)),
        };
        Self::new(file, context, Desired::broken(object, error))
    }

    /// The same entry as a broken one, with this error.
    pub(crate) fn broken(&self, error: &dyn fmt::Display) -> Self {
        Self::of_error(&self.file, self.context.clone(), error)
    }
}

/// A path as text. Invisible characters and those that change the direction of writing are escaped.
pub(crate) fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    match ClusterName::new(&text) {
        Err(InvalidClusterName::Unprintable { .. }) => format!("{text:?}"),
        _ => text,
    }
}

/// The name of a context, escaped and in quotes. A long name is shortened.
pub(crate) fn quoted(context: &str) -> String {
    const MAX_CHARS: usize = 80;
    match context.char_indices().nth(MAX_CHARS) {
        None => format!("{context:?}"),
        Some((end, _)) => format!("{:?}...", &context[..end]),
    }
}
