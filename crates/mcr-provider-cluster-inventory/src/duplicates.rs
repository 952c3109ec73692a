//! Which of several ClusterProfiles of the same cluster counts. No I/O.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mcr_core::ObjectKey;

use crate::facts::Facts;

/// The selected ClusterProfiles, by namespace and member id.
///
/// Of those with the same member id the oldest counts, and of equally old ones the one whose name comes first. So the answer
/// depends on the hub only: each replica of a program gives the same one, also after a restart, and a newer profile never takes
/// a cluster from an older one.
#[derive(Debug, Default)]
pub(crate) struct Duplicates(HashMap<Group, BTreeSet<Age>>);

/// When a profile was created, and its name.
type Age = (Option<Time>, Arc<str>);

/// A namespace and a member id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Group(Option<Arc<str>>, Box<str>);

impl Group {
    /// None if the profile has no member id, or an empty one, which is invalid.
    pub(crate) fn of(key: &ObjectKey, facts: &Facts) -> Option<Self> {
        let member_id = facts.member_id.clone().filter(|id| !id.is_empty())?;
        Some(Self(key.namespace.clone(), member_id))
    }

    pub(crate) fn member_id(&self) -> &str {
        &self.1
    }
}

impl Duplicates {
    pub(crate) fn add(&mut self, group: &Group, key: &ObjectKey, facts: &Facts) {
        let entry = (facts.created.clone(), key.name.clone());
        self.0.entry(group.clone()).or_default().insert(entry);
    }

    pub(crate) fn remove(&mut self, group: &Group, key: &ObjectKey, facts: &Facts) {
        if let Some(members) = self.0.get_mut(group) {
            members.remove(&(facts.created.clone(), key.name.clone()));
            if members.is_empty() {
                self.0.remove(group);
            }
        }
    }

    /// The name of the profile that counts.
    pub(crate) fn first(&self, group: &Group) -> Option<&Arc<str>> {
        Some(&self.0.get(group)?.first()?.1)
    }

    /// All profiles of the group, those that don't count first.
    pub(crate) fn all(&self, group: &Group) -> Vec<ObjectKey> {
        let members = self.0.get(group).into_iter().flatten().rev();
        members
            .map(|(_, name)| ObjectKey {
                namespace: group.0.clone(),
                name: name.clone(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
