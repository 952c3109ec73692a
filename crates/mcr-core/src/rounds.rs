//! Which clusters a source has lost, over the restarts of its discovery. No I/O, no clock of its own.
//!
//! A source is a provider of a fleet, or a child of a provider that is made of several. Each start of its discovery begins a
//! round, in which it names everything it has once more. What it has not named when it says that this was all is missing,
//! and goes after a grace; unless it is more than half of what the source had, and more than one. Losing that much at once
//! is more often a source that was shown an empty world than a fleet that is gone, so all of it is held. Each round judges
//! anew.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::ClusterName;

/// The rounds of one source. Who keeps its clusters notes for each the [round](Self::named) in which it was last named.
///
/// ```
/// use std::{collections::BTreeMap, time::Duration};
///
/// use mcr_core::{ClusterName, InvalidClusterName, internal::Rounds};
/// use tokio::time::Instant;
///
/// # fn main() -> Result<(), InvalidClusterName> {
/// let (now, grace) = (Instant::now(), Duration::from_secs(30));
/// let mut rounds = Rounds::default();
/// let mut clusters = BTreeMap::new();
/// for named in [&["a", "b", "c"][..], &["a", "b"]] {
///     rounds.begin();
///     for name in named {
///         let name = ClusterName::new(*name)?;
///         clusters.insert(name.clone(), rounds.named(&name));
///     }
///     assert_eq!(rounds.end(clusters.iter().map(|(name, round)| (name, *round)), now, grace), None);
/// }
/// assert_eq!(rounds.next_due(), Some(now + grace));
/// assert_eq!(rounds.due(now + grace), [ClusterName::new("c")?]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Rounds {
    round: u64,
    missing: BTreeMap<ClusterName, Missing>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Until(Instant),
    Held,
}

/// Most of what a source had is missing, so none of that is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// How many clusters are missing.
    pub missing: usize,
    /// How many the source had.
    pub of: usize,
}

impl Rounds {
    /// The source starts to name everything anew.
    pub fn begin(&mut self) {
        self.round += 1;
    }

    /// The source names a cluster, which is not missing then. Returns the round to be noted for it.
    pub fn named(&mut self, name: &ClusterName) -> u64 {
        self.forget(name);
        self.round
    }

    /// The cluster is not kept any more.
    pub fn forget(&mut self, name: &ClusterName) {
        self.missing.remove(name);
    }

    /// Nothing counts as missing until the source has named everything once more.
    pub fn forget_all(&mut self) {
        self.missing.clear();
    }

    /// The source has named everything. `known` are all of its clusters, each with the round in which it was last named.
    pub fn end<'a>(
        &mut self,
        known: impl Iterator<Item = (&'a ClusterName, u64)>,
        now: Instant,
        grace: Duration,
    ) -> Option<Held> {
        let mut of = 0;
        let mut missing = Vec::new();
        for (name, round) in known {
            of += 1;
            if round < self.round {
                missing.push(name);
            }
        }
        // One cluster more or less is everyday life.
        let held = missing.len() >= 2 && missing.len() * 2 > of;
        let before = std::mem::take(&mut self.missing);
        for name in &missing {
            let state = match before.get(*name) {
                _ if held => Missing::Held,
                // Another restart does not prolong the grace.
                Some(Missing::Until(at)) => Missing::Until(*at),
                Some(Missing::Held) | None => Missing::Until(now + grace),
            };
            self.missing.insert((*name).clone(), state);
        }
        held.then_some(Held {
            missing: missing.len(),
            of,
        })
    }

    /// What is missing, held or not.
    pub fn missing(&self) -> impl Iterator<Item = &ClusterName> {
        self.missing.keys()
    }

    /// What has been missing for longer than its grace.
    pub fn due(&self, now: Instant) -> Vec<ClusterName> {
        self.which(|missing| matches!(missing, Missing::Until(at) if *at <= now))
    }

    /// When something will have been missing for longer than its grace.
    pub fn next_due(&self) -> Option<Instant> {
        let times = self.missing.values().filter_map(|missing| match missing {
            Missing::Until(at) => Some(*at),
            Missing::Held => None,
        });
        times.min()
    }

    /// What is held.
    pub fn held(&self) -> Vec<ClusterName> {
        self.which(|missing| *missing == Missing::Held)
    }

    /// Whether a cluster is held.
    pub fn is_held(&self, name: &str) -> bool {
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

    /// A source and what is known of its clusters.
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

        fn round(&mut self, names: &[&'static str], now: Instant) -> Option<Held> {
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
            (&["a", "b"], &[], Some(Held { missing: 2, of: 2 })),
            (&["a", "b", "c"], &["a"], Some(Held { missing: 2, of: 3 })),
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
        assert_eq!(source.rounds.missing().count(), 0);
    }
}
