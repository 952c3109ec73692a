//! How long it takes from a write to the reconcilers, and the writes they were never told of.

use crate::{row::Row, stats, subject::said::Sighting};

/// What some writes came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency {
    /// The median, in milliseconds.
    pub p50_ms: Option<f64>,
    /// The 99th percentile.
    pub p99_ms: Option<f64>,
    /// How many were never seen.
    pub missed: usize,
}

impl Latency {
    /// Of writes that `expected` reconcilers in all should have seen, each measured from what `begun` says of it.
    pub fn of(seen: &[Sighting], expected: usize, begun: impl Fn(&Sighting) -> Option<u64>) -> Self {
        let taken: Vec<f64> = seen
            .iter()
            .filter_map(|sighting| Some(sighting.at.saturating_sub(begun(sighting)?) as f64 / 1e6))
            .collect();
        Self {
            p50_ms: stats::percentile(&taken, 50.0),
            p99_ms: stats::percentile(&taken, 99.0),
            missed: expected.saturating_sub(taken.len()),
        }
    }

    /// A row with it.
    pub fn into_row(self, row: Row) -> Row {
        Row {
            p50_ms: self.p50_ms,
            p99_ms: self.p99_ms,
            missed: Some(self.missed as f64),
            ..row
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(seq: u64, sent: u64, at: u64) -> Sighting {
        Sighting { seq, sent, at }
    }

    #[test]
    fn what_was_seen_before_its_answer_took_no_time_and_what_was_not_seen_is_missed() {
        let all = [
            seen(1, 0, 5_000_000),
            seen(1, 0, 1_000_000),
            seen(2, 0, 9_000_000),
        ];
        let answered = |sighting: &Sighting| (sighting.seq == 1).then_some(2_000_000);
        let latency = Latency::of(&all, 4, answered);
        assert_eq!(latency.p99_ms.map(f64::round), Some(3.0));
        assert_eq!(latency.p50_ms, Some(1.5));
        assert_eq!(latency.missed, 2);
        let none = Latency::of(&[], 2, answered);
        assert_eq!((none.p50_ms, none.missed), (None, 2));
    }
}
