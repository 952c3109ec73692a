//! Carries out one step of the plan, if the servers still show what the step follows from.

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

/// What a server has, and whether that is another object: than was observed, or, after a creation, than is to be made.
type Found = (Option<Arc<DynamicObject>>, bool);

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
                    .map(|(placement, write)| self.written(placement, *write, view));
                let written = at_once(written.collect()).await;
                // After a deletion, or instead of one, the source is read anew.
                self.confirmed &= !writes.iter().any(|(_, write)| *write == Write::Delete);
                for (placement, found) in written {
                    match found {
                        Ok((found, is_taken)) => {
                            // The server refuses the name a second time, and shows no object.
                            let is_again = is_taken && !self.taken.insert(placement.clone());
                            if is_again && found.is_none() {
                                let error = SyncError::Hidden(placement.at.clone());
                                self.fail(self.place_of(placement, view), error)?;
                                continue;
                            }
                            self.of_lists.remove(placement);
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

    /// The place that an object belongs to. A copy of no known place stands for itself.
    pub(crate) fn place_of(&self, placement: &Placement, view: &View) -> RequestKey {
        let object = view.observed.objects.get(placement);
        object
            .and_then(|object| object.of.as_ref())
            .unwrap_or(&placement.at)
            .clone()
    }

    /// Notes that something failed at a place: the other places must not wait for it.
    pub(crate) fn fail(&mut self, place: RequestKey, error: SyncError) -> Result<(), SyncError> {
        if matches!(error, SyncError::Replaced(_)) {
            return Err(error);
        }
        self.failed.insert(place, error);
        Ok(())
    }

    /// Asks the servers about the source, and about all that the step depends on. Returns whether all is as it was observed.
    async fn confirm(&mut self, step: &Step, view: &View) -> Result<bool, SyncError> {
        let (observed, mut targets, mut selections) = (&view.observed, BTreeSet::new(), BTreeSet::new());
        match step {
            // An object that is written is asked for with the write. A copy depends on its target and its origins.
            Decision::Write(writes) => {
                for (placement, _) in writes {
                    let Some(rule) = placement.rule else { continue };
                    let wanted = observed.objects.get(placement).filter(|object| object.wanted);
                    let of = wanted.and_then(|object| object.of.clone());
                    // An origin of any place may have a copy that is to go.
                    let places = of.map_or_else(|| observed.wanted.clone(), |place| [place].into());
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
            // The patch names the version of the source, so its answer confirms it.
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
        let asked = targets.iter().map(|target| self.asked(target, view)).collect();
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
        // After its places: what was read there is then of this source, and not of another one that took its name meanwhile.
        if !self.confirmed {
            let before = self.source.as_ref().map(|source| version(&source.metadata));
            self.source = self.refreshed().await?;
            self.confirmed = true;
            is_same &= before == self.source.as_ref().map(|source| version(&source.metadata));
        }
        Ok(is_same)
    }

    async fn asked<'b>(
        &self,
        target: &'b Placement,
        view: &View,
    ) -> (&'b Placement, Result<Found, SyncError>) {
        (target, self.ask(target, view).await)
    }

    /// What the server has, and whether that is something else than was observed.
    async fn ask(&self, placement: &Placement, view: &View) -> Result<Found, SyncError> {
        if let Some(live) = self.live.get(placement)
            && !self.of_lists.contains(placement)
        {
            return Ok((live.clone(), false));
        }
        let found = self.remote(placement)?.get().await?;
        let of = |object: Option<&Arc<DynamicObject>>| object.map(|object| version(&object.metadata));
        // An absent object is only known as such if the store had listed the cluster.
        let state = view.observed.objects.get(placement).map(|object| object.state);
        let is_other = state == Some(State::Away) || of(found.as_ref()) != of(view.found.get(placement));
        Ok((found, is_other))
    }

    /// The source as the server has it. Another object of its name is not this source, and may have its targets by now.
    pub(crate) async fn refreshed(&self) -> Result<Option<Arc<DynamicObject>>, SyncError> {
        let known = self.last_known().and_then(|known| known.metadata.uid.clone());
        let found = self.own()?.get().await?;
        if found.as_ref().is_some_and(|found| found.metadata.uid != known) {
            return Err(SyncError::Replaced(self.request.key.clone()));
        }
        Ok(found)
    }

    async fn written<'b>(
        &self,
        placement: &'b Placement,
        write: Write,
        view: &View,
    ) -> (&'b Placement, Result<Found, SyncError>) {
        (placement, self.write(placement, write, view).await)
    }

    /// Writes one object, if its server has it as it was observed. Returns what the server has then.
    async fn write(&self, placement: &Placement, write: Write, view: &View) -> Result<Found, SyncError> {
        let Relation {
            name,
            writes,
            replaces,
            ..
        } = self.relation;
        let mode = self.relation.mode(placement.rule);
        let (remote, desired) = (self.remote(placement)?, view.desired.get(placement));
        if write == Write::Create {
            // The server refuses a creation if there is an object.
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
        // A merge patch names the version that was observed, so an older one changes nothing. Server-side apply reads `managedFields`, which
        // the store does not have.
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
            // The source may want this one again since it was asked for, and so may another object of its name.
            let of = |source: Option<&Arc<DynamicObject>>| source.map(|source| version(&source.metadata));
            if of(self.refreshed().await?.as_ref()) != of(self.source.as_ref()) {
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
                    let done = "deleted, to make it anew because its server refuses the change,";
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
        // No field was written so far, so what is stored may be somebody else's.
        if hands_over && let Written::Done(object) = &written {
            written = remote.write(desired.first_apply(&value(object))).await?;
        }
        // What is refused because the object has changed meanwhile is no write, so no part of a fight.
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

    /// Refuses a source that can't have the status which the sync is to write. Nothing is written to it before.
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

    /// Reports why a source that lives on was released, if that follows from its labels: nothing else shows it.
    fn report_unselected(&self) {
        let (sync, key, meta) = (&*self.relation.name, &self.request.key, self.meta());
        let lives_on = self.source.is_some() && meta.deletion_timestamp.is_none();
        if lives_on && !record::may_have_targets(sync, &meta) && !self.relation.has_labels(&meta) {
            tracing::info!(sync, source = %key, "released the source, which no longer has the labels that the sync selects");
        }
    }

    /// Reports which places left the source although their objects may exist.
    async fn report_abandoned(&self, view: &View, kept: &BTreeSet<RequestKey>) {
        for place in view.observed.recorded.difference(kept) {
            let target = Placement::target(place);
            if view.observed.objects.get(&target).map(|target| target.state) != Some(State::Abandoned) {
                continue;
            }
            // No event reports that a cluster still has the object when it is back without a new list.
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
        self.source = match self.own()?.patch(patch).await? {
            // The last finalizer is gone, and the source with it.
            Written::Done(source) if places.is_none() && source.metadata.deletion_timestamp.is_some() => None,
            Written::Done(source) => {
                // The patch has changed nothing that a function of the user reads.
                self.keep_decoded(&source.metadata);
                Some(source)
            }
            Written::Outdated => self.refreshed().await?,
        };
        self.confirmed = true;
        Ok(())
    }
}

fn is_done(written: &Written) -> bool {
    matches!(written, Written::Done(_))
}

/// Works for several objects at once, so that none waits for another.
async fn at_once<F: Future>(work: Vec<F>) -> Vec<F::Output> {
    stream::iter(work).buffer_unordered(AT_ONCE).collect().await
}

/// What the server has after a write. Notes what it stored in place of what it was sent.
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
