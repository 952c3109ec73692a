//! Which ClusterProfiles of the hub belong to the fleet, and when.

use std::sync::Arc;

use mcr_core::hub::{Closure, is_wanted, selection_in_words};

use crate::v1alpha2::ClusterProfile;

/// The options that concern a ClusterProfile.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    /// Empty: all.
    pub(crate) managers: Vec<String>,
    pub(crate) select: Option<Closure<ClusterProfile>>,
    pub(crate) ready: Ready,
    /// Whether a cluster that was ready stays engaged when it is not ready any more.
    pub(crate) sticky: bool,
}

/// When a cluster can be engaged.
#[derive(Debug, Clone)]
pub(crate) enum Ready {
    /// When the condition of this type is True.
    Condition(Arc<str>),
    Predicate(Closure<ClusterProfile>),
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            managers: Vec::new(),
            select: None,
            ready: Ready::Condition("ControlPlaneHealthy".into()),
            sticky: false,
        }
    }
}

impl Selection {
    /// Whether the profile belongs to the fleet now.
    pub(crate) fn selects(&self, profile: &ClusterProfile) -> bool {
        profile.metadata.deletion_timestamp.is_none()
            && is_wanted(&self.managers, Some(&profile.spec.cluster_manager.name))
            && self.select.as_ref().is_none_or(|select| select.call(profile))
    }

    /// What is selected on this side of the API, for people.
    pub(crate) fn in_words(&self) -> String {
        selection_in_words(&[("of cluster manager", &self.managers)], self.select.is_some())
    }
}
