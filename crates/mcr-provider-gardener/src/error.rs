//! What is wrong with the options of a provider.

use std::time::Duration;

use mcr_core::hub::OptionError;

/// The error of building a [`GardenerProvider`](crate::GardenerProvider): an invalid option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GardenerError {
    /// There is no client.
    #[error("there is no garden and no seed; give the client of its API server with `client`")]
    NoClient,
    /// An invalid name of a namespace.
    #[error(
        "{0:?} can't be the name of a namespace, which has at most 63 lower-case letters, digits and hyphens; correct it, \
         or leave `namespace` out to take the client's default namespace"
    )]
    Namespace(String),
    /// An empty or unprintable label selector. In a seed, where this process applies it, any that can't be read.
    #[error(
        "{0:?} can't be a label selector; give `labels` one such as \"region=eu\", or leave it out to take all Shoots"
    )]
    Labels(String),
    /// An option that a seed does not have. With its name.
    #[error(
        "`{0}` has no effect in a seed, where Gardener chooses the rights and the life of kubeconfigs; leave it out, or use the \
         topology `Garden`"
    )]
    NotInSeed(&'static str),
    /// A life of kubeconfigs that Gardener does not grant.
    #[error(
        "kubeconfigs can't be valid for {0:?}; Gardener issues none for less than 10 minutes, so give `valid_for` at least that"
    )]
    ValidFor(Duration),
}

impl From<OptionError> for GardenerError {
    fn from(error: OptionError) -> Self {
        match error {
            OptionError::Namespace(namespace) => Self::Namespace(namespace),
            OptionError::Labels(labels) => Self::Labels(labels),
            _ => Self::NoClient,
        }
    }
}
