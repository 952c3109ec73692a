//! One reconcile of a source: observe, decide, act, until there is nothing to write; then report.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kube::core::{ApiResource, DynamicObject};
use mcr::{
    Action, BoxError, Cluster, ClusterName, ClusterState, ObjectKey, Request, RequestObject, TerminalError,
    queue::Backoff,
};

use crate::{
    api::Remote,
    error::SyncError,
    kinds,
    pass::{Pass, View},
    placement::Placement,
    plan::{Decision, Hold, HoldReason, decide},
    record,
    related::Note,
    relation::{Relation, SourceKind, TargetKind},
    unowned,
    writes::Trouble,
};

/// The most attempts of one reconcile to write each object. The source gets three times as many. An attempt may fail
/// because the observed state is outdated.
const MOST_STEPS: usize = 8;

/// The pause before an object is observed again that is not listed, or is being deleted.
const OBSERVE_AGAIN: Duration = Duration::from_secs(15);

/// The same pause in a cluster that was connected less than [`LISTS_WITHIN`] ago. No event reports that the targets
/// there are listed.
const OBSERVE_SOON: Duration = Duration::from_secs(1);

/// The pause before the sync observes again whether a name is still taken, or whether an object still names the source
/// wrongly. It is also the longest pause for a cluster that does not answer. No watch reports that a name is free,
/// because the watches of targets select objects of this sync.
const OBSERVE_LATE: Duration = Duration::from_secs(60);

/// The time within which most clusters have listed the targets.
const LISTS_WITHIN: Duration = Duration::from_secs(30);

pub(crate) type Holds = Vec<Hold<Placement>>;
pub(crate) type Targets = Vec<(ClusterName, Arc<DynamicObject>)>;

/// The result of a reconcile, for the report.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) holds: Holds,
    pub(crate) notes: Vec<Note>,
    /// The targets that are known, for the status of the source.
    pub(crate) targets: Targets,
    /// How many objects are up to date.
    pub(crate) synced: usize,
    /// At how many places something has failed.
    pub(crate) failed: usize,
    pub(crate) error: Option<SyncError>,
    /// Whether the owner of the source has paused its sync.
    pub(crate) is_paused: bool,
    /// Whether a cluster is still being connected, or lists the kind for the first time. Until then, nothing is
    /// reported.
    pub(crate) is_pending: bool,
    /// The pause until the source is observed again, even if no event asks for it.
    pub(crate) again: Option<Duration>,
}

impl From<SyncError> for Outcome {
    fn from(error: SyncError) -> Self {
        let error = Some(error);
        Self {
            error,
            ..Self::default()
        }
    }
}

pub(crate) async fn reconcile<S: SourceKind, T: TargetKind>(
    request: Request<DynamicObject>,
    relation: Arc<Relation<S, T>>,
) -> Result<Action, BoxError> {
    let source = match source_of(&request, &relation).await? {
        Source::Object(source) => Some(source),
        Source::Deleted => None,
        Source::Unknown => return Ok(Action::done()),
    };
    let mut pass = Pass::new(&*relation, &request, source);
    let outcome = match pass.run().await {
        Err(error @ SyncError::Replaced(_)) => {
            tracing::debug!(sync = &*relation.name, "{error}");
            return Ok(Action::done());
        }
        outcome => outcome.unwrap_or_else(Outcome::from),
    };
    let reported = pass.report(&outcome).await;
    // After the limit has passed, nothing waits for it any more.
    let limit = relation.abandon_after.zip(relation.memory.waited(&request.key));
    let limit = limit
        .map(|(limit, waited)| limit.saturating_sub(waited))
        .filter(|rest| !rest.is_zero());
    let next = outcome.again.into_iter().chain(limit).min();
    let may_have_targets =
        |source: &Arc<DynamicObject>| record::may_have_targets(&relation.name, &source.metadata);
    if request.live().is_none() {
        match next {
            _ if !pass.source.as_ref().is_some_and(may_have_targets) => relation.forget(&request.key),
            Some(next) => relation.memory.note_later(&request.key, next),
            None => {}
        }
    }
    match outcome.error.map_or(Ok(()), Err).and(reported) {
        Ok(()) => Ok(next.map_or_else(Action::done, Action::requeue)),
        Err(error) => Err(match next {
            // The error must not delay the observation of another place.
            Some(next) => Failed { error, next }.into(),
            None if error.is_terminal() => TerminalError::new(error).into(),
            None => error.into(),
        }),
    }
}

