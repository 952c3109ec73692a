//! The Shoots of a seed: its Clusters and the Secrets with their kubeconfigs, joined. No I/O.

use std::{collections::HashMap, sync::Arc};

use mcr_core::{Fingerprint, Object, ObjectKey, hub::Decoded};

use crate::{
    facts::{Facts, Named},
    selection::Selection,
    v1alpha1::Cluster,
    v1beta1::Shoot,
};

/// The Secret with the kubeconfig, in the namespace of each control plane.
pub(crate) const SECRET: &str = "gardener";

/// A Shoot, as a Cluster describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeedShoot {
    /// As in the garden.
    pub(crate) key: ObjectKey,
    pub(crate) project: Arc<str>,
    facts: Decoded<Facts>,
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
            Ok(shoot) if !selection.selects_in_seed(shoot, &project) => return None,
            Ok(shoot) => Ok(Arc::new(Facts::of(shoot))),
            Err(error) => Err(format!("the Cluster {name} of the seed can't be read: {error}").into()),
        };
        Some(Arc::new(Self { key, project, facts }))
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

/// The Clusters of a seed and their Secrets, by the namespace of the control plane.
#[derive(Debug, Default)]
pub(crate) struct Seed {
    clusters: HashMap<Arc<str>, SeedCluster>,
    secrets: HashMap<Arc<str>, Fingerprint>,
    secrets_listed: bool,
}

#[derive(Debug)]
struct SeedCluster {
    /// The last one that could be read, or the first one.
    shoot: Arc<SeedShoot>,
    /// Why the Cluster can't be decoded as it is now.
    unreadable: Option<Arc<str>>,
}

/// What is known of a Shoot in a seed.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) key: ObjectKey,
    pub(crate) project: Arc<str>,
    /// The last facts that could be read.
    pub(crate) facts: Option<Arc<Named>>,
    pub(crate) unreadable: Option<Arc<str>>,
}

impl Seed {
    /// A Cluster was created or changed, or joined the selection. Returns the key of the Shoot that it described before, if that is
    /// another one.
    pub(crate) fn cluster(&mut self, name: &Arc<str>, shoot: Arc<SeedShoot>) -> Option<ObjectKey> {
        let unreadable = shoot.facts.as_ref().err().cloned();
        let known = self.clusters.remove(name).map(|known| known.shoot);
        let before = known.as_ref().map(|known| known.key.clone());
        let shoot = match known {
            // Its Shoot is the one that was read last.
            Some(known) if unreadable.is_some() => known,
            _ => shoot,
        };
        let moved = before.filter(|before| *before != shoot.key);
        self.clusters
            .insert(name.clone(), SeedCluster { shoot, unreadable });
        moved
    }

    /// A Cluster was deleted, or left the selection. Returns the key of its Shoot.
    pub(crate) fn cluster_gone(&mut self, name: &str) -> Option<ObjectKey> {
        Some(self.clusters.remove(name)?.shoot.key.clone())
    }

    /// The Secret of a control plane has this version. None: it is gone.
    pub(crate) fn secret(&mut self, control_plane: &Arc<str>, version: Option<Fingerprint>) {
        match version {
            Some(version) => self.secrets.insert(control_plane.clone(), version),
            None => self.secrets.remove(control_plane),
        };
    }

    /// All Secrets that existed at the start are known. Returns the control planes without one.
    pub(crate) fn secrets_listed(&mut self) -> Vec<Arc<str>> {
        self.secrets_listed = true;
        let without = self
            .clusters
            .keys()
            .filter(|name| !self.secrets.contains_key(*name));
        without.cloned().collect()
    }

    /// What is known of a Shoot. None if it may have a Secret that is not listed yet.
    ///
    /// Later, the watch of Secrets may be behind that of Clusters, so a Shoot without a known Secret may have one, too.
    pub(crate) fn joined(&self, control_plane: &Arc<str>) -> Option<Joined> {
        let SeedCluster { shoot, unreadable } = self.clusters.get(control_plane)?;
        let version = self.secrets.get(control_plane);
        if version.is_none() && !self.secrets_listed {
            return None;
        }
        let named = |facts: &Arc<Facts>| Named {
            place: Fingerprint::of(&(facts.place, version)),
            facts: facts.clone(),
            project: shoot.project.clone(),
            control_plane: Some(control_plane.clone()),
        };
        Some(Joined {
            key: shoot.key.clone(),
            project: shoot.project.clone(),
            facts: shoot.facts.as_ref().ok().map(named).map(Arc::new),
            unreadable: unreadable.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
