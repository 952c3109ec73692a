//! One pass over a source: what is observed of it, of its targets and of its copies. First from the stores; before a
//! write, from the servers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kube::core::{DynamicObject, ObjectMeta};
use mcr::{ClusterName, Request, RequestKey};

use crate::{
    api::value,
    desired::Desired,
    error::SyncError,
    fields::dropped,
    functions::{call, decode},
    link::is_linked,
    placement::{Found, Placement},
    plan::{Object, Observed, Role, SourceState, State},
    record,
    related::{Note, Scope, Selected, Way, copy, is_copy},
    relation::{Relation, SourceKind, TargetKind},
    writes::Trouble,
};

/// The UID and the version of an object.
pub(crate) type Version = (Option<String>, Option<String>);

pub(crate) fn version(meta: &ObjectMeta) -> Version {
    (meta.uid.clone(), meta.resource_version.clone())
}

/// A source as its type, and its desired state once a step has needed it.
pub(crate) struct Decoded<S> {
    pub(crate) typed: S,
    /// One for each target cluster if there are mutations, otherwise one for all of them.
    desired: BTreeMap<Option<ClusterName>, Arc<Desired>>,
}

/// What is known about one source during one reconcile.
pub(crate) struct Pass<'a, S, T> {
    pub(crate) relation: &'a Relation<S, T>,
    pub(crate) request: &'a Request<DynamicObject>,
    /// `None` if the source is gone.
    pub(crate) source: Option<Arc<DynamicObject>>,
    /// Whether `source` was read from the server, not from the store.
    pub(crate) confirmed: bool,
    /// The result of the last decoding and projection, and the version of the source that it was made from.
    decoded: Option<(Version, Decoded<S>)>,
    /// The objects that servers have returned.
    pub(crate) live: BTreeMap<Placement, Option<Arc<DynamicObject>>>,
    /// The entries of `live` that are from lists, which may be outdated by now.
    pub(crate) from_lists: BTreeSet<Placement>,
    /// The origins of copies as servers have them: by rule and selection. Several places may share an entry.
    pub(crate) origins: BTreeMap<(usize, Scope, Selected), Vec<Arc<DynamicObject>>>,
    /// The places whose copies were listed on the servers, and whether the list included the copies beside the target.
    pub(crate) listed: BTreeMap<RequestKey, bool>,
    /// Where a creation was refused because the name is taken.
    pub(crate) taken: BTreeSet<Placement>,
    /// The error that stopped the work at a place. For a copy whose place is unknown, the key is the key of the copy.
    /// The work at other places continues.
    pub(crate) failed: BTreeMap<RequestKey, SyncError>,
    /// Why objects are not up to date although their servers accept each write.
    pub(crate) troubles: Vec<(Placement, Trouble)>,
    /// When to observe objects again that are written too often, or that are not stored as they were sent.
    pub(crate) waits: Vec<Duration>,
}

/// What was observed of the source and its objects, from stores and servers.
pub(crate) struct View {
    pub(crate) observed: Observed<RequestKey, Placement>,
    /// The desired state of each wanted object in a cluster that is not away.
    pub(crate) desired: BTreeMap<Placement, Arc<Desired>>,
    pub(crate) found: BTreeMap<Placement, Arc<DynamicObject>>,
    /// The selections of origins, by rule and place.
    pub(crate) selected: BTreeMap<(usize, RequestKey), Selected>,
    /// The origins that can't be copied now.
    pub(crate) notes: Vec<Note>,
}

impl<'a, S, T> Pass<'a, S, T> {
    pub(crate) fn new(
        relation: &'a Relation<S, T>,
        request: &'a Request<DynamicObject>,
        source: Option<Arc<DynamicObject>>,
    ) -> Self {
        Self {
            relation,
            request,
            confirmed: source.is_none(),
            source,
            decoded: None,
            live: BTreeMap::new(),
            from_lists: BTreeSet::new(),
            origins: BTreeMap::new(),
            listed: BTreeMap::new(),
            taken: BTreeSet::new(),
            failed: BTreeMap::new(),
            troubles: Vec::new(),
            waits: Vec::new(),
        }
    }

    /// The source, or its last known state if it is gone.
    pub(crate) fn last_known(&self) -> Option<&DynamicObject> {
        let last_known = || self.request.object.last_known().map(|object| &**object);
        self.source.as_deref().or_else(last_known)
    }

