//! What this program remembers of sources between reconciles. No write follows from this memory alone.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    time::Duration,
};

use mcr::{ClusterName, RequestKey};
use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, time::Instant};

/// How long the text of a problem is kept while its reason and the source stay the same. The text of some errors
/// differs at each attempt, for example by the port of a connection. Each new text changes the condition, which
/// changes the source, which leads to the next attempt at once.
const MESSAGE_STAYS: Duration = Duration::from_secs(60);

/// A problem of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// The generation of the source, if the problem is an error. The text of an error may differ at each attempt.
    pub(crate) generation: Option<i64>,
}

/// What is remembered of one source.
#[derive(Default)]
struct Remembered {
    /// The clusters that are away while the deletion of the source waits for them, each with the time at which this
    /// wait began.
    away: BTreeMap<ClusterName, Instant>,
    /// The clusters that are away and that the source waits for, as the last reconcile has found. An event of such a
    /// cluster leads to a reconcile of the source, even if the placement no longer selects the cluster.
    waits_for: BTreeSet<ClusterName>,
    /// Where objects that name the source were observed, each with the number of the observation. The watch of the
    /// targets adds every such object. A reconcile removes those in the places of the source. So only objects that the
    /// sync did not make stay.
    claims: BTreeMap<RequestKey, u64>,
    /// The problem that was reported last, and when.
    problem: Option<(Problem, Instant)>,
    /// Since when not all objects of the source are up to date.
    unsynced: Option<Instant>,
    /// How many objects of the source are in each state.
    counts: BTreeMap<&'static str, usize>,
}

impl Remembered {
    /// Forgets everything but the objects that name the source.
    fn forget(&mut self) {
        let claims = std::mem::take(&mut self.claims);
        *self = Self {
            claims,
            ..Self::default()
        };
    }

    fn is_empty(&self) -> bool {
        let none = self.away.is_empty() && self.waits_for.is_empty() && self.claims.is_empty();
        none && self.problem.is_none() && self.counts.is_empty() && self.unsynced.is_none()
    }
}

#[derive(Default)]
struct Inner {
    sources: HashMap<RequestKey, Remembered>,
    observations: u64,
    /// The clusters that have refused to create an event.
    refused: HashSet<ClusterName>,
    /// How many objects are up to date: by the cluster of the source, and by a hash of the source's key.
    synced: HashMap<ClusterName, HashMap<u64, u32>>,
    /// The writes by verb and result.
    writes: BTreeMap<(&'static str, &'static str), u64>,
}

fn hash(source: &RequestKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    source.object.hash(&mut hasher);
    hasher.finish()
}

/// What the metrics of a sync show.
#[cfg(feature = "metrics")]
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Figures {
    pub(crate) placements: BTreeMap<&'static str, usize>,
    pub(crate) writes: BTreeMap<(&'static str, &'static str), u64>,
    /// The longest time for which a source has had an object that is not up to date.
    pub(crate) oldest: Duration,
}

pub(crate) struct Memory {
    since: Instant,
    inner: Mutex<Inner>,
    /// The sources to reconcile after a time, and a notification for each new one.
    later: (Mutex<HashMap<RequestKey, Duration>>, Notify),
}

impl Default for Memory {
    fn default() -> Self {
        let (since, inner, later) = (Instant::now(), Mutex::default(), Default::default());
        Self { since, inner, later }
    }
}

impl Memory {
    /// The time since the sync was declared.
    pub(crate) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    fn of<A>(&self, source: &RequestKey, of: impl FnOnce(&Remembered) -> A) -> Option<A> {
        self.inner().sources.get(source).map(of)
    }

    fn change<A>(&self, source: &RequestKey, change: impl FnOnce(&mut Remembered) -> A) -> A {
        let mut inner = self.inner();
        let remembered = inner.sources.entry(source.clone()).or_default();
        let changed = change(remembered);
        if remembered.is_empty() {
            inner.sources.remove(source);
        }
        changed
    }

    /// Notes whether a cluster is away while the deletion of a source waits for it.
    pub(crate) fn note_away(&self, source: &RequestKey, cluster: &ClusterName, is_away: bool) {
        self.change(source, |remembered| {
            if is_away {
                remembered
                    .away
                    .entry(cluster.clone())
                    .or_insert_with(Instant::now);
            } else {
                remembered.away.remove(cluster);
            }
        });
    }

