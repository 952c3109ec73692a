//! Which ClusterProfiles of the hub belong to the fleet, and when.

use std::{fmt, sync::Arc};

use crate::v1alpha2::ClusterProfile;

pub(crate) type Predicate = Arc<dyn Fn(&ClusterProfile) -> bool + Send + Sync>;

/// The options that look at a ClusterProfile.
#[derive(Clone)]
pub(crate) struct Selection {
    /// Empty: all.
    pub(crate) managers: Vec<String>,
    pub(crate) select: Option<Predicate>,
    pub(crate) ready: Ready,
}

/// When a cluster can be engaged.
#[derive(Clone)]
pub(crate) enum Ready {
    /// When the condition of this type is True.
    Condition(Arc<str>),
    Predicate(Predicate),
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            managers: Vec::new(),
            select: None,
            ready: Ready::Condition("ControlPlaneHealthy".into()),
        }
    }
}

impl Selection {
    /// Whether the profile belongs to the fleet now.
    pub(crate) fn takes(&self, profile: &ClusterProfile) -> bool {
        profile.metadata.deletion_timestamp.is_none()
            && (self.managers.is_empty() || self.managers.contains(&profile.spec.cluster_manager.name))
            && self.select.as_ref().is_none_or(|select| select(profile))
    }

    /// What is selected on this side of the API, for people.
    pub(crate) fn in_words(&self) -> String {
        let mut words = String::new();
        if !self.managers.is_empty() {
            words.push_str(&format!(", of cluster manager {}", self.managers.join(" or ")));
        }
        if self.select.is_some() {
            words.push_str(", chosen by `select`");
        }
        words
    }
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ready = match &self.ready {
            Ready::Condition(type_) => type_,
            Ready::Predicate(_) => "ready_when",
        };
        f.debug_struct("Selection")
            .field("managers", &self.managers)
            .field("select", &self.select.is_some())
            .field("ready", &ready)
            .finish()
    }
}
