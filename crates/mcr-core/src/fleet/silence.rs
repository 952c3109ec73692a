//! When a cluster that serves is probed. No I/O and no clock.

use std::{
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    time::Duration,
};

use mcr_access::ClusterName;
use mcr_client::internal::Doubts;
use tokio::time::Instant;

/// After so many times the silence that is set, by default 15 minutes, a cluster is probed in any case. Another one may answer by
/// then, if a load balancer keeps its connections. Or it still sends bookmarks, and answers nothing: etcd has no quorum.
const ANYWAY: u32 = 45;

/// What the supervisor knows of a cluster that serves.
pub(super) struct Silence {
    /// When it last sent something, or answered a probe.
    pub(super) answered: Instant,
    pub(super) probed: Instant,
    pub(super) doubts: Doubts,
    /// Whether a watch is open over a direct connection: bookmarks come, and the kernel notices a dead network.
    pub(super) is_watched: bool,
    /// Shortens the time until it is probed in any case: see [`spread`].
    pub(super) spread: u8,
}

/// Differs from cluster to cluster, so that those that are engaged at once are not probed at once for ever.
pub(super) fn spread(cluster: &ClusterName) -> u8 {
    let [spread, ..] = BuildHasherDefault::<DefaultHasher>::new()
        .hash_one(cluster)
        .to_ne_bytes();
    spread
}

impl Silence {
    /// When to probe the cluster, if nothing happens until then. `usual`: the silence after which a cluster is probed, which is
    /// longer in a large fleet than the one that is `set`.
    pub(super) fn probe_at(&self, set: Duration, usual: Duration) -> Instant {
        let Doubts {
            failed,
            dialed,
            works,
        } = self.doubts;
        // By default a little more than the minute between two bookmarks.
        let idle = (set.saturating_mul(13) / 4).max(usual);
        let silent_at = self.answered + if self.is_watched { idle } else { usual };
        // Shorter by up to a fifth, and in a fleet of any size.
        let anyway = set.saturating_mul(ANYWAY);
        let anyway = anyway - (anyway / 1280).saturating_mul(self.spread.into());
        let reasons = [
            failed,
            works.map(|since| self.answered.max(since) + usual),
            // One probe serves all connections that are opened meanwhile.
            dialed.map(|since| self.probed.max(since) + usual),
            Some(self.probed + anyway.max(usual)),
        ];
        reasons.into_iter().flatten().fold(silent_at, Instant::min)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy)]
    enum Happens {
        Nothing,
        Work,
        Dial,
        Failure,
    }

    /// The seconds in which a cluster is probed that sends something every `every` seconds, and nothing from `silent` on.
    fn probes(every: u32, silent: u32, is_watched: bool, happens: impl Fn(u32) -> Happens) -> Vec<u32> {
        const SECOND: Duration = Duration::from_secs(1);
        let start = Instant::now();
        let (mut received, mut probed, mut doubts) = (start, start, Doubts::default());
        let probe = |second: &u32| {
            let now = start + SECOND * *second;
            if *second < silent && second.is_multiple_of(every) {
                received = now;
            }
            match happens(*second) {
                Happens::Nothing => {}
                Happens::Work => _ = doubts.works.get_or_insert(now),
                Happens::Dial => _ = doubts.dialed.get_or_insert(now),
                Happens::Failure => _ = doubts.failed.get_or_insert(now),
            }
            let answered = received.max(probed);
            let silence = Silence {
                answered,
                probed,
                doubts,
                is_watched,
                spread: 0,
            };
            let is_due = silence.probe_at(SECOND * 20, SECOND * 20) <= now;
            if is_due {
                (probed, doubts) = (now, Doubts::default());
            }
            is_due
        };
        (1..=silent + 100).filter(probe).collect()
    }

    #[test]
    fn an_idle_cluster_with_bookmarks_is_probed_every_fifteen_minutes_in_a_fleet_of_any_size() {
        let idle = |every, is_watched| {
            let probes = probes(every, 7_100, is_watched, |_| Happens::Nothing);
            probes.into_iter().filter(|at| *at < 7_100).count()
        };
        assert_eq!((idle(60, true), idle(1, false)), (7, 7));
        assert_eq!(idle(60, false), 236, "without a watch, or behind a proxy");
        assert_eq!(idle(90, true), 79, "each bookmark is late");

        let (probed, second) = (Instant::now(), Duration::from_secs(1));
        let probed_after = |clusters: u32, spread| {
            let silence = Silence {
                answered: probed + second * 890,
                probed,
                doubts: Doubts::default(),
                is_watched: true,
                spread,
            };
            let usual = second * 20.max(clusters / 100);
            (silence.probe_at(second * 20, usual) - probed).as_secs()
        };
        let after = [100, 5_000, 20_000].map(|clusters| probed_after(clusters, 0));
        assert_eq!(after, [900; 3]);
        assert_eq!(probed_after(5_000, 255), 720, "they are spread");
        assert_eq!(probed_after(100_000, 255), 1000, "there are too many");
        let names = (0..1000).map(|at| spread(&ClusterName::unchecked(format!("c{at}"))));
        let different: std::collections::BTreeSet<u8> = names.collect();
        assert!(different.len() > 200, "{}", different.len());
    }

    #[test]
    fn a_failure_is_probed_at_once_a_new_connection_soon_and_work_only_if_nothing_comes() {
        let first = |what: Happens| {
            probes(
                1,
                200,
                true,
                |second| if second == 50 { what } else { Happens::Nothing },
            )[0]
        };
        let all = [Happens::Failure, Happens::Dial, Happens::Work].map(first);
        assert_eq!(all, [50, 70, 219]);
    }

    proptest! {
        /// Promise 1, with a probe of 8 s. Work is reported every 2 s, and a probe forgets the last report.
        #[test]
        fn whatever_happened_before_a_silent_cluster_is_probed_in_time(
            every in 1..=60_u32,
            silent in 1..600_u32,
            history in proptest::collection::vec(0..30_u8, 600),
            works_from in proptest::option::of(1..600_u32),
            is_watched in any::<bool>(),
        ) {
            let happens = |second: u32| match history.get(second as usize) {
                _ if second.is_multiple_of(2) && works_from.is_some_and(|from| from <= second) => Happens::Work,
                Some(0) if second < silent => Happens::Work,
                Some(1) if second < silent => Happens::Dial,
                Some(2) if second < silent => Happens::Failure,
                _ => Happens::Nothing,
            };
            let probes = probes(every, silent, is_watched, happens);
            let after = probes.into_iter().find(|at| *at >= silent).map(|at| at - silent);
            let usual = if is_watched { 65 } else { 20 };
            let limit = works_from.map_or(usual, |from| usual.min(from.saturating_sub(silent) + 22));
            prop_assert!(after.is_some_and(|after| after <= limit), "{:?}", after);
        }

    }
}
