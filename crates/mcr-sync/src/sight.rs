//! What a reconcile sees: the source and its targets, from the stores first and from the servers before a write.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kube::core::{DynamicObject, ObjectMeta};
use mcr::{ClusterName, Request, RequestKey, StoreError};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    api::value,
    apply, desired,
    error::SyncError,
    functions::{call, decode},
    link::Ownership,
    plan::{Hold, HoldReason, Observed, SourceState, TargetState},
    record,
    related::{Answers, is_copy},
    relation::Relation,
    writes::Trouble,
};

pub(crate) type Holds = Vec<Hold<RequestKey>>;
pub(crate) type Targets = Vec<(ClusterName, DynamicObject)>;

/// What is known about one source and its targets during one reconcile.
pub(crate) struct Sight<'a, S, T> {
    pub(crate) relation: &'a Relation<S, T>,
    pub(crate) request: &'a Request<DynamicObject>,
    /// `None` if the source is gone.
    pub(crate) source: Option<DynamicObject>,
    /// Whether `source` is an answer of the server, and not of the store.
    pub(crate) confirmed: bool,
    /// The targets that the server was asked for.
    pub(crate) live: BTreeMap<RequestKey, Option<DynamicObject>>,
    /// The places where a step failed. Nothing is known of them any more, as of those that are away.
    pub(crate) failed: BTreeMap<RequestKey, SyncError>,
    /// What the servers were asked about related objects.
    pub(crate) related: Answers,
    /// The places where a creation was refused because an object has the name.
    pub(crate) taken: BTreeSet<RequestKey>,
    /// What was decoded and projected last, and the version of the source that it was made of.
    pub(crate) projected: Option<(Version, Projected<S>)>,
    /// The targets that are known, for the status of the source.
    pub(crate) targets: Targets,
    /// What keeps wanted targets from being as they should be, although their servers take each write.
    pub(crate) troubles: Vec<(RequestKey, Trouble)>,
    /// When objects that are written too often, or not stored as they were sent, are looked at again.
    pub(crate) waits: Vec<Duration>,
    /// When a place that is held up is looked at again.
    pub(crate) look_again: Option<Duration>,
}

/// The UID and the version of an object.
pub(crate) type Version = (Option<String>, Option<String>);

pub(crate) fn version(meta: &ObjectMeta) -> Version {
    (meta.uid.clone(), meta.resource_version.clone())
}

/// A source as its type, and its desired state, once that was needed.
pub(crate) struct Projected<S> {
    typed: S,
    /// Per target cluster if there are mutations, otherwise one for all.
    desired: BTreeMap<Option<ClusterName>, Arc<Value>>,
}

/// The desired state of one look at the source.
pub(crate) struct Look {
    pub(crate) observed: Observed<RequestKey>,
    /// Per wanted place whose cluster is not away.
    pub(crate) desired: BTreeMap<RequestKey, Arc<Value>>,
    pub(crate) objects: BTreeMap<RequestKey, DynamicObject>,
}

impl<S, T> Sight<'_, S, T> {
    /// The source, or what was last known of it.
    pub(crate) fn last_known(&self) -> Option<&DynamicObject> {
        let last_known = || self.request.object.last_known().map(|object| &**object);
        self.source.as_ref().or_else(last_known)
    }
}

