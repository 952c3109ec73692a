//! Errors of the options, and of answers of the host.

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

/// Why an answer of the host can't be passed on. The text does not quote the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AnswerError {
    #[error(
        "what the host cluster answered is not JSON; something between this process and its API server may answer in \
         its place, such as a proxy"
    )]
    NotJson,
    #[error(
        "the host cluster answered in a form that was not asked for, in which namespaces can't be renamed"
    )]
    OtherForm,
    #[error("the host cluster's answer has more than {} MiB; ask for less at a time, with a limit", .0 >> 20)]
    TooLarge(usize),
    #[error("a line of a watch has more than {} MiB", .0 >> 20)]
    LineTooLong(usize),
    #[error("a watch broke off in the middle of a line; watch again")]
    CutOff,
    #[error("the cluster's namespace is not one: nothing can be asked there")]
    NoNamespace,
}
