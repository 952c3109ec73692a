//! The clusters that one child announced, over the restarts of its discovery. No I/O, no clock of its own.
//!
//! The fleet obeys a `Remove` at once and sweeps only when a provider as a whole starts again. A child can start again
//! alone. Then the inventory sweeps its clusters by the fleet's own rules: after a grace, and not if most are missing.

use std::{collections::BTreeMap, time::Duration};

use mcr_core::{
    BrokenCluster, Change, ClusterName, ClusterSpec,
    internal::{HeldClusters, Rounds},
};
use tokio::time::Instant;

/// The clusters that one child announced. Their names have the child's prefix.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    clusters: BTreeMap<ClusterName, Entry>,
    rounds: Rounds,
}

/// A cluster of the child. It has a spec, an error or both.
#[derive(Debug, Default)]
struct Entry {
    /// The last good description.
    spec: Option<ClusterSpec>,
    broken: Option<BrokenCluster>,
    /// The last round in which the child named it.
    round: u64,
    /// Whether the current discovery of all children has announced it.
    announced: bool,
}

impl Inventory {
    /// The discovery of all children starts again: the listener needs every cluster again.
    pub(crate) fn begin_discovery(&mut self) {
        self.begin_round();
        self.rounds.forget_all();
        for entry in self.clusters.values_mut() {
            entry.announced = false;
        }
    }