/// The source of a request.
enum Source {
    Object(Arc<DynamicObject>),
    Deleted,
    /// The source is not in the watch, and it is not known to be deleted. Its targets stay.
    Unknown,
}

async fn source_of<S: SourceKind, T: TargetKind>(
    request: &Request<DynamicObject>,
    relation: &Relation<S, T>,
) -> Result<Source, BoxError> {
    let last_known = request.object.last_known().map(|object| &object.metadata);
    let has_vanished = last_known.is_some_and(|last| record::cannot_have_been_deleted(&relation.name, last));
    let mut found = None;
    let is_deleted = match &request.object {
        RequestObject::Live(source) => return Ok(Source::Object(source.clone())),
        RequestObject::Deleted { .. } => true,
        RequestObject::Unwatched => false,
        object if relation.source_labels.is_some() => {
            let remote = Remote::new(&request.cluster, &relation.source, &request.key.object)?;
            found = remote.get().await?;
            let has_lost_labels = |source: &Arc<DynamicObject>| {
                !relation.has_labels(&source.metadata)
                    && record::may_have_targets(&relation.name, &source.metadata)
            };
            if let Some(source) = found.as_ref().filter(|found| has_lost_labels(found)) {
                return Ok(Source::Object(source.clone()));
            }
            let uid = last_known.and_then(|last| last.uid.as_ref());
            let is_same_object =
                |found: &Arc<DynamicObject>| uid.is_none() || found.metadata.uid.as_ref() == uid;
            object.has_left_watch() && !found.as_ref().is_some_and(is_same_object)
        }
        RequestObject::LeftWatch { .. } => request.confirm_deleted_with(&relation.source).await?,
        _ => false,
    };
    if is_deleted && !has_vanished {
        return Ok(Source::Deleted);
    }
    relation.forget(&request.key);
    match &request.object {
        RequestObject::LeftWatch { .. } if !is_deleted && relation.is_limited() => {
            unowned::report_left_watch(relation, request).await?
        }
        RequestObject::Unwatched => {}
        // The source exists: either the watch will receive it, or the sync does not select it.
        _ if found.is_some() => {}
        _ => unowned::report_orphan(relation, request).await?,
    }
    Ok(Source::Unknown)
}

/// Whether a cluster was connected so recently that it may still list its objects for the first time.
fn is_listing(cluster: &Cluster) -> bool {
    cluster.state_since().elapsed().unwrap_or_default() < LISTS_WITHIN
}

/// The error of one place, while another place is to be observed again.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
struct Failed {
    #[source]
    error: SyncError,
    next: Duration,
}

