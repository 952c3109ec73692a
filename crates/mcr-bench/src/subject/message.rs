//! The messages between the driver and its child processes.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// Figures by name.
pub type Figures = BTreeMap<String, f64>;

/// A message from a subject or the simulator to the driver, one JSON object a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Message {
    /// Every object has passed the reconciler once.
    Synced {
        /// Nanoseconds since 1970.
        at: u64,
    },
    /// Every object has been applied, in suite `work`.
    Applied {
        /// Nanoseconds since 1970.
        at: u64,
        /// How many attempts failed.
        failed: u64,
    },
    /// The answer to `beats`: those that were seen since the last question.
    Beats {
        /// In no order.
        beats: Vec<Observation>,
    },
    /// The answer to `heap`.
    Heap {
        /// The allocated bytes. `None` if they are not counted.
        bytes: Option<usize>,
    },
    /// The answer to `seen` of a subject, and the first message of a simulator.
    Seen {
        /// The number of reconciles, repeated ones included, or of objects in each cluster.
        count: u64,
    },
    /// The answer to `counts`.
    Counts(Counts),
    /// The figures of a case.
    Figures {
        /// By name.
        figures: Figures,
    },
    /// A command was carried out.
    Done {
        /// When it was, in nanoseconds since 1970.
        at: u64,
    },
}

/// Requests for the watched kinds that a server has counted since it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// LISTs.
    pub lists: u64,
    /// WATCHes, those still open included.
    pub watches: u64,
    /// WATCHes that are open.
    pub open: u64,
}

/// One beat that one cluster's reconciler has seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// The cluster, as the subject calls it.
    pub cluster: String,
    /// The beat's number.
    pub seq: u64,
    /// Nanoseconds since 1970.
    pub at: u64,
}

/// The time, comparable between processes of one machine.
pub fn now() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
