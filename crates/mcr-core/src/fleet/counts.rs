//! The counts of a fleet: sums over all its clusters, also those that have left.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use mcr_watch::{
    KindCounts,
    internal::{CountersByKind, count},
};

use super::state::ClusterState;

/// The counts of a fleet since it was built. [`Fleet::counts`](super::Fleet::counts) returns them.
#[derive(Debug, Clone, Default, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FleetCounts {
    /// How often clusters entered each state. `Discovered` counts those that joined, `Gone` those that left.
    pub states: BTreeMap<&'static str, u64>,
    /// The results of new credentials.
    pub credentials: CredentialCounts,
    /// The counts of watches, by kind: `<plural>` or `<plural>.<group>`.
    pub kinds: BTreeMap<Arc<str>, KindCounts>,
}

/// The results of new credentials: of those that a source renewed, and of those that a provider announced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CredentialCounts {
    /// New credentials were put to use.
    pub renewed: u64,
    /// The source had no newer credentials.
    pub unchanged: u64,
    /// The source failed, or the API server refused the new credentials.
    pub failed: u64,
}

/// The counts of a fleet, while they grow.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// In the order of [`ClusterState::NAMES`].
    states: [AtomicU64; ClusterState::NAMES.len()],
    pub(crate) renewed: AtomicU64,
    pub(crate) unchanged: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) kinds: CountersByKind,
}

fn read(cell: &AtomicU64) -> u64 {
    cell.load(Ordering::Relaxed)
}

impl Counts {
    pub(crate) fn entered(&self, state: &ClusterState) {
        let at = ClusterState::NAMES
            .iter()
            .position(|name| *name == state.as_str());
        if let Some(cell) = at.and_then(|at| self.states.get(at)) {
            count(cell);
        }
    }

    pub(crate) fn read(&self) -> FleetCounts {
        FleetCounts {
            states: ClusterState::NAMES
                .iter()
                .copied()
                .zip(self.states.iter().map(read))
                .collect(),
            credentials: CredentialCounts {
                renewed: read(&self.renewed),
                unchanged: read(&self.unchanged),
                failed: read(&self.failed),
            },
            kinds: self.kinds.read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::ConfigMap;
    use mcr_watch::{WatchError, WatchRequest};

    use super::*;

    #[test]
    fn every_state_and_every_reason_is_counted() {
        let counts = Counts::default();
        let reason = || Arc::from("");
        for state in [
            ClusterState::Discovered,
            ClusterState::Connecting,
            ClusterState::Ready,
            ClusterState::Unreachable { reason: reason() },
            ClusterState::Suspended { reason: reason() },
            ClusterState::Draining,
            ClusterState::Gone,
        ] {
            counts.entered(&state);
        }
        let states = counts.read().states;
        assert!(states.values().all(|count| *count == 1), "{states:?}");
        let cells = counts.kinds.of(&WatchRequest::of::<ConfigMap>());
        let (text, meant, retry_after) = (String::new, "", None);
        let (bytes, limit, took) = (2, 1, Duration::ZERO);
        let (code, message, value) = (500, text(), text());
        let (pages, objects) = (1, 1);
        for error in [
            WatchError::Forbidden { message: text() },
            WatchError::NotServed,
            WatchError::NotInScope { message: text() },
            WatchError::InvalidRequest { value, meant },
            WatchError::Unauthorized,
            WatchError::Expired,
            WatchError::WentBack { from: 2, to: 1 },
            WatchError::TooManyRequests { retry_after },
            WatchError::Api {
                code,
                message,
                retry_after,
            },
            WatchError::Malformed(text()),
            WatchError::Foreign(text()),
            WatchError::Transport(text()),
            WatchError::Timeout(took),
            WatchError::ListTooLarge { bytes, limit },
            WatchError::ListBudgetSpent { bytes, limit },
            WatchError::HoldsTooMuch { bytes, limit },
            WatchError::ListWithoutEnd { pages, objects, took },
        ] {
            cells.failure(&error);
        }
        let failures = &counts.read().kinds["configmaps"].failures;
        assert!(failures.values().all(|count| *count == 1), "{failures:?}");
    }
}
