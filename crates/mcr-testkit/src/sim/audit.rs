use std::collections::VecDeque;

/// One request, as the simulated API server saw it. The fields are those of
/// `control_plane::AuditEvent`, so a test can count the same way in both.
///
/// A request is logged when it is answered (`ResponseComplete`). A watch is logged twice: when it
/// starts (`ResponseStarted`) and when it ends (`ResponseComplete`), so count watches with
/// [`is_start`](Self::is_start).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimAuditEvent {
    /// `ResponseStarted` or `ResponseComplete`.
    pub stage: &'static str,
    /// `get`, `list`, `watch`, `create`, …; for a non-resource request the HTTP method in lower case.
    pub verb: String,
    /// The path and query.
    pub uri: String,
    /// The user's name.
    pub user: String,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// The API group; empty for the core group and non-resource requests.
    pub group: String,
    /// The resource in plural, such as `configmaps`; empty for a non-resource request.
    pub resource: String,
    /// The subresource, such as `status`; or empty.
    pub subresource: String,
    /// The namespace; or empty.
    pub namespace: String,
    /// The object's name; or empty.
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// When the request arrived (RFC 3339).
    pub received: String,
}

impl SimAuditEvent {
    /// Whether this is the one event that stands for its request: the start of a watch, the end of
    /// anything else.
    pub fn is_start(&self) -> bool {
        let watch = self.verb == "watch" && self.code == 200;
        self.stage == if watch { STARTED } else { COMPLETE }
    }

    /// Whether this is a LIST of a resource. One of a single object (`limit=1`) does not count: watches ask so for the newest
    /// resource version.
    pub fn is_list(&self, resource: &str) -> bool {
        let is_check = format!("{}&", self.uri).contains("?limit=1&");
        self.verb == "list" && !is_check && self.resource == resource && self.stage == COMPLETE
    }

    /// Whether this is the start of a WATCH of a resource.
    pub fn is_watch_start(&self, resource: &str) -> bool {
        self.verb == "watch" && self.resource == resource && self.stage == STARTED
    }
}

pub(crate) const STARTED: &str = "ResponseStarted";
pub(crate) const COMPLETE: &str = "ResponseComplete";

/// A position in the audit log. [`SimAuditLog::since`] returns the events after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SimAuditMark(u64);

/// The requests a cluster was sent, oldest first.
#[derive(Clone, Debug, Default)]
pub struct SimAuditLog {
    events: VecDeque<SimAuditEvent>,
    /// The number of the first event.
    start: u64,
}

impl SimAuditLog {
    /// All events that are remembered.
    pub fn events(&self) -> impl Iterator<Item = &SimAuditEvent> {
        self.events.iter()
    }

    /// The number of events for which the predicate holds.
    pub fn count(&self, mut predicate: impl FnMut(&SimAuditEvent) -> bool) -> usize {
        self.events().filter(|event| predicate(event)).count()
    }

    /// The end of this log.
    pub fn mark(&self) -> SimAuditMark {
        SimAuditMark(self.end())
    }

    /// The events after a mark.
    #[must_use]
    pub fn since(&self, mark: SimAuditMark) -> Self {
        let skipped = mark.0.saturating_sub(self.start);
        let skip = usize::try_from(skipped)
            .unwrap_or(usize::MAX)
            .min(self.events.len());
        Self {
            events: self.events.range(skip..).cloned().collect(),
            start: self.start.max(mark.0),
        }
    }

    /// How many events were dropped because the log was full. If this is not 0, counts are too low.
    /// See `SimBuilder::audit_limit`.
    pub fn forgotten(&self) -> u64 {
        self.start
    }

    fn end(&self) -> u64 {
        self.start + u64::try_from(self.events.len()).unwrap_or(0)
    }

    pub(crate) fn push(&mut self, event: SimAuditEvent, limit: usize) {
        self.events.push_back(event);
        while self.events.len() > limit {
            self.events.pop_front();
            self.start += 1;
        }
    }
}

/// A watch whose end is still to be logged.
#[derive(Debug)]
pub(crate) struct Pending(pub(crate) Box<SimAuditEvent>);
