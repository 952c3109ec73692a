//! Errors of the options, and faults of files.

use std::{io, path::PathBuf};

/// The error of building a [`FileProvider`](crate::FileProvider): an invalid option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// A glob is not a valid pattern.
    #[error("glob {glob:?} is not a valid pattern: {why}; see https://docs.rs/glob for the syntax")]
    Glob {
        /// The pattern.
        glob: String,
        /// What is wrong with it.
        why: String,
    },
    /// A glob has a path separator.
    #[error(
        "glob {0:?} has a path separator, but globs are matched with file names; give the folder with `dir` and \
         only the file's pattern with `globs`"
    )]
    GlobWithFolder(String),
    /// The separator is empty or not printable.
    #[error(
        "separator {0:?} is empty or has control or format characters; cluster names are made of path, separator and \
         context, so give one like \"+\""
    )]
    Separator(String),
    /// The poll interval is zero.
    #[error(
        "the poll interval is zero, which would keep a processor busy all the time; give at least a millisecond"
    )]
    PollInterval,
}

/// Why a file, or a folder of files, can't be used now. The text completes "file x can't be used: ".
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("it is a folder; give folders with `dir`, or name a file in it")]
    IsFolder,
    #[error("it is a file; give files with `file`, or name the folder it is in")]
    IsFile,
    #[error("it is a pipe, socket or device, which can be read only once; write the kubeconfig to a file")]
    NotRegular,
    #[error(
        "it is a symbolic link to {target:?}, which does not exist; create the target or remove the link"
    )]
    Dangling { target: PathBuf },
    #[error("it has {len} bytes, more than the {max} a kubeconfig may have; split it into several files")]
    TooBig { len: u64, max: u64 },
    #[error(
        "it is empty but had content before, so it counts as half written; delete it to remove its contexts"
    )]
    Empty,
    #[error("reading it failed: {0}; check that it exists and that this process may read it")]
    Read(#[from] io::Error),
}
