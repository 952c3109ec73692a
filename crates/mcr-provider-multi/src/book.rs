//! What one child has said, over the restarts of its discovery. No I/O, no clock of its own.
//!
//! The fleet believes a `Remove` at once and sweeps only when a provider as a whole starts anew. A child that starts
//! anew by itself is swept here, by the fleet's own rules: after a grace, and not if it lost most of its clusters.

use std::{collections::BTreeMap, time::Duration};

use mcr_core::{
    BrokenCluster, Change, ClusterName, ClusterSpec,
    internal::{Held, Rounds},
};
use tokio::time::Instant;

/// See the module. Names are those with the child's prefix.
#[derive(Debug, Default)]
pub(crate) struct Book {
    clusters: BTreeMap<ClusterName, Entry>,
    rounds: Rounds,
}

/// At least one of spec and broken is there.
#[derive(Debug, Default)]
struct Entry {
    /// The last good description.
    spec: Option<ClusterSpec>,
    broken: Option<BrokenCluster>,
    /// The last round in which the child named it.
    round: u64,
    /// Whether it was said in this discovery of all children.
    said: bool,
}

impl Book {
    /// The discovery of all children starts anew: whoever listens must be told everything again.
    pub(crate) fn begin_discovery(&mut self) {
        self.begin_round();
        self.rounds.forget_all();
        for entry in self.clusters.values_mut() {
            entry.said = false;
        }
    }

    /// The child starts to say everything anew.
    pub(crate) fn begin_round(&mut self) {
        self.rounds.begin();
    }

    pub(crate) fn upsert(&mut self, spec: ClusterSpec) {
        let entry = self.named(&spec.name);
        entry.broken = None;
        entry.spec = Some(spec);
    }

    pub(crate) fn broken(&mut self, broken: BrokenCluster) {
        let entry = self.named(&broken.name);
        entry.broken = Some(broken);
    }

    fn named(&mut self, name: &ClusterName) -> &mut Entry {
        let entry = self.clusters.entry(name.clone()).or_default();
        entry.round = self.rounds.named(name);
        entry.said = true;
        entry
    }

    pub(crate) fn remove(&mut self, name: &ClusterName) {
        self.rounds.forget(name);
        self.clusters.remove(name);
    }

    /// The child has said everything: what it did not name is missing.
    ///
    /// What was not said in this discovery either is forgotten: the listener finds that out by itself when all
    /// children are synced. Unless it is much; then it is kept, and to be said by [`rest`](Self::rest).
    pub(crate) fn synced(&mut self, now: Instant, grace: Duration) -> Option<Held> {
        let known = self.clusters.iter().map(|(name, entry)| (name, entry.round));
        let held = self.rounds.end(known, now, grace);
        if held.is_none() {
            let unsaid = |name: &&ClusterName| self.clusters.get(*name).is_some_and(|entry| !entry.said);
            self.let_go(self.rounds.missing().filter(unsaid).cloned().collect());
        }
        held
    }

    /// Removes what has been missing for longer than its grace.
    pub(crate) fn sweep(&mut self, now: Instant) -> Vec<ClusterName> {
        self.let_go(self.rounds.due(now))
    }

    /// Removes what is held.
    pub(crate) fn release_held(&mut self) -> Vec<ClusterName> {
        self.let_go(self.rounds.held())
    }

    fn let_go(&mut self, going: Vec<ClusterName>) -> Vec<ClusterName> {
        for name in &going {
            self.remove(name);
        }
        going
    }

    pub(crate) fn next_sweep(&self) -> Option<Instant> {
        self.rounds.next_due()
    }

    /// What is known from an earlier discovery and was not said in this one.
    pub(crate) fn rest(&mut self) -> Vec<Change> {
        let mut rest = Vec::new();
        for entry in self.clusters.values_mut().filter(|entry| !entry.said) {
            entry.said = true;
            rest.extend(entry.spec.clone().map(Change::Upsert));
            rest.extend(entry.broken.clone().map(Change::Broken));
        }
        rest
    }

