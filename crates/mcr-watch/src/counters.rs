//! What the watches of a kind do, counted where it happens.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use crate::WatchError;

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

/// Room for no more than this is made before it is needed.
const MAX_EXPECTED: usize = 512 << 10;

/// The counts of one kind as they grow. A watch keeps a handle, so that counting takes no lock.
#[derive(Debug, Default)]
pub struct KindCounters {
    /// Complete lists.
    pub lists: AtomicU64,
    /// Bytes of lists that were read.
    pub list_bytes: AtomicU64,
    /// As large as the last pages of lists.
    page_bytes: AtomicUsize,
    list_micros: AtomicU64,
    /// Objects in watch events.
    pub events: AtomicU64,
    /// Objects that could not be read.
    pub skipped: AtomicU64,
    failures: [AtomicU64; WatchError::REASONS.len()],
}

/// Adds one.
pub fn count(cell: &AtomicU64) {
    cell.fetch_add(1, Ordering::Relaxed);
}

fn read(cell: &AtomicU64) -> u64 {
    cell.load(Ordering::Relaxed)
}

impl KindCounters {
    /// Counts a complete list.
    pub fn listed(&self, took: Duration) {
        count(&self.lists);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.list_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Counts a page of a list, of so many bytes.
    pub fn read_page(&self, bytes: usize) {
        self.list_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        // A large one is forgotten in the course of some smaller ones.
        let before = self.page_bytes.load(Ordering::Relaxed);
        self.page_bytes
            .store(bytes.max(before - before / 4), Ordering::Relaxed);
    }

    /// How many bytes the next page of a list may have: clusters of a fleet are often alike. Room for more than that is
    /// not touched until it is used.
    pub fn expected_page(&self) -> usize {
        let last = self.page_bytes.load(Ordering::Relaxed);
        last.saturating_add(last / 16).min(MAX_EXPECTED)
    }

    /// Counts a failed list or watch.
    pub fn failure(&self, error: &WatchError) {
        let at = WatchError::REASONS
            .iter()
            .position(|reason| *reason == error.reason());
        if let Some(cell) = at.and_then(|at| self.failures.get(at)) {
            count(cell);
        }
    }

    /// What was counted so far.
    pub fn read(&self) -> KindCounts {
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
        let cells = KindCounters::default();
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
}
