//! What this program wrote to targets and when. It slows down a sync that writes the same again and again.

use std::{collections::HashMap, time::Duration};

use mcr::{ClusterName, RequestKey};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{desired::Desired, placement::Placement};

/// How many writes of the same contents need no pause. After that, each pause is twice as long as the one before.
const AT_ONCE: u32 = 3;

/// How many writes of the same contents show that somebody else writes the same fields. That is then reported.
const REPORTED: u32 = 5;

/// The longest pause between two writes of the same contents, reached after ten writes.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// After this time without a write, nobody else is considered to write the same fields.
const CALM: Duration = Duration::from_secs(600);

/// The time after which dropped fields are sent again, if no change of the schema is visible.
const RESEND: Duration = Duration::from_secs(24 * 3600);

/// The pause between two reads of a schema, which serves all objects of one kind in a cluster.
const READ_SCHEMA: Duration = Duration::from_secs(600);

/// The most paths in one report.
const MOST_FIELDS: usize = 8;

/// The last write to a target.
struct Last {
    /// A hash of the desired state.
    desired: u64,
    /// How many times the target was updated to this desired state.
    writes: u32,
    at: Instant,
    /// The paths that differed before the last write.
    fields: Vec<String>,
    /// The version of the schema that dropped fields, after it was read.
    schema: Option<String>,
}

#[derive(Default)]
pub(crate) struct Writes {
    /// The last write, by target or copy.
    last: Mutex<HashMap<Placement, Last>>,
    /// The schemas, by cluster and kind.
    schemas: Mutex<HashMap<(ClusterName, String), Schema>>,
}

/// The schema of a kind that has dropped fields.
struct Schema {
    read: Instant,
    /// `None` if it can't be read.
    version: Option<String>,
}

/// The pause between the last write and the next one of the same contents.
fn pause(writes: u32) -> Duration {
    match writes {
        0..AT_ONCE => Duration::ZERO,
        10.. => LONGEST_PAUSE,
        _ => Duration::from_millis(500 << (writes - AT_ONCE)),
    }
}

/// Why a target is not up to date although its server accepts each write. It contains paths, but no values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Somebody else sets these fields to other values again and again.
    Fought(Vec<String>),
    /// The server does not store these fields.
    Dropped(Vec<String>),
}

impl Trouble {
    /// The reason for the condition, in one word.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Fought(_) => "FieldFight",
            Self::Dropped(_) => "FieldsDropped",
        }
    }

    /// The trouble with an object, as text for people.
    pub(crate) fn message(&self, RequestKey { cluster, object }: &RequestKey) -> String {
        let list = |fields: &[String]| match fields.len().checked_sub(MOST_FIELDS) {
            None | Some(0) => fields.join(", "),
            Some(more) => format!("{} and {more} more", fields[..MOST_FIELDS].join(", ")),
        };
        match self {
            Self::Fought(fields) => format!(
                "somebody else sets these fields of {object} in cluster {cluster} again and again: {}; leave them out of the projection, or \
                 make the other controller leave them out. The sync sets them at most once a minute",
                list(fields)
            ),
            Self::Dropped(fields) => format!(
                "the server of cluster {cluster} does not store these fields of {object}: {}; upgrade its CustomResourceDefinition or the \
                 server, or leave them out of the projection. They are sent again when the definition changes, once a day, and when the program starts",
                list(fields)
            ),
        }
    }
}

/// When namespaces were created. If somebody deletes a namespace again and again, the sync does not create it at once
/// each time. An example is a workspace of kcp, which is deleted with its namespaces.
#[derive(Default)]
pub(crate) struct Namespaces(Mutex<HashMap<(ClusterName, String), Instant>>);

impl Namespaces {
    /// Whether a namespace may be created now.
    pub(crate) fn may_create(&self, cluster: &ClusterName, namespace: &str) -> bool {
        let mut created = self.0.lock();
        created.retain(|_, at| at.elapsed() < LONGEST_PAUSE);
        !created.contains_key(&(cluster.clone(), namespace.to_owned()))
    }

    /// Notes that a namespace exists now. If a creation fails, it may be tried again at once.
    pub(crate) fn note(&self, cluster: &ClusterName, namespace: &str) {
        let key = (cluster.clone(), namespace.to_owned());
        self.0.lock().insert(key, Instant::now());
    }
}