    /// The child starts to announce all its clusters again.
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
        entry.announced = true;
        entry
    }

    pub(crate) fn remove(&mut self, name: &ClusterName) {
        self.rounds.forget(name);
        self.clusters.remove(name);
    }

    /// The child has announced all its clusters: the others are missing.
    ///
    /// The inventory forgets missing clusters that the current discovery has not announced either: the listener removes
    /// them by itself when all children are synced. If most are missing, the inventory keeps them, and
    /// [`rest`](Self::rest) announces them.
    pub(crate) fn synced(&mut self, now: Instant, grace: Duration) -> Option<HeldClusters> {
        let known = self.clusters.iter().map(|(name, entry)| (name, entry.round));
        let held = self.rounds.end(known, now, grace);
        if held.is_none() {
            let pending =
                |name: &&ClusterName| self.clusters.get(*name).is_some_and(|entry| !entry.announced);
            self.released(self.rounds.missing().filter(pending).cloned().collect());
        }
        held
    }

    /// Removes the clusters that have been missing for longer than their grace.
    pub(crate) fn sweep(&mut self, now: Instant) -> Vec<ClusterName> {
        self.released(self.rounds.due(now))
    }

    /// Removes the held clusters.
    pub(crate) fn release_held(&mut self) -> Vec<ClusterName> {
        self.released(self.rounds.held())
    }

    fn released(&mut self, going: Vec<ClusterName>) -> Vec<ClusterName> {
        for name in &going {
            self.remove(name);
        }
        going
    }

    pub(crate) fn next_sweep(&self) -> Option<Instant> {
        self.rounds.next_due()
    }

    /// Announces the clusters of earlier discoveries that the current discovery has not announced.
    pub(crate) fn rest(&mut self) -> Vec<Change> {
        let mut rest = Vec::new();
        for entry in self.clusters.values_mut().filter(|entry| !entry.announced) {
            entry.announced = true;
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

    fn rest(inventory: &mut Inventory) -> String {
        let rest = inventory.rest().into_iter().map(|change| match change {
            Change::Upsert(spec) => format!("+{}", spec.name),
            Change::Broken(broken) => format!("!{}", broken.name),
            other => format!("{other:?}"),
        });
        rest.collect::<Vec<_>>().join(" ")
    }

    fn round(inventory: &mut Inventory, names: &[&str], now: Instant) -> Option<HeldClusters> {
        inventory.begin_round();
        for n in names {
            inventory.upsert(spec(n));
        }
        inventory.synced(now, GRACE)
    }

    #[test]
    fn what_a_restarted_child_no_longer_names_goes_after_a_grace() {
        let (mut inventory, now) = (Inventory::default(), Instant::now());
        assert_eq!(round(&mut inventory, &["a", "b", "c"], now), None);
        assert_eq!(round(&mut inventory, &["a", "c"], now), None);
        assert_eq!(inventory.next_sweep(), Some(now + GRACE));
        assert!(inventory.sweep(now).is_empty());
        // Another restart neither prolongs nor shortens it.
        assert_eq!(round(&mut inventory, &["a", "c"], now + GRACE / 2), None);
        assert_eq!(inventory.next_sweep(), Some(now + GRACE));
        assert_eq!(inventory.sweep(now + GRACE), ["b"]);
        assert_eq!((inventory.len(), inventory.next_sweep()), (2, None));
    }

    #[test]
    fn what_comes_back_within_its_grace_stays() {
        let (mut inventory, now) = (Inventory::default(), Instant::now());
        round(&mut inventory, &["a", "b"], now);
        round(&mut inventory, &["a"], now);
        inventory.broken(BrokenCluster::new(name("b"), "file", "cut short"));
        assert!(inventory.sweep(now + GRACE).is_empty());
        assert_eq!(inventory.len(), 2);
    }

    #[test]
    fn the_only_cluster_may_go_but_not_most_of_several() {
        let now = Instant::now();
        let mut inventory = Inventory::default();
        round(&mut inventory, &["a"], now);
        assert_eq!(round(&mut inventory, &[], now), None);
        assert_eq!(inventory.sweep(now + GRACE), ["a"]);

        let mut inventory = Inventory::default();
        round(&mut inventory, &["a", "b", "c"], now);
        assert_eq!(
            round(&mut inventory, &["a"], now),
            Some(HeldClusters { missing: 2, known: 3 })
        );
        assert!(inventory.sweep(now + 100 * GRACE).is_empty());
        assert_eq!((inventory.held(), inventory.next_sweep()), (2, None));
        assert_eq!(inventory.release_held(), ["b", "c"]);
        assert_eq!(inventory.len(), 1);
    }

    #[test]
    fn a_child_that_names_most_again_is_believed_again() {
        let (mut inventory, now) = (Inventory::default(), Instant::now());
        round(&mut inventory, &["a", "b", "c"], now);
        assert!(round(&mut inventory, &[], now).is_some());
        assert_eq!(round(&mut inventory, &["a", "b"], now), None);
        assert_eq!(inventory.held(), 0);
        assert_eq!(inventory.sweep(now + GRACE), ["c"]);
    }

    #[test]
    fn in_a_new_discovery_what_a_child_has_not_named_is_announced_for_it() {
        let (mut inventory, now) = (Inventory::default(), Instant::now());
        round(&mut inventory, &["a", "b"], now);
        inventory.broken(BrokenCluster::new(name("b"), "file", "cut short"));
        inventory.broken(BrokenCluster::new(name("c"), "file", "cut short"));
        inventory.begin_discovery();
        inventory.upsert(spec("a"));
        assert_eq!(rest(&mut inventory), "+b !b !c");
        assert_eq!(rest(&mut inventory), "");
        // Once it has synced it is the child's word that counts.
        inventory.begin_round();
        inventory.upsert(spec("a"));
        inventory.upsert(spec("c"));
        assert_eq!(inventory.synced(now, GRACE), None);
        assert_eq!(inventory.sweep(now + GRACE), ["b"]);
    }

    #[test]
    fn in_a_new_discovery_a_small_loss_is_left_to_the_listener_and_a_great_one_is_held() {
        let (mut inventory, now) = (Inventory::default(), Instant::now());
        round(&mut inventory, &["a", "b", "c"], now);
        inventory.begin_discovery();
        inventory.upsert(spec("a"));
        inventory.upsert(spec("b"));
        assert_eq!(inventory.synced(now, GRACE), None);
        assert_eq!(rest(&mut inventory), "");
        assert_eq!((inventory.len(), inventory.next_sweep()), (2, None));

        inventory.begin_discovery();
        assert_eq!(
            inventory.synced(now, GRACE),
            Some(HeldClusters { missing: 2, known: 2 })
        );
        assert_eq!(rest(&mut inventory), "+a +b");
        assert_eq!(inventory.held(), 2);
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
        fn nothing_is_released_too_early(steps in prop::collection::vec(step(), 0..60)) {
            let mut now = Instant::now();
            let mut inventory = Inventory::default();
            let mut named = BTreeSet::new();
            let mut last_named = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Upsert(n) | Step::Broken(n) => {
                        let cluster = name(&n.to_string());
                        match step {
                            Step::Upsert(_) => inventory.upsert(spec(&cluster)),
                            _ => inventory.broken(BrokenCluster::new(cluster.clone(), "file", "cut short")),
                        }
                        named.insert(cluster.clone());
                        last_named.insert(cluster, now);
                    }
                    Step::Remove(n) => {
                        inventory.remove(&name(&n.to_string()));
                        named.remove(&name(&n.to_string()));
                    }
                    Step::Round => {
                        inventory.begin_round();
                        named.clear();
                    }
                    Step::Discovery => {
                        inventory.begin_discovery();
                        named.clear();
                    }
                    Step::Synced => drop(inventory.synced(now, GRACE)),
                    Step::Rest => drop(inventory.rest()),
                    Step::Sweep(seconds) => {
                        now += Duration::from_secs(seconds);
                        for gone in inventory.sweep(now) {
                            prop_assert!(!named.contains(&gone), "{gone} is named");
                            prop_assert!(now >= last_named[&gone] + GRACE, "{gone} goes too early");
                        }
                    }
                }
                for cluster in &named {
                    prop_assert!(inventory.clusters.contains_key(cluster), "{cluster} is forgotten");
                }
                for (cluster, entry) in &inventory.clusters {
                    prop_assert!(entry.spec.is_some() || entry.broken.is_some(), "{cluster} is empty");
                }
                for cluster in inventory.rounds.missing() {
                    prop_assert!(inventory.clusters.contains_key(cluster), "{cluster} is missing and unknown");
                }
            }
        }
    }
}