    pub(crate) fn len(&self) -> usize {
        self.clusters.len()
    }

    pub(crate) fn held(&self) -> usize {
        self.rounds.held().len()
    }

    pub(crate) fn into_names(self) -> impl Iterator<Item = ClusterName> {
        self.clusters.into_keys()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use mcr_core::{Access, Trust};
    use proptest::prelude::*;

    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    fn name(n: &str) -> ClusterName {
        ClusterName::new(n).unwrap()
    }

    fn spec(n: &str) -> ClusterSpec {
        ClusterSpec::new(name(n), Access::kubeconfig("", Trust::Trusted))
    }

    fn rest(book: &mut Book) -> String {
        let rest = book.rest().into_iter().map(|change| match change {
            Change::Upsert(spec) => format!("+{}", spec.name),
            Change::Broken(broken) => format!("!{}", broken.name),
            other => format!("{other:?}"),
        });
        rest.collect::<Vec<_>>().join(" ")
    }

    fn round(book: &mut Book, names: &[&str], now: Instant) -> Option<Held> {
        book.begin_round();
        for n in names {
            book.upsert(spec(n));
        }
        book.synced(now, GRACE)
    }

    #[test]
    fn what_a_restarted_child_no_longer_names_goes_after_a_grace() {
        let (mut book, now) = (Book::default(), Instant::now());
        assert_eq!(round(&mut book, &["a", "b", "c"], now), None);
        assert_eq!(round(&mut book, &["a", "c"], now), None);
        assert_eq!(book.next_sweep(), Some(now + GRACE));
        assert!(book.sweep(now).is_empty());
        // Another restart neither prolongs nor shortens it.
        assert_eq!(round(&mut book, &["a", "c"], now + GRACE / 2), None);
        assert_eq!(book.next_sweep(), Some(now + GRACE));
        assert_eq!(book.sweep(now + GRACE), ["b"]);
        assert_eq!((book.len(), book.next_sweep()), (2, None));
    }

    #[test]
    fn what_comes_back_within_its_grace_stays() {
        let (mut book, now) = (Book::default(), Instant::now());
        round(&mut book, &["a", "b"], now);
        round(&mut book, &["a"], now);
        book.broken(BrokenCluster::new(name("b"), "file", "cut short"));
        assert!(book.sweep(now + GRACE).is_empty());
        assert_eq!(book.len(), 2);
    }

    #[test]
    fn the_only_cluster_may_go_but_not_most_of_several() {
        let now = Instant::now();
        let mut book = Book::default();
        round(&mut book, &["a"], now);
        assert_eq!(round(&mut book, &[], now), None);
        assert_eq!(book.sweep(now + GRACE), ["a"]);

        let mut book = Book::default();
        round(&mut book, &["a", "b", "c"], now);
        assert_eq!(round(&mut book, &["a"], now), Some(Held { missing: 2, of: 3 }));
        assert!(book.sweep(now + 100 * GRACE).is_empty());
        assert_eq!((book.held(), book.next_sweep()), (2, None));
        assert_eq!(book.release_held(), ["b", "c"]);
        assert_eq!(book.len(), 1);
    }

    #[test]
    fn a_child_that_names_most_again_is_believed_again() {
        let (mut book, now) = (Book::default(), Instant::now());
        round(&mut book, &["a", "b", "c"], now);
        assert!(round(&mut book, &[], now).is_some());
        assert_eq!(round(&mut book, &["a", "b"], now), None);
        assert_eq!(book.held(), 0);
        assert_eq!(book.sweep(now + GRACE), ["c"]);
    }

    #[test]
    fn in_a_new_discovery_what_a_child_has_not_named_is_said_for_it() {
        let (mut book, now) = (Book::default(), Instant::now());
        round(&mut book, &["a", "b"], now);
        book.broken(BrokenCluster::new(name("b"), "file", "cut short"));
        book.broken(BrokenCluster::new(name("c"), "file", "cut short"));
        book.begin_discovery();
        book.upsert(spec("a"));
        assert_eq!(rest(&mut book), "+b !b !c");
        assert_eq!(rest(&mut book), "");
        // Once it has synced it is the child's word that counts.
        book.begin_round();
        book.upsert(spec("a"));
        book.upsert(spec("c"));
        assert_eq!(book.synced(now, GRACE), None);
        assert_eq!(book.sweep(now + GRACE), ["b"]);
    }

    #[test]
    fn in_a_new_discovery_a_small_loss_is_left_to_the_listener_and_a_great_one_is_held() {
        let (mut book, now) = (Book::default(), Instant::now());
        round(&mut book, &["a", "b", "c"], now);
        book.begin_discovery();
        book.upsert(spec("a"));
        book.upsert(spec("b"));
        assert_eq!(book.synced(now, GRACE), None);
        assert_eq!(rest(&mut book), "");
        assert_eq!((book.len(), book.next_sweep()), (2, None));

        book.begin_discovery();
        assert_eq!(book.synced(now, GRACE), Some(Held { missing: 2, of: 2 }));
        assert_eq!(rest(&mut book), "+a +b");
        assert_eq!(book.held(), 2);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Upsert(u8),
        Broken(u8),
        Remove(u8),
        Round,
        Synced,
        Discovery,
        Rest,
        Sweep(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..6u8).prop_map(Step::Upsert),
            1 => (0..6u8).prop_map(Step::Broken),
            1 => (0..6u8).prop_map(Step::Remove),
            2 => Just(Step::Round),
            2 => Just(Step::Synced),
            1 => Just(Step::Discovery),
            1 => Just(Step::Rest),
            2 => (1..40u64).prop_map(Step::Sweep),
        ]
    }

