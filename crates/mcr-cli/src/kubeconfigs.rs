//! The kubeconfig files that flags or `$KUBECONFIG` name: whether they exist and can be read.

use std::{io, path::Path};

use crate::{contexts::variable_paths, providers::ClusterFlags};

/// A file or a folder that a flag or `$KUBECONFIG` names.
#[derive(Debug, Clone)]
pub(crate) struct NamedFile {
    pub(crate) path: String,
    /// Whether `$KUBECONFIG` names the file, and not a flag.
    pub(crate) by_variable: bool,
    pub(crate) is: FileIs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileIs {
    There,
    Missing,
    Unreadable(String),
}

impl NamedFile {
    fn read(path: &Path, by_variable: bool, folder: bool) -> Self {
        let seen = if folder {
            std::fs::read_dir(path).map(drop)
        } else {
            std::fs::File::open(path).map(drop)
        };
        let is = match seen {
            Ok(()) => FileIs::There,
            Err(error) if error.kind() == io::ErrorKind::NotFound => FileIs::Missing,
            Err(error) => FileIs::Unreadable(error.to_string()),
        };
        Self {
            path: path.display().to_string(),
            by_variable,
            is,
        }
    }

    /// What is wrong with the file, as text for people.
    pub(crate) fn fault(&self) -> Option<String> {
        match &self.is {
            FileIs::There => None,
            FileIs::Missing if self.by_variable => {
                Some(format!("{} does not exist ($KUBECONFIG names it)", self.path))
            }
            FileIs::Missing => Some(format!("{} does not exist", self.path)),
            FileIs::Unreadable(why) => Some(format!("{} can't be read: {why}", self.path)),
        }
    }

    /// Whether the fault of this file is a problem. As for kubectl, some files of a list in `$KUBECONFIG` may be missing.
    pub(crate) fn is_problem(&self, all: &[Self]) -> bool {
        match &self.is {
            FileIs::There => false,
            FileIs::Unreadable(_) => true,
            FileIs::Missing => !self.by_variable || all.iter().all(|file| file.is == FileIs::Missing),
        }
    }
}

/// The files and folders that flags name, or else those that `$KUBECONFIG` names.
pub(crate) fn named(flags: &ClusterFlags) -> Vec<NamedFile> {
    let files = flags.kubeconfigs.iter().map(|path| (path, false));
    let folders = flags.kubeconfig_dirs.iter().map(|path| (path, true));
    let named: Vec<NamedFile> = files
        .chain(folders)
        .map(|(path, folder)| NamedFile::read(path, false, folder))
        .collect();
    if !named.is_empty() {
        return named;
    }
    let paths = variable_paths().unwrap_or_default();
    paths
        .iter()
        .map(|path| NamedFile::read(path, true, false))
        .collect()
}

/// The faults of these files that are problems.
pub(crate) fn problems(flags: &ClusterFlags) -> Vec<String> {
    let files = named(flags);
    files
        .iter()
        .filter(|file| file.is_problem(&files))
        .filter_map(NamedFile::fault)
        .collect()
}
