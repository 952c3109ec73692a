//! The facts of a Cluster that the provider needs, as the watch of the hub keeps them.

use std::sync::Arc;

use mcr_core::{
    Object, ObjectKey,
    hub::{Decoded, Described, Description, SecretKeyRef, decoded},
};

use crate::{
    secret::{KUBECONFIG_KEY, SUFFIX},
    selection::Selection,
    v1beta1,
    v1beta2::Cluster,
};

/// The version that is read where the hub does not serve v1beta2.
pub(crate) const OLD_VERSION: &str = "v1beta1";

/// The property with the name of the ClusterClass: `class`.
pub const CLASS_PROPERTY: &str = "class";
/// The property with the version of Kubernetes: `version`. The version that the control plane runs, during an upgrade the old
/// one; before that is known, the version that the topology asks for.
pub const VERSION_PROPERTY: &str = "version";
/// The property with the kind of the infrastructure, such as `AWSCluster`: `infrastructure`.
pub const INFRASTRUCTURE_PROPERTY: &str = "infrastructure";
/// The property with the control plane endpoint, as `host:port`: `endpoint`.
pub const ENDPOINT_PROPERTY: &str = "endpoint";
/// The property with the namespace of the Cluster in the hub: `namespace`.
pub const NAMESPACE_PROPERTY: &str = "namespace";
/// The property with the name of the Cluster in the hub: `cluster`.
pub const CLUSTER_PROPERTY: &str = "cluster";

/// The facts of a Cluster that belongs to the fleet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Facts {
    pub(crate) description: Description,
    /// The Secret with the kubeconfig. None: `<cluster>-kubeconfig` with the key `value`.
    secret: Option<Box<SecretKeyRef>>,
    /// The Cluster, if its kubeconfig is not in a Secret that is watched.
    pub(crate) whole: Option<Arc<Cluster>>,
    /// Why the cluster can't be engaged yet. None: it can.
    pub(crate) waits: Option<Arc<str>>,
}

impl Described for Facts {
    fn description(&self) -> &Description {
        &self.description
    }
}

impl Facts {
    /// The facts of an object of the hub. None if it does not belong to the fleet.
    pub(crate) fn read(object: &Object, version: &str, selection: &Selection) -> Option<Decoded<Self>> {
        let of = |cluster: Cluster| selection.selects(&cluster).then(|| Self::of(&cluster, selection));
        if version == OLD_VERSION {
            return decoded(object, |cluster: v1beta1::Cluster| of(cluster.into()));
        }
        decoded(object, of)
    }

    pub(crate) fn of(cluster: &Cluster, selection: &Selection) -> Self {
        let secret = selection.kubeconfig_secret.as_ref();
        let secret = secret.map(|secret| Box::new(secret.call(cluster)));
        let is_elsewhere = secret.as_ref().is_some_and(|secret| secret.namespace.is_some());
        let is_computed = is_elsewhere || selection.kubeconfig_of.is_some();
        Self {
            description: properties(cluster),
            secret,
            whole: is_computed.then(|| Arc::new(cluster.clone())),
            waits: waits(cluster, selection),
        }
    }

    /// The Secret with the kubeconfig of this Cluster, and the key of the kubeconfig in it.
    pub(crate) fn secret(&self, cluster: &ObjectKey) -> (ObjectKey, Arc<str>) {
        let (name, key) = match &self.secret {
            Some(custom) => (custom.name.as_str().into(), custom.key.as_str().into()),
            None => (format!("{}{SUFFIX}", cluster.name).into(), KUBECONFIG_KEY.into()),
        };
        let elsewhere = self
            .secret
            .as_ref()
            .and_then(|secret| secret.namespace.as_deref());
        let namespace = elsewhere.map(Arc::from).or(cluster.namespace.clone());
        (ObjectKey { namespace, name }, key)
    }
}

fn properties(cluster: &Cluster) -> Description {
    let spec = &cluster.spec;
    let topology = spec.topology.as_ref();
    let control_plane = cluster
        .status
        .as_ref()
        .and_then(|status| status.control_plane.as_ref());
    let runs = control_plane.and_then(|control_plane| control_plane.versions.first());
    let endpoint = spec
        .control_plane_endpoint
        .as_ref()
        .filter(|endpoint| !endpoint.host.is_empty());
    let endpoint = endpoint.map(|endpoint| {
        if endpoint.host.contains(':') {
            format!("[{}]:{}", endpoint.host, endpoint.port)
        } else {
            format!("{}:{}", endpoint.host, endpoint.port)
        }
    });
    Description::of(cluster).with_properties([
        (CLASS_PROPERTY, topology.map(|topology| &*topology.class_ref.name)),
        (
            VERSION_PROPERTY,
            runs.map(|runs| &*runs.version)
                .or(topology.map(|topology| &*topology.version)),
        ),
        (
            INFRASTRUCTURE_PROPERTY,
            spec.infrastructure_ref
                .as_ref()
                .map(|infrastructure| &*infrastructure.kind),
        ),
        (ENDPOINT_PROPERTY, endpoint.as_deref()),
        (NAMESPACE_PROPERTY, cluster.metadata.namespace.as_deref()),
        (CLUSTER_PROPERTY, cluster.metadata.name.as_deref()),
    ])
}

fn waits(cluster: &Cluster, selection: &Selection) -> Option<Arc<str>> {
    let (ready, waits_for) = match &selection.ready_when {
        Some(ready) => (
            ready.call(cluster),
            "the Cluster is not ready by the provider's `ready_when`",
        ),
        None => (
            cluster.is_control_plane_initialized(),
            "the control plane is not initialized yet",
        ),
    };
    if ready {
        return None;
    }
    let mut reason = waits_for.to_owned();
    let phase = cluster
        .status
        .as_ref()
        .map(|status| &*status.phase)
        .filter(|phase| !phase.is_empty());
    if let Some(phase) = phase {
        reason.push_str(&format!(" (phase {phase})"));
    }
    let probe = cluster
        .condition("RemoteConnectionProbe")
        .filter(|probe| probe.status == "False");
    if let Some(probe) = probe {
        reason.push_str(&format!("; Cluster API can't reach it: {}", probe.message));
    }
    Some(mcr_core::reason(&reason).into())
}
