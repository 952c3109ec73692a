//! What is wrong with the options of a provider.

use mcr_core::hub::OptionError;

/// The error of building a [`KubeconfigProvider`](crate::KubeconfigProvider): an invalid option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KubeconfigError {
    /// An option that all providers of a hub have.
    #[error(transparent)]
    Hub(#[from] OptionError),
    /// An invalid name or value of a label.
    #[error(
        "{key:?}={value:?} can't be a label: the name has at most 63 letters, digits, `-`, `_` and `.`, after a DNS \
         name and a slash if need be, and so has the value; give `label` another"
    )]
    Label {
        /// The name of the label.
        key: String,
        /// The value of the label.
        value: String,
    },
    /// An invalid key of a Secret.
    #[error(
        "{0:?} can't be a key of a Secret, which has at most 253 letters, digits, `-`, `_` and `.`; give `key` another"
    )]
    Key(String),
}
