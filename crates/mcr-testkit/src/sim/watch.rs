use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::time::{Instant, Sleep};

use super::error::SimError;
use super::form::{self, Form};
use super::kinds::Kind;
use super::object::Object;
use super::query::{From, ListOptions};
use super::selector::Selector;
use super::state::ClusterState;
use super::store::{Change, Event, Store};
use crate::audit::AuditEvent;

/// A chunk of the body ends after the event with which it has at least this many bytes.
const CHUNK: usize = 64 * 1024;

/// A running watch. It has no task: polling the body reads the next events from the store, and a write to the store
/// wakes the reader of the body.
pub struct Watch {
    cluster: Arc<ClusterState>,
    number: u64,
    epoch: u64,
    kind: Arc<Kind>,
    /// The watch selects the keys that begin with this.
    prefix: Box<str>,
    selector: Selector,
    form: Form,
    /// The resource version up to which events have been sent.
    version: u64,
    /// The objects that existed when the watch started and were not sent yet. They are sent before all events.
    initial: std::vec::IntoIter<Arc<Object>>,
    /// Whether a bookmark marks the end of `initial`.
    announce: bool,
    bookmarks: bool,
    deadline: Instant,
    next_bookmark: Instant,
    timer: Pin<Box<Sleep>>,
    /// Only the first event of a table contains the columns.
    sent_columns: bool,
    ended: bool,
    lines: Vec<u8>,
    /// The entry of the audit log, which is written when the watch ends.
    pub(crate) audited: Option<Box<AuditEvent>>,
}

impl Watch {
    pub fn start(
        cluster: &Arc<ClusterState>,
        store: &Store,
        kind: &Arc<Kind>,
        prefix: &str,
        options: &ListOptions,
        form: Form,
    ) -> Self {
        let wants_state = match options.initial {
            Some(initial) => initial,
            None => !matches!(options.from, From::Version(_)),
        };
        let version = match options.from {
            // The initial objects are the newest ones, whatever version was requested.
            From::Version(version) if !wants_state => version,
            _ => store.version,
        };
        let initial: Vec<Arc<Object>> = if wants_state {
            let current = store.current(&kind.table, prefix, "");
            current
                .filter(|object| options.selector.matches(object) && options.selector.shows(object))
                .cloned()
                .collect()
        } else {
            Vec::new()
        };
        let now = Instant::now();
        let timeout = options
            .timeout
            .map_or(cluster.settings.watch_timeout, Duration::from_secs);
        let deadline = now + timeout;
        let next_bookmark = now + cluster.settings.bookmark_interval;
        Self {
            cluster: cluster.clone(),
            number: cluster.next_watch(),
            epoch: cluster.epoch(),
            kind: kind.clone(),
            prefix: prefix.into(),
            selector: options.selector.clone(),
            form,
            version,
            initial: initial.into_iter(),
            // Even without `sendInitialEvents`, because a watch without a resource version is the older way to request
            // the initial objects.
            announce: wants_state && options.bookmarks,
            bookmarks: options.bookmarks,
            deadline,
            next_bookmark,
            timer: Box::pin(tokio::time::sleep_until(deadline.min(next_bookmark))),
            sent_columns: false,
            ended: false,
            lines: Vec::new(),
            audited: None,
        }
    }

