use std::path::PathBuf;
use std::time::Duration;

/// The source of an error, boxed so that kube's types stay out of the public API.
pub(super) type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a control plane could not be started or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlPlaneError {
    /// `KUBEBUILDER_ASSETS` names a folder without the binaries.
    #[error(
        "KUBEBUILDER_ASSETS is {folder}, but {missing} is not there: run `cargo xtask assets` and set it to the \
         folder that the command prints, or unset it to use the cache"
    )]
    AssetsIncomplete {
        /// The folder.
        folder: PathBuf,
        /// The missing binary.
        missing: String,
    },

    /// No folder with the binaries was found.
    #[error(
        "no etcd and kube-apiserver binaries ({reason}): run `cargo xtask assets`, or set KUBEBUILDER_ASSETS to a \
         folder that has them (`setup-envtest use --print path`)"
    )]
    AssetsMissing {
        /// The folders that were searched, and their contents.
        reason: String,
    },

    /// A control plane with a controller manager was requested, and the binary of the controller manager is missing.
    #[error(
        "no kube-controller-manager in {folder} (envtest does not ship it): install Go and run \
         `cargo xtask assets`, and unset KUBEBUILDER_ASSETS or set it to the folder that the command prints"
    )]
    ControllerManagerMissing {
        /// The folder.
        folder: PathBuf,
    },

    /// An operation of the operating system failed.
    #[error("{doing}: {source}")]
    Io {
        /// The operation that failed.
        doing: String,
        /// The error of the operating system.
        source: std::io::Error,
    },

    /// A server process ended unexpectedly.
    #[error("{program} ended ({status}); the end of its log:\n{log}")]
    Exited {
        /// The name of the program.
        program: String,
        /// The exit status.
        status: String,
        /// The last lines of the log.
        log: String,
    },

    /// A server runs but did not become ready.
    #[error("{program} was not ready after {} s ({last}); the end of its log:\n{log}", after.as_secs())]
    NotReady {
        /// The name of the program.
        program: String,
        /// The time that was waited.
        after: Duration,
        /// The result of the last attempt.
        last: String,
        /// The last lines of the log.
        log: String,
    },

    /// A request to the API server failed.
    #[error("{doing}: {source}")]
    Api {
        /// The operation that failed.
        doing: String,
        /// The error of the client.
        source: Source,
    },

    /// A change did not take effect in time.
    #[error("{what} did not take effect within {} s{hint}", after.as_secs())]
    NoEffect {
        /// The expected effect.
        what: String,
        /// The time that was waited.
        after: Duration,
        /// A possible cause, which begins with a separator. May be empty.
        hint: String,
    },

    /// A certificate or key could not be made.
    #[error("making {what}: {source}")]
    Certificate {
        /// The certificate or key.
        what: String,
        /// The cause.
        source: Source,
    },

    /// The control plane does not support the call, or was started without the option that the call needs.
    #[error("{0}")]
    Unsupported(String),
}

impl ControlPlaneError {
    pub(super) fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io {
            doing: doing.into(),
            source,
        }
    }

    pub(super) fn api<E: Into<Source>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        move |source| Self::Api {
            doing: doing.into(),
            source: source.into(),
        }
    }

    pub(super) fn certificate<E: Into<Source>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        move |source| Self::Certificate {
            what: what.into(),
            source: source.into(),
        }
    }
}
