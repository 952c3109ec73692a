//! Why a cluster can't be connected.

use std::sync::Arc;

/// Why a connection could not be made, or can't be used any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectError {
    /// The cause and what to do about it, as text for people.
    pub reason: Arc<str>,
    /// Whether the API server refused the credentials (401), or took their user for anonymous.
    pub unauthorized: bool,
    /// Whether there are too many requests (429), which says nothing else.
    pub busy: bool,
    /// Whether the source has given no credential, so that the API server was not asked.
    pub no_credential: bool,
}

impl ConnectError {
    /// An error with any cause other than a 401.
    pub fn new(reason: impl Into<Arc<str>>) -> Self {
        Self {
            reason: reason.into(),
            unauthorized: false,
            busy: false,
            no_credential: false,
        }
    }

    /// The source has given no credential.
    pub(crate) fn no_credential(reason: impl Into<Arc<str>>) -> Self {
        Self {
            no_credential: true,
            ..Self::new(reason)
        }
    }

    /// The API server refused the credentials, or took their user for anonymous.
    pub(crate) fn refused(reason: &str) -> Self {
        Self {
            unauthorized: true,
            ..Self::new(reason)
        }
    }

    /// The answer was 429.
    pub(crate) fn busy() -> Self {
        Self {
            busy: true,
            ..Self::new("too many requests (429): the API server, or something before it, asks to wait")
        }
    }
}
