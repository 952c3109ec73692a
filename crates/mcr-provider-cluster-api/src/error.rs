//! What is wrong with the options of a provider.

/// The error of building a [`ClusterApiProvider`](crate::ClusterApiProvider): an invalid option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterApiError {
    /// There is no client of the hub.
    #[error("there is no hub; give the client of the management cluster with `client`")]
    NoHub,
    /// An invalid name of a namespace.
    #[error(
        "{0:?} can't be the name of a namespace, which has at most 63 lower-case letters, digits and hyphens; correct it, \
         or leave `namespace` out to take the client's default namespace"
    )]
    Namespace(String),
    /// An empty or unprintable label selector.
    #[error(
        "{0:?} can't be a label selector; give `labels` one such as \"region=eu\", or leave it out to take all Clusters"
    )]
    Labels(String),
}
