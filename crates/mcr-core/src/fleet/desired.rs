//! The table of claims: which provider announced which cluster, and which clusters there should be.
//!
//! The table does no I/O and has no clock of its own. Each change of it returns effects, which the caller applies.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::description::Description;
use crate::{
    provider::BrokenCluster,
    rounds::{HeldClusters, Rounds},
};
use mcr_access::ClusterName;

/// The index of a provider in the fleet.
pub(crate) type ProviderId = usize;

/// The effect of a change of the table.
#[derive(Debug, Clone)]
pub(crate) enum Effect {
    /// The cluster should be engaged, with the spec that this provider announces.
    Set(ProviderId, Arc<Description>),
    /// The cluster should not be engaged.
    Unset(ClusterName),
    /// Only the status of the cluster has changed.
    Shown(ClusterName),
    /// Two providers announce the same name. The cluster of the late one waits.
    Clash {
        name: ClusterName,
        holder: ProviderId,
        late: ProviderId,
    },
    /// A restarted discovery no longer names more than half of the clusters of its provider, so none is removed.
    Held(ProviderId, HeldClusters),
}

/// The table of claims.
#[derive(Debug, Default)]
pub(crate) struct Desired {
    /// The claims of each name, in the order of their first announcement, but see [`usable_first`]. The first claim is in force.
    clusters: HashMap<ClusterName, Vec<Claim>>,
    /// Each provider is judged by its own clusters.
    rounds: HashMap<ProviderId, Rounds>,
}

#[derive(Debug)]
struct Claim {
    provider: ProviderId,
    /// The last good description. None if there never was one.
    spec: Option<Arc<Description>>,
    broken: Option<Box<BrokenCluster>>,
    /// The last round of discovery in which the provider named the cluster.
    round: u64,
}

impl Desired {
    /// The discovery of a provider starts, and announces all its clusters again.
    pub(crate) fn begin_round(&mut self, provider: ProviderId) {
        self.rounds.entry(provider).or_default().begin();
    }

    fn claim(&mut self, provider: ProviderId, name: &ClusterName) -> (usize, &mut Claim) {
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
        (at, &mut claims[at])
    }

    /// A provider announces a cluster.
    pub(crate) fn upsert(&mut self, provider: ProviderId, spec: Description) -> Vec<Effect> {
        let name = spec.name.clone();
        let spec = Arc::new(spec);
        let (_, claim) = self.claim(provider, &name);
        let first = claim.spec.is_none() && claim.broken.is_none();
        claim.broken = None;
        claim.spec = Some(spec.clone());
        let claims = self.clusters.entry(name.clone()).or_default();
        usable_first(claims);
        let holder = claims.first().map_or(provider, |claim| claim.provider);
        if holder == provider {
            vec![Effect::Set(provider, spec)]
        } else if first {
            let late = provider;
            vec![Effect::Clash { name, holder, late }]
        } else {
            Vec::new()
        }
    }

    /// A provider announces a description that can't be used.
    pub(crate) fn broken(&mut self, provider: ProviderId, broken: BrokenCluster) -> Vec<Effect> {
        let name = broken.name.clone();
        let (_, claim) = self.claim(provider, &name);
        claim.broken = Some(Box::new(broken));
        vec![Effect::Shown(name)]
    }

    /// A provider removes a cluster. The next provider that has announced the name inherits it.
    pub(crate) fn remove(&mut self, provider: ProviderId, name: &ClusterName) -> Vec<Effect> {
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
        if at > 0 {
            return Vec::new();
        }
        let left = match removed.spec {
            Some(_) => Effect::Unset(name.clone()),
            None => Effect::Shown(name.clone()),
        };
        let inherited = heir.and_then(|(provider, spec)| Some(Effect::Set(provider, spec?)));
        [left].into_iter().chain(inherited).collect()
    }

