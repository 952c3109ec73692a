//! The audit log of an API server, real or simulated.

use std::collections::VecDeque;

/// One request, as an API server has recorded it.
///
/// A request is logged when its answer is complete (`ResponseComplete`). A watch is logged twice: when it starts
/// (`ResponseStarted`) and when it ends (`ResponseComplete`), so count watches with [`is_start`](Self::is_start).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditEvent {
    /// `ResponseStarted` or `ResponseComplete`; empty for a stage that is neither.
    pub stage: &'static str,
    /// `get`, `list`, `watch`, `create`, …; for a non-resource request the HTTP method in lower case.
    pub verb: String,
    /// The path and query.
    pub uri: String,
    /// The user's name.
    pub user: String,
    /// The credential by which a real server has recognised the user: `X509SHA256=…` for a certificate, `JTI=…` for a
    /// token. May be empty.
    pub credential: String,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// The API group; empty for the core group and non-resource requests.
    pub group: String,
    /// The resource in plural, such as `configmaps`; empty for a non-resource request.
    pub resource: String,
    /// The subresource, such as `status`. May be empty.
    pub subresource: String,
    /// The namespace. May be empty.
    pub namespace: String,
    /// The object's name. May be empty.
    pub name: String,
    /// The HTTP status of the answer; 0 if there was none.
    pub code: u16,
    /// When the request arrived (RFC 3339).
    pub received: String,
}

pub(crate) const STARTED: &str = "ResponseStarted";
pub(crate) const COMPLETE: &str = "ResponseComplete";

impl AuditEvent {
    /// Whether this event is the one to count for its request: the start of a watch, or the end of any other request.
    pub fn is_start(&self) -> bool {
        let watch = self.verb == "watch" && self.code == 200;
        self.stage == if watch { STARTED } else { COMPLETE }
    }

    /// Whether this is a LIST of a resource. A LIST of a single object (`limit=1`) does not count: a watch sends one
    /// to get the newest resource version.
    pub fn is_list(&self, resource: &str) -> bool {
        let is_check = format!("{}&", self.uri).contains("?limit=1&");
        self.verb == "list" && !is_check && self.resource == resource && self.stage == COMPLETE
    }

    /// Whether this is the start of a WATCH of a resource.
    pub fn is_watch_start(&self, resource: &str) -> bool {
        self.verb == "watch" && self.resource == resource && self.stage == STARTED
    }
}

/// A position in the audit log. [`AuditLog::since`] returns the events after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditMark(pub(crate) u64);

/// The requests that a server has received, oldest first.
#[derive(Clone, Debug, Default)]
pub struct AuditLog {
    /// The events with their positions.
    pub(crate) events: VecDeque<(u64, AuditEvent)>,
    pub(crate) end: u64,
    pub(crate) forgotten: u64,
}

impl AuditLog {
    /// All events that are still in the log.
    pub fn events(&self) -> impl Iterator<Item = &AuditEvent> {
        self.events.iter().map(|(_, event)| event)
    }

    /// The number of events for which the predicate holds.
    pub fn count(&self, mut predicate: impl FnMut(&AuditEvent) -> bool) -> usize {
        self.events().filter(|event| predicate(event)).count()
    }

    /// The end of this log.
    pub fn mark(&self) -> AuditMark {
        AuditMark(self.end)
    }

    /// The events after a mark.
    #[must_use]
    pub fn since(&self, mark: AuditMark) -> Self {
        let first = self.events.partition_point(|(at, _)| *at < mark.0);
        Self {
            events: self.events.range(first..).cloned().collect(),
            end: self.end,
            forgotten: self.forgotten,
        }
    }

    /// How many events were dropped because the log of a simulated server was full. If this is not 0, the counts are
    /// too low.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    #[cfg(feature = "sim")]
    pub(crate) fn push(&mut self, event: AuditEvent, limit: usize) {
        self.events.push_back((self.end, event));
        self.end += 1;
        while self.events.len() > limit {
            self.events.pop_front();
            self.forgotten += 1;
        }
    }
}