/// When a source that failed is tried again: after its back-off, or when another place is due, whichever is earlier.
pub(crate) fn after_error(error: &(dyn std::error::Error + 'static), attempt: u32) -> Option<Action> {
    let Failed { error, next } = error.downcast_ref()?;
    let is_first = error.is_terminal() || *next < Backoff::default().nominal(attempt);
    is_first.then(|| Action::requeue(*next))
}

impl<S: SourceKind, T: TargetKind> Pass<'_, S, T> {
    /// Writes until there is nothing left to write.
    async fn run(&mut self) -> Result<Outcome, SyncError> {
        let (mut steps, mut of_source) = (BTreeMap::<Placement, usize>::new(), 0);
        let (sync, mut marks) = (&self.relation.name, self.relation.source_labels.is_some());
        loop {
            let view = self.observe().await?;
            // A source that the sync does not select can't be paused.
            let is_kept = view.observed.finalizer || !view.observed.wanted.is_empty();
            if is_kept && record::is_paused(&self.meta()) {
                let is_paused = true;
                return Ok(Outcome {
                    is_paused,
                    ..Outcome::default()
                });
            }
            let step = match decide(&view.observed) {
                // The source has lost its mark, or was claimed before the sync had a selector. Tried once, because a
                // server may not store the mark.
                Decision::Rest(_)
                    if marks && view.observed.finalizer && !record::has_mark(sync, &self.meta()) =>
                {
                    marks = false;
                    Decision::Claim(view.observed.recorded.clone())
                }
                Decision::Rest(holds) => return Ok(self.finish(view, holds).await),
                Decision::Write(writes) => {
                    let (exhausted, now): (Vec<_>, Vec<_>) =
                        writes.into_iter().partition(|(placement, _)| {
                            let count = steps.entry(placement.clone()).or_default();
                            *count += 1;
                            *count > MOST_STEPS
                        });
                    for (placement, _) in exhausted {
                        let place = self.place_of(&placement, &view);
                        self.fail(place, SyncError::TooManySteps(MOST_STEPS))?;
                    }
                    Decision::Write(now)
                }
                step => {
                    of_source += 1;
                    if of_source > 3 * MOST_STEPS {
                        return Err(SyncError::TooManySteps(MOST_STEPS));
                    }
                    step
                }
            };
            if let Err(error) = self.act(step, &view).await {
                if matches!(error, SyncError::Replaced(_)) {
                    return Err(error);
                }
                let mut outcome = Outcome::from(error);
                outcome.targets = self.targets(&view);
                return Ok(outcome);
            }
        }
    }

    /// Ends the reconcile: collects what is reported, and when to observe again.
    async fn finish(&mut self, view: View, mut holds: Holds) -> Outcome {
        if self.schema_has_changed().await {
            self.waits.push(OBSERVE_SOON);
        }
        let mut silent = BTreeSet::new();
        for hold in &mut holds {
            let place = self.place_of(&hold.object, &view);
            if let Some(SyncError::NoAnswer(_)) = self.failed.get(&place) {
                hold.reason = HoldReason::Silent;
                silent.insert(place);
            }
        }
        let objects = view.observed.objects.iter();
        let known: BTreeSet<_> = objects
            .flat_map(|(key, object)| [Some(&key.at), object.place.as_ref()])
            .flatten()
            .collect();
        // If a place was given up, its error no longer matters.
        self.failed
            .retain(|place, _| known.contains(place) && !silent.contains(place));
        holds.extend(self.claims(&view).await);
        let is_held =
            |hold: &&Hold<Placement>| !self.failed.contains_key(&self.place_of(&hold.object, &view));
        let held = holds.iter().filter(is_held);
        let held = held.map(|hold| (&hold.object.at.cluster, hold.reason));
        let unknown = view.notes.iter().filter(|note| note.is_unknown());
        let unknown = unknown.map(|note| (&note.key.cluster, HoldReason::Away));
        let held: Vec<_> = held.chain(unknown).collect();
        let away = held.iter().filter(|(_, reason)| *reason == HoldReason::Away);
        let away = away.map(|(cluster, _)| (*cluster).clone()).collect();
        // Noted before the states of the clusters are read. So the event of a cluster that is back by then finds the
        // entry.
        self.relation.memory.note_waiting(&self.request.key, away);
        let again = held
            .iter()
            .filter_map(|(cluster, reason)| self.pause_until_observed(cluster, *reason));
        let again = again.chain(self.waits.iter().copied()).min();
        let mut synced = Vec::from_iter(view.observed.objects.values());
        synced.retain(|object| object.wanted && object.state.is_up_to_date());
        let synced = synced.len();
        let targets = self.targets(&view);
        // Only one error is reported. An error for which a retry may help comes before an error that waits for a
        // change of the source.
        let errors = std::mem::take(&mut self.failed).into_values();
        let failed = errors.len();
        let error = errors.min_by_key(SyncError::is_terminal);
        let is_pending = error.is_none() && self.is_pending(&holds, &view.notes);
        let (notes, is_paused) = (view.notes, false);
        Outcome {
            holds,
            notes,
            targets,
            synced,
            failed,
            error,
            is_paused,
            is_pending,
            again,
        }
    }

    /// Whether the schema of a kind that drops fields has changed. Then the fields are sent again. The changes of a
    /// built-in kind, and of a schema that may not be read, are not visible.
    async fn schema_has_changed(&self) -> bool {
        let (writes, mut has_changed) = (&self.relation.writes, false);
        for (placement, trouble) in &self.troubles {
            let (ApiResource { group, plural, .. }, at) = (self.resource(placement), &placement.at.cluster);
            if !matches!(trouble, Trouble::Dropped(_)) || group.is_empty() {
                continue;
            }
            let kind = format!("{plural}.{group}");
            if writes.reads_schema(at, &kind)
                && let Ok(cluster) = self.cluster(at)
                && let Ok(remote) = Remote::new(
                    &cluster,
                    &kinds::definitions(),
                    &ObjectKey::cluster_scoped(&*kind),
                )
                && let Ok(Some(found)) = self.bounded(remote).get().await
            {
                let generation = found.metadata.generation.unwrap_or_default();
                let version = found
                    .metadata
                    .uid
                    .as_ref()
                    .map(|uid| format!("{uid} {generation}"));
                writes.note_schema(at, &kind, version);
            }
            has_changed |= writes.has_new_schema(placement, &kind);
        }
        has_changed
    }

    /// Whether something is unknown only because a cluster is not connected yet, or lists a kind for the first time.
    fn is_pending(&self, holds: &Holds, notes: &[Note]) -> bool {
        let away = holds.iter().filter(|hold| hold.reason == HoldReason::Away);
        let away = away.map(|hold| (&hold.object.at.cluster, self.watch(&hold.object)));
        let unknown = notes.iter().filter(|note| note.is_unknown());
        let origins = |note: &Note| self.relation.related[note.rule].origin_watch();
        let mut all = away.chain(unknown.map(|note| (&note.key.cluster, origins(note))));
        all.any(|(name, watch)| match self.named(name) {
            None => self.is_starting(),
            Some(cluster) => match cluster.state() {
                ClusterState::Discovered | ClusterState::Connecting => true,
                ClusterState::Ready => is_listing(&cluster) && self.unlisted(name, &watch).is_none(),
                _ => false,
            },
        })
    }

    /// Whether the program has just started, and some provider has not announced its clusters.
    fn is_starting(&self) -> bool {
        !self.request.fleet.is_discovered() && self.relation.memory.age() < LISTS_WITHIN
    }

    /// The pause until a held object is observed again. `None` if its cluster is away: the event of the cluster's
    /// return leads to the source.
    fn pause_until_observed(&self, cluster: &ClusterName, reason: HoldReason) -> Option<Duration> {
        let ready = self
            .cluster(cluster)
            .ok()
            .filter(|cluster| cluster.state().is_ready());
        let soon = |is_soon| if is_soon { OBSERVE_SOON } else { OBSERVE_AGAIN };
        match reason {
            HoldReason::Foreign | HoldReason::Claimed => Some(OBSERVE_LATE),
            // The longer the cluster has been silent, the longer is the pause, because more and more sources wait for
            // it.
            HoldReason::Silent => {
                let since = self.relation.silent.since(cluster);
                let silent = since.map_or(Duration::ZERO, |since| since.elapsed());
                Some(silent.clamp(OBSERVE_SOON, OBSERVE_LATE))
            }
            HoldReason::Away if self.named(cluster).is_none() && self.is_starting() => Some(OBSERVE_AGAIN),
            HoldReason::Away => ready.map(|cluster| soon(is_listing(&cluster))),
            HoldReason::Deleting => Some(soon(ready.is_some_and(|cluster| is_listing(&cluster)))),
        }
    }

    /// The targets in the wanted places that can be read, even if a step has failed there.
    fn targets(&self, view: &View) -> Targets {
        if self.relation.status.is_none() {
            return Targets::new();
        }
        let wanted = view.observed.wanted.iter().map(Placement::target);
        let found = wanted.filter_map(|target| {
            let object = self
                .live
                .get(&target)
                .map_or_else(|| view.found.get(&target), Option::as_ref)?;
            let is_ours = self.owns(&target, &object.metadata);
            is_ours.then(|| (target.at.cluster, object.clone()))
        });
        found.collect()
    }

    /// The objects that name the source and are in none of its places. They are read from their servers, because a
    /// store may not have received the deletion in a former place yet.
    async fn claims(&mut self, view: &View) -> Holds {
        let (memory, key) = (&self.relation.memory, &self.request.key);
        let mut others = Holds::new();
        for (place, observation) in memory.claims(key) {
            if view.observed.recorded.contains(&place) || view.observed.wanted.contains(&place) {
                memory.note_claim(key, place, false);
                continue;
            }
            let object = Placement::target(&place);
            let found = match self.remote(&object) {
                Ok(remote) => remote.get().await,
                Err(away) => Err(away),
            };
            // A cluster that was given up and does not answer may or may not have the object, so nothing is reported.
            if found.is_err() && self.is_abandoned(&place) {
                // If the cluster is connected, no event reports when it answers again.
                if self.cluster(&place.cluster).is_ok_and(|it| it.state().is_ready()) {
                    self.waits.push(OBSERVE_LATE);
                }
                continue;
            }
            // If another cluster does not answer, the last state that the watch has received counts.
            let state = found.map(|found| self.state_of(&object, &found.into(), false, None));
            match state {
                Ok(state) if !state.as_ref().is_ok_and(|state| state.is_ours()) => {
                    memory.forget_claim(key, &place, observation);
                }
                _ => {
                    let reason = HoldReason::Claimed;
                    others.push(Hold { object, reason });
                }
            }
        }
        others
    }
}
