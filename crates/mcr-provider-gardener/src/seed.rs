//! What a seed says of Shoots: its Clusters and the Secrets with their kubeconfigs, joined. No I/O.

use std::{collections::HashMap, sync::Arc};

use mcr_core::{Fingerprint, Object, ObjectKey};

use crate::{
    facts::{Facts, InSeed, State},
    selection::Selection,
    v1alpha1::Cluster,
    v1beta1::Shoot,
};

/// The Secret with the kubeconfig, in the namespace of each control plane.
pub(crate) const SECRET: &str = "gardener";

/// What a garden or a seed says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ShootEvent {
    /// The Shoot was created or changed, or joined the selection.
    Applied(ObjectKey, Arc<Facts>),
    /// The Shoot is gone, or left the selection.
    Deleted(ObjectKey),
    /// All Shoots that existed at the start are known.
    Synced,
    /// The API server can't be asked at the moment.
    Failing,
}

/// A Shoot, as a Cluster describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeedShoot {
    /// As in the garden.
    pub(crate) key: ObjectKey,
    pub(crate) facts: Arc<Facts>,
}

impl SeedShoot {
    /// Reads a Cluster. None if its Shoot does not belong to the fleet.
    pub(crate) fn read(object: &Object, selection: &Selection) -> Option<Arc<Self>> {
        let name = &object.key().name;
        let shoot = match object.decode::<Cluster>() {
            Ok(cluster) => cluster.spec.shoot.ok_or_else(|| "it has no Shoot".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let (key, project) = names(name, shoot.as_ref().ok());
        let facts = match &shoot {
            Ok(shoot) if !selection.takes_in_seed(shoot, &project) => return None,
            Ok(shoot) => Facts::of(shoot),
            Err(error) => Facts::unreadable(format!("the Cluster {name} of the seed can't be read: {error}")),
        };
        let in_seed = Some(InSeed {
            control_plane: name.clone(),
            project,
        });
        Some(Arc::new(Self {
            key,
            facts: Arc::new(Facts { in_seed, ..facts }),
        }))
    }
}

/// The key of a Shoot in the garden, and its Project.
///
/// Gardener names a control plane `shoot--project--name`, and lets neither Projects nor Shoots have two hyphens in a row. For another
/// name, the namespace of the Shoot stands for its Project.
fn names(control_plane: &Arc<str>, shoot: Option<&Shoot>) -> (ObjectKey, Arc<str>) {
    let parsed = control_plane
        .strip_prefix("shoot--")
        .and_then(|rest| rest.split_once("--"));
    let metadata = shoot.map(|shoot| &shoot.metadata);
    let namespace = metadata.and_then(|metadata| metadata.namespace.clone());
    let name = metadata.and_then(|metadata| metadata.name.as_deref());
    let (project, name) = match (parsed, name) {
        (Some((project, parsed)), name) => (Some(project), name.unwrap_or(parsed)),
        (None, Some(name)) => (None, name),
        (None, None) => (None, &**control_plane),
    };
    let namespace: Arc<str> = match (namespace, project) {
        (Some(namespace), _) => namespace.into(),
        (None, Some(project)) => format!("garden-{project}").into(),
        (None, None) => control_plane.clone(),
    };
    let project = project.map_or_else(|| namespace.clone(), Arc::from);
    (ObjectKey::namespaced(namespace, name), project)
}

/// The Clusters of a seed and their Secrets.
#[derive(Debug, Default)]
pub(crate) struct Seed {
    clusters: HashMap<Arc<str>, Arc<SeedShoot>>,
    /// The version of the Secret of each control plane.
    secrets: HashMap<Arc<str>, Fingerprint>,
    clusters_synced: bool,
    secrets_synced: bool,
}

impl Seed {
    /// A Cluster was created or changed, or joined the selection.
    pub(crate) fn cluster(&mut self, name: &Arc<str>, shoot: Arc<SeedShoot>) -> Vec<ShootEvent> {
        let known = self.clusters.get(name);
        let shoot = match known {
            // Its Shoot is the one that was read last, and is where it was.
            Some(known) if matches!(shoot.facts.state, State::Unreadable(_)) => {
                let mut facts = (*shoot.facts).clone();
                facts.place = known.facts.place;
                Arc::new(SeedShoot {
                    key: known.key.clone(),
                    facts: Arc::new(facts),
                })
            }
            _ => shoot,
        };
        let mut events = Vec::new();
        if let Some(known) = known
            .map(|known| known.key.clone())
            .filter(|known| *known != shoot.key)
        {
            events.push(ShootEvent::Deleted(known));
        }
        self.clusters.insert(name.clone(), shoot);
        events.extend(self.reported(name));
        events
    }

    /// A Cluster was deleted, or left the selection.
    pub(crate) fn cluster_gone(&mut self, name: &str) -> Vec<ShootEvent> {
        let gone = self.clusters.remove(name);
        gone.map(|shoot| ShootEvent::Deleted(shoot.key.clone()))
            .into_iter()
            .collect()
    }

    /// The Secret of a control plane has this version. None: it is gone.
    pub(crate) fn secret(
        &mut self,
        control_plane: &Arc<str>,
        version: Option<Fingerprint>,
    ) -> Vec<ShootEvent> {
        match version {
            Some(version) => self.secrets.insert(control_plane.clone(), version),
            None => self.secrets.remove(control_plane),
        };
        self.reported(control_plane).into_iter().collect()
    }

    /// All Clusters that existed at the start are known.
    pub(crate) fn clusters_synced(&mut self) -> Vec<ShootEvent> {
        self.clusters_synced = true;
        self.synced()
    }

    /// All Secrets that existed at the start are known.
    pub(crate) fn secrets_synced(&mut self) -> Vec<ShootEvent> {
        self.secrets_synced = true;
        let without: Vec<Arc<str>> = self
            .clusters
            .keys()
            .filter(|name| !self.secrets.contains_key(*name))
            .cloned()
            .collect();
        let mut events: Vec<ShootEvent> = without.iter().filter_map(|name| self.reported(name)).collect();
        events.extend(self.synced());
        events
    }

    fn synced(&self) -> Vec<ShootEvent> {
        match self.clusters_synced && self.secrets_synced {
            true => vec![ShootEvent::Synced],
            false => Vec::new(),
        }
    }

    /// What is known of a Shoot. None if it may have a Secret that is not listed yet.
    ///
    /// Later, the watch of Secrets may be behind that of Clusters, so a Shoot without a known Secret may have one, too.
    fn reported(&self, control_plane: &Arc<str>) -> Option<ShootEvent> {
        let shoot = self.clusters.get(control_plane)?;
        let version = self.secrets.get(control_plane);
        if version.is_none() && !self.secrets_synced {
            return None;
        }
        let mut facts = (*shoot.facts).clone();
        facts.place = Fingerprint::of(&(facts.place, version));
        Some(ShootEvent::Applied(shoot.key.clone(), Arc::new(facts)))
    }
}

#[cfg(test)]
mod tests;
