//! Which clusters a source has lost, across restarts of its discovery. No I/O, and no clock of its own.
//!
//! A source is a provider of a fleet, or a child of a provider that combines several. Each start of its discovery begins a
//! round, in which the source names all its clusters again. At the end of the round, each known cluster that the source has not
//! named is missing. The caller removes a missing cluster after a grace period.
//!
//! If more than half of the clusters are missing, and more than one, they are held: the caller does not remove them. So large a
//! loss is more often a source that read an empty directory or an empty list than a fleet that is gone. The end of the next
//! round decides again.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use mcr_access::ClusterName;

/// The rounds of one source, and its missing clusters.
///
/// The caller keeps the clusters of the source. For each cluster it stores the [round](Self::named) in which the source named
/// the cluster last.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    round: u64,
    missing: BTreeMap<ClusterName, Missing>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// The grace period ends at this time.
    Until(Instant),
    Held,
}

/// The size of a loss that looks like a fault of the source: the missing clusters are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldClusters {
    /// The number of missing clusters.
    pub(crate) missing: usize,
    /// The number of known clusters, with the missing ones.
    pub(crate) known: usize,
}

impl Rounds {
    /// Begins a round: the source starts to name all its clusters again.
    pub(crate) fn begin(&mut self) {
        self.round += 1;
    }

    /// The source names a cluster, which is not missing any more. Returns the round to store for the cluster.
    pub(crate) fn named(&mut self, name: &ClusterName) -> u64 {
        self.forget(name);
        self.round
    }

    /// Forgets a cluster that the caller has removed.
    pub(crate) fn forget(&mut self, name: &ClusterName) {
        self.missing.remove(name);
    }

    /// Forgets all missing clusters. Until the end of the next round, no cluster is missing.
    pub(crate) fn forget_all(&mut self) {
        self.missing.clear();
    }

    /// Ends a round: the source has named all its clusters.
    ///
    /// `known` are all clusters of the source, each with the round in which the source named it last. A cluster that becomes
    /// missing is due after `grace`. A cluster that was missing before keeps its time. Returns `Some` if the missing clusters
    /// are held.
    pub(crate) fn end<'a>(
        &mut self,
        known: impl Iterator<Item = (&'a ClusterName, u64)>,
        now: Instant,
        grace: Duration,
    ) -> Option<HeldClusters> {
        let mut count = 0;
        let mut missing = Vec::new();
        for (name, round) in known {
            count += 1;
            if round < self.round {
                missing.push(name);
            }
        }
        // Losing one cluster is normal, even if the source had only one or two.
        let held = missing.len() >= 2 && missing.len() * 2 > count;
        let before = std::mem::take(&mut self.missing);
        for name in &missing {
            let state = match before.get(*name) {
                _ if held => Missing::Held,
                // Another restart must not extend the grace period.
                Some(Missing::Until(at)) => Missing::Until(*at),
                Some(Missing::Held) | None => Missing::Until(now + grace),
            };
            self.missing.insert((*name).clone(), state);
        }
        held.then_some(HeldClusters {
            missing: missing.len(),
            known: count,
        })
    }

    /// The missing clusters whose grace period has ended. Never a held cluster.
    pub(crate) fn due(&self, now: Instant) -> Vec<ClusterName> {
        self.which(|missing| matches!(missing, Missing::Until(at) if *at <= now))
    }

