//! Carries out the plan for one source, step by step.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kube::{core::DynamicObject, runtime::events::EventType};
use mcr::{Action, BoxError, Request, RequestKey, RequestObject, TerminalError};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    api::{Written, value},
    apply::{self, Write},
    copies,
    error::SyncError,
    left, orphan,
    owned::{differing, dropped},
    plan::{HoldReason, Step, TargetState, next_step},
    record, related,
    relation::Relation,
    sight::{Holds, Look, Sight, Targets, settled},
};

/// The most steps of one reconcile for each place, and as many for the source. A step whose answers are outdated is taken again.
const STEPS_PER_PLACE: usize = 8;

/// The time until a place that is away or being deleted is looked at again. Events of the fleet and of targets come before.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// That time for a cluster that was connected less than [`LISTS_WITHIN`] ago: no event tells that its targets are listed.
const LOOK_AGAIN_SOON: Duration = Duration::from_secs(1);

/// The time until a name that is taken, or an object that names a source wrongly, is looked at again. No watch tells when a name is
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
    let reported = sight.report(&outcome).await;
    let notes = sight.related.notes().iter();
    let notes = notes.filter_map(|note| Some(look_again(&request, &note.key, note.hold()?)));
    // A limit that has passed leaves no hold.
    let next = sight
        .look_again
        .into_iter()
        .chain(notes)
        .chain(sight.abandons_in());
    let next = next.filter(|next| !next.is_zero()).min();
    if sight.source.is_none() && request.live().is_none() {
        forget(&relation, &request.key);
    }
    match outcome.and(reported) {
        Ok(()) => Ok(next.map_or_else(Action::done, Action::requeue)),
        // An error that waits for a change of the source must not end the wait for another place.
        Err(error) if error.is_terminal() && next.is_none() => Err(TerminalError::new(error).into()),
        Err(error) => Err(error.into()),
    }
}

/// Forgets what is remembered of a source that is gone.
fn forget<S, T>(relation: &Relation<S, T>, source: &RequestKey) {
    copies::forget_source(relation, source);
    relation.away.forget(source);
}

/// When a place is looked at again.
fn look_again(request: &Request<DynamicObject>, place: &RequestKey, reason: HoldReason) -> Duration {
    match reason {
        HoldReason::Foreign | HoldReason::Claimed => return LOOK_AGAIN_TAKEN,
        HoldReason::Away | HoldReason::Deleting => {}
    }
    let is_listing = request.fleet.get(&place.cluster).is_ok_and(|cluster| {
        let since = cluster.state_since().elapsed().unwrap_or_default();
        cluster.state().is_ready() && since < LISTS_WITHIN
    });
    if is_listing { LOOK_AGAIN_SOON } else { LOOK_AGAIN }
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
                holds.extend(self.claims(&look.observed).await);
                let held = holds.iter().filter(|hold| !self.failed.contains_key(&hold.place));
                let again = held.map(|hold| look_again(self.request, &hold.place, hold.reason));
                self.look_again = again.chain(self.waits.iter().copied()).min();
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
            let place = place_of(&step);
            let taken = steps.entry(place.clone()).or_default();
            *taken += 1;
            let done = if *taken > STEPS_PER_PLACE {
                Err(SyncError::Unsettled(STEPS_PER_PLACE))
            } else {
                self.advance(step, &look).await
            };
            if let Err(error) = done {
                self.fail(place, error, &look).await?;
            }
        }
    }

    /// Notes that a step failed at a place: the other places must not wait for it.
    async fn fail(
        &mut self,
        place: Option<RequestKey>,
        error: SyncError,
        look: &Look,
    ) -> Result<(), SyncError> {
        let Some(place) = place else {
            self.targets = self.known(look).await;
            return Err(error);
        };
        self.failed.insert(place, error);
        Ok(())
    }

    /// Takes a step, if the servers still see what it follows from. The stores may be older than the clusters.
    async fn advance(&mut self, step: Step<RequestKey>, look: &Look) -> Result<(), SyncError> {
        if self.confirm(&step, look).await? {
            return Ok(());
        }
        self.take(step, look).await
    }

    /// Carries out one step. What it has written is seen by the next look.
    async fn take(&mut self, step: Step<RequestKey>, look: &Look) -> Result<(), SyncError> {
        let mode = self.relation.mode;
        match step {
            Step::Claim(places) => {
                self.check_status().await?;
                self.write_record(Some(&places)).await
            }
            Step::Forget(places) => {
                self.write_record(Some(&places)).await?;
                self.tell_abandoned(look, &places).await;
                Ok(())
            }
            Step::Release => {
                self.write_record(None).await?;
                self.tell_abandoned(look, &BTreeSet::new()).await;
                Ok(())
            }
            Step::Create(place) => {
                let Some(desired) = look.desired.get(&place) else {
                    return Ok(());
                };
                let remote = self.remote(&place)?;
                let object = apply::to_create(mode, desired)?;
                let written = remote.create(object, self.relation.create_namespaces).await?;
                match written {
                    Written::Done(_) => self.tell_done("TargetCreated", "Create", "created", &place).await,
                    Written::Outdated => drop(self.taken.insert(place.clone())),
                }
                let found = settled(mode, &remote, desired, written).await?;
                if found
                    .as_ref()
                    .is_some_and(|found| !dropped(desired, &value(found)).is_empty())
                {
                    self.relation.writes.note(&place, desired, Vec::new());
                }
                self.live.insert(place, found);
                Ok(())
            }
            Step::Adopt(ref place) | Step::Update(ref place) => {
                // The server's answer has `managedFields`, and the store's object of the same version has none.
                let (Some(desired), Some(Some(object))) = (look.desired.get(place), self.live.get(place))
                else {
                    return Ok(());
                };
                let live = value(object);
                let Some(write) = apply::next_write(mode, &self.relation.name, desired, &live)? else {
                    return Ok(());
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
                if matches!((&step, &written), (Step::Adopt(_), Written::Done(_))) {
                    self.tell_done("TargetAdopted", "Adopt", "took over", place).await;
                }
                // No field was written so far, so what is stored may be somebody else's, and is not settled.
                if hands_over && let (Written::Done(object), Some(conflicts)) = (&written, mode) {
                    let write = apply::apply(desired, &value(object), conflicts, None);
                    written = remote.write(write).await?;
                }
                let fields = differing(desired, &live);
                self.relation.writes.note(place, desired, fields);
                let found = settled(mode, &remote, desired, written).await?;
                self.live.insert(place.clone(), found);
                Ok(())
            }
            Step::Delete(place) => {
                let Some(object) = look.objects.get(&place) else {
                    return Ok(());
                };
                let remote = self.remote(&place)?;
                remote.delete(object).await?;
                self.tell_done("TargetDeleted", "Delete", "deleted", &place).await;
                self.live.insert(place, remote.get().await?);
                Ok(())
            }
            Step::Rest(_) => Ok(()),
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
        self.source = match self.own().patch(patch).await? {
            // The last finalizer is gone, and the source with it.
            Written::Done(source) if places.is_none() && source.metadata.deletion_timestamp.is_some() => None,
            Written::Done(source) => Some(*source),
            Written::Outdated => self.refreshed().await?,
        };
        Ok(())
    }
}
