//! The requests of a reconcile: about what a step depends on, and what a write has left.

use futures::{StreamExt, stream};
use kube::core::{ApiResource, DynamicObject};
use mcr::{Cluster, ClusterName, ObjectKey, RequestKey};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    api::{self, Remote, Written, value},
    apply::{self, Mode},
    error::SyncError,
    plan::{Step, TargetState},
    relation::first_name,
    sight::{Look, Sight, version},
    silent::LIST,
};

/// At how many places one reconcile works at once.
const PLACES_AT_ONCE: usize = 16;

/// What a server has at a place, and whether that is something else than was looked at.
pub(crate) type Found = (Option<DynamicObject>, bool);

impl<S, T> Sight<'_, S, T>
where
    S: DeserializeOwned + Send + Sync,
    T: DeserializeOwned + Serialize + Send + Sync,
{
    /// Asks the servers about the source, and about all places that the steps depend on. Returns whether all is as it was looked at.
    pub(crate) async fn confirm(
        &mut self,
        steps: &[Step<RequestKey>],
        look: &Look,
    ) -> Result<bool, SyncError> {
        let observed = &look.observed;
        let mut is_same = true;
        let places = steps.iter().flat_map(|step| match step {
            Step::Forget(kept) => observed.recorded.difference(kept).collect(),
            Step::Release => observed.recorded.iter().collect(),
            // A place that is written to is asked with the write.
            _ => Vec::new(),
        });
        let places = places.filter(|place| observed.targets.get(place) != Some(&TargetState::Abandoned));
        let asked: Vec<_> = places.map(|place| self.asked(place, look)).collect();
        for (place, found) in at_once(asked).await {
            match found {
                Ok((found, is_other)) => {
                    is_same &= !is_other;
                    self.live.insert(place, found);
                }
                Err(error) => {
                    is_same = false;
                    self.failed.insert(place, error);
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

    /// What the server has at a place, and whether that is something else than was looked at.
    pub(crate) async fn ask(&self, place: &RequestKey, look: &Look) -> Result<Found, SyncError> {
        if let Some(live) = self.live.get(place) {
            return Ok((live.clone(), false));
        }
        let found = self.remote(place)?.get().await?;
        let of = |object: Option<&DynamicObject>| object.map(|object| version(&object.metadata));
        // An absent target is only known as such if the store had listed the cluster.
        let was_away = look.observed.targets.get(place) == Some(&TargetState::Away);
        let is_other = was_away || of(found.as_ref()) != of(look.objects.get(place));
        Ok((found, is_other))
    }

    async fn asked(&self, place: &RequestKey, look: &Look) -> (RequestKey, Result<Found, SyncError>) {
        (place.clone(), self.ask(place, look).await)
    }

    /// The source as the server has it. Another object of its name is not this source, and may have its targets by now.
    pub(crate) async fn refreshed(&self) -> Result<Option<DynamicObject>, SyncError> {
        let known = self.last_known().and_then(|known| known.metadata.uid.clone());
        let found = self.own()?.get().await?;
        if found.as_ref().is_some_and(|found| found.metadata.uid != known) {
            return Err(SyncError::Replaced(self.request.key.clone()));
        }
        Ok(found)
    }

    pub(crate) fn own(&self) -> Result<Remote, SyncError> {
        Remote::new(
            &self.request.cluster,
            &self.relation.source,
            &self.request.key.object,
        )
    }

    /// The cluster of this name. If it waits as another name of a cluster, that one, which has the same objects.
    pub(crate) fn cluster(&self, name: &ClusterName) -> Result<Cluster, SyncError> {
        let (own, fleet) = (&self.request.cluster, &self.request.fleet);
        if name == own.name() {
            return Ok(own.clone());
        }
        let cluster = fleet.get(name)?;
        Ok(first_name(fleet, &cluster).unwrap_or(cluster))
    }

    pub(crate) fn remote(&self, place: &RequestKey) -> Result<Remote, SyncError> {
        let cluster = self.cluster(&place.cluster)?;
        let manager = apply::manager(&self.relation.name);
        let remote = self.bounded(Remote::new(&cluster, &self.relation.target, &place.object)?);
        Ok(remote.managed_by(manager, self.relation.mode.is_some()))
    }

    /// Bounds how many reconciles wait for a cluster that does not answer. That of the source holds its own sources only.
    pub(crate) fn bounded(&self, remote: Remote) -> Remote {
        let cluster = remote.key.cluster.clone();
        if cluster == *self.request.cluster.name() {
            return remote;
        }
        remote.bounded_by(self.relation.silent.of(&cluster))
    }

    /// Lists objects in a cluster.
    pub(crate) async fn list(
        &self,
        cluster: &Cluster,
        resource: &ApiResource,
        namespace: Option<&str>,
        labels: Option<&str>,
    ) -> Result<Vec<DynamicObject>, SyncError> {
        let listed = api::list(cluster, resource, namespace, labels);
        if cluster.name() == self.request.cluster.name() {
            return listed.await;
        }
        let listed = self
            .relation
            .silent
            .of(cluster.name())
            .ask(LIST, false, Result::is_ok, listed)
            .await;
        let what = || {
            RequestKey::new(
                cluster.name().clone(),
                ObjectKey::cluster_scoped(&*resource.plural),
            )
        };
        listed.unwrap_or_else(|| Err(SyncError::NoAnswer(what())))
    }
}

/// Runs the work at several places at once, so that none waits for another.
pub(crate) async fn at_once<F: Future>(work: Vec<F>) -> Vec<F::Output> {
    stream::iter(work)
        .buffer_unordered(PLACES_AT_ONCE)
        .collect()
        .await
}

/// What the server has after a write. Notes what it stored in place of what it was sent.
pub(crate) async fn settled(
    mode: Mode,
    remote: &Remote,
    desired: &Value,
    mut written: Written,
) -> Result<Option<DynamicObject>, SyncError> {
    if let Written::Done(stored) = &written
        && let Some(write) = apply::to_settle(mode, desired, &value(stored))?
    {
        written = remote.write(write).await?;
    }
    match written {
        Written::Done(object) => Ok(Some(*object)),
        Written::Outdated => remote.get().await,
    }
}
