use std::{fmt, time::Duration};

/// A way to fail.
///
/// Faults of the connection apply to the whole proxy, including open connections. If several are set, the one that is
/// listed first here applies. Faults of requests can be limited by a [`Match`](super::Match). If several match a
/// request, the one that was set first applies; [`Slow`](Self::Slow) applies in addition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    // Connections.
    /// The port is closed: new connections are refused, open ones are reset, as if the process was killed.
    Refuse,
    /// The network drops all packets. Open connections become silent in both directions, and continue when the fault
    /// ends. New connections get no answer to their SYN.
    ///
    /// For new connections, this requires an operating system that drops SYNs when the accept queue is full, such as
    /// Linux. Elsewhere the fault is the same as [`Silent`](Self::Silent). On an open connection, the kernel still
    /// acknowledges the client's bytes. So `TCP_USER_TIMEOUT` and keepalive don't notice this black hole; only
    /// deadlines of the program do.
    BlackHole,
    /// Connections are accepted, and then get no byte, not even in a TLS handshake. Open connections become silent,
    /// and continue when the fault ends. This is how a stopped process behaves.
    Silent,
    /// Connections are reset: open ones at once, new ones at the first byte, in the middle of the TLS handshake.
    Reset,
    /// The serving certificate is signed by a CA that clients don't trust. Open connections are reset.
    WrongCa,
    /// The serving certificate has expired. Open connections are reset.
    ExpiredCertificate,
    /// The serving certificate is for another host name. Open connections are reset.
    WrongHost,
    /// The connections that are open now get no more bytes, but are not closed, even when the fault ends. New
    /// connections work. This is how a firewall or load balancer behaves after it has lost its state.
    HalfOpen,
    /// The proxy moves to another port, and stays there when the fault ends. The old port refuses connections, and
    /// open ones are reset. [`FaultProxy::url`](super::FaultProxy::url) returns the new address.
    AddressChange,

    // Answers.
    /// Answers come late and slowly.
    Slow {
        /// The time until the first byte of an answer.
        first_byte: Duration,
        /// The rate after the first byte. `None`: no limit. Applies to running watches too.
        bytes_per_second: Option<u32>,
    },
    /// 401: the credentials are refused. Running watches continue, as in Kubernetes.
    Unauthorized,
    /// 403. Use [`Match::resource`](super::Match::resource) to refuse a single kind.
    Forbidden,
    /// 404, as an API server answers for a kind that it does not serve: plain text, not JSON.
    NotFound,
    /// 422 for lists by watch (`sendInitialEvents`), as from an API server that can't stream lists.
    NoStreamingLists,
    /// 500.
    InternalError,
    /// Any other status, with a JSON `Status` as the body.
    Status(u16),

    // Bodies of lists, objects and watches.
    /// Watches end with a 410 in an `ERROR` event: running watches at once, new ones at their beginning.
    GoneEvent,
    /// JSON is cut in the middle, and the answer ends without an error. A watch, running or new, ends with half of a
    /// line.
    Truncated,
    /// The connection breaks in the middle of an answer. A running watch breaks at once, a new one at its beginning.
    CutOff,
    /// JSON is replaced by bytes that are not JSON. A watch gets one such line at once, and another one instead of
    /// each later event.
    Garbage,
    /// One object has a field of the wrong type. With a name, that is the object of this name in every answer. Without
    /// a name, it is the first object of each list, and the object of the next event of each watch.
    Undecodable {
        /// The object's name.
        name: Option<String>,
    },
    /// Lists have no `metadata.resourceVersion`.
    NoResourceVersion,
    /// Reads are stale. Lists and single objects are as the proxy last received them before the fault, or first
    /// received them during the fault. Watches are silent, and catch up when the fault ends. An API server whose cache
    /// lags behaves so. Writes work.
    StaleReads,
    /// Events of watches are left out, but bookmarks are not. No API server does this on purpose. A client that
    /// ignores a restart or a compaction gets the same result.
    SkipEvents,
    /// Every event of a watch is sent twice.
    DuplicateEvents,
}

impl Fault {
    /// One fault of each kind, with moderate values, in the order of the enum. Later versions may return more.
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
            Self::NoStreamingLists,
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
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
