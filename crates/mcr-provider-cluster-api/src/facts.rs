//! The facts of a Cluster that the provider needs, as the watch of the hub keeps them.

use std::{collections::BTreeMap, sync::Arc};

use mcr_core::{DecodeError, Object};

use crate::{
    secret::{KUBECONFIG_KEY, SUFFIX, SecretKeyRef},
    selection::Selection,
    served::Served,
    v1beta1,
    v1beta2::Cluster,
};

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    /// None if the hub has no UIDs.
    pub(crate) uid: Option<Arc<str>>,
    pub(crate) labels: Pairs,
    pub(crate) properties: Pairs,
    /// The Secret with the kubeconfig. None: `<cluster>-kubeconfig` with the key `value`.
    secret: Option<Box<SecretKeyRef>>,
    pub(crate) state: State,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    /// With the reason.
    Waiting(Arc<str>),
    /// The Cluster can't be decoded. With the reason.
    Unreadable(Arc<str>),
}

/// Names and values. A map would take at least 544 bytes.
pub(crate) type Pairs = Box<[(Box<str>, Box<str>)]>;

fn pairs<'a>(of: impl IntoIterator<Item = (&'a str, &'a str)>) -> Pairs {
    of.into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

pub(crate) fn map(pairs: &Pairs) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| (String::from(&**name), String::from(&**value)))
        .collect()
}

impl Facts {
    /// The facts of an object of the hub. None if it does not belong to the fleet.
    pub(crate) fn read(object: &Object, served: Served, selection: &Selection) -> Option<Arc<Self>> {
        match decode(object, served) {
            Ok(cluster) => selection
                .takes(&cluster)
                .then(|| Arc::new(Self::of(&cluster, selection))),
            Err(error) => Some(Arc::new(Self {
                uid: None,
                labels: Pairs::default(),
                properties: Pairs::default(),
                secret: None,
                state: State::Unreadable(error.to_string().into()),
            })),
        }
    }

    pub(crate) fn of(cluster: &Cluster, selection: &Selection) -> Self {
        let labels = cluster.metadata.labels.iter().flatten();
        let custom = selection
            .kubeconfig_secret
            .as_ref()
            .map(|lookup| Box::new(lookup(cluster)));
        Self {
            uid: cluster
                .metadata
                .uid
                .as_deref()
                .filter(|uid| !uid.is_empty())
                .map(Arc::from),
            labels: pairs(labels.map(|(name, value)| (&**name, &**value))),
            properties: properties(cluster),
            secret: custom,
            state: state(cluster, selection),
        }
    }

    /// The name of the Secret with the kubeconfig of the Cluster of this name.
    pub(crate) fn secret_name(&self, cluster: &str) -> Arc<str> {
        match &self.secret {
            Some(custom) => custom.name.as_str().into(),
            None => format!("{cluster}{SUFFIX}").into(),
        }
    }

    /// The key of the kubeconfig in that Secret.
    pub(crate) fn secret_key(&self) -> &str {
        self.secret.as_ref().map_or(KUBECONFIG_KEY, |custom| &custom.key)
    }

    pub(crate) fn is_readable(&self) -> bool {
        !matches!(self.state, State::Unreadable(_))
    }

    /// Whether both describe a cluster in the same way.
    pub(crate) fn same_description(&self, other: &Self) -> bool {
        self.uid == other.uid && self.labels == other.labels && self.properties == other.properties
    }
}

fn decode(object: &Object, served: Served) -> Result<Cluster, DecodeError> {
    match served {
        Served::V1Beta2 => object.decode(),
        Served::V1Beta1 => object.decode::<v1beta1::Cluster>().map(Into::into),
    }
}

fn properties(cluster: &Cluster) -> Pairs {
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
    let endpoint = endpoint.map(|endpoint| match endpoint.host.contains(':') {
        true => format!("[{}]:{}", endpoint.host, endpoint.port),
        false => format!("{}:{}", endpoint.host, endpoint.port),
    });
    let all = [
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
    ];
    pairs(
        all.into_iter()
            .filter_map(|(name, value)| Some((name, value.filter(|value| !value.is_empty())?))),
    )
}

fn state(cluster: &Cluster, selection: &Selection) -> State {
    let (ready, waits_for) = match &selection.ready_when {
        Some(ready) => (
            ready(cluster),
            "the Cluster is not ready by the provider's `ready_when`",
        ),
        None => (
            cluster.is_control_plane_initialized(),
            "the control plane is not initialized yet",
        ),
    };
    if ready {
        return State::Ready;
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
    State::Waiting(mcr_core::reason(&reason).into())
}