impl<S, T> Sight<'_, S, T>
where
    S: DeserializeOwned + Send + Sync,
    T: DeserializeOwned + Serialize + Send + Sync,
{
    pub(crate) fn meta(&self) -> ObjectMeta {
        self.source
            .as_ref()
            .map(|source| source.metadata.clone())
            .unwrap_or_default()
    }

    /// Decodes the source, unless this version of it is decoded already: each write is followed by another look.
    fn decoded(&mut self, source: &DynamicObject) -> Result<&mut Projected<S>, SyncError> {
        let now = version(&source.metadata);
        let known = self
            .projected
            .take()
            .filter(|(of, _)| *of == now && of.1.is_some());
        let projected = match known {
            Some((_, projected)) => projected,
            None => Projected {
                typed: decode("decoding", value(source))?,
                desired: BTreeMap::new(),
            },
        };
        Ok(&mut self.projected.insert((now, projected)).1)
    }

    /// The places in the record of the source.
    fn places(&self, meta: &ObjectMeta) -> Result<BTreeSet<RequestKey>, SyncError> {
        let sync = &self.relation.name;
        let (annotation, key) = (record::annotation(sync), self.request.key.clone());
        record::places(sync, meta).map_err(|name| SyncError::Annotation {
            annotation,
            key,
            name,
        })
    }

    pub(crate) async fn look(&mut self) -> Result<Look, SyncError> {
        let (relation, request, meta) = (self.relation, self.request, self.meta());
        self.troubles.clear();
        self.waits.clear();
        let mut recorded = self.places(&meta)?;
        let mut wanted = BTreeSet::new();
        let mut state = SourceState::Deleted;
        if let Some(source) = self.source.take() {
            // What is being deleted must go, whatever is in it.
            let is_live = meta.deletion_timestamp.is_none();
            let decoded = if is_live {
                self.decoded(&source).map(Some)
            } else {
                Ok(None)
            };
            let looked = decoded.and_then(|known| {
                let Some(known) = known else { return Ok(None) };
                if !relation.selects(&source, &known.typed)? {
                    return Ok(None);
                }
                let (key, cluster) = (&request.key, &request.cluster);
                relation
                    .wanted(key, &known.typed, cluster, &request.fleet)
                    .map(Some)
            });
            self.source = Some(source);
            state = SourceState::Ending;
            if let Some(looked) = looked? {
                state = SourceState::Live;
                wanted = looked;
            }
        } else if let Some(last) = self.request.object.last_known() {
            recorded = self.places(&last.metadata)?;
            // A target that was given up stays, also if its cluster is back before the source is seen as deleted.
            let stays = record::may_not_be_deleted(&relation.name, &last.metadata);
            recorded.retain(|place| !stays && !self.is_abandoned(place));
        }
        // A projection that fails is told also while all targets are away, and before anything is written to the source.
        if relation.mutations.is_empty()
            && let Some(first) = wanted.first()
            && let Err(error) = self.desired(None)
        {
            if !wanted.is_subset(&recorded) {
                return Err(error);
            }
            self.failed.insert(first.clone(), error);
        }
        let (mut targets, mut objects, mut desired) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut seen = BTreeSet::new();
        for place in recorded.union(&wanted) {
            let is_wanted = wanted.contains(place);
            let found = self.find(place, &wanted).await;
            let looked = found.and_then(|found| {
                let made = match &found {
                    Some(_) if is_wanted => self.desired(Some(&place.cluster))?,
                    _ => None,
                };
                self.note_away(place, found.is_none());
                let target = self.state_of(place, found.as_ref(), is_wanted, made.as_deref())?;
                Ok((target, made, found.flatten()))
            });
            let (target, made, object) = match looked {
                Ok(looked) => looked,
                // The other places must not wait for this one.
                Err(error) => {
                    self.failed.insert(place.clone(), error);
                    (self.state_of(place, None, is_wanted, None)?, None, None)
                }
            };
            if is_wanted && target == TargetState::Away && self.was_there(place) {
                seen.insert(place.clone());
            }
            targets.insert(place.clone(), target);
            desired.extend(made.map(|made| (place.clone(), made)));
            objects.extend(object.map(|object| (place.clone(), object)));
        }
        let observed = Observed {
            source: state,
            finalizer: record::has_finalizer(&relation.name, &meta),
            recorded,
            wanted,
            seen,
            targets,
        };
        Ok(Look {
            observed,
            desired,
            objects,
        })
    }

    /// The desired state in a target cluster. `None` if no source is decoded.
    fn desired(&mut self, cluster: Option<&ClusterName>) -> Result<Option<Arc<Value>>, SyncError> {
        let (relation, request) = (self.relation, self.request);
        let cluster = cluster.filter(|_| !relation.mutations.is_empty());
        let Some((_, known)) = &mut self.projected else {
            return Ok(None);
        };
        if let Some(made) = known.desired.get(&cluster.cloned()) {
            return Ok(Some(made.clone()));
        }
        let to = cluster.map(|name| request.fleet.get(name)).transpose()?;
        let projected = relation.projected(&known.typed, &request.cluster, to.as_ref())?;
        let made = Arc::new(desired::compose(projected, &relation.link(&request.key)));
        known.desired.insert(cluster.cloned(), made.clone());
        Ok(Some(made))
    }

    /// The objects that name the source, and are in none of its places. Their servers are asked, because the store may be older
    /// than a deletion in a former place.
    pub(crate) async fn claims(&mut self, observed: &Observed<RequestKey>) -> Holds {
        let (relation, request) = (self.relation, self.request);
        let (claims, key) = (&relation.claims, &request.key);
        let mut others = Vec::new();
        for (place, look) in claims.of(key) {
            if observed.recorded.contains(&place) || observed.wanted.contains(&place) {
                claims.remove(key, &place);
                continue;
            }
            let found = match self.remote(&place) {
                Ok(remote) => remote.get().await,
                Err(away) => Err(away),
            };
            // Nobody knows whether there is anything in a cluster that was given up, until it answers.
            if found.is_err() && self.is_abandoned(&place) {
                continue;
            }
            // Otherwise what the watch has told last counts without an answer.
            let found = found.map(|found| self.state_of(&place, Some(&found), false, None));
            match found {
                Ok(Ok(TargetState::Ours { deleting: false, .. })) | Err(_) => others.push(Hold {
                    place,
                    reason: HoldReason::Claimed,
                }),
                _ => claims.remove_unless_seen_since(key, &place, look),
            }
        }
        others
    }

    /// The targets in the wanted places that can be read, also where a step has failed.
    pub(crate) async fn known(&mut self, look: &Look) -> Targets {
        let mut targets = Targets::new();
        if self.relation.status.is_none() {
            return targets;
        }
        let failed = std::mem::take(&mut self.failed);
        let link = self.relation.link(&self.request.key);
        for place in &look.observed.wanted {
            let found = match look.objects.get(place) {
                Some(object) => Ok(Some(Some(object.clone()))),
                None => self.find(place, &look.observed.wanted).await,
            };
            let Ok(Some(Some(object))) = found else { continue };
            let ObjectMeta {
                labels, annotations, ..
            } = &object.metadata;
            let [labels, annotations] = [labels, annotations].map(|map| map.clone().unwrap_or_default());
            if link.owns(&labels, &annotations) != Ownership::Foreign && !is_copy(&object.metadata) {
                targets.push((place.cluster.clone(), object));
            }
        }
        self.failed = failed;
        targets
    }

    /// The object at a place. `None` if the cluster is away.
    async fn find(
        &self,
        place: &RequestKey,
        wanted: &BTreeSet<RequestKey>,
    ) -> Result<Option<Option<DynamicObject>>, SyncError> {
        // A former place under another name of its cluster. If it is wanted under the first name, there is nothing else in it.
        let first = self.cluster(&place.cluster).ok();
        let first = first.filter(|first| *first.name() != place.cluster && !wanted.contains(place));
        if let Some(first) = &first
            && wanted.contains(&place.in_cluster(first.name().clone()))
        {
            return Ok(Some(None));
        }
        if self.failed.contains_key(place) {
            return Ok(None);
        }
        if let Some(live) = self.live.get(place) {
            return Ok(Some(live.clone()));
        }
        let Some(cluster) = first.or_else(|| self.request.fleet.get(&place.cluster).ok()) else {
            return Ok(None);
        };
        if !cluster.state().is_ready() {
            return Ok(None);
        }
        let store = cluster.store_of::<DynamicObject>(&self.relation.target_watch());
        match store.and_then(|store| store.get(&place.object)) {
            Ok(found) => Ok(Some(found.map(|object| (*object).clone()))),
            // The cluster is no longer one of the targets' clusters, so nobody watches there.
            Err(StoreError::NotWatched { .. }) => self.remote(place)?.get().await.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Whether the target was at this place when it was last seen.
    fn was_there(&mut self, place: &RequestKey) -> bool {
        let last = self.live.get(place).cloned().or_else(|| {
            let cluster = self.request.fleet.get(&place.cluster).ok()?;
            let store = cluster
                .store_of::<DynamicObject>(&self.relation.target_watch())
                .ok()?;
            Some(store.get(&place.object).ok()?.map(|object| (*object).clone()))
        });
        let state = last.map(|last| self.state_of(place, Some(&last), false, None));
        matches!(state, Some(Ok(TargetState::Ours { deleting: false, .. })))
    }

    fn state_of(
        &mut self,
        place: &RequestKey,
        found: Option<&Option<DynamicObject>>,
        is_wanted: bool,
        desired: Option<&Value>,
    ) -> Result<TargetState, SyncError> {
        let object = match found {
            None if !is_wanted && self.is_abandoned(place) => return Ok(TargetState::Abandoned),
            None => return Ok(TargetState::Away),
            Some(None) => return Ok(TargetState::Absent),
            Some(Some(object)) => object,
        };
        let live = value(object);
        if is_copy(&object.metadata) {
            return Ok(TargetState::Foreign { adoptable: false });
        }
        if desired::ownership(&live, &self.relation.link(&self.request.key)) == Ownership::Foreign {
            // Only a creation that was refused shows that the name is taken.
            if is_wanted && !self.taken.contains(place) {
                return Ok(TargetState::Absent);
            }
            let adoptable = match &self.relation.adopt {
                // The target of another source has an owner, whatever the rule says about its contents.
                Some(adopt) if is_wanted && !desired::is_linked(&live) => {
                    let function = "rule for adoption";
                    let object = decode(function, live)?;
                    call(function, || adopt(&object))?
                }
                _ => false,
            };
            return Ok(TargetState::Foreign { adoptable });
        }
        let differs = match desired {
            Some(desired) if is_wanted => {
                let Relation {
                    mode, name, writes, ..
                } = self.relation;
                let differs = apply::to_write(*mode, name, desired, &live)?.is_some();
                let (is_due, trouble, wait) = writes.judge(place, desired, &live, differs);
                self.troubles
                    .extend(trouble.map(|trouble| (place.clone(), trouble)));
                self.waits.extend(wait);
                is_due
            }
            _ => false,
        };
        let deleting = object.metadata.deletion_timestamp.is_some();
        Ok(TargetState::Ours { differs, deleting })
    }

    /// Notes whether the deletion of the source waits for a cluster that is away.
    fn note_away(&self, place: &RequestKey, is_away: bool) {
        let Some(source) = self
            .source
            .as_ref()
            .filter(|_| self.relation.abandon_after.is_some())
        else {
            return;
        };
        let (away, key) = (&self.relation.away, &self.request.key);
        if source.metadata.deletion_timestamp.is_some() {
            let is_away = is_away && !self.failed.contains_key(place);
            away.note(key, &place.cluster, is_away);
        } else {
            // What waited was another source of this name.
            away.forget(key);
        }
    }

    /// The time until the next place that is away is given up. `None`: never.
    pub(crate) fn abandons_in(&self) -> Option<Duration> {
        let limit = self.relation.abandon_after?;
        let waited = self.relation.away.waited(&self.request.key).into_iter();
        waited.map(|waited| limit.saturating_sub(waited)).min()
    }

    fn is_abandoned(&self, place: &RequestKey) -> bool {
        let (away, key) = (&self.relation.away, &self.request.key);
        let limit = self.relation.abandon_after;
        limit.is_some_and(|limit| away.waited_for(key, &place.cluster) >= limit)
            || self
                .last_known()
                .is_some_and(|source| record::is_abandoned(&source.metadata, &place.cluster))
    }
}
