//! What the discovery API of a cluster shows of kinds: whether the cluster serves a kind, whether the kind has the
//! status subresource, and where its schema is.

use std::{collections::HashMap, sync::Arc};

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use mcr::{Cluster, ClusterName, Epoch};
use parking_lot::{Mutex, MutexGuard};

use crate::error::SyncError;

/// The clusters whose source kind is known to have the status subresource. The epoch is that of the cluster's
/// engagement.
#[derive(Default)]
pub(crate) struct StatusKinds(Mutex<HashMap<ClusterName, Epoch>>);

impl StatusKinds {
    fn known(&self) -> MutexGuard<'_, HashMap<ClusterName, Epoch>> {
        self.0.lock()
    }

    /// Whether the API server reports that the kind has no status subresource. `false` if the discovery API gives no
    /// answer, for example because it is forbidden. Then the first write of a status
    /// fails and shows that it is missing.
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
        // If the kind itself is not served, that is another error.
        has(&resource.plural)
    }

    /// Forgets a cluster that has left.
    pub(crate) fn forget_cluster(&self, cluster: &ClusterName) {
        self.known().remove(cluster);
    }
}

/// The CustomResourceDefinitions, which contain the schemas.
pub(crate) fn definitions() -> ApiResource {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    ApiResource::from_gvk(&kind)
}

/// The listed objects. If the list failed because the cluster does not serve the kind, there are none.
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

/// Whether the API server reports that it does not serve a kind. `false` if the discovery API gives no answer.
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
