//! When a cluster that serves is probed. No I/O and no clock.

use std::time::Duration;

use mcr_client::internal::Doubts;
use tokio::time::Instant;

/// After so many times the usual silence, a cluster is probed in any case. Another one may answer by then, if a load balancer
/// keeps its connections.
const ANYWAY: u32 = 180;

/// What the supervisor knows of a cluster that serves.
pub(super) struct Silence {
    /// When it last sent something, or answered a probe.
    pub(super) answered: Instant,
    pub(super) probed: Instant,
    pub(super) doubts: Doubts,
    /// Whether a watch is open over a direct connection: bookmarks come, and the kernel notices a dead network.
    pub(super) is_watched: bool,
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
        // A little more than the minute between two bookmarks.
        let idle = (set.saturating_mul(13) / 4).max(usual);
        let silent_at = self.answered + if self.is_watched { idle } else { usual };
        let reasons = [
            failed,
            works.map(|since| self.answered.max(since) + usual),
            // One probe serves all connections that are opened meanwhile.
            dialed.map(|since| self.probed.max(since) + usual),
            Some(self.probed + usual * ANYWAY),
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
    fn an_idle_cluster_with_bookmarks_is_probed_once_an_hour() {
        let idle = |every, is_watched| {
            let probes = probes(every, 7_100, is_watched, |_| Happens::Nothing);
            probes.into_iter().filter(|at| *at < 7_100).count()
        };
        assert_eq!((idle(60, true), idle(1, false)), (1, 1));
        assert_eq!(idle(60, false), 236, "without a watch, or behind a proxy");
        assert_eq!(idle(90, true), 79, "each bookmark is late");
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
        /// Promise 1, with a probe of 8 s.
        #[test]
        fn whatever_happened_before_a_silent_cluster_is_probed_in_time(
            every in 1..=60_u32,
            silent in 1..600_u32,
            history in proptest::collection::vec(0..30_u8, 600),
            works in any::<bool>(),
            is_watched in any::<bool>(),
        ) {
            let happens = |second: u32| match history.get(second as usize) {
                _ if second >= silent && works => Happens::Work,
                Some(0) if second < silent => Happens::Work,
                Some(1) if second < silent => Happens::Dial,
                Some(2) if second < silent => Happens::Failure,
                _ => Happens::Nothing,
            };
            let probes = probes(every, silent, is_watched, happens);
            let after = probes.into_iter().find(|at| *at >= silent).map(|at| at - silent);
            let limit = if works || !is_watched { 20 } else { 65 };
            prop_assert!(after.is_some_and(|after| after <= limit), "{:?}", after);
        }

    }
}
