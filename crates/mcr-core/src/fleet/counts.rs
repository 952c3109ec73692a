//! What a fleet did, counted where it happens and summed over its clusters: a cluster that leaves takes nothing
//! away from a sum.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::ClusterState;
use crate::{WatchError, WatchRequest};

/// What a fleet did since it was built; made by [`Fleet::counts`](super::Fleet::counts).
#[derive(Debug, Clone, Default, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FleetCounts {
    /// How often clusters entered each state. `Discovered` counts those that joined, `Gone` those that left.
    pub states: BTreeMap<&'static str, u64>,
    /// What came of new credentials.
    pub credentials: CredentialCounts,
    /// What watches did, by `<plural>` or `<plural>.<group>`.
    pub kinds: BTreeMap<Arc<str>, KindCounts>,
}

/// What came of new credentials, whether a source renewed them or a provider announced them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CredentialCounts {
    /// They were put to use.
    pub renewed: u64,
    /// The source had nothing newer.
    pub unchanged: u64,
    /// There were none, or the cluster did not take them.
    pub failed: u64,
}

/// What the watches of a kind did in all clusters together.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct KindCounts {
    /// Complete lists.
    pub lists: u64,
    /// How many bytes of lists were read, those of lists that broke off included.
    pub list_bytes: u64,
    /// How long the complete lists took, waiting for their turn included.
    pub list_time: Duration,
    /// Objects that watches told of.
    pub events: u64,
    /// Objects that were left out because they could not be read, each time they came.
    pub skipped: u64,
    /// Lists and watches that failed, by [`WatchError::reason`].
    pub failures: BTreeMap<&'static str, u64>,
}

/// Watches of kinds beyond this many are counted together: names of kinds may come from outside.
const MAX_KINDS: usize = 256;
const OTHER_KINDS: &str = "other";

/// Room for no more than this is made before it is needed.
const MAX_EXPECTED: usize = 512 << 10;

/// The counts as they grow.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    states: [AtomicU64; ClusterState::NAMES.len()],
    pub(crate) renewed: AtomicU64,
    pub(crate) unchanged: AtomicU64,
    pub(crate) failed: AtomicU64,
    kinds: Mutex<BTreeMap<Arc<str>, Arc<KindCells>>>,
}

/// The counts of one kind as they grow. A watch keeps a handle, so that counting takes no lock.
#[derive(Debug, Default)]
pub(crate) struct KindCells {
    pub(crate) lists: AtomicU64,
    pub(crate) list_bytes: AtomicU64,
    /// As large as the last pages of lists.
    page_bytes: AtomicUsize,
    list_micros: AtomicU64,
    pub(crate) events: AtomicU64,
    pub(crate) skipped: AtomicU64,
    failures: [AtomicU64; WatchError::REASONS.len()],
}

pub(crate) fn count(cell: &AtomicU64) {
    cell.fetch_add(1, Ordering::Relaxed);
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

    pub(crate) fn kind(&self, request: &WatchRequest) -> Arc<KindCells> {
        let name = request.resource_name();
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kinds.get(name.as_str()) {
            return known.clone();
        }
        let name = if kinds.len() < MAX_KINDS {
            name.as_str()
        } else {
            OTHER_KINDS
        };
        kinds.entry(name.into()).or_default().clone()
    }

    pub(crate) fn read(&self) -> FleetCounts {
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner).clone();
        FleetCounts {
            states: ClusterState::NAMES
                .into_iter()
                .zip(self.states.iter().map(read))
                .collect(),
            credentials: CredentialCounts {
                renewed: read(&self.renewed),
                unchanged: read(&self.unchanged),
                failed: read(&self.failed),
            },
            kinds: kinds
                .into_iter()
                .map(|(name, cells)| (name, cells.read()))
                .collect(),
        }
    }
}

impl KindCells {
    pub(crate) fn listed(&self, took: Duration) {
        count(&self.lists);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.list_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Counts a page of a list, of so many bytes.
    pub(crate) fn read_page(&self, bytes: usize) {
        self.list_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        // A large one is forgotten in the course of some smaller ones.
        let before = self.page_bytes.load(Ordering::Relaxed);
        self.page_bytes
            .store(bytes.max(before - before / 4), Ordering::Relaxed);
    }

    /// How many bytes the next page of a list may have: clusters of a fleet are often alike. Room for more than that is
    /// not touched until it is used.
    pub(crate) fn expected_page(&self) -> usize {
        let last = self.page_bytes.load(Ordering::Relaxed);
        last.saturating_add(last / 16).min(MAX_EXPECTED)
    }

    pub(crate) fn failure(&self, error: &WatchError) {
        let at = WatchError::REASONS
            .iter()
            .position(|reason| *reason == error.reason());
        if let Some(cell) = at.and_then(|at| self.failures.get(at)) {
            count(cell);
        }
    }

    fn read(&self) -> KindCounts {
        KindCounts {
            lists: read(&self.lists),
            list_bytes: read(&self.list_bytes),
            list_time: Duration::from_micros(read(&self.list_micros)),
            events: read(&self.events),
            skipped: read(&self.skipped),
            failures: WatchError::REASONS
                .into_iter()
                .zip(self.failures.iter().map(read))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_expected_to_be_like_the_last() {
        let cells = KindCells::default();
        assert_eq!(cells.expected_page(), 0);
        cells.read_page(160_000);
        assert_eq!(cells.expected_page(), 170_000);
        // The last page of a list is small, and says nothing of the next list.
        cells.read_page(1_000);
        assert_eq!(cells.expected_page(), 127_500);
        for _ in 0..40 {
            cells.read_page(1_000);
        }
        assert_eq!(cells.expected_page(), 1_062);
        cells.read_page(usize::MAX);
        assert_eq!(cells.expected_page(), MAX_EXPECTED);
    }

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
        let cells = counts.kind(&kind("maps"));
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
            WatchError::TooManyRequests { retry_after: None },
            WatchError::Api {
                code: 500,
                message: text(),
            },
            WatchError::Malformed(text()),
            WatchError::Transport(text()),
            WatchError::Timeout(Duration::ZERO),
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

    #[test]
    fn kinds_are_bounded() {
        let counts = Counts::default();
        for i in 0..1000 {
            counts
                .kind(&kind(&format!("kind{i}")))
                .listed(Duration::from_secs(1));
        }
        let kinds = counts.read().kinds;
        assert_eq!(kinds.len(), MAX_KINDS + 1);
        assert_eq!(kinds.values().map(|kind| kind.lists).sum::<u64>(), 1000);
        assert_eq!(kinds[OTHER_KINDS].list_time, Duration::from_secs(744));
    }
}
