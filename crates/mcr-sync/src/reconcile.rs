//! Carries out the plan for one source, step by step.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kube::{core::DynamicObject, runtime::events::EventType};
use mcr::{Action, BoxError, Request, RequestKey, RequestObject, TerminalError, queue::Backoff};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    api::{Written, value},
    apply::{self, Write},
    copies,
    error::SyncError,
    left, orphan,
    owned::{differing, dropped},
    plan::{HoldReason, Step, TargetState, next_step, together},
    record, related,
    relation::Relation,
    servers::{Found, at_once, settled},
    sight::{Holds, Look, Sight, Targets},
};

/// The most steps of one reconcile for each place, and as many for the source. A step whose answers are outdated is taken again.
const STEPS_PER_PLACE: usize = 8;

/// The time until a place that is not listed, or is being deleted, is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// That time for a cluster that was connected less than [`LISTS_WITHIN`] ago: no event tells that its targets are listed.
const LOOK_AGAIN_SOON: Duration = Duration::from_secs(1);

/// The time until a name that is taken, or an object that names a source wrongly, is looked at again, and the longest time until a
/// cluster that does not answer is. No watch tells when a name is
/// free, because watches of targets select those of this sync. Each look costs up to two requests.
const LOOK_AGAIN_TAKEN: Duration = Duration::from_secs(60);

/// The time in which most clusters list the targets.
const LISTS_WITHIN: Duration = Duration::from_secs(30);

pub(crate) async fn reconcile<S, T>(
    request: Request<DynamicObject>,
    relation: Arc<Relation<S, T>>,
) -> Result<Action, BoxError>
where
    S: DeserializeOwned + Send + Sync,
    T: DeserializeOwned + Serialize + Send + Sync,
{
    let last_known = request.object.last_known().map(|object| &object.metadata);
    let has_vanished = last_known.is_some_and(|last| record::may_not_be_deleted(&relation.name, last));
    let source = match &request.object {
        RequestObject::Live(source) => Some((**source).clone()),
        RequestObject::Deleted { .. } if !has_vanished => None,
        RequestObject::LeftWatch { .. }
            if request.confirm_deleted_with(&relation.source).await? && !has_vanished =>
        {
            None
        }
        // Nobody saw the source deleted. Its targets stay.
        object => {
            forget(&relation, &request.key);
            match object {
                RequestObject::LeftWatch { .. } => left::tell(&relation, &request).await?,
                RequestObject::Unwatched => {}
                _ => orphan::tell(&relation, &request).await?,
            }
            return Ok(Action::done());
        }
    };
    let mut sight = Sight {
        relation: &*relation,
        request: &request,
        confirmed: source.is_none(),
        source,
        live: BTreeMap::new(),
        failed: BTreeMap::new(),
        taken: BTreeSet::new(),
        related: related::Answers::default(),
        projected: None,
        targets: Targets::new(),
        troubles: Vec::new(),
        waits: Vec::new(),
        look_again: None,
    };
    let outcome = sight.converge().await;
    if let Err(error @ SyncError::Replaced(_)) = &outcome {
        tracing::debug!(sync = &*relation.name, "{error}");
        return Ok(Action::done());
    }
    let reported = sight.report(&outcome).await;
    // A limit that has passed leaves no hold.
    let next = sight.look_again.into_iter().chain(sight.abandons_in());
    let next = next.filter(|next| !next.is_zero()).min();
    if sight.source.is_none() && request.live().is_none() {
        forget(&relation, &request.key);
    }
    match outcome.and(reported) {
        Ok(()) => Ok(next.map_or_else(Action::done, Action::requeue)),
        Err(error) => Err(match next {
            // The wait for another place goes on.
            Some(next) => Failed { error, next }.into(),
            None if error.is_terminal() => TerminalError::new(error).into(),
            None => error.into(),
        }),
    }
}

/// An error of one place, while another place is to be looked at again.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
struct Failed {
    #[source]
    error: SyncError,
    next: Duration,
}