    /// A provider has announced all its clusters. Clusters that it has not named in this round are missing.
    pub(crate) fn synced(&mut self, provider: ProviderId, now: Instant, grace: Duration) -> Vec<Effect> {
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
    pub(crate) fn sweep(&mut self, now: Instant) -> Vec<Effect> {
        self.remove_all(|rounds| rounds.due(now))
    }

    /// Removes the clusters that are held.
    pub(crate) fn release_held(&mut self) -> Vec<Effect> {
        self.remove_all(Rounds::held)
    }

    fn remove_all(&mut self, which: impl Fn(&Rounds) -> Vec<ClusterName>) -> Vec<Effect> {
        let rounds = self.rounds.iter();
        let going = rounds.flat_map(|(id, rounds)| which(rounds).into_iter().map(move |name| (*id, name)));
        let going: Vec<(ProviderId, ClusterName)> = going.collect();
        let removed = going.iter().flat_map(|(id, name)| self.remove(*id, name));
        removed.collect()
    }

    /// When to sweep. Called after each change of any provider, so it must not iterate over all clusters.
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

/// A claim that was never usable must not keep a name from one that is: its writer may only have the right to choose names.
fn usable_first(claims: &mut [Claim]) {
    let usable = claims.iter().position(|claim| claim.spec.is_some());
    if let Some(at) = usable {
        claims[..=at].rotate_right(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{access::Access, spec::ClusterSpec};
    use mcr_access::Trust;

    fn name(n: &str) -> ClusterName {
        ClusterName::new(n).unwrap()
    }

    fn spec(n: &str) -> Description {
        ClusterSpec::new(name(n), Access::kubeconfig("", Trust::Trusted)).into()
    }

    fn short(effects: &[Effect]) -> String {
        effects
            .iter()
            .map(|effect| match effect {
                Effect::Set(p, spec) => format!("set {} by {p}", spec.name),
                Effect::Unset(name) => format!("unset {name}"),
                Effect::Shown(name) => format!("shown {name}"),
                Effect::Clash { name, holder, late } => format!("clash {name} {holder} {late}"),
                Effect::Held(_, HeldClusters { missing, known }) => format!("held {missing}/{known}"),
            })
            .collect::<Vec<_>>()
            .join(", ")
    }

    const GRACE: Duration = Duration::from_secs(30);

    #[test]
    fn the_first_provider_keeps_a_name_and_the_next_inherits_it() {
        let mut desired = Desired::default();
        assert_eq!(short(&desired.upsert(0, spec("a"))), "set a by 0");
        assert_eq!(short(&desired.upsert(1, spec("a"))), "clash a 0 1");
        assert_eq!(short(&desired.upsert(1, spec("a"))), "");
        assert_eq!(short(&desired.remove(0, &name("a"))), "unset a, set a by 1");
        assert_eq!(short(&desired.remove(0, &name("a"))), "");
        assert_eq!(short(&desired.remove(1, &name("a"))), "unset a");
        let broken = |by| BrokenCluster::new(name("a"), format!("of {by}"), "unusable");
        assert_eq!(short(&desired.broken(1, broken(1))), "shown a");
        assert_eq!(short(&desired.upsert(0, spec("a"))), "set a by 0");
        assert!(
            desired.broken_of("a").is_none(),
            "one that was never usable keeps no name"
        );
        assert_eq!(short(&desired.upsert(2, spec("a"))), "clash a 0 2");
        assert_eq!(short(&desired.broken(0, broken(0))), "shown a");
        assert_eq!(short(&desired.upsert(1, spec("a"))), "");
        assert_eq!(short(&desired.remove(0, &name("a"))), "unset a, set a by 1");
    }

    #[test]
    fn a_great_loss_is_held_until_someone_reports_so() {
        let mut desired = Desired::default();
        let now = Instant::now();
        desired.begin_round(0);
        for n in ["a", "b", "c"] {
            desired.upsert(0, spec(n));
        }
        desired.begin_round(0);
        assert_eq!(short(&desired.synced(0, now, GRACE)), "held 3/3");
        assert_eq!(short(&desired.sweep(now + 100 * GRACE)), "");
        assert!(desired.is_held("a"));
        desired.upsert(0, spec("a"));
        assert!(!desired.is_held("a"));
        let mut released = short(&desired.release_held())
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
            desired.begin_round(provider);
        }
        for n in &large {
            desired.upsert(0, spec(n));
        }
        for n in ["a", "b", "c"] {
            desired.upsert(1, spec(n));
        }
        desired.begin_round(1);
        assert_eq!(short(&desired.synced(1, now, GRACE)), "held 3/3");
        assert_eq!(desired.next_sweep(), None);
        assert_eq!(short(&desired.sweep(now + 100 * GRACE)), "");
        assert!(desired.is_held("a"));
        // Half of the large provider are more clusters than all of the small one, and are removed.
        desired.begin_round(0);
        for n in &large[50..] {
            desired.upsert(0, spec(n));
        }
        assert_eq!(short(&desired.synced(0, now, GRACE)), "");
        assert_eq!(desired.next_sweep(), Some(now + GRACE));
        assert_eq!(short(&desired.sweep(now)), "");
        assert_eq!(desired.sweep(now + GRACE).len(), 50);
        assert!(desired.is_held("a"));
    }

    #[test]
    fn an_explicit_remove_is_believed_even_of_the_whole_fleet() {
        let mut desired = Desired::default();
        desired.upsert(0, spec("a"));
        desired.upsert(0, spec("b"));
        assert_eq!(short(&desired.remove(0, &name("a"))), "unset a");
        assert_eq!(short(&desired.remove(0, &name("b"))), "unset b");
    }

    #[test]
    fn broken_keeps_the_last_good_description() {
        let mut desired = Desired::default();
        desired.upsert(0, spec("a"));
        assert_eq!(
            short(&desired.broken(0, BrokenCluster::new(name("a"), "file", "cut short"))),
            "shown a"
        );
        assert_eq!(&*desired.broken_of("a").unwrap().error, "cut short");
        assert_eq!(desired.never_good().count(), 0);
        assert_eq!(short(&desired.upsert(0, spec("a"))), "set a by 0");
        assert!(desired.broken_of("a").is_none());
        desired.broken(0, BrokenCluster::new(name("b"), "file", "cut short"));
        assert_eq!(desired.never_good().count(), 1);
        assert_eq!(short(&desired.remove(0, &name("b"))), "shown b");
    }
}
