use std::io;

/// Why a proxy can't be started, or a seed can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FaultError {
    /// The proxy can't listen.
    #[error("the fault proxy can't listen on 127.0.0.1: {0}")]
    Listen(#[source] io::Error),
    /// The proxy's own certificates can't be made.
    #[error("the fault proxy's certificates can't be made: {0}")]
    Certificate(String),
    /// The address of the upstream is not a URL with scheme and host.
    #[error("{url:?} is not an address to pass requests on to; give one like https://127.0.0.1:6443")]
    Url {
        /// The given text.
        url: String,
    },
    /// A certificate or key of the upstream can't be read.
    #[error("the upstream's {what} can't be used: {why}")]
    Upstream {
        /// The part: the certificate or the key.
        what: &'static str,
        /// The cause.
        why: String,
    },
    /// `MCR_FAULT_SEED` is not a number.
    #[error("MCR_FAULT_SEED is {value:?}; it must be a number as printed by a failing run, like 0x1f or 31")]
    Seed {
        /// The value of the variable.
        value: String,
    },
}
