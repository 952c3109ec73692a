//! Why a cluster can't be connected.

use std::sync::Arc;

/// Why a connection could not be made, or can't be used any more.
#[derive(Debug)]
pub struct ConnectError {
    /// The cause and what to do about it, as text for people.
    pub reason: Arc<str>,
    /// Whether the API server refused the credentials (401).
    pub unauthorized: bool,
}

impl ConnectError {
    /// An error with any cause other than a 401.
    pub fn new(reason: impl Into<Arc<str>>) -> Self {
        Self {
            reason: reason.into(),
            unauthorized: false,
        }
    }

    /// The API server answered 401.
    pub(crate) fn unauthorized() -> Self {
        Self {
            reason: "the API server refuses the credentials (401 Unauthorized); they may have expired or been revoked".into(),
            unauthorized: true,
        }
    }
}
