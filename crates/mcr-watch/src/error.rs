//! Errors of lists and watches.

use std::time::Duration;

use mcr_access::{BoxError, reason};
use mcr_client::{TransportError, TransportErrorKind, internal::probe};
use mcr_store::{EventError, ListError, Status};

/// Why a kind in a cluster is not listed or watched at the moment.
///
/// The texts have the next step. They quote no data of a response but the message of a Kubernetes `Status`.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The credentials may not list or watch this kind.
    #[error("forbidden: {message}. Grant list and watch on it to the credentials in use")]
    Forbidden {
        /// The API server's message.
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
        /// The reason of the scope.
        message: String,
    },
    /// A part of the request is not valid, such as the name of its namespace. Nothing was sent.
    #[error("{value:?} can't be {meant}; correct it in the request of the watch")]
    InvalidRequest {
        /// The wrong part of the request, cut to 80 characters.
        value: String,
        /// What the part stands for, and how it must look.
        meant: &'static str,
    },
    /// The API server refused the credentials.
    #[error(
        "unauthorized: the API server refused the credentials (401). They may have expired or been revoked"
    )]
    Unauthorized,
    /// The API server has forgotten the resource version from which the watch continues. The driver lists again.
    #[error("the resource version to go on from is too old (410); listing again")]
    Expired,
    /// The API server has shown a lower resource version than before. The driver lists again.
    #[error(
        "the resource version went back from {from} to {to}, as after a restore from a backup; listing again. If this stays, restart the API servers, or look for several clusters behind one address"
    )]
    WentBack {
        /// The version that the watch had reached.
        from: u64,
        /// The lower version.
        to: u64,
    },
    /// The API server asks for fewer requests.
    #[error("too many requests (429): the API server asks to wait")]
    TooManyRequests {
        /// How long, if the API server names a time.
        retry_after: Option<Duration>,
    },
    /// The API server answered with another error.
    #[error("the API server answered {code}: {message}")]
    Api {
        /// The HTTP status.
        code: u16,
        /// The API server's message, or `no further words`.
        message: String,
        /// How long the API server asks to wait, if it names a time.
        retry_after: Option<Duration>,
    },
    /// The response could not be read.
    #[error("{0}")]
    Malformed(String),
    /// Something else than the API server answered.
    #[error("{0}")]
    Foreign(String),
    /// No complete response came: the connection failed or broke.
    #[error("{0}")]
    Transport(String),
    /// The response took too long.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The list takes more memory than one list may take.
    #[error(
        "the list takes {} of memory, and one list may take {} (WatchSettings::list_bytes, and half of WatchSettings::fleet_list_bytes). Watch fewer objects with a selector, or raise the limit",
        mib(*.bytes), mib(*.limit)
    )]
    ListTooLarge {
        /// What the list took when it failed.
        bytes: usize,
        /// [`WatchSettings::list_bytes`](crate::WatchSettings::list_bytes).
        limit: usize,
    },
    /// The list needs more memory, and other lists of the fleet or of the cluster hold all that they may take together.
    #[error(
        "the list needs {} of memory, and all lists together may take {} (WatchSettings::fleet_list_bytes), those of one cluster half of it. It is tried again when others have ended; raise the limit if this stays",
        mib(*.bytes), mib(*.limit)
    )]
    ListBudgetSpent {
        /// What the list needs.
        bytes: usize,
        /// [`WatchSettings::fleet_list_bytes`](crate::WatchSettings::fleet_list_bytes).
        limit: usize,
    },
    /// The list goes on without an end, or without an object.
    #[error(
        "the list has no end: after {pages} pages with {objects} objects and {} s the API server names another page. Check the API server and what is in front of it, or watch fewer objects with a selector",
        .took.as_secs()
    )]
    ListWithoutEnd {
        /// The pages that have arrived.
        pages: u32,
        /// The objects in them.
        objects: usize,
        /// The time since the first page was asked for.
        took: Duration,
    },
    /// The cluster is part of a scope, and its objects take so much memory that they are left out. Its store stays as it was; other
    /// clusters of the scope go on.
    #[error(
        "the objects of this cluster take {} of memory and are left out, so that they keep no other cluster behind its endpoint from being listed: {setting} is {}. Delete objects, or raise the limit",
        mib(*.bytes), mib(*.limit)
    )]
    PlaceTooLarge {
        /// What its objects take.
        bytes: usize,
        /// The value of the setting.
        limit: usize,
        /// The setting: [`list_bytes`](crate::WatchSettings::list_bytes) for the list of all clusters behind the endpoint, or
        /// [`held_bytes`](crate::WatchSettings::held_bytes) for the objects of one.
        setting: &'static str,
    },
    /// The objects of the watch take more memory than one watch may hold.
    #[error(
        "the objects take {} of memory, and one watch may hold {} (WatchSettings::held_bytes). Delete objects, watch fewer with a selector, or raise the limit",
        mib(*.bytes), mib(*.limit)
    )]
    HoldsTooMuch {
        /// What the objects take.
        bytes: usize,
        /// [`WatchSettings::held_bytes`](crate::WatchSettings::held_bytes).
        limit: usize,
    },
}

