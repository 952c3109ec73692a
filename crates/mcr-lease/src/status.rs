//! The state of a candidate, for people and programs.

use std::{sync::Arc, time::SystemTime};

use k8s_openapi::jiff::Timestamp;
use serde::Serializer;

/// Whether a candidate holds the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// The candidate holds the Lease.
    Leader,
    /// The candidate waits for the Lease.
    Standby,
}

impl Role {
    /// `leader` or `standby`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Standby => "standby",
        }
    }
}

/// The state of a candidate at one moment. [`Leadership::status`](crate::Leadership::status) returns it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct LeaseStatus {
    /// Whether this process holds the Lease.
    pub role: Role,
    /// The holder in the record that was last read or written. `None`: nobody holds the Lease, or it was never read.
    pub holder: Option<Arc<str>>,
    /// The identity of this candidate.
    pub identity: Arc<str>,
    /// The Lease, as `namespace/name`.
    pub lease: Arc<str>,
    /// The time of the last change of the role, by the clock of this machine. For display only.
    #[serde(serialize_with = "rfc3339")]
    pub since: SystemTime,
    /// Why the last request to the API server failed. `None` after a success.
    pub error: Option<Arc<str>>,
}

fn rfc3339<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    match Timestamp::try_from(*time) {
        Ok(time) => serializer.collect_str(&format_args!("{time:.3}")),
        Err(_) => serializer.serialize_str("unknown"),
    }
}
