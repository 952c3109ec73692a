//! Selects the Shoots that belong to the fleet.

use std::collections::BTreeMap;

use kube::core::{Selector, SelectorExt};
use mcr_core::hub::{Closure, is_wanted, selection_in_words};

use crate::v1beta1::Shoot;

/// The options that select Shoots. An empty list selects all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    /// Options that only a seed needs, because a garden applies them itself.
    pub(crate) in_seed: InSeed,
    pub(crate) projects: Vec<String>,
    pub(crate) purposes: Vec<String>,
    pub(crate) seeds: Vec<String>,
    pub(crate) cloud_profiles: Vec<String>,
    pub(crate) select: Option<Closure<Shoot>>,
    pub(crate) keep_while: Option<Closure<Shoot>>,
}

/// The options that a garden applies itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct InSeed {
    /// `None`: all namespaces.
    pub(crate) namespace: Option<String>,
    pub(crate) labels: Option<Selector>,
}

impl Selection {
    /// Whether a Shoot of this project belongs to the fleet now. For a seed, which does not apply any option itself.
    pub(crate) fn selects_in_seed(&self, shoot: &Shoot, project: &str) -> bool {
        let InSeed { namespace, labels } = &self.in_seed;
        let none = BTreeMap::new();
        let of = shoot.metadata.labels.as_ref().unwrap_or(&none);
        namespace
            .as_ref()
            .is_none_or(|namespace| shoot.metadata.namespace.as_ref() == Some(namespace))
            && labels.as_ref().is_none_or(|labels| labels.matches(of))
            && self.selects_project(project)
            && self.selects(shoot)
    }

    /// Whether the Shoot belongs to the fleet now, provided that its project is selected.
    pub(crate) fn selects(&self, shoot: &Shoot) -> bool {
        is_wanted(&self.purposes, shoot.spec.purpose.as_deref())
            && is_wanted(&self.seeds, seed(shoot))
            && is_wanted(&self.cloud_profiles, cloud_profile(shoot))
            && self.select.as_ref().is_none_or(|select| select.call(shoot))
            && (shoot.metadata.deletion_timestamp.is_none()
                || self.keep_while.as_ref().is_some_and(|keep| keep.call(shoot)))
    }

    pub(crate) fn selects_project(&self, project: &str) -> bool {
        is_wanted(&self.projects, Some(project))
    }

    /// The options that this process applies, as text for people.
    pub(crate) fn in_words(&self) -> String {
        let mut words = String::new();
        if let Some(namespace) = &self.in_seed.namespace {
            words.push_str(&format!(", of namespace {namespace}"));
        }
        if let Some(labels) = &self.in_seed.labels {
            words.push_str(&format!(", with labels {labels}"));
        }
        let lists = [
            ("of project", &*self.projects),
            ("with purpose", &self.purposes),
            ("on seed", &self.seeds),
            ("with cloud profile", &self.cloud_profiles),
        ];
        words + &selection_in_words(&lists, self.select.is_some())
    }
}

/// The seed that runs the control plane. If none does yet, the seed that is planned.
pub(crate) fn seed(shoot: &Shoot) -> Option<&str> {
    let status = shoot
        .status
        .as_ref()
        .and_then(|status| status.seed_name.as_deref());
    status.or(shoot.spec.seed_name.as_deref())
}

pub(crate) fn cloud_profile(shoot: &Shoot) -> Option<&str> {
    let newer = shoot.spec.cloud_profile.as_ref().map(|profile| &*profile.name);
    newer.or(shoot.spec.cloud_profile_name.as_deref())
}
