//! The table of claims: which provider announced which cluster. The claims decide which clusters the fleet has.
//!
//! The table does no I/O and has no clock of its own. Each change of the table returns effects, which the caller
//! applies.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    provider::BrokenCluster,
    rounds::{HeldClusters, Rounds},
};
use mcr_access::ClusterName;

/// The number of a provider in its [`ProviderSet`](super::ProviderSet).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProviderId(pub u64);

/// The effect of a change of the table.
#[derive(Debug, Clone)]
pub(crate) enum Effect<T> {
    /// The fleet must have this cluster, with the spec that this provider announces.
    Set(ProviderId, ClusterName, Arc<T>),
    /// The fleet must not have this cluster.
    Unset(ClusterName),
    /// Only the status of the cluster has changed.
    StatusChanged(ClusterName),
    /// Two providers announce the same name. The cluster of the provider that came later waits.
    Clash {
        name: ClusterName,
        holder: ProviderId,
        late: ProviderId,
    },
    /// After a restart, a discovery has not named more than half of the known clusters of its provider. None is
    /// removed.
    Held(ProviderId, HeldClusters),
    /// No claim has this spec any more. The caller drops it, because its destructor may be code of users, which may
    /// panic.
    Dropped { _spec: Arc<T> },
}

/// The table of claims. `T` is a stored spec.
#[derive(Debug)]
pub(crate) struct Desired<T> {
    /// The claims of each name. The first claim is in force. Claims are in the order of their first announcement,
    /// except where [`usable_first`] changes it.
    clusters: HashMap<ClusterName, Vec<Claim<T>>>,
    /// For each provider its own rounds, so that a large provider can't hide that a small one has lost all clusters.
    rounds: HashMap<ProviderId, Rounds>,
}

#[derive(Debug)]
struct Claim<T> {
    provider: ProviderId,
    /// The last good description. None if there never was one.
    spec: Option<Arc<T>>,
    broken: Option<Box<BrokenCluster>>,
    /// The last round of discovery in which the provider named the cluster.
    round: u64,
}

/// A cluster that a provider of a [`ProviderSet`](super::ProviderSet) has announced. It has a spec, an error or both.
#[derive(Debug)]
#[non_exhaustive]
pub struct KnownCluster<T> {
    /// The name of the cluster.
    pub name: ClusterName,
    /// The last usable spec, as the set stores it.
    pub spec: Option<Arc<T>>,
    /// Why the newest description can't be used.
    pub broken: Option<BrokenCluster>,
    /// Whether the cluster is held: its provider announces neither this cluster nor most of its others any more.
    pub held: bool,
}

impl<T> Default for Desired<T> {
    fn default() -> Self {
        Self {
            clusters: HashMap::new(),
            rounds: HashMap::new(),
        }
    }
}

impl<T> Desired<T> {
    /// The set of providers runs again after a stop. No cluster of the provider is missing until its next round ends.
    pub(crate) fn begin_run(&mut self, provider: ProviderId) {
        self.rounds.entry(provider).or_default().forget_all();
    }

    /// The discovery of a provider starts, and announces all its clusters again.
    pub(crate) fn begin_round(&mut self, provider: ProviderId) {
        self.rounds.entry(provider).or_default().begin();
    }

    fn claim(&mut self, provider: ProviderId, name: &ClusterName) -> &mut Claim<T> {
        let round = self.rounds.entry(provider).or_default().named(name);
        let claims = self.clusters.entry(name.clone()).or_default();
        let at = claims
            .iter()
            .position(|claim| claim.provider == provider)
            .unwrap_or_else(|| {
                // Nearly all names have one claim, so spare capacity would add up.
                claims.reserve_exact(1);
                claims.push(Claim {
                    provider,
                    spec: None,
                    broken: None,
                    round,
                });
                claims.len() - 1
            });
        claims[at].round = round;
        &mut claims[at]
    }

    /// A provider announces a cluster.
    pub(crate) fn upsert(&mut self, provider: ProviderId, name: ClusterName, spec: T) -> Vec<Effect<T>> {
        let spec = Arc::new(spec);
        let claim = self.claim(provider, &name);
        let first = claim.spec.is_none() && claim.broken.is_none();
        claim.broken = None;
        claim.spec = Some(spec.clone());
        let claims = self.clusters.entry(name.clone()).or_default();
        usable_first(claims);
        let holder = claims.first().map_or(provider, |claim| claim.provider);
        if holder == provider {
            vec![Effect::Set(provider, name, spec)]
        } else if first {
            let late = provider;
            vec![Effect::Clash { name, holder, late }]
        } else {
            Vec::new()
        }
    }

