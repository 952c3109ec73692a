//! The scope endpoints of a fleet.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use super::endpoint::ScopeEndpoint;
use crate::{
    fleet::{cluster::Cluster, resources::Resources},
    scope::ScopedAccess,
};

/// The scope endpoints that have clusters.
#[derive(Default)]
pub(crate) struct ScopeEndpoints(Mutex<ByName>);

/// By the number of the scope, and the name of the endpoint.
type ByName = HashMap<(u64, Arc<str>), Arc<ScopeEndpoint>>;

impl ScopeEndpoints {
    /// Calls `join`, which adds a cluster to the endpoint of an access. If there is no such endpoint, creates it and calls
    /// `start`, which has to connect it.
    ///
    /// No cluster can leave any endpoint meanwhile. Otherwise the last cluster could leave the endpoint, and the new cluster
    /// would join an endpoint whose connection has ended.
    pub(super) fn join<T>(
        &self,
        resources: &Arc<Resources>,
        at: &ScopedAccess,
        start: impl FnOnce(&Arc<ScopeEndpoint>),
        join: impl FnOnce(&Arc<ScopeEndpoint>) -> T,
    ) -> T {
        let key = (at.scope.id(), at.endpoint.clone());
        let mut endpoints = self.0.lock();
        let endpoint = endpoints.entry(key).or_insert_with(|| {
            let endpoint = Arc::new(ScopeEndpoint::new(resources, at));
            start(&endpoint);
            endpoint
        });
        join(endpoint)
    }

    /// Removes a cluster from an endpoint. The last cluster ends the endpoint.
    pub(crate) fn leave(&self, endpoint: &Arc<ScopeEndpoint>, cluster: &Cluster) {
        let mut endpoints = self.0.lock();
        if endpoint.remove_cluster(cluster) {
            endpoints.retain(|_, known| !Arc::ptr_eq(known, endpoint));
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<ScopeEndpoint>> {
        self.0.lock().values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::endpoint::tests::Nowhere, *};
    use crate::{access::Access, fleet::settings::FleetSettings, scope::Scope};

    #[test]
    fn the_last_cluster_of_an_endpoint_can_not_leave_while_the_next_one_joins() {
        let endpoints = ScopeEndpoints::default();
        let Access::Scoped(at) = Scope::new(Nowhere).place("a", "zoo") else {
            unreachable!("it is a place")
        };
        let resources = Arc::new(Resources::new(FleetSettings::default()));
        endpoints.join(&resources, &at, |_| (), |_| assert!(endpoints.0.is_locked()));
    }
}
