//! One pass over a source: what is observed of it, of its targets and of its copies. The stores come first, and the servers before a
//! write.

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

/// A source as its type, and its desired state, once that was needed.
pub(crate) struct Decoded<S> {
    pub(crate) typed: S,
    /// Per target cluster if there are mutations, otherwise one for all.
    desired: BTreeMap<Option<ClusterName>, Arc<Desired>>,
}

/// What is known about one source during one reconcile.
pub(crate) struct Pass<'a, S, T> {
    pub(crate) relation: &'a Relation<S, T>,
    pub(crate) request: &'a Request<DynamicObject>,
    /// `None` if the source is gone.
    pub(crate) source: Option<Arc<DynamicObject>>,
    /// Whether `source` is an answer of the server, and not of the store.
    pub(crate) confirmed: bool,
    /// What was decoded and projected last, and the version of the source that it was made of.
    decoded: Option<(Version, Decoded<S>)>,
    /// What servers have answered.
    pub(crate) live: BTreeMap<Placement, Option<Arc<DynamicObject>>>,
    /// Those of these answers that are of a list, which may be older by now.
    pub(crate) of_lists: BTreeSet<Placement>,
    /// The origins of copies as servers have them: by rule, and by what was asked for. Places may have the same.
    pub(crate) origins: BTreeMap<(usize, Scope, Selected), Vec<Arc<DynamicObject>>>,
    /// The places whose copies the servers were asked for, and whether those beside the target were among them.
    pub(crate) listed: BTreeMap<RequestKey, bool>,
    /// Where a creation was refused because an object has the name.
    pub(crate) taken: BTreeSet<Placement>,
    /// By place, or by the copy if nobody knows its place: why nothing more is done there. The other places do not wait for it.
    pub(crate) failed: BTreeMap<RequestKey, SyncError>,
    /// What keeps objects from being as they should be, although their servers take each write.
    pub(crate) troubles: Vec<(Placement, Trouble)>,
    /// When objects that are written too often, or not stored as they were sent, are observed again.
    pub(crate) waits: Vec<Duration>,
}

/// What was observed of the source, in the stores and in the answers.
pub(crate) struct View {
    pub(crate) observed: Observed<RequestKey, Placement>,
    /// The desired state of each wanted object whose cluster is not away.
    pub(crate) desired: BTreeMap<Placement, Arc<Desired>>,
    pub(crate) found: BTreeMap<Placement, Arc<DynamicObject>>,
    /// Per rule and place: the origins of copies.
    pub(crate) selected: BTreeMap<(usize, RequestKey), Selected>,
    /// What is wrong with origins.
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
            of_lists: BTreeSet::new(),
            origins: BTreeMap::new(),
            listed: BTreeMap::new(),
            taken: BTreeSet::new(),
            failed: BTreeMap::new(),
            troubles: Vec::new(),
            waits: Vec::new(),
        }
    }

    /// The source, or what was last known of it.
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
    /// Decodes the source, unless this version of it is decoded already: it is observed again after each write.
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

    /// What was decoded holds for this version of the source, too.
    pub(crate) fn keep_decoded(&mut self, now: &ObjectMeta) {
        let before = self.source.as_ref().map(|source| version(&source.metadata));
        if let Some((of, _)) = &mut self.decoded
            && Some(&*of) == before.as_ref()
        {
            *of = version(now);
        }
    }

    /// The places in the annotation of a source.
    fn places(&self, meta: &ObjectMeta) -> Result<BTreeSet<RequestKey>, SyncError> {
        let sync = &self.relation.name;
        let failed = |name| SyncError::annotation(record::annotation(sync), self.request.key.clone(), name);
        record::places(sync, meta).map_err(failed)
    }

    /// The places where a target shall be. `None` if the targets of the source are to go.
    fn wanted(&mut self, meta: &ObjectMeta) -> Result<Option<BTreeSet<RequestKey>>, SyncError> {
        let (relation, request) = (self.relation, self.request);
        // The targets must go, also if the source can't be decoded.
        if relation.is_over(meta) {
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
            // A target that was given up stays, also if its cluster is back before the source is seen as deleted.
            let stays = record::may_not_be_deleted(&relation.name, &last.metadata);
            recorded.retain(|place| !stays && !self.is_abandoned(place));
        }
        let wanted = wanted.unwrap_or_default();
        // A projection that fails is reported also while all targets are away, and before anything is written to the source.
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
        // A cluster that was given up may be back meanwhile.
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
        // Also where a step has failed: the status is made of it.
        let found = found.object();
        let seen = wanted && state == State::Away && self.was_there(&placement)?;
        view.desired
            .extend(desired.map(|desired| (placement.clone(), desired)));
        view.found.extend(found.map(|found| (placement.clone(), found)));
        let object = Object {
            role: Role::Target,
            of: Some(place),
            wanted,
            state,
            seen,
        };
        view.observed.objects.insert(placement, object);
        Ok(())
    }

    /// Observes the copies of a rule: those that shall exist, and those that do.
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
            let of = place.cloned().or_else(|| {
                let cluster = match rule.way {
                    Way::Up => copy::origin_cluster(&found.as_ref()?.metadata)?,
                    Way::Down => placement.at.cluster.clone(),
                };
                let Observed { wanted, recorded, .. } = &view.observed;
                let place = wanted
                    .iter()
                    .chain(recorded)
                    .find(|place| place.cluster == cluster);
                // Nothing is placed there, so nobody wants it.
                Some(place.cloned().unwrap_or_else(|| placement.at.in_cluster(cluster)))
            });
            let has_failed = [of.as_ref(), Some(&placement.at)]
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
                        of,
                        wanted,
                        state,
                        seen: false,
                    },
                );
            }
        }
        Ok(())
    }

    /// The desired state in a target cluster. `None` if no source is decoded.
    fn desired(&mut self, cluster: Option<&ClusterName>) -> Result<Option<Arc<Desired>>, SyncError> {
        let (relation, request) = (self.relation, self.request);
        let cluster = cluster.filter(|_| !relation.mutations.is_empty());
        let Some(decoded) = self.decoded()? else {
            return Ok(None);
        };
        if let Some(made) = decoded.desired.get(&cluster.cloned()) {
            return Ok(Some(made.clone()));
        }
        let to = cluster.map(|name| request.fleet.get(name)).transpose()?;
        let projected = relation.projected(&decoded.typed, &request.cluster, to.as_ref())?;
        let (link, mode) = (relation.link(&request.key), relation.mode(None));
        let made = Arc::new(Desired::new(projected, &link, [None, None], mode)?);
        decoded.desired.insert(cluster.cloned(), made.clone());
        Ok(Some(made))
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
            // Only a creation that was refused shows that the name is taken.
            if wanted && !self.taken.contains(placement) {
                return Ok(State::Absent);
            }
            let adoptable = match &self.relation.adopt {
                // The object of another source has an owner, whatever the rule says about its contents.
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

    /// Notes whether the deletion of the source waits for a cluster that is away.
    fn note_away(&self, place: &RequestKey, is_away: bool) {
        let limited = |_: &&DynamicObject| self.relation.abandon_after.is_some();
        let Some(source) = self.source.as_deref().filter(limited) else {
            return;
        };
        let (memory, key) = (&self.relation.memory, &self.request.key);
        // Otherwise what waited was another source of this name.
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