    /// How long the deletion of a source has been waiting for this cluster.
    pub(crate) fn waited_for(&self, source: &RequestKey, cluster: &ClusterName) -> Duration {
        let since = self
            .of(source, |remembered| remembered.away.get(cluster).copied())
            .flatten();
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The longest time for which the deletion of a source has been waiting for a cluster.
    pub(crate) fn waited(&self, source: &RequestKey) -> Option<Duration> {
        let since = self
            .of(source, |remembered| remembered.away.values().min().copied())
            .flatten();
        since.map(|since| since.elapsed())
    }

    pub(crate) fn note_waiting(&self, source: &RequestKey, clusters: BTreeSet<ClusterName>) {
        self.change(source, |remembered| remembered.waits_for = clusters);
    }

    /// The sources that wait for a cluster.
    pub(crate) fn waiting_for(&self, cluster: &ClusterName) -> Vec<RequestKey> {
        let inner = self.inner();
        let waiting = inner
            .sources
            .iter()
            .filter(|(_, remembered)| remembered.waits_for.contains(cluster));
        waiting.map(|(source, _)| source.clone()).collect()
    }

    /// Notes an object that names this source, or forgets it.
    pub(crate) fn note_claim(&self, source: &RequestKey, object: RequestKey, exists: bool) {
        let mut inner = self.inner();
        inner.observations += 1;
        let observation = inner.observations;
        drop(inner);
        self.change(source, |remembered| {
            if exists {
                remembered.claims.insert(object, observation);
            } else {
                remembered.claims.remove(&object);
            }
        });
    }

    /// Forgets an object that its server no longer had, unless the watch has received the object again since this
    /// observation.
    pub(crate) fn forget_claim(&self, source: &RequestKey, object: &RequestKey, observation: u64) {
        self.change(source, |remembered| {
            if remembered.claims.get(object) == Some(&observation) {
                remembered.claims.remove(object);
            }
        });
    }

    /// The objects that name this source and were not forgotten, each with the number of its last observation.
    pub(crate) fn claims(&self, source: &RequestKey) -> Vec<(RequestKey, u64)> {
        let all = |remembered: &Remembered| {
            remembered
                .claims
                .iter()
                .map(|(object, seen)| (object.clone(), *seen))
                .collect()
        };
        self.of(source, all).unwrap_or_default()
    }

    /// Notes a problem of a source. Returns whether it is new, and so must be reported. If not, sets its message to
    /// the message that was reported before.
    pub(crate) fn note_problem(&self, source: &RequestKey, problem: &mut Problem) -> bool {
        self.change(source, |remembered| {
            if let Some((last, at)) = &remembered.problem {
                let is_same = (last.reason, last.generation) == (problem.reason, problem.generation);
                let stays = is_same && problem.generation.is_some() && at.elapsed() < MESSAGE_STAYS;
                if last == problem || stays {
                    problem.message.clone_from(&last.message);
                    return false;
                }
            }
            remembered.problem = Some((problem.clone(), Instant::now()));
            true
        })
    }

    /// Notes that a source has no problem. Returns whether it had one.
    pub(crate) fn note_no_problem(&self, source: &RequestKey) -> bool {
        self.change(source, |remembered| remembered.problem.take().is_some())
    }

    /// Notes how many objects of a source are up to date, and in which state the others are.
    pub(crate) fn note_counts(
        &self,
        source: &RequestKey,
        synced: usize,
        others: BTreeMap<&'static str, usize>,
        is_synced: bool,
    ) {
        self.change(source, |remembered| {
            remembered.counts = others;
            remembered.unsynced = (!is_synced).then(|| remembered.unsynced.unwrap_or_else(Instant::now));
        });
        let mut inner = self.inner();
        if synced > 0 {
            let of_cluster = inner.synced.entry(source.cluster.clone()).or_default();
            let count = u32::try_from(synced).unwrap_or(u32::MAX);
            of_cluster.insert(hash(source), count);
        } else if let Some(of_cluster) = inner.synced.get_mut(&source.cluster) {
            of_cluster.remove(&hash(source));
        }
    }

    /// Notes when to observe a source again that has left the watch. The controller requeues only objects in the
    /// watch.
    pub(crate) fn note_later(&self, source: &RequestKey, after: Duration) {
        self.later.0.lock().insert(source.clone(), after);
        self.later.1.notify_one();
    }

    /// Waits for the sources that are due, and returns them.
    pub(crate) async fn later(&self) -> HashMap<RequestKey, Duration> {
        self.later.1.notified().await;
        std::mem::take(&mut self.later.0.lock())
    }

    pub(crate) fn note_write(&self, verb: &'static str, result: &'static str) {
        *self.inner().writes.entry((verb, result)).or_default() += 1;
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn figures(&self) -> Figures {
        let inner = self.inner();
        let mut figures = Figures {
            writes: inner.writes.clone(),
            ..Figures::default()
        };
        let synced = inner
            .synced
            .values()
            .flat_map(HashMap::values)
            .map(|count| *count as usize)
            .sum();
        figures.placements.insert("synced", synced);
        for remembered in inner.sources.values() {
            for (state, count) in &remembered.counts {
                *figures.placements.entry(*state).or_default() += count;
            }
            figures.oldest = figures.oldest.max(
                remembered
                    .unsynced
                    .map_or(Duration::ZERO, |since| since.elapsed()),
            );
        }
        figures
    }

    /// Whether this is the first event that the cluster has refused.
    pub(crate) fn is_first_refusal(&self, cluster: &ClusterName) -> bool {
        self.inner().refused.insert(cluster.clone())
    }

    /// Forgets a source that is gone, except for the objects that name it.
    pub(crate) fn forget(&self, source: &RequestKey) {
        self.note_counts(source, 0, BTreeMap::new(), true);
        self.change(source, Remembered::forget);
    }

    /// Forgets the sources and the objects of a cluster that has left. They are observed again when it is back.
    pub(crate) fn forget_cluster(&self, cluster: &ClusterName) {
        let mut inner = self.inner();
        inner.refused.remove(cluster);
        inner.synced.remove(cluster);
        inner.sources.retain(|source, remembered| {
            remembered.claims.retain(|object, _| object.cluster != *cluster);
            if source.cluster == *cluster {
                remembered.forget();
            }
            !remembered.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use mcr::ObjectKey;

    use super::*;

    fn key(cluster: &str, name: &str) -> RequestKey {
        RequestKey::new(
            ClusterName::new(cluster).unwrap(),
            ObjectKey::namespaced("default", name),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_was_back_is_waited_for_anew() {
        let (memory, minute, source) = (Memory::default(), Duration::from_secs(60), key("team", "db"));
        let [berlin, lyon] = ["berlin", "lyon"].map(|name| ClusterName::new(name).unwrap());
        memory.note_away(&source, &berlin, true);
        tokio::time::advance(minute).await;
        memory.note_away(&source, &berlin, true);
        memory.note_away(&source, &lyon, true);
        assert_eq!(
            (memory.waited_for(&source, &berlin), memory.waited(&source)),
            (minute, Some(minute))
        );
        memory.note_away(&source, &berlin, false);
        memory.note_away(&source, &berlin, true);
        assert_eq!(memory.waited_for(&source, &berlin), Duration::ZERO);
        memory.forget_cluster(&source.cluster);
        assert!(memory.inner().sources.is_empty());
    }

    #[test]
    fn a_claim_goes_with_its_object_with_its_cluster_and_not_by_a_late_answer() {
        let (memory, source, object) = (Memory::default(), key("team-a", "db"), key("berlin", "x"));
        for object in [&object, &object, &key("lyon", "x")] {
            memory.note_claim(&source, object.clone(), true);
        }
        memory.forget_cluster(&ClusterName::new("lyon").unwrap());
        let [(_, asked_at)] = memory.claims(&source)[..] else {
            panic!("one is left")
        };
        memory.note_claim(&source, object.clone(), false);
        memory.note_claim(&source, object.clone(), true);
        memory.forget_claim(&source, &object, asked_at);
        let (_, seen_at) = memory.claims(&source)[0];
        memory.forget_claim(&source, &object, seen_at);
        assert!(memory.inner().sources.is_empty());
    }
}