    pub(crate) fn meta(&self) -> ObjectMeta {
        let source = self.source.as_ref();
        source.map(|source| source.metadata.clone()).unwrap_or_default()
    }
}

impl<S: SourceKind, T: TargetKind> Pass<'_, S, T> {
    /// Decodes the source, unless this version is decoded already. A source is observed again after each write.
    pub(crate) fn decoded(&mut self) -> Result<Option<&mut Decoded<S>>, SyncError> {
        let Some(source) = &self.source else {
            return Ok(None);
        };
        let now = version(&source.metadata);
        if self
            .decoded
            .as_ref()
            .is_none_or(|(of, _)| *of != now || of.1.is_none())
        {
            let typed = decode("decoding", value(source))?;
            let desired = BTreeMap::new();
            self.decoded = Some((now, Decoded { typed, desired }));
        }
        Ok(self.decoded.as_mut().map(|(_, decoded)| decoded))
    }

    /// Keeps the decoded source for a new version that differs in nothing that was decoded.
    pub(crate) fn keep_decoded(&mut self, now: &ObjectMeta) {
        let before = self.source.as_ref().map(|source| version(&source.metadata));
        if let Some((of, _)) = &mut self.decoded
            && Some(&*of) == before.as_ref()
        {
            *of = version(now);
        }
    }

    /// The places in the record of a source.
    fn places(&self, meta: &ObjectMeta) -> Result<BTreeSet<RequestKey>, SyncError> {
        let sync = &self.relation.name;
        let failed = |name| SyncError::annotation(record::annotation(sync), self.request.key.clone(), name);
        record::places(sync, meta).map_err(failed)
    }

    /// The places where a target shall be. `None` if all targets of the source are to be deleted.
    fn wanted(&mut self, meta: &ObjectMeta) -> Result<Option<BTreeSet<RequestKey>>, SyncError> {
        let (relation, request) = (self.relation, self.request);
        // The targets must be deleted even if the source can't be decoded.
        if relation.must_delete_targets(meta) {
            return Ok(None);
        }
        let Some(Decoded { typed, .. }) = self.decoded()? else {
            return Ok(None);
        };
        if !relation.selects(meta, typed)? {
            return Ok(None);
        }
        let wanted = relation.wanted(&request.key, typed, &request.cluster, &request.fleet);
        wanted.map(Some)
    }

    /// Observes the source, its targets and its copies.
    pub(crate) async fn observe(&mut self) -> Result<View, SyncError> {
        let (relation, meta) = (self.relation, self.meta());
        self.troubles.clear();
        self.waits.clear();
        let mut recorded = self.places(&meta)?;
        let wanted = self.wanted(&meta)?;
        let source = match (&self.source, &wanted) {
            (None, _) => SourceState::Deleted,
            (Some(_), None) => SourceState::Ending,
            (Some(_), Some(_)) => SourceState::Live,
        };
        if source == SourceState::Deleted
            && let Some(last) = self.request.object.last_known()
        {
            recorded = self.places(&last.metadata)?;
            // A target that was given up stays, even if its cluster is back before the source is known to be deleted.
            let stays = record::cannot_have_been_deleted(&relation.name, &last.metadata);
            recorded.retain(|place| !stays && !self.is_abandoned(place));
        }
        let wanted = wanted.unwrap_or_default();
        // Projected here, so that an error is reported even while all targets are away, and before anything is written
        // to the source.
        if relation.mutations.is_empty()
            && let Some(first) = wanted.first()
            && let Err(error) = self.desired(None)
        {
            if !wanted.is_subset(&recorded) {
                return Err(error);
            }
            self.failed.insert(first.clone(), error);
        }
        let all = Vec::from_iter(recorded.union(&wanted).cloned());
        let mut view = View {
            observed: Observed {
                source,
                finalizer: record::has_finalizer(&relation.name, &meta),
                recorded,
                wanted,
                objects: BTreeMap::new(),
                uncertain: BTreeSet::new(),
                incomplete: false,
                listed: BTreeSet::new(),
            },
            desired: BTreeMap::new(),
            found: BTreeMap::new(),
            selected: BTreeMap::new(),
            notes: Vec::new(),
        };
        for place in all {
            self.observe_target(place, &mut view).await?;
        }
        for rule in 0..relation.related.len() {
            self.observe_copies(rule, &mut view).await?;
        }
        let Observed {
            recorded, objects, ..
        } = &view.observed;
        let is_given_up = |place: &RequestKey| {
            let target = objects.get(&Placement::target(place));
            target.is_some_and(|target| target.state == State::Abandoned)
        };
        // If the target is no longer given up, because its cluster is back, the copies beside it are not listed yet.
        let is_listed = |place: &&RequestKey| match self.listed.get(*place) {
            Some(beside_target) => *beside_target || is_given_up(place),
            None => relation.related.is_empty(),
        };
        view.observed.listed = recorded.iter().filter(is_listed).cloned().collect();
        view.observed.incomplete = !view.notes.is_empty();
        Ok(view)
    }

    async fn observe_target(&mut self, place: RequestKey, view: &mut View) -> Result<(), SyncError> {
        let placement = Placement::target(&place);
        let wanted = view.observed.wanted.contains(&place);
        let (found, error) = match self.find(&placement, &view.observed.wanted).await {
            Ok(found) => (found, None),
            Err(error) => (Found::Unknown, Some(error)),
        };
        let has_failed = self.failed.contains_key(&place);
        let known = if has_failed { &Found::Unknown } else { &found };
        let desired = match (error, known) {
            (Some(error), _) => Err(error),
            (None, known) if wanted && !known.is_unknown() => self.desired(Some(&place.cluster)),
            _ => Ok(None),
        };
        self.note_away(&place, found.is_unknown() && !has_failed && desired.is_ok());
        let state = desired.and_then(|desired| {
            let state = self.state_of(&placement, known, wanted, desired.as_deref())?;
            Ok((state, desired))
        });
        let (state, desired) = match state {
            Ok(known) => known,
            Err(error) => {
                self.failed.insert(place.clone(), error);
                (self.state_of(&placement, &Found::Unknown, wanted, None)?, None)
            }
        };
        // Kept even if a step has failed, because the status is made from it.
        let found = found.object();
        let seen = wanted && state == State::Away && self.was_there(&placement)?;
        view.desired
            .extend(desired.map(|desired| (placement.clone(), desired)));
        view.found.extend(found.map(|found| (placement.clone(), found)));
        let object = Object {
            role: Role::Target,
            place: Some(place),
            wanted,
            state,
            seen,
        };
        view.observed.objects.insert(placement, object);
        Ok(())
    }

    /// Observes the copies of a rule: those that shall exist, and those that do exist.
    async fn observe_copies(&mut self, at: usize, view: &mut View) -> Result<(), SyncError> {
        let rule = &self.relation.related[at];
        let places = self.wanted_copies(at, view)?;
        let mut all: BTreeSet<_> = places.keys().cloned().collect();
        all.extend(
            rule.index
                .copies(&self.request.key)
                .into_iter()
                .map(|key| Placement::copy(at, key)),
        );
        all.extend(self.live.keys().filter(|copy| copy.rule == Some(at)).cloned());
        for placement in all {
            let desired = view.desired.get(&placement).cloned();
            let (wanted, place) = (desired.is_some(), places.get(&placement));
            let found = self.find(&placement, &view.observed.wanted).await;
            let known = found.and_then(|found| {
                let state = self.state_of(&placement, &found, wanted, desired.as_deref())?;
                Ok((state, found.object()))
            });
            let (mut state, found) = match known {
                Ok(known) => known,
                Err(error) => {
                    self.failed.insert(place.unwrap_or(&placement.at).clone(), error);
                    (State::Away, None)
                }
            };
            let owner_place = place.cloned().or_else(|| {
                let cluster = match rule.way {
                    Way::Up => copy::origin_cluster(&found.as_ref()?.metadata)?,
                    Way::Down => placement.at.cluster.clone(),
                };
                let Observed { wanted, recorded, .. } = &view.observed;
                let place = wanted
                    .iter()
                    .chain(recorded)
                    .find(|place| place.cluster == cluster);
                // No place is in that cluster, so the copy is not wanted. It gets a place of its own.
                Some(place.cloned().unwrap_or_else(|| placement.at.in_cluster(cluster)))
            });
            let has_failed = [owner_place.as_ref(), Some(&placement.at)]
                .into_iter()
                .flatten()
                .any(|key| self.failed.contains_key(key));
            if has_failed {
                state = State::Away;
            }
            if !wanted && rule.way == Way::Up && self.is_abandoned(&self.request.key) {
                state = State::Abandoned;
            }
            if wanted || has_failed || matches!(state, State::Ours { .. }) {
                let role = match rule.way {
                    Way::Up => Role::Up,
                    Way::Down => Role::Down,
                };
                view.found.extend(found.map(|found| (placement.clone(), found)));
                view.observed.objects.insert(
                    placement,
                    Object {
                        role,
                        place: owner_place,
                        wanted,
                        state,
                        seen: false,
                    },
                );
            }
        }
        Ok(())
    }

    /// The desired state in a target cluster. `None` if the source is gone.
    fn desired(&mut self, cluster: Option<&ClusterName>) -> Result<Option<Arc<Desired>>, SyncError> {
        let (relation, request) = (self.relation, self.request);
        let cluster = cluster.filter(|_| !relation.mutations.is_empty());
        let Some(decoded) = self.decoded()? else {
            return Ok(None);
        };
        if let Some(desired) = decoded.desired.get(&cluster.cloned()) {
            return Ok(Some(desired.clone()));
        }
        let to = cluster.map(|name| request.fleet.get(name)).transpose()?;
        let projected = relation.projected(&decoded.typed, &request.cluster, to.as_ref())?;
        let (link, mode) = (relation.link(&request.key), relation.mode(None));
        let desired = Arc::new(Desired::new(projected, &link, [None, None], mode)?);
        decoded.desired.insert(cluster.cloned(), desired.clone());
        Ok(Some(desired))
    }

    pub(crate) fn state_of(
        &mut self,
        placement: &Placement,
        found: &Found,
        wanted: bool,
        desired: Option<&Desired>,
    ) -> Result<State, SyncError> {
        let object = match found {
            Found::Unknown if !wanted && placement.rule.is_none() && self.is_abandoned(&placement.at) => {
                return Ok(State::Abandoned);
            }
            Found::Unknown => return Ok(State::Away),
            Found::Absent => return Ok(State::Absent),
            Found::Object(object) => object,
        };
        let meta = &object.metadata;
        if !self.owns(placement, meta) {
            // A name counts as taken only after the server has refused a creation.
            if wanted && !self.taken.contains(placement) {
                return Ok(State::Absent);
            }
            let adoptable = match &self.relation.adopt {
                // The object of another source is never adopted, even if the rule allows it.
                Some(adopt) if wanted && placement.rule.is_none() && !is_linked(meta) && !is_copy(meta) => {
                    let function = "rule for adoption";
                    let object = decode(function, value(object))?;
                    call(function, || adopt(&object))?
                }
                _ => false,
            };
            return Ok(State::Foreign { adoptable });
        }
        let differs = match desired {
            Some(desired) if wanted => {
                let (Relation { name, writes, .. }, mut live) = (self.relation, None);
                let is_stored = desired.is_stored(object);
                let differs = !is_stored && desired.to_write(name, live.insert(value(object)))?.is_some();
                let dropped = || live.map_or_else(Vec::new, |live| dropped(&desired.object, &live));
                let (is_due, trouble, wait) = writes.judge(placement, desired, differs, dropped);
                self.troubles
                    .extend(trouble.map(|trouble| (placement.clone(), trouble)));
                self.waits.extend(wait);
                is_due
            }
            _ => false,
        };
        let deleting = meta.deletion_timestamp.is_some();
        Ok(State::Ours { differs, deleting })
    }

    /// Notes for `abandon_after` whether the deletion of the source waits for a cluster that is away.
    fn note_away(&self, place: &RequestKey, is_away: bool) {
        let has_limit = |_: &&DynamicObject| self.relation.abandon_after.is_some();
        let Some(source) = self.source.as_deref().filter(has_limit) else {
            return;
        };
        let (memory, key) = (&self.relation.memory, &self.request.key);
        // If the source is not being deleted, the noted time is from an earlier source of the same name, and is
        // removed.
        let is_ending = source.metadata.deletion_timestamp.is_some();
        memory.note_away(key, &place.cluster, is_ending && is_away);
    }

    pub(crate) fn is_abandoned(&self, place: &RequestKey) -> bool {
        let limit = self.relation.abandon_after;
        limit.is_some_and(|limit| self.relation.memory.waited_for(&self.request.key, &place.cluster) >= limit)
            || self
                .last_known()
                .is_some_and(|source| record::is_abandoned(&source.metadata, &place.cluster))
    }
}
