//! The scope endpoints of a fleet.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use mcr_access::internal::lock;

use super::endpoint::ScopeEndpoint;
use crate::{
    ScopedAccess,
    fleet::{cluster::Cluster, resources::Resources},
};

/// The scope endpoints that have clusters.
#[derive(Default)]
pub(crate) struct ScopeEndpoints(Mutex<ByName>);

/// By the number of the scope, and the name of the endpoint.
type ByName = HashMap<(u64, Arc<str>), Arc<ScopeEndpoint>>;

/// A scope endpoint that a cluster is about to join.
pub(super) struct Found<'a> {
    endpoint: Arc<ScopeEndpoint>,
    /// Held until the cluster has joined.
    _endpoints: MutexGuard<'a, ByName>,
}

impl Found<'_> {
    pub(super) fn endpoint(&self) -> &Arc<ScopeEndpoint> {
        &self.endpoint
    }

    /// The cluster joins the endpoint.
    pub(super) fn join(self, cluster: &Cluster) -> Arc<ScopeEndpoint> {
        self.endpoint.add_cluster(cluster);
        self.endpoint
    }
}

impl ScopeEndpoints {
    /// Finds the endpoint of an access. If there is none, creates it and calls `start`, which has to connect it.
    ///
    /// No cluster can leave any endpoint until a cluster has joined the found one. Otherwise the last cluster could leave
    /// the found endpoint, and the new cluster would join an endpoint whose connection has ended.
    pub(super) fn find(
        &self,
        resources: &Arc<Resources>,
        at: &ScopedAccess,
        start: impl FnOnce(&Arc<ScopeEndpoint>),
    ) -> Found<'_> {
        let key = (at.scope.id(), at.endpoint.clone());
        let mut endpoints = lock(&self.0);
        let endpoint = endpoints.entry(key).or_insert_with(|| {
            let endpoint = Arc::new(ScopeEndpoint::new(resources, at));
            start(&endpoint);
            endpoint
        });
        Found {
            endpoint: endpoint.clone(),
            _endpoints: endpoints,
        }
    }

    /// Removes a cluster from an endpoint. The last cluster ends the endpoint.
    pub(crate) fn leave(&self, endpoint: &Arc<ScopeEndpoint>, cluster: &Cluster) {
        let mut endpoints = lock(&self.0);
        if endpoint.remove_cluster(cluster) {
            endpoints.retain(|_, known| !Arc::ptr_eq(known, endpoint));
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<ScopeEndpoint>> {
        lock(&self.0).values().cloned().collect()
    }
}