    /// A provider announces a description that can't be used.
    pub(crate) fn broken(&mut self, provider: ProviderId, broken: BrokenCluster) -> Vec<Effect<T>> {
        let name = broken.name.clone();
        let claim = self.claim(provider, &name);
        claim.broken = Some(Box::new(broken));
        let holder = self.clusters.get(&name).and_then(|claims| claims.first());
        if holder.is_some_and(|holder| holder.provider == provider) {
            vec![Effect::StatusChanged(name)]
        } else {
            Vec::new()
        }
    }

    /// A provider removes a cluster. The next provider that has announced the name inherits it.
    pub(crate) fn remove(&mut self, provider: ProviderId, name: &ClusterName) -> Vec<Effect<T>> {
        self.rounds.entry(provider).or_default().forget(name);
        let Some(claims) = self.clusters.get_mut(name) else {
            return Vec::new();
        };
        if let [_, heirs @ ..] = &mut claims[..] {
            usable_first(heirs);
        }
        let Some(at) = claims.iter().position(|claim| claim.provider == provider) else {
            return Vec::new();
        };
        let removed = claims.remove(at);
        let heir = claims.first().map(|claim| (claim.provider, claim.spec.clone()));
        if claims.is_empty() {
            self.clusters.remove(name);
        }
        let left = match removed.spec {
            Some(_) => Effect::Unset(name.clone()),
            None => Effect::StatusChanged(name.clone()),
        };
        let dropped = removed.spec.map(|_spec| Effect::Dropped { _spec });
        if at > 0 {
            return dropped.into_iter().collect();
        }
        let inherited = heir.map(|(provider, spec)| match spec {
            Some(spec) => Effect::Set(provider, name.clone(), spec),
            None => Effect::StatusChanged(name.clone()),
        });
        [left].into_iter().chain(inherited).chain(dropped).collect()
    }

    /// A provider leaves the set: it claims nothing any more.
    pub(crate) fn remove_provider(&mut self, provider: ProviderId) -> Vec<Effect<T>> {
        let mut claimed = self.names_of(provider);
        claimed.sort();
        let effects = claimed
            .iter()
            .flat_map(|name| self.remove(provider, name))
            .collect();
        self.rounds.remove(&provider);
        effects
    }

    fn names_of(&self, provider: ProviderId) -> Vec<ClusterName> {
        self.claims_of(provider).map(|(name, _)| name.clone()).collect()
    }

    fn claims_of(&self, provider: ProviderId) -> impl Iterator<Item = (&ClusterName, &Claim<T>)> {
        self.clusters.iter().filter_map(move |(name, claims)| {
            let claim = claims.iter().find(|claim| claim.provider == provider)?;
            Some((name, claim))
        })
    }

    /// The clusters that a provider has announced, in the order of their names.
    pub(crate) fn known(&self, provider: ProviderId) -> Vec<KnownCluster<T>> {
        let rounds = self.rounds.get(&provider);
        let known = self.claims_of(provider).map(|(name, claim)| KnownCluster {
            name: name.clone(),
            spec: claim.spec.clone(),
            broken: claim.broken.as_deref().cloned(),
            held: rounds.is_some_and(|rounds| rounds.is_held(name)),
        });
        let mut known: Vec<_> = known.collect();
        known.sort_by(|a, b| a.name.cmp(&b.name));
        known
    }

    /// A provider has announced all its clusters. Clusters that it has not named in this round are missing.
    pub(crate) fn synced(&mut self, provider: ProviderId, now: Instant, grace: Duration) -> Vec<Effect<T>> {
        let claims = self.clusters.iter().filter_map(|(name, claims)| {
            let claim = claims.iter().find(|claim| claim.provider == provider)?;
            Some((name, claim.round))
        });
        let rounds = self.rounds.entry(provider).or_default();
        let held = rounds.end(claims, now, grace);
        held.map(|held| Effect::Held(provider, held))
            .into_iter()
            .collect()
    }

    /// Removes the clusters whose grace period is over.
    pub(crate) fn sweep(&mut self, now: Instant) -> Vec<Effect<T>> {
        self.remove_all(None, |rounds| rounds.due(now))
    }

    /// Removes the clusters that are held: those of one provider, or all.
    pub(crate) fn release_held(&mut self, only: Option<ProviderId>) -> Vec<Effect<T>> {
        self.remove_all(only, Rounds::held)
    }

