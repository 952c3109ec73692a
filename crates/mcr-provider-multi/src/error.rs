//! Errors of separators and of children.

use mcr_core::InvalidClusterName;

/// The error of building a [`MultiProvider`](crate::MultiProvider) or adding a child.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MultiError {
    /// The separator is empty or not printable.
    #[error(
        "separator {0:?} is empty or has control or format characters; cluster names are made of the child's name, separator \
         and cluster, so give one like \"#\""
    )]
    Separator(String),
    /// A child has no name.
    #[error(
        "a child has an empty name; clusters are named after their child, so give it a name with `child_as` or \
         `add_as`"
    )]
    EmptyName,
    /// The name of a child contains the separator, or forms one together with the separator that follows.
    #[error(
        "child name {name:?} runs into the separator {separator:?}, so its clusters could be taken for another \
         child's; give the child another name with `child_as` or `add_as`, or choose another separator"
    )]
    SeparatorInName {
        /// The child's name.
        name: String,
        /// The separator.
        separator: String,
    },
    /// The name of a child can't be the beginning of a cluster name.
    #[error(
        "child name {start:?} can't be part of a cluster name: {why}; give the child a short, printable name with \
         `child_as` or `add_as`"
    )]
    InvalidName {
        /// The first characters of the child's name.
        start: String,
        /// What is wrong with it.
        why: InvalidClusterName,
    },
    /// There is another child of this name.
    #[error(
        "there is a child named {0:?} already; remove it first, or give this one another name with `child_as` or \
         `add_as`"
    )]
    NameTaken(String),
}
