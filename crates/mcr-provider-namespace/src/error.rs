//! Errors of the options.

/// The error of building a [`NamespaceProvider`](crate::NamespaceProvider): an invalid option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// There is neither an access nor a client of the host.
    #[error("there is no host cluster; say how to reach it with `access` or `client`")]
    NoHost,
    /// An invalid name of a namespace.
    #[error(
        "{0:?} can't be the name of a namespace, which has at most 63 lower-case letters, digits and hyphens; correct or \
         remove it"
    )]
    Name(String),
    /// The host is a place in a scope, which has no connection of its own.
    #[error("the host cluster is itself a place in a scope; use a cluster that is reached directly")]
    HostInScope,
    /// The label selector is empty.
    #[error("the label selector is empty; leave `labels` out to take all namespaces")]
    Selector,
}