    fn remove_all(
        &mut self,
        only: Option<ProviderId>,
        which: impl Fn(&Rounds) -> Vec<ClusterName>,
    ) -> Vec<Effect<T>> {
        let rounds = self
            .rounds
            .iter()
            .filter(|(id, _)| only.is_none_or(|only| only == **id));
        let selected = rounds.flat_map(|(id, rounds)| which(rounds).into_iter().map(move |name| (*id, name)));
        let selected: Vec<(ProviderId, ClusterName)> = selected.collect();
        let removed = selected.iter().flat_map(|(id, name)| self.remove(*id, name));
        removed.collect()
    }

    /// When the caller must [sweep](Self::sweep). The caller asks after each change of any provider, so this must not
    /// iterate over all clusters.
    pub(crate) fn next_sweep(&self) -> Option<Instant> {
        self.rounds.values().filter_map(Rounds::next_due).min()
    }

    /// The error of the description of a cluster, if the description can't be used.
    pub(crate) fn broken_of(&self, name: &str) -> Option<&BrokenCluster> {
        self.clusters.get(name)?.first()?.broken.as_deref()
    }

    /// Whether a cluster is held: it is missing, but too many clusters of its provider are missing at once.
    pub(crate) fn is_held(&self, name: &str) -> bool {
        let first = self.clusters.get(name).and_then(|claims| claims.first());
        let rounds = first.and_then(|claim| self.rounds.get(&claim.provider));
        rounds.is_some_and(|rounds| rounds.is_held(name))
    }

    /// The clusters whose description was never usable.
    pub(crate) fn never_good(&self) -> impl Iterator<Item = (ProviderId, &BrokenCluster)> {
        self.clusters.values().filter_map(|claims| {
            let claim = claims.first().filter(|claim| claim.spec.is_none())?;
            Some((claim.provider, claim.broken.as_deref()?))
        })
    }
}

