//! The facts of a ClusterProfile that the provider needs, as the watch of the hub keeps them.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mcr_core::{
    DISPLAY_NAME, Object,
    hub::{Decoded, Described, Description, decoded, pairs},
    reason,
};

use crate::{
    config::{Access, OLD_VERSION},
    offer::Offer,
    selection::{Ready, Selection},
    v1alpha1,
    v1alpha2::ClusterProfile,
};

/// The label that two ClusterProfiles of one namespace share if they describe the same cluster.
pub const MEMBER_ID_LABEL: &str = "multicluster.x-k8s.io/inventory-member-id";

/// The property with the id of the cluster, which is unique in its ClusterSet. KEP-2149 defines it.
const CLUSTER_ID_PROPERTY: &str = "cluster.clusterset.k8s.io";

/// The property with the version of Kubernetes: `version`.
pub const VERSION_PROPERTY: &str = "version";
/// The property with the name of the cluster manager: `manager`.
pub const MANAGER_PROPERTY: &str = "manager";
/// The property with the namespace of the ClusterProfile in the hub: `namespace`.
pub const NAMESPACE_PROPERTY: &str = "namespace";
/// The property with the name of the ClusterProfile in the hub: `profile`.
pub const PROFILE_PROPERTY: &str = "profile";

/// The facts of a ClusterProfile that belongs to the fleet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Facts {
    pub(crate) description: Description,
    pub(crate) created: Option<Time>,
    /// The value of the [`MEMBER_ID_LABEL`]. Empty is invalid.
    pub(crate) member_id: Option<Box<str>>,
    pub(crate) state: State,
    pub(crate) offer: Offer,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    /// The cluster manager reports that the cluster is not ready. With the reason.
    Unready(Arc<str>),
    /// The cluster manager does not know. With the reason.
    Unknown(Arc<str>),
}

impl Described for Facts {
    fn description(&self) -> &Description {
        &self.description
    }
}

/// How profiles are read.
#[derive(Debug, Clone)]
pub(crate) struct Lens {
    pub(crate) version: &'static str,
    pub(crate) selection: Arc<Selection>,
    pub(crate) access: Access,
}

impl Lens {
    /// The facts of an object of the hub. None if it does not belong to the fleet.
    pub(crate) fn read(&self, object: &Object) -> Option<Decoded<Facts>> {
        if self.version == OLD_VERSION {
            return decoded(object, |old| self.of_old(old));
        }
        decoded(object, |profile| self.of(&profile, &[]))
    }

    pub(crate) fn of_old(&self, old: v1alpha1::ClusterProfile) -> Option<Facts> {
        let names_file: Vec<String> = old
            .status
            .iter()
            .flat_map(|status| status.all_access_providers())
            .filter(|access| {
                !access.cluster.certificate_authority.is_empty()
                    && access.cluster.certificate_authority_data.is_empty()
            })
            .map(|access| access.name.clone())
            .collect();
        self.of(&old.into(), &names_file)
    }

    /// `names_file`: the access providers whose certificate authority is the path of a file.
    pub(crate) fn of(&self, profile: &ClusterProfile, names_file: &[String]) -> Option<Facts> {
        if !self.selection.selects(profile) {
            return None;
        }
        let metadata = &profile.metadata;
        let member_id = metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(MEMBER_ID_LABEL));
        let status = profile.status.as_ref();
        let offered = status.map_or(&[][..], |status| &status.access_providers);
        let names_file = |name: &str| names_file.iter().any(|named| named == name);
        Some(Facts {
            created: metadata.creation_timestamp.clone(),
            member_id: member_id.map(|id| id.as_str().into()),
            description: Description {
                properties: pairs(&properties(profile)),
                ..Description::of(profile)
            },
            state: state(profile, &self.selection.ready),
            offer: match &self.access {
                Access::Plugins(providers) => Offer::of(offered, providers, names_file),
                Access::Secrets(_) => Offer::Secret,
                Access::Computed(_) => Offer::Computed(Arc::new(profile.clone())),
            },
        })
    }
}

impl Facts {
    /// The ids of the cluster: that of the label, and that of the property.
    pub(crate) fn ids(&self) -> [Option<&str>; 2] {
        let mut properties = self.description.properties.iter();
        let property = properties.find(|(name, _)| **name == *CLUSTER_ID_PROPERTY);
        [self.member_id.as_deref(), property.map(|(_, id)| &**id)]
    }
}

/// Those of the profile, and over them those of this provider.
fn properties(profile: &ClusterProfile) -> BTreeMap<String, String> {
    let status = profile.status.as_ref();
    let own = [
        (
            VERSION_PROPERTY,
            status.map_or("", |status| &*status.version.kubernetes),
        ),
        (MANAGER_PROPERTY, &*profile.spec.cluster_manager.name),
        (DISPLAY_NAME, &*profile.spec.display_name),
        (
            NAMESPACE_PROPERTY,
            profile.metadata.namespace.as_deref().unwrap_or_default(),
        ),
        (
            PROFILE_PROPERTY,
            profile.metadata.name.as_deref().unwrap_or_default(),
        ),
    ];
    // Also if it has no value: a cluster manager may copy the others from the member, which must not take their place.
    let is_own = |name: &str| own.iter().any(|(own, _)| *own == name);
    let of_profile = status.into_iter().flat_map(|status| &status.properties);
    of_profile
        .map(|property| (&*property.name, &*property.value))
        .filter(|(name, _)| !is_own(name))
        .chain(own.into_iter().filter(|(_, value)| !value.is_empty()))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn state(profile: &ClusterProfile, ready: &Ready) -> State {
    let type_ = match ready {
        Ready::Predicate(ready) if ready.call(profile) => return State::Ready,
        Ready::Predicate(_) => {
            return State::Unready("the ClusterProfile is not ready by the provider's `ready_when`".into());
        }
        Ready::Condition(type_) => type_,
    };
    let Some(condition) = profile.condition(type_) else {
        return State::Unknown(format!("the ClusterProfile has no condition {type_} yet").into());
    };
    if condition.status == "True" {
        return State::Ready;
    }
    let mut why = format!("the condition {type_} is {}", condition.status);
    if !condition.reason.is_empty() {
        why.push_str(&format!(" ({})", condition.reason));
    }
    if !condition.message.is_empty() {
        why.push_str(&format!(": {}", condition.message));
    }
    let why = reason(&why).into();
    match &*condition.status {
        "False" => State::Unready(why),
        _ => State::Unknown(why),
    }
}

#[cfg(test)]
mod tests;
