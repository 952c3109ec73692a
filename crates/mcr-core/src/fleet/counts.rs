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

    use mcr_watch::{WatchError, WatchRequest};

    use super::*;

    fn kind(plural: &str) -> WatchRequest {
        let resource = kube::core::ApiResource {
            group: String::new(),
            version: "v1".into(),
            api_version: "v1".into(),
            kind: plural.into(),
            plural: plural.into(),
        };
        WatchRequest::resource(&resource)
    }

    #[test]
    fn every_state_and_every_reason_is_counted() {
        let counts = Counts::default();
        let reason: Arc<str> = "".into();
        for state in [
            ClusterState::Discovered,
            ClusterState::Connecting,
            ClusterState::Ready,
            ClusterState::Unreachable {
                reason: reason.clone(),
            },
            ClusterState::Suspended { reason },
            ClusterState::Draining,
            ClusterState::Gone,
        ] {
            counts.entered(&state);
        }
        assert!(
            counts.read().states.values().all(|count| *count == 1),
            "{:?}",
            counts.read()
        );
        let cells = counts.kinds.of(&kind("maps"));
        let text = String::new;
        for error in [
            WatchError::Forbidden { message: text() },
            WatchError::NotServed,
            WatchError::NotInScope {
                message: String::new(),
            },
            WatchError::InvalidRequest {
                value: text(),
                meant: "",
            },
            WatchError::Unauthorized,
            WatchError::Expired,
            WatchError::WentBack { from: 2, to: 1 },
            WatchError::TooManyRequests { retry_after: None },
            WatchError::Api {
                code: 500,
                message: text(),
                retry_after: None,
            },
            WatchError::Malformed(text()),
            WatchError::Transport(text()),
            WatchError::Timeout(Duration::ZERO),
            WatchError::ListTooLarge { bytes: 2, limit: 1 },
            WatchError::ListBudgetSpent { bytes: 2, limit: 1 },
            WatchError::HoldsTooMuch { bytes: 2, limit: 1 },
        ] {
            cells.failure(&error);
        }
        assert!(
            counts.read().kinds["maps"]
                .failures
                .values()
                .all(|count| *count == 1)
        );
    }
}
