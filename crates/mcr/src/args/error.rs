//! The errors of flags.

use mcr_core::{AccessError, BoxError};

/// Why the flags lead to no hub, or can't be used. The text names the flag or the file and says what to correct.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArgsError {
    /// The kubeconfig can't be read.
    #[error("{origin}: can't read the file")]
    #[non_exhaustive]
    Read {
        /// The flag or variable, and the file.
        origin: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The kubeconfig or its context is wrong.
    #[error("{origin}")]
    #[non_exhaustive]
    Kubeconfig {
        /// The flag or variable, and the file.
        origin: String,
        /// The error, with the field.
        source: AccessError,
    },
    /// The kubeconfig does not have the context of `--hub-context`.
    #[error("--hub-context {context}: {origin} has no such context; {known}")]
    #[non_exhaustive]
    NoSuchContext {
        /// The context.
        context: String,
        /// The flag or variable, and the files.
        origin: String,
        /// The contexts that exist, as text.
        known: String,
    },
    /// The kubeconfig has no current context, and `--hub-context` is not given.
    #[error("{origin} has no current context; choose the hub with --hub-context: {known}")]
    #[non_exhaustive]
    NoCurrentContext {
        /// The flag or variable, and the files.
        origin: String,
        /// The contexts that exist, as text.
        known: String,
    },
    /// There is neither a kubeconfig nor the service account of a Pod.
    #[error("no hub: {origin} has no context, and this is not a Pod; give the hub with --hub-kubeconfig")]
    #[non_exhaustive]
    NoHub {
        /// The variable and the files.
        origin: String,
        /// Why this is not a Pod.
        source: BoxError,
    },
    /// A variable of the environment has no URL of a proxy.
    #[error("--proxy-from-env")]
    Proxy(#[source] AccessError),
    /// kube can't build a client of the hub.
    #[error("{origin}: can't build a client of the hub")]
    #[non_exhaustive]
    Client {
        /// The flag or variable, and the file.
        origin: String,
        /// kube's error.
        source: BoxError,
    },
}