    proptest! {
        /// Whatever happens: what the child named since it last began is never let go but by its own word, and
        /// nothing is let go before its grace.
        #[test]
        fn nothing_is_let_go_too_early(steps in prop::collection::vec(step(), 0..60)) {
            let mut now = Instant::now();
            let mut book = Book::default();
            let mut named = BTreeSet::new();
            let mut last_named = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Upsert(n) | Step::Broken(n) => {
                        let cluster = name(&n.to_string());
                        match step {
                            Step::Upsert(_) => book.upsert(spec(&cluster)),
                            _ => book.broken(BrokenCluster::new(cluster.clone(), "file", "cut short")),
                        }
                        named.insert(cluster.clone());
                        last_named.insert(cluster, now);
                    }
                    Step::Remove(n) => {
                        book.remove(&name(&n.to_string()));
                        named.remove(&name(&n.to_string()));
                    }
                    Step::Round => {
                        book.begin_round();
                        named.clear();
                    }
                    Step::Discovery => {
                        book.begin_discovery();
                        named.clear();
                    }
                    Step::Synced => drop(book.synced(now, GRACE)),
                    Step::Rest => drop(book.rest()),
                    Step::Sweep(seconds) => {
                        now += Duration::from_secs(seconds);
                        for gone in book.sweep(now) {
                            prop_assert!(!named.contains(&gone), "{gone} is named");
                            prop_assert!(now >= last_named[&gone] + GRACE, "{gone} goes too early");
                        }
                    }
                }
                for cluster in &named {
                    prop_assert!(book.clusters.contains_key(cluster), "{cluster} is forgotten");
                }
                for (cluster, entry) in &book.clusters {
                    prop_assert!(entry.spec.is_some() || entry.broken.is_some(), "{cluster} is empty");
                }
                for cluster in book.rounds.missing() {
                    prop_assert!(book.clusters.contains_key(cluster), "{cluster} is missing and unknown");
                }
            }
        }
    }
}
