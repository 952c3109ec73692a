//! What is wrong with the options of a provider.

/// Why a [`KubeconfigProvider`](crate::KubeconfigProvider) can't be built from its options.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KubeconfigError {
    /// Nothing says where the Secrets are.
    #[error("there is no hub; give the client of the cluster that has the Secrets with `client`")]
    NoHub,
    /// A name that no namespace can have.
    #[error(
        "{0:?} can't be the name of a namespace, which has at most 63 lower-case letters, digits and hyphens; correct it, \
         or leave `namespace` out to take the client's default namespace"
    )]
    Namespace(String),
    /// A label's name or value that no object can have.
    #[error(
        "{key:?}={value:?} can't be a label: the name has at most 63 letters, digits, `-`, `_` and `.`, after a DNS \
         name and a slash if need be, and so has the value; give `label` another"
    )]
    Label {
        /// The label's name.
        key: String,
        /// Its value.
        value: String,
    },
    /// A key that no Secret can have.
    #[error(
        "{0:?} can't be a key of a Secret, which has at most 253 letters, digits, `-`, `_` and `.`; give `key` another"
    )]
    Key(String),
}
