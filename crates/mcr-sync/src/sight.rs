//! What a reconcile sees: the source and its targets, from the stores first and from the servers before a write.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use kube::core::DynamicObject;
use mcr::{ClusterName, Request, RequestKey, StoreError};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    api::{Remote, Written, value},
    desired,
    error::SyncError,
    link::Ownership,
    plan::{Hold, Observed, SourceState, Step, TargetState},
    record,
    related::{Answers, is_copy},
    relation::{Relation, decode},
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
}

/// The desired state of one look at the source.
pub(crate) struct Look {
    pub(crate) observed: Observed<RequestKey>,
    pub(crate) desired: Option<Value>,
    pub(crate) objects: BTreeMap<RequestKey, DynamicObject>,
}

impl<S, T> Sight<'_, S, T>
where
    S: DeserializeOwned + Send + Sync,
    T: DeserializeOwned + Serialize + Send + Sync,
{
    pub(crate) fn meta(&self) -> kube::core::ObjectMeta {
        self.source
            .as_ref()
            .map(|source| source.metadata.clone())
            .unwrap_or_default()
    }

    pub(crate) async fn look(&self) -> Result<Look, SyncError> {
        let (relation, meta) = (self.relation, self.meta());
        let mut recorded = record::places(&relation.name, &meta);
        let (mut wanted, mut desired) = (BTreeSet::new(), None);
        let mut state = SourceState::Deleted;
        if let Some(source) = &self.source {
            let typed: S = decode("decoding", value(source))?;
            state = SourceState::Ending;
            if meta.deletion_timestamp.is_none() && relation.selects(source, &typed) {
                state = SourceState::Live;
                let (cluster, fleet) = (&self.request.cluster, &self.request.fleet);
                wanted = relation.wanted(&self.request.key, &typed, cluster, fleet)?;
                if !wanted.is_empty() {
                    let link = relation.link(&self.request.key);
                    desired = Some(desired::compose(relation.projected(&typed)?, &link));
                }
            }
        } else if let Some(last) = self.request.object.last_known() {
            recorded = record::places(&relation.name, &last.metadata);
        }
        let (mut targets, mut objects) = (BTreeMap::new(), BTreeMap::new());
        for place in recorded.union(&wanted) {
            let found = self.find(place).await?;
            let is_wanted = wanted.contains(place);
            targets.insert(
                place.clone(),
                self.state_of(place, found.as_ref(), is_wanted, desired.as_ref())?,
            );
            if let Some(Some(object)) = found {
                objects.insert(place.clone(), object);
            }
        }
        let observed = Observed {
            source: state,
            finalizer: record::has_finalizer(&relation.name, &meta),
            recorded,
            wanted,
            targets,
        };
        Ok(Look {
            observed,
            desired,
            objects,
        })
    }

    /// The object at a place. `None` if the cluster is away.
    async fn find(&self, place: &RequestKey) -> Result<Option<Option<DynamicObject>>, SyncError> {
        if self.failed.contains_key(place) {
            return Ok(None);
        }
        if let Some(live) = self.live.get(place) {
            return Ok(Some(live.clone()));
        }
        let Ok(cluster) = self.request.fleet.get(&place.cluster) else {
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

    fn state_of(
        &self,
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
            let adoptable = match &self.relation.adopt {
                // The target of another source has an owner, whatever the rule says about its contents.
                Some(adopt) if !desired::is_linked(&live) => adopt(&decode("rule for adoption", live)?),
                _ => false,
            };
            return Ok(TargetState::Foreign { adoptable });
        }
        let differs = match desired {
            Some(desired) if is_wanted => desired::to_patch(desired, &live)?.is_some(),
            _ => false,
        };
        let deleting = object.metadata.deletion_timestamp.is_some();
        Ok(TargetState::Ours { differs, deleting })
    }

    fn is_abandoned(&self, place: &RequestKey) -> bool {
        let meta = self.meta();
        let since = meta.deletion_timestamp.map(|at| SystemTime::from(at.0));
        let waited = since.and_then(|since| SystemTime::now().duration_since(since).ok());
        let is_over = waited
            .zip(self.relation.abandon_after)
            .is_some_and(|(waited, limit)| waited >= limit);
        is_over
            || self
                .source
                .as_ref()
                .is_some_and(|source| record::is_abandoned(&source.metadata, &place.cluster))
    }

    /// Asks the servers about all that the step depends on. Returns whether anything was asked.
    pub(crate) async fn confirm(
        &mut self,
        step: &Step<RequestKey>,
        observed: &Observed<RequestKey>,
    ) -> Result<bool, SyncError> {
        let mut asked = false;
        if !self.confirmed {
            self.source = self.refreshed().await?;
            (self.confirmed, asked) = (true, true);
        }
        let places: Vec<&RequestKey> = match step {
            Step::Create(place) | Step::Adopt(place) | Step::Update(place) | Step::Delete(place) => {
                vec![place]
            }
            Step::Forget(kept) => observed.recorded.difference(kept).collect(),
            Step::Release => observed.recorded.iter().collect(),
            Step::Claim(_) | Step::Rest(_) => Vec::new(),
        };
        for place in places {
            let is_abandoned = observed.targets.get(place) == Some(&TargetState::Abandoned);
            if !is_abandoned && !self.live.contains_key(place) {
                let found = self.remote(place)?.get().await?;
                self.live.insert(place.clone(), found);
                asked = true;
            }
        }
        Ok(asked)
    }

    /// The source as the server has it. Another object of its name is not this source.
    pub(crate) async fn refreshed(&self) -> Result<Option<DynamicObject>, SyncError> {
        let known = self.meta().uid;
        let found = self.own().get().await?;
        Ok(found.filter(|found| found.metadata.uid == known))
    }

    pub(crate) fn own(&self) -> Remote {
        Remote::new(
            &self.request.cluster,
            &self.relation.source,
            &self.request.key.object,
        )
    }

    pub(crate) fn remote(&self, place: &RequestKey) -> Result<Remote, SyncError> {
        let cluster = self.request.fleet.get(&place.cluster)?;
        Ok(Remote::new(&cluster, &self.relation.target, &place.object))
    }
}

/// What the server has after a write. Notes what it stored in place of what it was sent.
pub(crate) async fn settled(
    remote: &Remote,
    desired: &Value,
    mut written: Written,
) -> Result<Option<DynamicObject>, SyncError> {
    if let Written::Done(stored) = &written
        && let Some(patch) = desired::to_settle(desired, &value(stored))?
    {
        written = remote.patch(patch).await?;
    }
    match written {
        Written::Done(object) => Ok(Some(*object)),
        Written::Outdated => remote.get().await,
    }
}
