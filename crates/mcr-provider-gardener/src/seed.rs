//! Joins the Clusters of a seed and the Secrets with their kubeconfigs into Shoots. No I/O.

use std::{collections::HashMap, sync::Arc};

use mcr_core::{Fingerprint, Object, ObjectKey, hub::Decoded};

use crate::{
    facts::{Facts, Named},
    selection::Selection,
    v1alpha1::Cluster,
    v1beta1::Shoot,
};

/// The name of the Secret with the kubeconfig, in the namespace of each control plane.
pub(crate) const SECRET: &str = "gardener";

/// A Shoot, as a Cluster of a seed describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeedShoot {
    /// The key of the Shoot in the garden.
    pub(crate) key: ObjectKey,
    pub(crate) project: Arc<str>,
    facts: Decoded<Facts>,
}

impl SeedShoot {
    /// Reads a Cluster. `None` if its Shoot does not belong to the fleet.
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
/// Gardener names a control plane `shoot--project--name`. Names of Projects and Shoots can't contain two hyphens in a
/// row. If the name has another form, the namespace of the Shoot replaces the Project.
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
    /// The last readable Shoot, or the first one if none was readable.
    shoot: Arc<SeedShoot>,
    /// Why the current Cluster can't be decoded.
    unreadable: Option<Arc<str>>,
}

/// What is known of a Shoot in a seed.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) key: ObjectKey,
    pub(crate) project: Arc<str>,
    /// The last readable facts.
    pub(crate) facts: Option<Arc<Named>>,
    pub(crate) unreadable: Option<Arc<str>>,
}

impl Seed {
    /// Applies a Cluster that was created or changed, or that is selected now. If it described another Shoot before,
    /// returns the key of that Shoot.
    pub(crate) fn cluster(&mut self, name: &Arc<str>, shoot: Arc<SeedShoot>) -> Option<ObjectKey> {
        let unreadable = shoot.facts.as_ref().err().cloned();
        let known = self.clusters.remove(name).map(|known| known.shoot);
        let before = known.as_ref().map(|known| known.key.clone());
        let shoot = match known {
            // The description can't be read, so the last readable Shoot stays.
            Some(known) if unreadable.is_some() => known,
            _ => shoot,
        };
        let moved = before.filter(|before| *before != shoot.key);
        self.clusters
            .insert(name.clone(), SeedCluster { shoot, unreadable });
        moved
    }

    /// Applies a Cluster that was deleted, or is no longer selected. Returns the key of its Shoot.
    pub(crate) fn cluster_gone(&mut self, name: &str) -> Option<ObjectKey> {
        Some(self.clusters.remove(name)?.shoot.key.clone())
    }

    /// Applies the version of a control plane's Secret. `None`: the Secret is gone.
    pub(crate) fn secret(&mut self, control_plane: &Arc<str>, version: Option<Fingerprint>) {
        match version {
            Some(version) => self.secrets.insert(control_plane.clone(), version),
            None => self.secrets.remove(control_plane),
        };
    }

    /// Notes that all Secrets that existed at the start are known. Returns the control planes without a Secret.
    pub(crate) fn secrets_listed(&mut self) -> Vec<Arc<str>> {
        self.secrets_listed = true;
        let without = self
            .clusters
            .keys()
            .filter(|name| !self.secrets.contains_key(*name));
        without.cloned().collect()
    }

    /// What is known of a Shoot. `None` if its Secret may exist but is not listed yet.
    ///
    /// Even after that, the watch of Secrets may be behind that of Clusters, so a Shoot without a known Secret may
    /// have one.
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
