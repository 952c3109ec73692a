//! Carries out one step of the plan, if the servers still have the objects that the step was decided from.

use std::{collections::BTreeSet, sync::Arc};

use futures::{StreamExt, stream};
use kube::{core::DynamicObject, runtime::events::EventType};
use mcr::RequestKey;

use crate::{
    api::{Remote, Written, value},
    desired::{Desired, Write as Change},
    error::SyncError,
    fields::{differing, dropped},
    pass::{Pass, View, version},
    placement::Placement,
    plan::{Decision, State, Write},
    record,
    relation::{Relation, SourceKind, TargetKind},
};

/// For how many objects one reconcile works at once.
const AT_ONCE: usize = 16;

/// The object that a server has, and whether that contradicts the step: it is not the object that was observed, or the
/// name of an object to create is taken.
type Answer = (Option<Arc<DynamicObject>>, bool);

pub(crate) type Step = Decision<RequestKey, Placement>;

impl<S: SourceKind, T: TargetKind> Pass<'_, S, T> {
    pub(crate) async fn act(&mut self, step: Step, view: &View) -> Result<(), SyncError> {
        if !self.confirm(&step, view).await? {
            return Ok(());
        }
        match step {
            Decision::Claim(places) => {
                self.check_status().await?;
                self.write_placements(Some(&places)).await?;
            }
            Decision::Forget(places) => {
                self.write_placements(Some(&places)).await?;
                self.report_abandoned(view, &places).await;
            }
            Decision::Release => {
                self.write_placements(None).await?;
                self.report_abandoned(view, &BTreeSet::new()).await;
                self.report_unselected();
            }
            Decision::List(places) => {
                for place in places {
                    if let Err(error) = self.list_copies(&place, view).await {
                        self.fail(place, error)?;
                    }
                }
            }
            Decision::Write(writes) => {
                let written = writes
                    .iter()
                    .map(|(placement, write)| self.write_with_key(placement, *write, view));
                let written = at_once(written.collect()).await;
                // After a step with deletions, the source is read again before the next write.
                self.confirmed &= !writes.iter().any(|(_, write)| *write == Write::Delete);
                for (placement, found) in written {
                    match found {
                        Ok((found, is_taken)) => {
                            // The server has refused the name twice, but a GET finds no object of this name.
                            let is_again = is_taken && !self.taken.insert(placement.clone());
                            if is_again && found.is_none() {
                                let error = SyncError::Hidden(placement.at.clone());
                                self.fail(self.place_of(placement, view), error)?;
                                continue;
                            }
                            self.from_lists.remove(placement);
                            self.live.insert(placement.clone(), found);
                        }
                        Err(error) => self.fail(self.place_of(placement, view), error)?,
                    }
                }
            }
            Decision::Rest(_) => {}
        }
        Ok(())
    }

    /// The place that an object belongs to. For a copy whose place is unknown: where the copy itself is.
    pub(crate) fn place_of(&self, placement: &Placement, view: &View) -> RequestKey {
        let object = view.observed.objects.get(placement);
        object
            .and_then(|object| object.place.as_ref())
            .unwrap_or(&placement.at)
            .clone()
    }

    /// Records the error of one place, so that the other places do not wait for it. Returns the error if it concerns
    /// the whole source.
    pub(crate) fn fail(&mut self, place: RequestKey, error: SyncError) -> Result<(), SyncError> {
        if matches!(error, SyncError::Replaced(_)) {
            return Err(error);
        }
        self.failed.insert(place, error);
        Ok(())
    }

    /// Reads the source, and everything else that the step depends on, from the servers. Returns whether all of it is
    /// as it was observed.
    async fn confirm(&mut self, step: &Step, view: &View) -> Result<bool, SyncError> {
        let (observed, mut targets, mut selections) = (&view.observed, BTreeSet::new(), BTreeSet::new());
        match step {
            // `write` reads each object that it writes. What remains are the targets and origins that copies depend
            // on.
            Decision::Write(writes) => {
                for (placement, _) in writes {
                    let Some(rule) = placement.rule else { continue };
                    let wanted = observed.objects.get(placement).filter(|object| object.wanted);
                    let place = wanted.and_then(|object| object.place.clone());
                    // A copy that is not wanted may be of an origin of any place.
                    let places = place.map_or_else(|| observed.wanted.clone(), |place| [place].into());
                    for place in places
                        .into_iter()
                        .filter(|place| view.selected.contains_key(&(rule, place.clone())))
                    {
                        selections.insert((rule, place.clone()));
                        targets.insert(place);
                    }
                }
            }
            Decision::Forget(kept) => targets.extend(observed.recorded.difference(kept).cloned()),
            Decision::Release => targets.clone_from(&observed.recorded),
            // The answer to the patch of the source confirms the source, because the patch names its version.
            Decision::Claim(_) | Decision::List(_) => return Ok(true),
            Decision::Rest(_) => {}
        }
        let is_abandoned = |placement: &Placement| {
            observed.objects.get(placement).map(|of| of.state) == Some(State::Abandoned)
        };
        let targets: Vec<_> = targets
            .iter()
            .map(Placement::target)
            .filter(|of| !is_abandoned(of))
            .collect();
        let asked = targets
            .iter()
            .map(|target| self.ask_with_key(target, view))
            .collect();
        let mut is_same = true;
        for (target, found) in at_once(asked).await {
            match found {
                Ok((found, is_other)) => {
                    is_same &= !is_other;
                    self.live.insert(target.clone(), found);
                }
                Err(error) => {
                    is_same = false;
                    self.fail(target.at.clone(), error)?;
                }
            }
        }
        for (rule, place) in selections {
            let selected = &view.selected[&(rule, place.clone())];
            match self.confirm_origins(rule, &place, selected).await {
                Ok(is_new) => is_same &= !is_new,
                Err(error) => {
                    is_same = false;
                    self.fail(place, error)?;
                }
            }
        }
        // Read after its places, so that what was read there belongs to this source, and not to a new source of the
        // same name.
        if !self.confirmed {
            let before = self.source.as_ref().map(|source| version(&source.metadata));
            self.source = self.read_source().await?;
            self.confirmed = true;
            is_same &= before == self.source.as_ref().map(|source| version(&source.metadata));
        }
        Ok(is_same)
    }

    async fn ask_with_key<'b>(
        &self,
        target: &'b Placement,
        view: &View,
    ) -> (&'b Placement, Result<Answer, SyncError>) {
        (target, self.ask(target, view).await)
    }

    /// Reads the object from its server, unless it was read before. The flag: whether it differs from what was
    /// observed.
    async fn ask(&self, placement: &Placement, view: &View) -> Result<Answer, SyncError> {
        if let Some(live) = self.live.get(placement)
            && !self.from_lists.contains(placement)
        {
            return Ok((live.clone(), false));
        }
        let found = self.remote(placement)?.get().await?;
        let of = |object: Option<&Arc<DynamicObject>>| object.map(|object| version(&object.metadata));
        // An object is known to be absent only if the store has listed the cluster.
        let state = view.observed.objects.get(placement).map(|object| object.state);
        let is_other = state == Some(State::Away) || of(found.as_ref()) != of(view.found.get(placement));
        Ok((found, is_other))
    }

    /// Reads the source from its server. Another object of its name is an error, because the targets may belong to
    /// that one by now.
    pub(crate) async fn read_source(&self) -> Result<Option<Arc<DynamicObject>>, SyncError> {
        let known = self.last_known().and_then(|known| known.metadata.uid.clone());
        let found = self.source_remote()?.get().await?;
        if found.as_ref().is_some_and(|found| found.metadata.uid != known) {
            return Err(SyncError::Replaced(self.request.key.clone()));
        }
        Ok(found)
    }

    async fn write_with_key<'b>(
        &self,
        placement: &'b Placement,
        write: Write,
        view: &View,
    ) -> (&'b Placement, Result<Answer, SyncError>) {
        (placement, self.write(placement, write, view).await)
    }

    /// Writes one object, if its server has it as it was observed. Returns the object that the server has after the
    /// write.
    async fn write(&self, placement: &Placement, write: Write, view: &View) -> Result<Answer, SyncError> {
        let Relation {
            name,
            writes,
            replaces,
            ..
        } = self.relation;
        let mode = self.relation.mode(placement.rule);
        let (remote, desired) = (self.remote(placement)?, view.desired.get(placement));
        if write == Write::Create {
            // Not read before: the server refuses to create an object that exists.
            let Some(desired) = desired else {
                return Ok((remote.get().await?, false));
            };
            let rule = placement.rule.map(|rule| &self.relation.related[rule]);
            let is_at_target = rule.is_none_or(|rule| rule.is_down());
            let namespaces = self.relation.namespaces.as_ref().filter(|_| is_at_target);
            let written = remote.create(desired.to_create(), namespaces).await;
            let written = self.counted("create", written, is_done)?;
            let is_taken = !is_done(&written);
            if !is_taken {
                self.report_done("TargetCreated", "Create", "created", placement)
                    .await;
            }
            let found = stored(&remote, desired, written).await?;
            let drops = |found: &Arc<DynamicObject>| {
                !desired.is_stored(found) && !dropped(&desired.object, &value(found)).is_empty()
            };
            if !is_taken && found.as_ref().is_some_and(drops) {
                writes.note(placement, desired, Vec::new());
            }
            return Ok((found, is_taken));
        }
        // Not read before a merge patch: the patch names the observed version, so an outdated one changes nothing.
        // Server-side apply needs `managedFields`, which the store does not keep.
        let (found, is_other) =
            if write == Write::Update && mode.is_none() && !self.live.contains_key(placement) {
                (view.found.get(placement).cloned(), false)
            } else {
                self.ask(placement, view).await?
            };
        let (Some(object), false) = (&found, is_other) else {
            return Ok((found, false));
        };
        let Some(desired) = desired.filter(|_| write != Write::Delete) else {
            // The source is read again: it may want this target by now, or a new source of its name may.
            let of = |source: Option<&Arc<DynamicObject>>| source.map(|source| version(&source.metadata));
            if of(self.read_source().await?.as_ref()) != of(self.source.as_ref()) {
                return Ok((found, false));
            }
            if self.counted("delete", remote.delete(object).await, |done| *done)? {
                self.report_done("TargetDeleted", "Delete", "deleted", placement)
                    .await;
            }
            return Ok((remote.get().await?, false));
        };
        let live = value(object);
        let Some(change) = desired.next_write(name, &live)? else {
            return Ok((found, false));
        };
        let hands_over = mode.is_some() && matches!(change, Change::Merge(_));
        let (mut written, is_deleted) = match remote.write(change).await {
            Err(refusal)
                if *replaces
                    && placement.rule.is_none()
                    && refusal.is_invalid()
                    && remote.accepts(desired.to_create()).await? =>
            {
                let is_deleted = self.counted("delete", remote.delete(object).await, |done| *done)?;
                if is_deleted {
                    let done = "deleted, to create it again because its server refuses the change,";
                    self.report_done("TargetReplaced", "Delete", done, placement)
                        .await;
                }
                (Written::Outdated, is_deleted)
            }
            written => (self.counted("update", written, is_done)?, false),
        };
        if write == Write::Adopt && is_done(&written) {
            self.report_done("TargetAdopted", "Adopt", "took over", placement)
                .await;
        }
        // The patch has only handed over the ownership of fields. The fields themselves follow.
        if hands_over && let Written::Done(object) = &written {
            written = remote.write(desired.first_apply(&value(object))).await?;
        }
        // A write that was refused because the object had changed is not counted as a repeated write.
        if is_deleted || is_done(&written) {
            writes.note(placement, desired, differing(&desired.object, &live));
        }
        Ok((stored(&remote, desired, written).await?, false))
    }

    /// Counts a write for the metrics.
    fn counted<A>(
        &self,
        verb: &'static str,
        written: Result<A, SyncError>,
        is_done: impl FnOnce(&A) -> bool,
    ) -> Result<A, SyncError> {
        let result = match &written {
            Ok(written) if is_done(written) => "done",
            Ok(_) => "conflict",
            Err(_) => "failed",
        };
        self.relation.memory.note_write(verb, result);
        written
    }

    /// Refuses a source whose kind has no status subresource, if the sync is to write a status. Runs before the first
    /// write to the source.
    async fn check_status(&self) -> Result<(), SyncError> {
        let Relation {
            status,
            condition,
            source,
            status_kinds,
            ..
        } = self.relation;
        let is_written = status.is_some() || condition.is_some();
        if is_written && status_kinds.is_missing(&self.request.cluster, source).await {
            return Err(SyncError::NoStatus(self.request.key.clone()));
        }
        Ok(())
    }

    async fn report_done(&self, reason: &str, action: &str, done: &str, placement: &Placement) {
        let RequestKey { cluster, object } = &placement.at;
        let (sync, source, kind) = (
            &*self.relation.name,
            &self.request.key,
            &self.resource(placement).kind,
        );
        tracing::info!(sync, %source, kind, "{done} {object} in cluster {cluster}");
        if placement.rule.is_none() {
            let note = format!("{done} {object} in cluster {cluster}");
            self.publish(EventType::Normal, reason, action, &note).await;
        }
    }

    /// Logs that a source was released because it has lost its labels. Nothing else shows that.
    fn report_unselected(&self) {
        let (sync, key, meta) = (&*self.relation.name, &self.request.key, self.meta());
        let lives_on = self.source.is_some() && meta.deletion_timestamp.is_none();
        if lives_on && !record::may_have_targets(sync, &meta) && !self.relation.has_labels(&meta) {
            tracing::info!(sync, source = %key, "released the source, which no longer has the labels that the sync selects");
        }
    }

    /// Reports the places that were removed from the record while their clusters were away: objects may still exist
    /// there.
    async fn report_abandoned(&self, view: &View, kept: &BTreeSet<RequestKey>) {
        for place in view.observed.recorded.difference(kept) {
            let target = Placement::target(place);
            if view.observed.objects.get(&target).map(|target| target.state) != Some(State::Abandoned) {
                continue;
            }
            // If the cluster comes back without a new list, no event reports the object. So the object is noted now.
            let store = self.request.fleet.get(&place.cluster).ok();
            let store =
                store.and_then(|cluster| cluster.store_of::<DynamicObject>(&self.watch(&target)).ok());
            if store.is_some_and(|store| matches!(store.get_unsynced(&place.object), Ok(Some(_)))) {
                self.relation
                    .memory
                    .note_claim(&self.request.key, place.clone(), true);
            }
            let RequestKey { cluster, object } = place;
            let note = format!(
                "gave up {object} in cluster {cluster}, which is away; if the object was made there, it stays when the cluster comes back"
            );
            let (sync, source) = (&*self.relation.name, &self.request.key);
            tracing::warn!(sync, %source, "{note}");
            self.publish(EventType::Warning, "TargetAbandoned", "Abandon", &note)
                .await;
        }
    }

    async fn write_placements(&mut self, places: Option<&BTreeSet<RequestKey>>) -> Result<(), SyncError> {
        let Some(source) = &self.source else { return Ok(()) };
        let marks = self.relation.source_labels.is_some();
        let patch = record::patch(&self.relation.name, source, places, marks);
        self.source = match self.source_remote()?.patch(patch).await? {
            // The last finalizer was removed, so the server has deleted the source.
            Written::Done(source) if places.is_none() && source.metadata.deletion_timestamp.is_some() => None,
            Written::Done(source) => {
                // No function of the user reads what the patch has changed.
                self.keep_decoded(&source.metadata);
                Some(source)
            }
            Written::Outdated => self.read_source().await?,
        };
        self.confirmed = true;
        Ok(())
    }
}

fn is_done(written: &Written) -> bool {
    matches!(written, Written::Done(_))
}

/// Awaits several futures concurrently, so that no object waits for another.
async fn at_once<F: Future>(work: Vec<F>) -> Vec<F::Output> {
    stream::iter(work).buffer_unordered(AT_ONCE).collect().await
}

/// Returns what the server has after a write. If the server has stored other values than were sent, the annotation
/// notes that.
async fn stored(
    remote: &Remote,
    desired: &Desired,
    mut written: Written,
) -> Result<Option<Arc<DynamicObject>>, SyncError> {
    if let Written::Done(stored) = &written
        && !desired.is_stored(stored)
        && let Some(change) = desired.to_note(&value(stored))?
    {
        written = remote.write(change).await?;
    }
    match written {
        Written::Done(object) => Ok(Some(object)),
        Written::Outdated => remote.get().await,
    }
}
