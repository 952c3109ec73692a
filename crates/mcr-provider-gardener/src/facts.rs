//! The facts about a Shoot that the provider needs, and that the watch stores.

use std::sync::Arc;

use mcr_core::{
    Access, ClusterName, ClusterSpec, Fingerprint, Object,
    hub::{Decoded, Described, Description, decoded},
};

use crate::{
    selection::{Selection, cloud_profile, seed},
    v1beta1::Shoot,
};

/// The property with the name of the Project: `project`.
pub const PROJECT_PROPERTY: &str = "project";
/// The property with the namespace of the Shoot in the garden: `namespace`.
pub const NAMESPACE_PROPERTY: &str = "namespace";
/// The property with the name of the Shoot: `shoot`.
pub const SHOOT_PROPERTY: &str = "shoot";
/// The property with the purpose of the Shoot, such as `production`: `purpose`.
pub const PURPOSE_PROPERTY: &str = "purpose";
/// The property with the seed that runs the control plane: `seed`.
pub const SEED_PROPERTY: &str = "seed";
/// The property with the name of the cloud profile: `cloud-profile`.
pub const CLOUD_PROFILE_PROPERTY: &str = "cloud-profile";
/// The property with the type of the infrastructure, such as `aws`: `infrastructure`.
pub const INFRASTRUCTURE_PROPERTY: &str = "infrastructure";
/// The property with the region of the infrastructure: `region`.
pub const REGION_PROPERTY: &str = "region";
/// The property with the version of Kubernetes: `version`.
pub const VERSION_PROPERTY: &str = "version";

/// The facts about a Shoot that belongs to the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The description without the project, which the Shoot does not contain.
    pub(crate) description: Description,
    /// A fingerprint of the control plane's place and of the accepted credentials. If it changes, an older kubeconfig
    /// may be useless.
    pub(crate) place: Fingerprint,
    pub(crate) state: State,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    /// The cluster is not expected to answer, for this reason.
    Waiting(Arc<str>),
    /// The control plane moves to another seed, or has no address, for this reason. The garden then issues no
    /// kubeconfig.
    Moving(Arc<str>),
}

impl Facts {
    /// The facts about an object of the garden. `None` if the object does not belong to the fleet.
    pub(crate) fn read(object: &Object, selection: &Selection) -> Option<Decoded<Self>> {
        decoded(object, |shoot| {
            selection.selects(&shoot).then(|| Self::in_garden(&shoot))
        })
    }

    fn in_garden(shoot: &Shoot) -> Self {
        let mut facts = Self::of(shoot);
        let addresses = shoot.status.as_ref().map(|status| &status.advertised_addresses);
        if facts.state == State::Ready && addresses.is_none_or(Vec::is_empty) {
            facts.state = State::Moving("its API server has no address yet".into());
        }
        facts
    }

    pub(crate) fn of(shoot: &Shoot) -> Self {
        Self {
            description: description(shoot),
            place: place(shoot),
            state: state(shoot),
        }
    }
}

/// A Shoot in an inventory.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) facts: Arc<Facts>,
    /// The place from the facts. In a seed, also the version of the Secret.
    pub(crate) place: Fingerprint,
    pub(crate) project: Arc<str>,
    /// The namespace of the control plane in a seed. `None` in a garden.
    pub(crate) control_plane: Option<Arc<str>>,
}

impl Described for Named {
    fn description(&self) -> &Description {
        &self.facts.description
    }

    fn spec(&self, name: ClusterName, access: Access) -> ClusterSpec {
        let spec = self.description().spec(name, access);
        spec.property(PROJECT_PROPERTY, &*self.project)
    }
}

fn description(shoot: &Shoot) -> Description {
    let spec = &shoot.spec;
    Description::of(shoot).with_properties([
        (NAMESPACE_PROPERTY, shoot.metadata.namespace.as_deref()),
        (SHOOT_PROPERTY, shoot.metadata.name.as_deref()),
        (PURPOSE_PROPERTY, spec.purpose.as_deref()),
        (SEED_PROPERTY, seed(shoot)),
        (CLOUD_PROFILE_PROPERTY, cloud_profile(shoot)),
        (INFRASTRUCTURE_PROPERTY, Some(&*spec.provider.type_)),
        (REGION_PROPERTY, Some(&*spec.region)),
        (VERSION_PROPERTY, Some(&*spec.kubernetes.version)),
    ])
}

fn place(shoot: &Shoot) -> Fingerprint {
    let Some(status) = &shoot.status else {
        return Fingerprint::of(&());
    };
    let rotation = status
        .credentials
        .as_ref()
        .and_then(|credentials| credentials.rotation.as_ref())
        .and_then(|rotation| rotation.certificate_authorities.as_ref());
    let completed = rotation.and_then(|rotation| rotation.last_completion_time.as_ref());
    Fingerprint::of(&(
        &status.seed_name,
        &status.advertised_addresses,
        rotation.map(|rotation| &rotation.phase),
        completed.map(|time| time.0.as_second()),
    ))
}

fn state(shoot: &Shoot) -> State {
    let status = shoot.status.as_ref();
    let operation = status.and_then(|status| status.last_operation.as_ref());
    // While Gardener's reconciliations are stopped, a new Shoot has an operation without a type.
    let Some(operation) = operation.filter(|operation| !operation.type_.is_empty()) else {
        return waiting("its creation has not begun".into());
    };
    let done = operation.state == "Succeeded";
    if operation.type_ == "Create" && !done {
        return waiting(match &*operation.state {
            "Failed" | "Aborted" => format!("its creation has failed: {}", operation.description),
            "Error" => format!(
                "its creation has failed and is tried again: {}",
                operation.description
            ),
            _ => format!("it is being created ({} %)", operation.progress),
        });
    }
    let wanted = shoot
        .spec
        .hibernation
        .as_ref()
        .and_then(|hibernation| hibernation.enabled)
        .unwrap_or_default();
    match (wanted, status.is_some_and(|status| status.hibernated)) {
        (true, true) => return waiting("it is hibernated".into()),
        (true, false) => return waiting("it is going into hibernation".into()),
        (false, true) => return waiting("it is waking up from hibernation".into()),
        (false, false) => {}
    }
    let seed = seed(shoot).unwrap_or("another seed");
    match &*operation.type_ {
        "Migrate" => State::Moving(mcr_core::reason(&format!("its control plane leaves seed {seed}")).into()),
        "Restore" if !done => {
            let why = format!("its control plane is being restored on seed {seed}");
            State::Moving(mcr_core::reason(&why).into())
        }
        _ => State::Ready,
    }
}

fn waiting(reason: String) -> State {
    State::Waiting(mcr_core::reason(&reason).into())
}
