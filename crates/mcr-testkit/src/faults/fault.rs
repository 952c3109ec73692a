use std::{fmt, time::Duration};

/// A way to fail.
///
/// Faults of the connection hold for the whole proxy and for connections that are already open; where several
/// are set the one listed first here wins. Faults of requests can be narrowed by a [`Match`](super::Match); of
/// several that fit a request the one that was set first takes it, [`Slow`](Self::Slow) comes on top.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    // Connections.
    /// Nobody listens: new connections are refused, open ones are reset. As with a process that was killed.
    Refuse,
    /// The network swallows everything: open connections fall silent in both directions and go on when the
    /// fault ends, new ones get no answer to their SYN.
    ///
    /// The latter needs an operating system that drops SYNs when the accept queue is full, as Linux does;
    /// elsewhere it is [`Silent`](Self::Silent). On an open connection the other side's kernel still sees its
    /// bytes acknowledged, so `TCP_USER_TIMEOUT` and keepalive don't notice this black hole; only deadlines of
    /// the program do.
    BlackHole,
    /// Connections are accepted, and then nothing is ever said, not even a TLS greeting. Open ones fall silent
    /// and go on when the fault ends. As with a process that was stopped.
    Silent,
    /// Connections are reset: open ones at once, new ones at the first byte, in the middle of the TLS greeting.
    Reset,
    /// The serving certificate is signed by a CA nobody trusts. Open connections are reset.
    WrongCa,
    /// The serving certificate has expired. Open connections are reset.
    ExpiredCertificate,
    /// The serving certificate is for another host name. Open connections are reset.
    WrongHost,
    /// Connections that are open now never say a word again and are not closed, also when the fault ends; new
    /// ones work. As with a firewall or load balancer that has forgotten them.
    HalfOpen,
    /// The proxy moves to another port, where it stays when the fault ends. The old one refuses connections, open
    /// ones are reset. Learn of it by [`FaultProxy::url`](super::FaultProxy::url) or
    /// [`address_changes`](super::FaultProxy::address_changes).
    AddressChange,

    // Answers.
    /// Answers come late and slowly.
    Slow {
        /// How long until the first byte of an answer.
        first_byte: Duration,
        /// How fast it comes from then on; none for as fast as can be. Holds for running watches too.
        bytes_per_second: Option<u32>,
    },
    /// 401: the credentials are refused. Running watches go on, as in Kubernetes.
    Unauthorized,
    /// 403. Narrow it by [`Match::resource`](super::Match::resource) for one kind.
    Forbidden,
    /// 404 as an API server answers for a kind it does not serve: text, no JSON.
    NotFound,
    /// 410 with reason `Expired`, for lists and watches.
    Gone,
    /// 422 for lists by watch (`sendInitialEvents`), as an API server that can't stream lists.
    NoStreamingLists,
    /// 429, with a `Retry-After` if there is one.
    TooManyRequests {
        /// In seconds.
        retry_after: Option<u32>,
    },
    /// 500.
    InternalError,
    /// Any other status, with a JSON `Status` as the body.
    Status(u16),

    // Bodies of lists, objects and watches.
    /// Watches end with a 410 in an `ERROR` event: running ones at once, new ones first thing.
    GoneEvent,
    /// JSON is cut in the middle, though the answer ends as it should. A watch, running or new, ends with half a
    /// line.
    Truncated,
    /// The connection breaks in the middle of an answer. A running watch breaks at once, a new one at its
    /// beginning.
    CutOff,
    /// JSON is replaced by something else. In a watch a line of it comes at once, and in place of each event
    /// after that.
    Garbage,
    /// One object has a field of the wrong type: the first of a list, and the one of the first event of each
    /// watch from then on; or the one of this name wherever it shows up.
    Undecodable {
        /// The object's name.
        name: Option<String>,
    },
    /// Lists have no `metadata.resourceVersion`.
    NoResourceVersion,
    /// Reads are of the past: lists and single objects are as the proxy last saw them before the fault (or, if it
    /// had not, as it first sees them during the fault), watches are silent and catch up when it ends. As with an
    /// API server whose cache lags behind. Writes go through.
    StaleReads,
    /// Events of watches are left out (bookmarks are not). What no API server does on purpose, and a restart or
    /// a compaction does to a careless client.
    SkipEvents,
    /// Every event of a watch comes twice.
    DuplicateEvents,
}

impl Fault {
    /// One of each, with moderate values, in the order of the enum. Later versions have more.
    pub fn catalogue() -> Vec<Self> {
        vec![
            Self::Refuse,
            Self::BlackHole,
            Self::Silent,
            Self::Reset,
            Self::WrongCa,
            Self::ExpiredCertificate,
            Self::WrongHost,
            Self::HalfOpen,
            Self::AddressChange,
            Self::Slow {
                first_byte: Duration::from_secs(5),
                bytes_per_second: Some(1024),
            },
            Self::Unauthorized,
            Self::Forbidden,
            Self::NotFound,
            Self::Gone,
            Self::NoStreamingLists,
            Self::TooManyRequests { retry_after: Some(1) },
            Self::InternalError,
            Self::Status(503),
            Self::GoneEvent,
            Self::Truncated,
            Self::CutOff,
            Self::Garbage,
            Self::Undecodable { name: None },
            Self::NoResourceVersion,
            Self::StaleReads,
            Self::SkipEvents,
            Self::DuplicateEvents,
        ]
    }

    /// Whether it is a fault of the connection, which can't be narrowed by a [`Match`](super::Match).
    pub fn is_of_connection(&self) -> bool {
        matches!(
            self,
            Self::Refuse
                | Self::BlackHole
                | Self::Silent
                | Self::Reset
                | Self::WrongCa
                | Self::ExpiredCertificate
                | Self::WrongHost
                | Self::HalfOpen
                | Self::AddressChange
        )
    }

    /// Whether a client that sees it may, for a while or for good, believe what is not so. Every other fault can
    /// only keep it from knowing.
    pub fn deceives(&self) -> bool {
        matches!(self, Self::StaleReads | Self::SkipEvents | Self::DuplicateEvents)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