/// A size in words, rounded up, so that no size above a limit reads like the limit.
fn mib(bytes: usize) -> String {
    let tenths = (bytes as u128 * 10).div_ceil(1 << 20);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

impl WatchError {
    #[doc(hidden)]
    pub fn from_status(status: Status, retry_after: Option<Duration>) -> Self {
        let asked = status
            .details
            .and_then(|d| d.retry_after_seconds)
            .map(|s| Duration::from_secs(u64::from(s)));
        let retry_after = retry_after.or(asked);
        let message = if status.message.is_empty() {
            "no further words".to_owned()
        } else {
            reason(&status.message)
        };
        match status.code {
            401 => Self::Unauthorized,
            403 => Self::Forbidden { message },
            404 => Self::NotServed,
            410 => Self::Expired,
            429 => Self::TooManyRequests { retry_after },
            // "Timeout: Too large resource version": the server's cache is older than our resource version.
            504 if status.reason == "Timeout" && message.contains("Too large resource version") => {
                Self::Expired
            }
            code => Self::Api {
                code,
                message,
                retry_after,
            },
        }
    }

    #[doc(hidden)]
    pub fn from_transport(error: &BoxError) -> Self {
        let mut causes = std::iter::successors(
            Some(error.as_ref() as &(dyn std::error::Error + 'static)),
            |error| error.source(),
        );
        let too_large = causes.find_map(|cause| match cause.downcast_ref::<TransportError>()?.kind() {
            TransportErrorKind::TooLarge { limit } => Some(*limit),
            _ => None,
        });
        if let Some(limit) = too_large {
            return Self::ListTooLarge { bytes: limit, limit };
        }
        Self::Transport(mcr_client::explain_error(error.as_ref()))
    }

    /// All values of [`reason`](Self::reason).
    pub const REASONS: &'static [&'static str] = &[
        "forbidden",
        "not_served",
        "not_in_scope",
        "invalid_request",
        "unauthorized",
        "expired",
        "went_back",
        "throttled",
        "api",
        "malformed",
        "foreign",
        "transport",
        "timeout",
        "list_too_large",
        "list_budget_spent",
        "list_without_end",
        "holds_too_much",
    ];

    /// The kind of error as one word, for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Forbidden { .. } => "forbidden",
            Self::NotServed => "not_served",
            Self::NotInScope { .. } => "not_in_scope",
            Self::InvalidRequest { .. } => "invalid_request",
            Self::Unauthorized => "unauthorized",
            Self::Expired => "expired",
            Self::WentBack { .. } => "went_back",
            Self::TooManyRequests { .. } => "throttled",
            Self::Api { .. } => "api",
            Self::Malformed(_) => "malformed",
            Self::Foreign(_) => "foreign",
            Self::Transport(_) => "transport",
            Self::Timeout(_) => "timeout",
            Self::ListTooLarge { .. } | Self::PlaceTooLarge { .. } => "list_too_large",
            Self::ListWithoutEnd { .. } => "list_without_end",
            Self::ListBudgetSpent { .. } => "list_budget_spent",
            Self::HoldsTooMuch { .. } => "holds_too_much",
        }
    }

    /// Whether the error is about the whole cluster, not about one kind in it.
    pub fn concerns_cluster(&self) -> bool {
        matches!(
            self,
            Self::Unauthorized | Self::Foreign(_) | Self::Transport(_) | Self::Timeout(_)
        )
    }

    /// Whether no API server answers, or it does not know the user.
    pub(crate) fn asks_for_probe(&self) -> bool {
        match self {
            Self::Forbidden { message } => probe::refused_user(message) == Some(probe::ANONYMOUS),
            error => error.concerns_cluster() || matches!(error, Self::Malformed(_)),
        }
    }

    /// Whether the kind is too large. Each attempt to list it transfers much again.
    pub(crate) fn is_too_large(&self) -> bool {
        matches!(
            self,
            Self::ListTooLarge { .. } | Self::ListWithoutEnd { .. } | Self::HoldsTooMuch { .. }
        )
    }

    /// Whether somebody must change something before the kind can be listed.
    #[doc(hidden)]
    pub fn is_blocked(&self) -> bool {
        matches!(
            self,
            Self::Forbidden { .. }
                | Self::NotServed
                | Self::NotInScope { .. }
                | Self::InvalidRequest { .. }
                | Self::PlaceTooLarge { .. }
        )
    }
}

impl From<ListError> for WatchError {
    fn from(error: ListError) -> Self {
        Self::Malformed(error.to_string())
    }
}

impl From<EventError> for WatchError {
    fn from(error: EventError) -> Self {
        Self::Malformed(error.to_string())
    }
}
