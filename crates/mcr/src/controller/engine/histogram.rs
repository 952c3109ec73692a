//! A histogram of durations.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Counts durations in buckets.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// One for each bound, and a last one for durations longer than all bounds.
    buckets: [AtomicU64; Histogram::BOUNDS.len() + 1],
    micros: AtomicU64,
}

/// A [`Histogram`] at one moment.
#[cfg(any(test, feature = "metrics"))]
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HistogramRead {
    /// In seconds.
    pub(crate) sum: f64,
    pub(crate) count: u64,
    /// Each bound, with the number of durations up to it and above the bound before.
    pub(crate) buckets: Vec<(f64, u64)>,
}

impl Histogram {
    /// In seconds: from a read of the cache to a call that hangs.
    const BOUNDS: [f64; 11] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0];

    pub(crate) fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let at = Self::BOUNDS.iter().position(|bound| seconds <= *bound);
        if let Some(bucket) = self.buckets.get(at.unwrap_or(Self::BOUNDS.len())) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    #[cfg(any(test, feature = "metrics"))]
    pub(crate) fn read(&self) -> HistogramRead {
        let bounds = Self::BOUNDS.into_iter().chain([f64::INFINITY]);
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let buckets: Vec<_> = bounds.zip(counts).collect();
        HistogramRead {
            sum: Duration::from_micros(self.micros.load(Ordering::Relaxed)).as_secs_f64(),
            // The sum of the buckets, so that it never contradicts them.
            count: buckets.iter().map(|(_, count)| count).sum(),
            buckets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_their_buckets() {
        let histogram = Histogram::default();
        for millis in [0, 1, 2, 5_000, 10_000_000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let read = histogram.read();
        let filled: Vec<_> = read.buckets.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [&(0.001, 2), &(0.005, 1), &(5.0, 1), &(f64::INFINITY, 1)]);
        assert_eq!((read.count, read.sum), (5, 10_005.003));
    }
}
