//! Where the objects of a source are: their clusters, stores and servers.

use std::collections::BTreeSet;

use kube::core::{ApiResource, DynamicObject, ObjectMeta};
use mcr::{Cluster, ClusterName, RequestKey, StoreError, WatchRequest};

use crate::{
    api::Remote,
    desired,
    error::SyncError,
    pass::Pass,
    placement::{Found, Placement},
    plan::State,
    related::{copy, is_copy},
    relation::{SourceKind, TargetKind, cluster_in_fleet},
};

impl<S: SourceKind, T: TargetKind> Pass<'_, S, T> {
    pub(crate) fn resource(&self, placement: &Placement) -> &ApiResource {
        match placement.rule {
            Some(rule) => &self.relation.related[rule].resource,
            None => &self.relation.target,
        }
    }

    pub(crate) fn watch(&self, placement: &Placement) -> WatchRequest {
        match placement.rule {
            Some(rule) => self.relation.related[rule].copy_watch(&self.relation.name),
            None => self.relation.target_watch(),
        }
    }

    /// Whether the object at this placement belongs to the source.
    pub(crate) fn owns(&self, placement: &Placement, meta: &ObjectMeta) -> bool {
        let link = self.relation.link(&self.request.key);
        match placement.rule {
            Some(rule) => copy::is_ours(meta, &self.relation.related[rule].id, &link),
            None => !is_copy(meta) && link.owns(meta),
        }
    }

    /// The cluster of this name. If the cluster is another name of a cluster in the fleet, returns that cluster, which
    /// has the same objects.
    pub(crate) fn cluster(&self, name: &ClusterName) -> Result<Cluster, SyncError> {
        let (own, fleet) = (&self.request.cluster, &self.request.fleet);
        if name == own.name() {
            return Ok(own.clone());
        }
        let cluster = fleet.get(name)?;
        Ok(cluster_in_fleet(fleet, &cluster).unwrap_or(cluster))
    }

    pub(crate) fn source_remote(&self) -> Result<Remote, SyncError> {
        let (cluster, source) = (&self.request.cluster, &self.relation.source);
        Remote::new(cluster, source, &self.request.key.object)
    }

    pub(crate) fn remote(&self, placement: &Placement) -> Result<Remote, SyncError> {
        let cluster = self.cluster(&placement.at.cluster)?;
        let manager = desired::manager(&self.relation.name);
        let remote = self.bounded(Remote::new(
            &cluster,
            self.resource(placement),
            &placement.at.object,
        )?);
        Ok(remote.managed_by(manager, self.relation.mode(placement.rule).is_some()))
    }

    /// Limits how many reconciles wait for a cluster that does not answer. The source's own cluster has no limit,
    /// because only its own sources wait for it.
    pub(crate) fn bounded(&self, remote: Remote) -> Remote {
        let cluster = remote.key.cluster.clone();
        if cluster == *self.request.cluster.name() {
            return remote;
        }
        remote.bounded_by(self.relation.silent.of(&cluster))
    }

    /// The object at a placement.
    pub(crate) async fn find(
        &self,
        placement: &Placement,
        wanted: &BTreeSet<RequestKey>,
    ) -> Result<Found, SyncError> {
        let place = &placement.at;
        // A recorded place may be in a cluster that is another name of a cluster in the fleet. If the same place is
        // wanted under the name of that cluster, the object belongs there.
        let first = self.cluster(&place.cluster).ok();
        let first = first.filter(|first| *first.name() != place.cluster && !wanted.contains(place));
        if let Some(first) = &first
            && wanted.contains(&place.in_cluster(first.name().clone()))
        {
            return Ok(Found::Absent);
        }
        if let Some(live) = self.live.get(placement) {
            return Ok(live.clone().into());
        }
        let Some(cluster) = first.or_else(|| self.named(&place.cluster)) else {
            return Ok(Found::Unknown);
        };
        if !cluster.state().is_ready() {
            return Ok(Found::Unknown);
        }
        let store = cluster.store_of::<DynamicObject>(&self.watch(placement));
        match store.and_then(|store| store.get(&place.object)) {
            Ok(found) => Ok(found.into()),
            // The kind is no longer watched in this cluster.
            Err(StoreError::NotWatched { .. }) if !self.failed.contains_key(place) => {
                self.remote(placement)?.get().await.map(Found::from)
            }
            Err(_) => Ok(Found::Unknown),
        }
    }

    pub(crate) fn named(&self, name: &ClusterName) -> Option<Cluster> {
        let own = &self.request.cluster;
        if name == own.name() {
            Some(own.clone())
        } else {
            self.request.fleet.get(name).ok()
        }
    }

    /// Whether the object was at this placement when it was last observed.
    pub(crate) fn was_there(&mut self, placement: &Placement) -> Result<bool, SyncError> {
        let last = self.live.get(placement).cloned().or_else(|| {
            let cluster = self.request.fleet.get(&placement.at.cluster).ok()?;
            let store = cluster.store_of::<DynamicObject>(&self.watch(placement)).ok()?;
            store.get(&placement.at.object).ok()
        });
        let state = last
            .map(|last| self.state_of(placement, &last.into(), false, None))
            .transpose()?;
        Ok(state.is_some_and(State::is_ours))
    }
}
