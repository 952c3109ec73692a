//! Why a kind is not listed or watched.

use std::time::Duration;

use mcr_access::BoxError;
use mcr_store::{EventError, ListError, Status};

/// Why a kind in a cluster is not listed or watched at the moment.
///
/// Texts say what to do next and never quote what a server sent as data.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The credentials may not list or watch this kind.
    #[error("forbidden: {message}. Grant list and watch on it to the credentials in use")]
    Forbidden {
        /// The API server's words.
        message: String,
    },
    /// The API server does not have this kind.
    #[error(
        "the API server does not serve this kind (404). Install its CRD, or check group, version and plural"
    )]
    NotServed,
    /// The cluster is part of a scope whose clusters don't have this kind.
    #[error("this kind can't be watched in this cluster: {message}")]
    NotInScope {
        /// Why, in the words of the scope.
        message: String,
    },
    /// What is to be watched can't exist, so the API server is not asked.
    #[error("{value:?} can't be {meant}; correct it in the request of the watch")]
    InvalidRequest {
        /// What stands in the request, cut to 80 characters.
        value: String,
        /// What it would have to be.
        meant: &'static str,
    },
    /// The API server refused the credentials.
    #[error(
        "unauthorized: the API server refused the credentials (401). They may have expired or been revoked"
    )]
    Unauthorized,
    /// The resource version to go on from is no longer known; everything is listed again.
    #[error("the resource version to go on from is too old (410); listing again")]
    Expired,
    /// The API server asks for fewer requests.
    #[error("too many requests (429): the API server asks to wait")]
    TooManyRequests {
        /// How long, if it said so.
        retry_after: Option<Duration>,
    },
    /// The API server answered with another error.
    #[error("the API server answered {code}: {message}")]
    Api {
        /// The HTTP status.
        code: u16,
        /// The API server's words, if there were any.
        message: String,
    },
    /// The answer could not be understood.
    #[error("{0}")]
    Malformed(String),
    /// No answer came: the request did not get through, or the answer broke off.
    #[error("{0}")]
    Transport(String),
    /// The answer took too long.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
}

impl WatchError {
    #[doc(hidden)]
    pub fn from_status(status: Status, retry_after: Option<Duration>) -> Self {
        let asked = status
            .details
            .and_then(|d| d.retry_after_seconds)
            .map(|s| Duration::from_secs(u64::from(s)));
        let message = if status.message.is_empty() {
            "no further words".to_owned()
        } else {
            status.message
        };
        match status.code {
            401 => Self::Unauthorized,
            403 => Self::Forbidden { message },
            404 => Self::NotServed,
            410 => Self::Expired,
            429 => Self::TooManyRequests {
                retry_after: retry_after.or(asked),
            },
            // "Timeout: Too large resource version": the server's cache has not caught up with us yet.
            504 if status.reason == "Timeout" && message.contains("Too large resource version") => {
                Self::Expired
            }
            code => Self::Api { code, message },
        }
    }

    #[doc(hidden)]
    pub fn from_transport(error: &BoxError) -> Self {
        Self::Transport(mcr_client::explain_error(error.as_ref()))
    }

    /// Every [`reason`](Self::reason) there is.
    pub const REASONS: [&'static str; 11] = [
        "forbidden",
        "not_served",
        "not_in_scope",
        "invalid_request",
        "unauthorized",
        "expired",
        "throttled",
        "api",
        "malformed",
        "transport",
        "timeout",
    ];

    /// What it is in one word, for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Forbidden { .. } => "forbidden",
            Self::NotServed => "not_served",
            Self::NotInScope { .. } => "not_in_scope",
            Self::InvalidRequest { .. } => "invalid_request",
            Self::Unauthorized => "unauthorized",
            Self::Expired => "expired",
            Self::TooManyRequests { .. } => "throttled",
            Self::Api { .. } => "api",
            Self::Malformed(_) => "malformed",
            Self::Transport(_) => "transport",
            Self::Timeout(_) => "timeout",
        }
    }

    /// Whether this says something about the whole cluster rather than about one kind in it.
    pub fn concerns_cluster(&self) -> bool {
        matches!(self, Self::Unauthorized | Self::Transport(_) | Self::Timeout(_))
    }

    /// Whether someone has to change something before this kind can be listed.
    #[doc(hidden)]
    pub fn is_blocked(&self) -> bool {
        matches!(
            self,
            Self::Forbidden { .. } | Self::NotServed | Self::NotInScope { .. } | Self::InvalidRequest { .. }
        )
    }
}

impl From<ListError> for WatchError {
    fn from(bad: ListError) -> Self {
        Self::Malformed(bad.to_string())
    }
}

impl From<EventError> for WatchError {
    fn from(bad: EventError) -> Self {
        Self::Malformed(bad.to_string())
    }
}
