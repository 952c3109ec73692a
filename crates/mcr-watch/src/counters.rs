//! Counters of the watches of each kind.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{error::WatchError, request::WatchRequest};

/// The counts of all watches of a kind, over all clusters.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct KindCounts {
    /// Complete lists.
    pub lists: u64,
    /// Bytes of lists that were read, including lists that broke off.
    pub list_bytes: u64,
    /// The time that the complete lists took, including the time they waited for a permit.
    pub list_time: Duration,
    /// Objects in watch events.
    pub events: u64,
    /// Objects that were left out because they could not be read, counted each time they came.
    pub skipped: u64,
    /// Lists and watches that failed, by [`WatchError::reason`].
    pub failures: BTreeMap<&'static str, u64>,
}

/// The largest buffer that is allocated before a page is read.
const MAX_EXPECTED: usize = 512 << 10;

/// The counters of one kind. Each watch holds a handle, so that counting takes no lock.
#[derive(Debug, Default)]
pub struct KindCounters {
    /// Complete lists.
    pub lists: AtomicU64,
    /// Bytes of lists that were read.
    pub list_bytes: AtomicU64,
    /// About the size of the last pages of lists.
    page_bytes: AtomicUsize,
    list_micros: AtomicU64,
    /// Objects in watch events.
    pub events: AtomicU64,
    /// Objects that could not be read.
    pub skipped: AtomicU64,
    failures: [AtomicU64; WatchError::REASONS.len()],
    warned: Mutex<BTreeMap<&'static str, (Instant, u64)>>,
}

/// The shortest time between two warnings of one cause in several clusters.
const PAUSE: Duration = Duration::from_secs(60);

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

    /// Counts a page of a list, with its size in bytes.
    pub fn read_page(&self, bytes: usize) {
        self.list_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        // Each smaller page takes a quarter off: a large page is forgotten after some small ones.
        let before = self.page_bytes.load(Ordering::Relaxed);
        self.page_bytes
            .store(bytes.max(before - before / 4), Ordering::Relaxed);
    }

    /// The size of the buffer for the next page, in bytes: a little more than the last pages had, because the clusters of
    /// a fleet are often alike.
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

    /// Whether to warn that the kind is refused in a cluster. Returns how often it was refused in others since the last warning.
    pub fn warns(&self, error: &WatchError, now: Instant) -> Option<u64> {
        let mut warned = self.warned.lock();
        match warned.get_mut(error.reason()) {
            Some((at, others)) if now.saturating_duration_since(*at) < PAUSE => {
                *others += 1;
                None
            }
            known => {
                let others = known.map_or(0, |(_, others)| *others);
                warned.insert(error.reason(), (now, 0));
                Some(others)
            }
        }
    }

    /// The counts so far.
    pub fn read(&self) -> KindCounts {
        KindCounts {
            lists: read(&self.lists),
            list_bytes: read(&self.list_bytes),
            list_time: Duration::from_micros(read(&self.list_micros)),
            events: read(&self.events),
            skipped: read(&self.skipped),
            failures: WatchError::REASONS
                .iter()
                .copied()
                .zip(self.failures.iter().map(read))
                .collect(),
        }
    }
}

/// How many kinds have counters of their own. Further kinds are counted together, because names of kinds may come from
/// outside of the program.
const MAX_KINDS: usize = 256;
const OTHER_KINDS: &str = "other";

/// The counters of all kinds, by their [resource names](WatchRequest::resource_name).
#[derive(Debug, Default)]
pub struct CountersByKind(Mutex<BTreeMap<Arc<str>, Arc<KindCounters>>>);

impl CountersByKind {
    /// The counters of a kind.
    pub fn of(&self, request: &WatchRequest) -> Arc<KindCounters> {
        let name = request.resource_name();
        let mut kinds = self.0.lock();
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

    /// The counts so far.
    pub fn read(&self) -> BTreeMap<Arc<str>, KindCounts> {
        let kinds = self.0.lock().clone();
        kinds
            .into_iter()
            .map(|(name, cells)| (name, cells.read()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_bounded() {
        let counts = CountersByKind::default();
        for i in 0..1000 {
            let plural = format!("kind{i}");
            let resource = kube::core::ApiResource {
                group: String::new(),
                version: "v1".into(),
                api_version: "v1".into(),
                kind: plural.clone(),
                plural,
            };
            counts
                .of(&WatchRequest::resource(&resource))
                .listed(Duration::from_secs(1));
        }
        let kinds = counts.read();
        assert_eq!(kinds.len(), MAX_KINDS + 1);
        assert_eq!(kinds.values().map(|kind| kind.lists).sum::<u64>(), 1000);
        assert_eq!(kinds[OTHER_KINDS].list_time, Duration::from_secs(744));
    }

    #[tokio::test(start_paused = true)]
    async fn one_missing_right_in_200_clusters_is_one_warning_a_minute_with_their_number() {
        let (cells, now) = (KindCounters::default(), Instant::now());
        let warned: Vec<_> = (0..200)
            .filter_map(|_| cells.warns(&WatchError::NotServed, now))
            .collect();
        assert_eq!(warned, [0]);
        let forbidden = WatchError::Forbidden { message: "no".into() };
        assert_eq!(cells.warns(&forbidden, now), Some(0), "another cause");
        assert_eq!(cells.warns(&WatchError::NotServed, now + PAUSE), Some(199));
    }

    #[test]
    fn the_next_page_is_expected_to_be_like_the_last() {
        let cells = KindCounters::default();
        assert_eq!(cells.expected_page(), 0);
        cells.read_page(160_000);
        assert_eq!(cells.expected_page(), 170_000);
        // The last page of a list is small, which means nothing for the next list.
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
