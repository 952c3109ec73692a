//! What is wrong with the options of a provider.

use std::time::Duration;

use mcr_core::hub::OptionError;

/// The error of building a [`GardenerProvider`](crate::GardenerProvider): an invalid option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GardenerError {
    /// An option that all providers of a hub have.
    #[error(transparent)]
    Hub(#[from] OptionError),
    /// An option, by its name, that has no effect in a seed.
    #[error(
        "`{0}` has no effect in a seed, where Gardener chooses the rights and the life of kubeconfigs; leave it out, or use the \
         topology `Garden`"
    )]
    NotInSeed(&'static str),
    /// A validity of kubeconfigs that Gardener does not grant.
    #[error(
        "kubeconfigs can't be valid for {0:?}; Gardener issues none for less than 10 minutes, so give `valid_for` at least that"
    )]
    ValidFor(Duration),
}