/// When a source that failed is tried again: after its back-off, or when another place is looked at. The earlier one decides.
pub(crate) fn after_error(error: &(dyn std::error::Error + 'static), attempt: u32) -> Option<Action> {
    let Failed { error, next } = error.downcast_ref()?;
    let is_first = error.is_terminal() || *next < Backoff::default().nominal(attempt);
    is_first.then(|| Action::requeue(*next))
}

/// Forgets what is remembered of a source that is gone.
fn forget<S, T>(relation: &Relation<S, T>, source: &RequestKey) {
    copies::forget_source(relation, source);
    relation.away.forget(source);
    relation.waiting.note(source, BTreeSet::new());
}

/// When a place is looked at again. `None` if its cluster is away: the event that it is back comes before.
fn look_again<S, T>(sight: &Sight<'_, S, T>, place: &RequestKey, reason: HoldReason) -> Option<Duration> {
    let cluster = sight.request.fleet.get(&place.cluster).ok();
    let ready = cluster.filter(|cluster| cluster.state().is_ready());
    let is_listing =
        |cluster: &mcr::Cluster| cluster.state_since().elapsed().unwrap_or_default() < LISTS_WITHIN;
    match reason {
        HoldReason::Foreign | HoldReason::Claimed => Some(LOOK_AGAIN_TAKEN),
        // The longer it has been silent, the more sources wait for it.
        HoldReason::Silent => {
            let since = sight.relation.silent.since(&place.cluster);
            let silent = since.map_or(Duration::ZERO, |since| since.elapsed());
            Some(silent.clamp(LOOK_AGAIN_SOON, LOOK_AGAIN_TAKEN))
        }
        HoldReason::Away => ready.map(|cluster| {
            if is_listing(&cluster) {
                LOOK_AGAIN_SOON
            } else {
                LOOK_AGAIN
            }
        }),
        HoldReason::Deleting if ready.as_ref().is_some_and(is_listing) => Some(LOOK_AGAIN_SOON),
        HoldReason::Deleting => Some(LOOK_AGAIN),
    }
}

fn place_of(step: &Step<RequestKey>) -> Option<RequestKey> {
    match step {
        Step::Create(place) | Step::Adopt(place) | Step::Update(place) | Step::Delete(place) => {
            Some(place.clone())
        }
        _ => None,
    }
}

impl<S, T> Sight<'_, S, T>
where
    S: DeserializeOwned + Send + Sync,
    T: DeserializeOwned + Serialize + Send + Sync,
{
    /// Takes steps until there is nothing to write. Returns what is held up.
    async fn converge(&mut self) -> Result<Holds, SyncError> {
        let mut steps = BTreeMap::<_, usize>::new();
        loop {
            let look = self.look().await?;
            let step = next_step(&look.observed);
            let place = place_of(&step);
            let step = match self.relate(&look, step).await {
                Ok(Some(step)) => step,
                Ok(None) => continue,
                Err(error) => {
                    self.fail(place, error, &look).await?;
                    continue;
                }
            };
            if let Step::Rest(mut holds) = step {
                for hold in &mut holds {
                    if let Some(SyncError::NoAnswer(_)) = self.failed.get(&hold.place) {
                        hold.reason = HoldReason::Silent;
                        self.failed.remove(&hold.place);
                    }
                }
                holds.extend(self.claims(&look.observed).await);
                let held = holds.iter().filter(|hold| !self.failed.contains_key(&hold.place));
                let again = self.wait_for(held.map(|hold| (&hold.place, hold.reason)));
                self.look_again = again.into_iter().chain(self.waits.iter().copied()).min();
                self.targets = self.known(&look).await;
                // One error is told. A retry that may help comes before an error that waits for a change of the source. A place that
                // was given up has none.
                let failed = std::mem::take(&mut self.failed).into_iter();
                let failed = failed.filter(|(place, _)| look.observed.targets.contains_key(place));
                let failed = failed.map(|(_, error)| error);
                if let Some(error) = failed.min_by_key(SyncError::is_terminal) {
                    return Err(error);
                }
                return Ok(holds);
            }
            let mut all = together(&look.observed, step);
            // The copies that go before a deletion are those of one place.
            if !self.relation.related.is_empty() && matches!(all.first(), Some(Step::Delete(_))) {
                all.truncate(1);
            }
            let mut now = Vec::new();
            for step in all {
                let place = place_of(&step);
                let taken = steps.entry(place.clone()).or_default();
                *taken += 1;
                if *taken > STEPS_PER_PLACE {
                    self.fail(place, SyncError::Unsettled(STEPS_PER_PLACE), &look)
                        .await?;
                } else {
                    now.push(step);
                }
            }
            if let Err(error) = self.advance(now, &look).await {
                self.fail(None, error, &look).await?;
            }
        }
    }

    /// Notes which clusters the source waits for. Returns when it is looked at again.
    fn wait_for<'a>(&'a self, holds: impl Iterator<Item = (&'a RequestKey, HoldReason)>) -> Option<Duration> {
        let notes = self.related.notes().iter();
        let notes = notes.filter_map(|note| Some((&note.key, note.hold()?)));
        let holds: Vec<_> = holds.chain(notes).collect();
        let away = holds.iter().filter(|(_, reason)| *reason == HoldReason::Away);
        let away = away.map(|(place, _)| place.cluster.clone()).collect();
        // Before the clusters are looked at: the event of one that is back must find the note.
        self.relation.waiting.note(&self.request.key, away);
        holds
            .iter()
            .filter_map(|(place, reason)| look_again(self, place, *reason))
            .min()
    }

    /// Notes that a step failed at a place: the other places must not wait for it.
    pub(crate) async fn fail(
        &mut self,
        place: Option<RequestKey>,
        error: SyncError,
        look: &Look,
    ) -> Result<(), SyncError> {
        match place {
            Some(place) if !matches!(error, SyncError::Replaced(_)) => drop(self.failed.insert(place, error)),
            _ => {
                self.targets = self.known(look).await;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes steps, if the servers still see what they follow from. The stores may be older than the clusters.
    async fn advance(&mut self, steps: Vec<Step<RequestKey>>, look: &Look) -> Result<(), SyncError> {
        if !self.confirm(&steps, look).await? {
            return Ok(());
        }
        match &*steps {
            [Step::Claim(places)] => {
                self.check_status().await?;
                self.write_record(Some(places)).await
            }
            [Step::Forget(places)] => {
                self.write_record(Some(places)).await?;
                self.tell_abandoned(look, places).await;
                Ok(())
            }
            [Step::Release] => {
                self.write_record(None).await?;
                self.tell_abandoned(look, &BTreeSet::new()).await;
                Ok(())
            }
            steps => {
                let written: Vec<_> = steps.iter().map(|step| self.written(step, look)).collect();
                for (place, found) in at_once(written).await {
                    match (place, found) {
                        (Some(place), Ok((found, is_taken))) => {
                            if is_taken {
                                self.taken.insert(place.clone());
                            }
                            self.live.insert(place, found);
                        }
                        (place, Err(error)) => self.fail(place, error, look).await?,
                        (None, Ok(_)) => {}
                    }
                }
                Ok(())
            }
        }
    }

    async fn written(
        &self,
        step: &Step<RequestKey>,
        look: &Look,
    ) -> (Option<RequestKey>, Result<Found, SyncError>) {
        (place_of(step), self.write_at(step, look).await)
    }

    /// Carries out the step at one place. Returns what its server has then, and whether it had another object of the name. The next look
    /// sees it.
    async fn write_at(&self, step: &Step<RequestKey>, look: &Look) -> Result<Found, SyncError> {
        let mode = self.relation.mode;
        match step {
            Step::Create(place) => {
                // The server refuses a creation if there is an object.
                let Some(desired) = look.desired.get(place) else {
                    return Ok((self.ask(place, look).await?.0, false));
                };
                let remote = self.remote(place)?;
                let object = apply::to_create(mode, desired)?;
                let written = remote.create(object, self.relation.create_namespaces).await?;
                let is_taken = matches!(written, Written::Outdated);
                if !is_taken {
                    self.tell_done("TargetCreated", "Create", "created", place).await;
                }
                let found = settled(mode, &remote, desired, written).await?;
                let drops = |found: &DynamicObject| !dropped(desired, &value(found)).is_empty();
                if !is_taken && found.as_ref().is_some_and(drops) {
                    self.relation.writes.note(place, desired, Vec::new());
                }
                Ok((found, is_taken))
            }
            Step::Adopt(place) | Step::Update(place) => {
                let (found, is_other) = self.ask(place, look).await?;
                // The server's answer has `managedFields`, and the store's object of the same version has none.
                let (Some(desired), Some(object), false) = (look.desired.get(place), &found, is_other) else {
                    return Ok((found, false));
                };
                let live = value(object);
                let Some(write) = apply::next_write(mode, &self.relation.name, desired, &live)? else {
                    return Ok((found, false));
                };
                let remote = self.remote(place)?;
                let hands_over = mode.is_some() && matches!(write, Write::Merge(_));
                let mut written = match remote.write(write).await {
                    Err(refusal)
                        if self.relation.replaces
                            && refusal.is_invalid()
                            && remote.accepts(apply::to_create(mode, desired)?).await? =>
                    {
                        remote.delete(object).await?;
                        let done = "deleted, to make it anew because its server refuses the change,";
                        self.tell_done("TargetReplaced", "Delete", done, place).await;
                        Written::Outdated
                    }
                    written => written?,
                };
                if matches!((step, &written), (Step::Adopt(_), Written::Done(_))) {
                    self.tell_done("TargetAdopted", "Adopt", "took over", place).await;
                }
                // No field was written so far, so what is stored may be somebody else's, and is not settled.
                if hands_over && let (Written::Done(object), Some(conflicts)) = (&written, mode) {
                    let write = apply::apply(desired, &value(object), conflicts, None);
                    written = remote.write(write).await?;
                }
                let fields = differing(desired, &live);
                self.relation.writes.note(place, desired, fields);
                Ok((settled(mode, &remote, desired, written).await?, false))
            }
            Step::Delete(place) => {
                let (found, is_other) = self.ask(place, look).await?;
                let (Some(object), false) = (&found, is_other) else {
                    return Ok((found, false));
                };
                // Another object may have taken the name of the source since it was asked for, and have this target by now.
                if self.refreshed().await?.is_some() != self.source.is_some() {
                    return Ok((found, false));
                }
                let remote = self.remote(place)?;
                remote.delete(object).await?;
                self.tell_done("TargetDeleted", "Delete", "deleted", place).await;
                Ok((remote.get().await?, false))
            }
            Step::Claim(_) | Step::Forget(_) | Step::Release | Step::Rest(_) => Ok((None, false)),
        }
    }

    /// Refuses a source that can't have the status which the sync is to write. Nothing is written to it before.
    async fn check_status(&self) -> Result<(), SyncError> {
        let Relation {
            status,
            condition,
            source,
            ..
        } = self.relation;
        let is_written = status.is_some() || condition.is_some();
        let kinds = &self.relation.status_kinds;
        if is_written && kinds.is_missing(&self.request.cluster, source).await {
            return Err(SyncError::NoStatus(self.request.key.clone()));
        }
        Ok(())
    }

    async fn tell_done(&self, reason: &str, action: &str, done: &str, place: &RequestKey) {
        let RequestKey { cluster, object } = place;
        let note = format!("{done} {object} in cluster {cluster}");
        self.tell(EventType::Normal, reason, action, &note).await;
    }

    /// Tells which places left the record although their objects may exist.
    async fn tell_abandoned(&self, look: &Look, kept: &BTreeSet<RequestKey>) {
        for place in look.observed.recorded.difference(kept) {
            if look.observed.targets.get(place) == Some(&TargetState::Abandoned) {
                // No event tells that a cluster still has the object when it is back without a new list.
                let watch = self.relation.target_watch();
                let store = self.request.fleet.get(&place.cluster);
                let store = store
                    .ok()
                    .and_then(|cluster| cluster.store_of::<DynamicObject>(&watch).ok());
                if store.is_some_and(|store| matches!(store.get_unsynced(&place.object), Ok(Some(_)))) {
                    self.relation.claims.add(&self.request.key, place.clone());
                }
                let RequestKey { cluster, object } = place;
                let note = format!(
                    "gave up {object} in cluster {cluster}, which is away; if the object was made there, it stays when the cluster comes back"
                );
                let (sync, source) = (&*self.relation.name, &self.request.key);
                tracing::warn!(sync, %source, "{note}");
                self.tell(EventType::Warning, "TargetAbandoned", "Abandon", &note)
                    .await;
            }
        }
    }

    async fn write_record(&mut self, places: Option<&BTreeSet<RequestKey>>) -> Result<(), SyncError> {
        let Some(source) = &self.source else { return Ok(()) };
        let patch = record::patch(&self.relation.name, source, places);
        self.source = match self.own()?.patch(patch).await? {
            // The last finalizer is gone, and the source with it.
            Written::Done(source) if places.is_none() && source.metadata.deletion_timestamp.is_some() => None,
            Written::Done(source) => Some(*source),
            Written::Outdated => self.refreshed().await?,
        };
        Ok(())
    }
}