/// Moves the first claim with a usable spec to the front.
///
/// A claim that was never usable must not block the name for a usable claim. Otherwise somebody who may do no more than
/// create objects with chosen names could keep clusters out of the fleet.
fn usable_first<T>(claims: &mut [Claim<T>]) {
    let usable = claims.iter().position(|claim| claim.spec.is_some());
    if let Some(at) = usable {
        claims[..=at].rotate_right(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Desired<()> {
        fn announce(&mut self, provider: u64, cluster: &str) -> Vec<Effect<()>> {
            self.upsert(ProviderId(provider), name(cluster), ())
        }
    }

    fn name(n: &str) -> ClusterName {
        ClusterName::new(n).unwrap()
    }

    fn short(effects: &[Effect<()>]) -> String {
        effects
            .iter()
            .filter(|effect| !matches!(effect, Effect::Dropped { .. }))
            .map(|effect| match effect {
                Effect::Dropped { .. } => String::new(),
                Effect::Set(ProviderId(p), name, _) => format!("set {name} by {p}"),
                Effect::Unset(name) => format!("unset {name}"),
                Effect::StatusChanged(name) => format!("shown {name}"),
                Effect::Clash { name, holder, late } => format!("clash {name} {} {}", holder.0, late.0),
                Effect::Held(_, HeldClusters { missing, known }) => format!("held {missing}/{known}"),
            })
            .collect::<Vec<_>>()
            .join(", ")
    }

    const GRACE: Duration = Duration::from_secs(30);

    #[test]
    fn the_error_of_a_cluster_is_that_of_the_claim_in_force() {
        let mut desired = Desired::default();
        let broken = |by| BrokenCluster::new(name("a"), format!("of {by}"), "unusable");
        desired.announce(0, "a");
        desired.announce(1, "a");
        assert_eq!(short(&desired.broken(ProviderId(1), broken(1))), "", "it is late");
        assert!(desired.broken_of("a").is_none());
        assert_eq!(
            short(&desired.remove(ProviderId(0), &name("a"))),
            "unset a, set a by 1"
        );
        assert_eq!(desired.broken_of("a").map(|broken| &*broken.object), Some("of 1"));
        // The next heir has never had a usable description.
        desired.broken(ProviderId(2), broken(2));
        assert_eq!(
            short(&desired.remove(ProviderId(1), &name("a"))),
            "unset a, shown a"
        );
        assert_eq!(desired.broken_of("a").map(|broken| &*broken.object), Some("of 2"));
    }

    #[test]
    fn the_first_provider_keeps_a_name_and_the_next_inherits_it() {
        let mut desired = Desired::default();
        assert_eq!(short(&desired.announce(0, "a")), "set a by 0");
        assert_eq!(short(&desired.announce(1, "a")), "clash a 0 1");
        assert_eq!(short(&desired.announce(1, "a")), "");
        assert_eq!(
            short(&desired.remove(ProviderId(0), &name("a"))),
            "unset a, set a by 1"
        );
        assert_eq!(short(&desired.remove(ProviderId(0), &name("a"))), "");
        assert_eq!(short(&desired.remove(ProviderId(1), &name("a"))), "unset a");
        let broken = |by| BrokenCluster::new(name("a"), format!("of {by}"), "unusable");
        assert_eq!(short(&desired.broken(ProviderId(1), broken(1))), "shown a");
        assert_eq!(short(&desired.announce(0, "a")), "set a by 0");
        assert!(
            desired.broken_of("a").is_none(),
            "one that was never usable keeps no name"
        );
        assert_eq!(short(&desired.announce(2, "a")), "clash a 0 2");
        assert_eq!(short(&desired.broken(ProviderId(0), broken(0))), "shown a");
        assert_eq!(short(&desired.announce(1, "a")), "");
        assert_eq!(
            short(&desired.remove(ProviderId(0), &name("a"))),
            "unset a, set a by 1"
        );
    }

    #[test]
    fn a_great_loss_is_held_until_someone_reports_so() {
        let mut desired = Desired::default();
        let now = Instant::now();
        desired.begin_round(ProviderId(0));
        for n in ["a", "b", "c"] {
            desired.announce(0, n);
        }
        desired.begin_round(ProviderId(0));
        assert_eq!(short(&desired.synced(ProviderId(0), now, GRACE)), "held 3/3");
        assert_eq!(short(&desired.sweep(now + 100 * GRACE)), "");
        assert!(desired.is_held("a"));
        desired.announce(0, "a");
        assert!(!desired.is_held("a"));
        let mut released = short(&desired.release_held(None))
            .split(", ")
            .map(str::to_owned)
            .collect::<Vec<_>>();
        released.sort();
        assert_eq!(released, ["unset b", "unset c"]);
    }

    #[test]
    fn a_small_provider_beside_a_large_one_is_judged_by_its_own_count() {
        let mut desired = Desired::default();
        let now = Instant::now();
        let large: Vec<String> = (10..110).map(|n| format!("large-{n}")).collect();
        for provider in [0, 1] {
            desired.begin_round(ProviderId(provider));
        }
        for n in &large {
            desired.announce(0, n);
        }
        for n in ["a", "b", "c"] {
            desired.announce(1, n);
        }
        desired.begin_round(ProviderId(1));
        assert_eq!(short(&desired.synced(ProviderId(1), now, GRACE)), "held 3/3");
        assert_eq!(desired.next_sweep(), None);
        assert_eq!(short(&desired.sweep(now + 100 * GRACE)), "");
        assert!(desired.is_held("a"));
        // Half of the large provider are more clusters than all of the small one, and are removed.
        desired.begin_round(ProviderId(0));
        for n in &large[50..] {
            desired.announce(0, n);
        }
        assert_eq!(short(&desired.synced(ProviderId(0), now, GRACE)), "");
        assert_eq!(desired.next_sweep(), Some(now + GRACE));
        assert_eq!(short(&desired.sweep(now)), "");
        assert_eq!(short(&desired.sweep(now + GRACE)).matches("unset").count(), 50);
        assert!(desired.is_held("a"));
    }

    #[test]
    fn an_explicit_remove_is_believed_even_of_the_whole_fleet() {
        let mut desired = Desired::default();
        desired.announce(0, "a");
        desired.announce(0, "b");
        assert_eq!(short(&desired.remove(ProviderId(0), &name("a"))), "unset a");
        assert_eq!(short(&desired.remove(ProviderId(0), &name("b"))), "unset b");
    }

    #[test]
    fn broken_keeps_the_last_good_description() {
        let mut desired = Desired::default();
        desired.announce(0, "a");
        assert_eq!(
            short(&desired.broken(ProviderId(0), BrokenCluster::new(name("a"), "file", "cut short"))),
            "shown a"
        );
        assert_eq!(&*desired.broken_of("a").unwrap().error, "cut short");
        assert_eq!(desired.never_good().count(), 0);
        assert_eq!(short(&desired.announce(0, "a")), "set a by 0");
        assert!(desired.broken_of("a").is_none());
        desired.broken(ProviderId(0), BrokenCluster::new(name("b"), "file", "cut short"));
        assert_eq!(desired.never_good().count(), 1);
        assert_eq!(short(&desired.remove(ProviderId(0), &name("b"))), "shown b");
    }
}
