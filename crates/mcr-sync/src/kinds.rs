//! What a cluster shows of kinds: whether it serves one, whether it has the status subresource, and where its schema is.

use std::{collections::HashMap, sync::Arc};

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use mcr::{Cluster, ClusterName, Epoch};
use parking_lot::{Mutex, MutexGuard};

use crate::error::SyncError;

/// The clusters whose source kind is known to have the status subresource, with the number of their engagement.
#[derive(Default)]
pub(crate) struct StatusKinds(Mutex<HashMap<ClusterName, Epoch>>);

impl StatusKinds {
    fn known(&self) -> MutexGuard<'_, HashMap<ClusterName, Epoch>> {
        self.0.lock()
    }

    /// Whether the API server reports that the kind has no status subresource. An API server that does not answer the question, as
    /// one that allows no discovery, does not report it: the first write of a status then shows it.
    pub(crate) async fn is_missing(&self, cluster: &Cluster, resource: &ApiResource) -> bool {
        if self.known().get(cluster.name()) == Some(&cluster.epoch()) {
            return false;
        }
        let client = cluster.client();
        let served = if resource.group.is_empty() {
            client.list_core_api_resources(&resource.version).await
        } else {
            client.list_api_group_resources(&resource.api_version).await
        };
        let Ok(served) = served else { return false };
        let has = |name: &str| served.resources.iter().any(|resource| resource.name == name);
        if has(&format!("{}/status", resource.plural)) {
            self.known().insert(cluster.name().clone(), cluster.epoch());
            return false;
        }
        // A kind that is not served at all is another error.
        has(&resource.plural)
    }

    /// Forgets a cluster that has left.
    pub(crate) fn forget_cluster(&self, cluster: &ClusterName) {
        self.known().remove(cluster);
    }
}

/// The kind of the definitions of kinds, which have their schemas.
pub(crate) fn definitions() -> ApiResource {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    ApiResource::from_gvk(&kind)
}

/// The objects that were listed. There are none of a kind that the cluster does not serve.
pub(crate) async fn or_none(
    listed: Result<Vec<Arc<DynamicObject>>, SyncError>,
    cluster: &Cluster,
    resource: &ApiResource,
) -> Result<Vec<Arc<DynamicObject>>, SyncError> {
    match listed {
        Err(error) if error.is_not_found() && is_not_served(cluster, resource).await => Ok(Vec::new()),
        listed => listed,
    }
}

/// Whether the API server reports that it does not serve a kind. One that does not answer the question does not report it.
async fn is_not_served(cluster: &Cluster, resource: &ApiResource) -> bool {
    let client = cluster.client();
    let Ok(groups) = client.list_api_groups().await else {
        return false;
    };
    let mut versions = groups.groups.iter().flat_map(|group| &group.versions);
    if !versions.any(|version| version.group_version == resource.api_version) {
        return !resource.group.is_empty();
    }
    let served = client.list_api_group_resources(&resource.api_version).await;
    served.is_ok_and(|served| {
        !served
            .resources
            .iter()
            .any(|served| served.name == resource.plural)
    })
}