    /// When the next grace period ends. `None` if no cluster is missing, or all missing clusters are held.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let times = self.missing.values().filter_map(|missing| match missing {
            Missing::Until(at) => Some(*at),
            Missing::Held => None,
        });
        times.min()
    }

    /// The held clusters.
    pub(crate) fn held(&self) -> Vec<ClusterName> {
        self.which(|missing| *missing == Missing::Held)
    }

    /// Whether a cluster is held.
    pub(crate) fn is_held(&self, name: &str) -> bool {
        self.missing.get(name) == Some(&Missing::Held)
    }

    fn which(&self, which: impl Fn(&Missing) -> bool) -> Vec<ClusterName> {
        let found = self.missing.iter().filter(|(_, missing)| which(missing));
        found.map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    /// A source, and the clusters that it has named.
    #[derive(Default)]
    struct Source {
        rounds: Rounds,
        known: BTreeMap<ClusterName, u64>,
    }

    impl Source {
        fn name(&mut self, name: &'static str) {
            let name = ClusterName::unchecked(name);
            let round = self.rounds.named(&name);
            self.known.insert(name, round);
        }

        fn round(&mut self, names: &[&'static str], now: Instant) -> Option<HeldClusters> {
            self.rounds.begin();
            names.iter().for_each(|name| self.name(name));
            let known = self.known.iter().map(|(name, round)| (name, *round));
            self.rounds.end(known, now, GRACE)
        }

        fn due(&self, now: Instant) -> String {
            shown(self.rounds.due(now))
        }

        fn held(&self) -> String {
            shown(self.rounds.held())
        }
    }

    fn shown(names: Vec<ClusterName>) -> String {
        names.iter().map(|name| name.as_str()).collect()
    }

    #[test]
    fn what_is_missing_is_due_after_a_grace_that_another_round_does_not_change() {
        let (mut source, now) = (Source::default(), Instant::now());
        assert_eq!(source.round(&["a", "b", "c"], now), None);
        assert_eq!(source.rounds.next_due(), None);
        assert_eq!(source.round(&["a", "c"], now), None);
        assert_eq!(source.round(&["a", "c"], now + GRACE / 2), None);
        assert_eq!(source.rounds.next_due(), Some(now + GRACE));
        assert_eq!(source.due(now + GRACE / 2), "");
        assert_eq!(source.due(now + GRACE), "b");
        source.name("b");
        assert_eq!(source.due(now + GRACE), "");
    }

    #[test]
    fn more_than_half_and_more_than_one_is_held_and_the_only_one_may_go() {
        let now = Instant::now();
        for (had, named, held) in [
            (&["a"][..], &[][..], None),
            (&["a", "b"], &["a"], None),
            (&["a", "b"], &[], Some(HeldClusters { missing: 2, known: 2 })),
            (
                &["a", "b", "c"],
                &["a"],
                Some(HeldClusters { missing: 2, known: 3 }),
            ),
            (&["a", "b", "c", "d"], &["a", "b"], None),
        ] {
            let mut source = Source::default();
            source.round(had, now);
            assert_eq!(source.round(named, now), held, "{named:?} of {had:?}");
            let lost = had.len() - named.len();
            let expected = if held.is_some() { (lost, 0) } else { (0, lost) };
            let due = source.rounds.due(now + GRACE).len();
            assert_eq!(
                (source.rounds.held().len(), due),
                expected,
                "{named:?} of {had:?}"
            );
        }
    }

    #[test]
    fn of_what_is_held_the_rest_gets_a_grace_once_most_is_named_again() {
        let (mut source, now) = (Source::default(), Instant::now());
        source.round(&["a", "b", "c"], now);
        assert!(source.round(&[], now).is_some());
        assert_eq!(source.held(), "abc");
        source.name("a");
        source.name("b");
        assert_eq!(source.held(), "c", "only a round judges");
        let later = now + 10 * GRACE;
        assert_eq!(source.round(&["a", "b"], later), None);
        assert_eq!(source.held(), "");
        assert_eq!(
            (source.due(later), source.due(later + GRACE)),
            (String::new(), "c".into())
        );
    }

    #[test]
    fn what_has_a_grace_is_held_when_a_later_round_has_lost_most() {
        let (mut source, now) = (Source::default(), Instant::now());
        source.round(&["a", "b", "c"], now);
        source.round(&["a", "b"], now);
        assert!(source.round(&["a"], now).is_some());
        assert_eq!(
            (source.held(), source.due(now + GRACE)),
            ("bc".into(), String::new())
        );
        source.rounds.forget(&ClusterName::unchecked("b"));
        assert_eq!(source.held(), "c");
        source.rounds.forget_all();
        assert_eq!(source.rounds.missing.len(), 0);
    }
}
