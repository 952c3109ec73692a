//! The latency from a write to the reconcilers, and the writes that never reached them.

use std::collections::{BTreeMap, HashMap};

use crate::{
    row::{Figure, Row},
    stats,
    subject::message::Observation,
};

/// The latency of some writes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Latency {
    /// The median, in milliseconds.
    pub(super) p50_ms: Option<f64>,
    /// The 99th percentile.
    pub(super) p99_ms: Option<f64>,
    /// The number of writes that were not seen in a cluster, nor a later write there.
    pub(super) missed: usize,
}

impl Latency {
    /// Of writes, by their numbers with the time each is measured from, that the reconcilers of as many clusters should have
    /// seen. Reconcilers may pass over a write for a later one; the wait for that one is then the wait for both.
    pub(super) fn of(seen: &[Observation], clusters: usize, writes: &BTreeMap<u64, u64>) -> Self {
        Self::of_waits(&waits(seen, writes), clusters * writes.len())
    }

    /// As [`of`](Self::of), of writes that went to a part of the clusters each: those with the same `seq % parts` to the same part.
    /// `wanted` is how many reconciles should have seen them.
    pub(super) fn of_parts(
        seen: &[Observation],
        parts: u64,
        wanted: usize,
        writes: &BTreeMap<u64, u64>,
    ) -> Self {
        let of_part = |part| {
            let own: BTreeMap<u64, u64> = writes
                .iter()
                .filter(|(seq, _)| *seq % parts == part)
                .map(|(seq, begun)| (*seq, *begun))
                .collect();
            waits(seen.iter().filter(|seen| seen.seq % parts == part), &own)
        };
        let waits: Vec<f64> = (0..parts).flat_map(of_part).collect();
        Self::of_waits(&waits, wanted)
    }

    fn of_waits(waits: &[f64], wanted: usize) -> Self {
        Self {
            p50_ms: stats::percentile(waits, 50.0),
            p99_ms: stats::percentile(waits, 99.0),
            missed: wanted.saturating_sub(waits.len()),
        }
    }

    /// A row with it.
    pub(super) fn into_row(self, row: Row) -> Row {
        let row = row
            .with(Figure::P50Ms, self.p50_ms)
            .with(Figure::P99Ms, self.p99_ms);
        row.with(Figure::Missed, self.missed as f64)
    }
}

/// How long each write waited until each cluster's reconciler had seen it or a later one, in milliseconds.
fn waits<'a>(seen: impl IntoIterator<Item = &'a Observation>, writes: &BTreeMap<u64, u64>) -> Vec<f64> {
    let mut by_cluster: HashMap<&str, Vec<&Observation>> = HashMap::new();
    for observation in seen {
        if writes.contains_key(&observation.seq) {
            let of_cluster = by_cluster.entry(&observation.cluster).or_default();
            of_cluster.push(observation);
        }
    }
    let mut waits = Vec::new();
    for observations in by_cluster.values() {
        for (seq, begun) in writes {
            let later = observations.iter().filter(|observation| observation.seq >= *seq);
            let first = later.map(|observation| observation.at).min();
            waits.extend(first.map(|at| at.saturating_sub(*begun) as f64 / 1e6));
        }
    }
    waits
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn seen(cluster: &str, seq: u64, at: u64) -> Observation {
        Observation {
            cluster: cluster.to_owned(),
            seq,
            at: at * MS,
        }
    }

    #[test]
    fn a_write_that_was_passed_over_waits_until_a_later_one_is_seen() {
        let writes = BTreeMap::from([(1, 10 * MS), (2, 20 * MS), (3, 30 * MS)]);
        let latency = Latency::of(&[seen("a", 3, 31)], 1, &writes);
        assert_eq!((latency.p50_ms, latency.missed), (Some(11.0), 0));
    }

    #[test]
    fn what_no_reconciler_saw_is_missed_and_what_is_of_no_write_is_nobodys() {
        let writes = BTreeMap::from([(1, 10 * MS), (2, 20 * MS)]);
        // Cluster b has seen the first one only, c none, and d had joined with an old one.
        let all = [
            seen("a", 1, 12),
            seen("a", 2, 22),
            seen("b", 1, 9),
            seen("d", 0, 11),
        ];
        let latency = Latency::of(&all, 3, &writes);
        assert_eq!(latency.missed, 3);
        // What is seen before the answer to the write counts as zero.
        assert_eq!(latency.p50_ms, Some(2.0));
        assert_eq!(Latency::of(&[], 3, &writes).p99_ms, None);
    }

    #[test]
    fn a_cluster_waits_only_for_the_writes_to_its_part() {
        let writes = BTreeMap::from([(1, 10 * MS), (2, 10 * MS), (3, 20 * MS), (4, 20 * MS)]);
        // Odd writes went to a and b, even ones to c. The first one to a was passed over; b has seen none.
        let all = [
            seen("a", 3, 21),
            seen("c", 2, 12),
            seen("c", 4, 22),
            seen("a", 0, 9),
        ];
        let latency = Latency::of_parts(&all, 2, 6, &writes);
        assert_eq!((latency.p50_ms, latency.missed), (Some(2.0), 2));
        assert_eq!(Latency::of_parts(&all[..1], 2, 6, &writes).p99_ms, Some(10.9));
    }
}
