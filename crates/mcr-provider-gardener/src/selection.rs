//! Which Shoots of the garden belong to the fleet.

use std::{collections::BTreeMap, fmt, sync::Arc};

use kube::core::{Selector, SelectorExt};

use crate::v1beta1::Shoot;

pub(crate) type Predicate = Arc<dyn Fn(&Shoot) -> bool + Send + Sync>;

/// The options that look at a Shoot. An empty list takes all.
#[derive(Clone, Default)]
pub(crate) struct Selection {
    /// In a seed only. A garden applies them itself.
    pub(crate) in_seed: InSeed,
    pub(crate) projects: Vec<String>,
    pub(crate) purposes: Vec<String>,
    pub(crate) seeds: Vec<String>,
    pub(crate) cloud_profiles: Vec<String>,
    pub(crate) select: Option<Predicate>,
    pub(crate) keep_while: Option<Predicate>,
}

/// What a garden selects and a seed does not.
#[derive(Debug, Clone, Default)]
pub(crate) struct InSeed {
    /// None: all.
    pub(crate) namespace: Option<String>,
    pub(crate) labels: Option<Selector>,
}

impl Selection {
    /// Whether a Shoot of this project belongs to the fleet now, for a seed, which selects nothing itself.
    pub(crate) fn takes_in_seed(&self, shoot: &Shoot, project: &str) -> bool {
        let InSeed { namespace, labels } = &self.in_seed;
        let none = BTreeMap::new();
        let of = shoot.metadata.labels.as_ref().unwrap_or(&none);
        namespace
            .as_ref()
            .is_none_or(|namespace| shoot.metadata.namespace.as_ref() == Some(namespace))
            && labels.as_ref().is_none_or(|labels| labels.matches(of))
            && self.takes_project(project)
            && self.takes(shoot)
    }

    /// Whether the Shoot belongs to the fleet now, if its project does.
    pub(crate) fn takes(&self, shoot: &Shoot) -> bool {
        let has = |wanted: &[String], there: Option<&str>| {
            wanted.is_empty() || there.is_some_and(|there| wanted.iter().any(|wanted| wanted == there))
        };
        has(&self.purposes, shoot.spec.purpose.as_deref())
            && has(&self.seeds, seed(shoot))
            && has(&self.cloud_profiles, cloud_profile(shoot))
            && self.select.as_ref().is_none_or(|select| select(shoot))
            && (shoot.metadata.deletion_timestamp.is_none()
                || self.keep_while.as_ref().is_some_and(|keep| keep(shoot)))
    }

    pub(crate) fn takes_project(&self, project: &str) -> bool {
        self.projects.is_empty() || self.projects.iter().any(|wanted| wanted == project)
    }

    /// What is selected on this side of the API, for people.
    pub(crate) fn in_words(&self) -> String {
        let mut words = String::new();
        if let Some(namespace) = &self.in_seed.namespace {
            words.push_str(&format!(", of namespace {namespace}"));
        }
        if let Some(labels) = &self.in_seed.labels {
            words.push_str(&format!(", with labels {labels}"));
        }
        for (what, wanted) in [
            ("of project", &self.projects),
            ("with purpose", &self.purposes),
            ("on seed", &self.seeds),
            ("with cloud profile", &self.cloud_profiles),
        ] {
            if !wanted.is_empty() {
                words.push_str(&format!(", {what} {}", wanted.join(" or ")));
            }
        }
        if self.select.is_some() {
            words.push_str(", chosen by `select`");
        }
        words
    }
}

/// The seed that runs the control plane. Before one does, the seed that should.
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

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selection")
            .field("in_seed", &self.in_seed)
            .field("projects", &self.projects)
            .field("purposes", &self.purposes)
            .field("seeds", &self.seeds)
            .field("cloud_profiles", &self.cloud_profiles)
            .field("select", &self.select.is_some())
            .field("keep_while", &self.keep_while.is_some())
            .finish()
    }
}
