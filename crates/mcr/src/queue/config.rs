//! The settings of a queue.

use super::backoff::Backoff;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The settings of a queue. Start from [`default`](Self::default) and chain the settings that differ.
///
/// ```
/// use mcr::queue::QueueConfig;
/// use std::time::Duration;
///
/// let config = QueueConfig::default().concurrency(64).cluster_concurrency(8).debounce(Duration::from_millis(50));
/// assert_eq!(config.concurrency, Some(64));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct QueueConfig {
    /// The most items that run at once (zero counts as 1). Default: unlimited.
    pub concurrency: Option<usize>,
    /// The most items of one cluster that run at once (zero counts as 1). Default: unlimited.
    pub cluster_concurrency: Option<usize>,
    /// The time without another add after which an added item is ready. Default: none.
    pub debounce: Option<Duration>,
    /// Whether a newly engaged cluster has a closed gate. Default: no.
    pub start_gated: bool,
    /// The time after which a ready item counts as aged. Default 10 s.
    pub age_after: Duration,
    /// The delays after failures of a key.
    pub backoff: Backoff,
    /// The seed of the jitter. Default: random.
    pub seed: u64,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            concurrency: None,
            cluster_concurrency: None,
            debounce: None,
            start_gated: false,
            age_after: Duration::from_secs(10),
            backoff: Backoff::default(),
            // The hash keys of std are random, and need no dependency.
            seed: RandomState::new().hash_one(0),
        }
    }
}

impl QueueConfig {
    /// Sets [`concurrency`](Self::concurrency).
    pub fn concurrency(mut self, limit: impl Into<Option<usize>>) -> Self {
        self.concurrency = limit.into();
        self
    }

    /// Sets [`cluster_concurrency`](Self::cluster_concurrency).
    pub fn cluster_concurrency(mut self, limit: impl Into<Option<usize>>) -> Self {
        self.cluster_concurrency = limit.into();
        self
    }

    /// Sets [`debounce`](Self::debounce).
    pub fn debounce(mut self, quiet: impl Into<Option<Duration>>) -> Self {
        self.debounce = quiet.into();
        self
    }

    /// Sets [`start_gated`](Self::start_gated).
    pub fn start_gated(mut self, gated: bool) -> Self {
        self.start_gated = gated;
        self
    }

    /// Sets [`age_after`](Self::age_after).
    pub fn age_after(mut self, age: Duration) -> Self {
        self.age_after = age;
        self
    }

    /// Sets [`backoff`](Self::backoff).
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets [`seed`](Self::seed).
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}