    pub fn poll_lines(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.ended {
            return Poll::Ready(None);
        }
        loop {
            self.send_initial();
            if self.lines.is_empty() {
                self.send_changes(context);
            }
            if !self.lines.is_empty() {
                let lines = std::mem::take(&mut self.lines);
                return Poll::Ready(Some(lines.into()));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            if self.timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.on_time();
        }
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        let end = now >= self.deadline;
        if self.bookmarks && (end || now >= self.next_bookmark) {
            self.next_bookmark = now + self.cluster.settings.bookmark_interval;
            self.bookmark(false);
        }
        if end {
            self.ended = true;
        }
        // A watch without bookmarks sleeps until its deadline.
        let next = if self.bookmarks {
            self.deadline.min(self.next_bookmark)
        } else {
            self.deadline
        };
        self.timer.as_mut().reset(next);
    }

    fn send_initial(&mut self) {
        while self.lines.len() < CHUNK {
            let Some(object) = self.initial.next() else {
                if std::mem::take(&mut self.announce) {
                    self.bookmark(true);
                }
                return;
            };
            self.send(Change::Added, &object);
        }
    }

    /// Writes the events since `version`. If there are none, registers the reader so that the next write wakes it.
    fn send_changes(&mut self, context: &mut Context<'_>) {
        let cluster = self.cluster.clone();
        let mut store = cluster.store();
        if cluster.epoch() != self.epoch {
            self.ended = true;
            return;
        }
        if cluster
            .kinds(&store)
            .find(&self.kind.group, &self.kind.version, &self.kind.plural)
            .is_none()
        {
            // The CRD of the kind is deleted. API servers end such watches.
            self.ended = true;
            return;
        }
        let forgotten = store.forgotten(&self.kind.table);
        if self.version < forgotten && self.version < store.version {
            let (version, oldest) = (self.version, forgotten + 1);
            let message = format!("too old resource version: {version} ({oldest})");
            self.error(&SimError::expired(message));
            self.ended = true;
            return;
        }
        let mut reported = self.version;
        let news: Vec<Event> = store.since(&self.kind.table, self.version).cloned().collect();
        for event in &news {
            if self.lines.len() >= CHUNK {
                break;
            }
            reported = event.object.version;
            if !event.object.key.starts_with(&*self.prefix) || !self.selector.shows(&event.object) {
                continue;
            }
            let matches = |object: &Arc<Object>| self.selector.matches(object);
            let before = event.previous.as_ref().is_some_and(matches);
            let after = event.change != Change::Deleted && matches(&event.object);
            match (before, after) {
                (false, true) => self.send(Change::Added, &event.object),
                (true, true) => self.send(Change::Modified, &event.object),
                (true, false) => match (&event.previous, event.change) {
                    // The object no longer matches the selector. The event contains its previous state, with the
                    // version of the write.
                    (Some(previous), Change::Modified) => {
                        let object = previous.at(event.object.version);
                        self.send(Change::Deleted, &object);
                    }
                    _ => self.send(Change::Deleted, &event.object),
                },
                (false, false) => {}
            }
        }
        if self.lines.len() < CHUNK {
            // The client may know a newer version from another replica. Then that version is kept.
            reported = reported.max(store.version.max(self.version));
        }
        self.version = reported;
        if self.lines.is_empty() {
            store.wait(&self.kind.table, self.number, context.waker().clone());
        }
    }

    fn send(&mut self, change: Change, object: &Object) {
        let head = format!("{{\"type\":\"{}\",\"object\":", change.word());
        self.lines.extend_from_slice(head.as_bytes());
        let columns = !std::mem::replace(&mut self.sent_columns, true);
        let form = match self.form {
            Form::Metadata { .. } => Form::Metadata { list: false },
            form => form,
        };
        if let Err(error) = form::write_object(&self.kind, object, form, columns, &mut self.lines) {
            self.lines
                .extend_from_slice(error.to_status().to_string().as_bytes());
        }
        self.lines.extend_from_slice(b"}\n");
    }

    fn bookmark(&mut self, initial_end: bool) {
        let object = form::bookmark(&self.kind, self.form, self.version, initial_end);
        let line = json!({ "type": "BOOKMARK", "object": object });
        self.lines.extend_from_slice(format!("{line}\n").as_bytes());
    }

    fn error(&mut self, error: &SimError) {
        let line = json!({ "type": "ERROR", "object": error.to_status() });
        self.lines.extend_from_slice(format!("{line}\n").as_bytes());
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.cluster.watch_ended();
        self.cluster.store().forget_watch(&self.kind.table, self.number);
        if let Some(pending) = self.audited.take() {
            self.cluster.audit_end(*pending);
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("resource", &self.kind.resource)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