impl Writes {
    /// Calls `of` with the last write, if that write had this desired state.
    fn last<A>(
        &self,
        place: &Placement,
        desired: &Desired,
        of: impl FnOnce(&Last) -> Option<A>,
    ) -> Option<A> {
        let all = self.last.lock();
        let last = all.get(place)?;
        of(last).filter(|_| last.desired == desired.short())
    }

    /// Notes that a target was created or updated. `fields` are the paths that differed, empty for a creation.
    pub(crate) fn note(&self, place: &Placement, desired: &Desired, fields: Vec<String>) {
        let (desired, at) = (desired.short(), Instant::now());
        let mut all = self.last.lock();
        let before = all
            .get(place)
            .filter(|last| last.desired == desired && at - last.at < CALM);
        let writes = before.map_or(0, |last| last.writes) + u32::from(!fields.is_empty());
        if all.len() == all.capacity() {
            all.retain(|_, last| at - last.at < RESEND);
        }
        all.insert(
            place.clone(),
            Last {
                desired,
                writes,
                at,
                fields,
                schema: None,
            },
        );
    }

    /// Whether the schema of a kind is to be read now, because the last read was long ago. If so, notes the time.
    pub(crate) fn reads_schema(&self, cluster: &ClusterName, kind: &str) -> bool {
        let mut schemas = self.schemas.lock();
        let (read, key) = (Instant::now(), (cluster.clone(), kind.to_owned()));
        schemas.retain(|_, schema| schema.read.elapsed() < RESEND);
        let last = schemas.get(&key);
        let is_late = last.is_none_or(|last| last.read.elapsed() >= READ_SCHEMA);
        if is_late {
            let version = last.and_then(|last| last.version.clone());
            schemas.insert(key, Schema { read, version });
        }
        is_late
    }

    pub(crate) fn note_schema(&self, cluster: &ClusterName, kind: &str, version: Option<String>) {
        let mut schemas = self.schemas.lock();
        let (read, key) = (Instant::now(), (cluster.clone(), kind.to_owned()));
        schemas.insert(key, Schema { read, version });
    }

    /// Whether dropped fields are to be sent again, because the schema has changed since the server dropped them.
    pub(crate) fn has_new_schema(&self, placement: &Placement, kind: &str) -> bool {
        let key = (placement.at.cluster.clone(), kind.to_owned());
        let schemas = self.schemas.lock();
        let Some(now) = schemas.get(&key).and_then(|schema| schema.version.clone()) else {
            return false;
        };
        drop(schemas);
        let mut all = self.last.lock();
        let Some(last) = all.get_mut(placement) else {
            return false;
        };
        let is_new = last.schema.as_ref().is_some_and(|before| *before != now);
        last.schema = Some(now);
        if is_new {
            all.remove(placement);
        }
        is_new
    }

    /// Whether an object is to be written now, what to report about it, and when to observe it again. `differs`:
    /// whether anything differs beside fields that the server has dropped before.
    pub(crate) fn judge(
        &self,
        placement: &Placement,
        desired: &Desired,
        differs: bool,
        dropped: impl FnOnce() -> Vec<String>,
    ) -> (bool, Option<Trouble>, Option<Duration>) {
        let remaining = |of: Duration, last: &Last| {
            Some(of.saturating_sub(last.at.elapsed())).filter(|rest| !rest.is_zero())
        };
        let pause = self.last(placement, desired, |last| remaining(pause(last.writes), last));
        let is_due = differs && pause.is_none();
        let fight = |last: &Last| {
            let calm = remaining(CALM, last).filter(|_| last.writes >= REPORTED)?;
            Some((last.fields.clone(), calm))
        };
        if let Some((fields, calm)) = self.last(placement, desired, fight) {
            return (is_due, Some(Trouble::Fought(fields)), pause.or(Some(calm)));
        }
        let dropped = if differs { Vec::new() } else { dropped() };
        if dropped.is_empty() {
            return (is_due, None, pause);
        }
        // Due at once, if this program has not sent the fields yet.
        let resend = self.last(placement, desired, |last| remaining(RESEND, last));
        let wait = resend.map(|rest| rest.min(READ_SCHEMA));
        (resend.is_none(), Some(Trouble::Dropped(dropped)), wait)
    }
}
