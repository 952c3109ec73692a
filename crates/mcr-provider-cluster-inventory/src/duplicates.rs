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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{facts::State, offer::Offer};

    fn facts(id: Option<&str>, created: Option<u8>) -> Facts {
        Facts {
            uid: None,
            created: created.map(|second| {
                serde_json::from_value(format!("2026-01-01T00:00:{second:02}Z").into()).unwrap()
            }),
            member_id: id.map(Into::into),
            labels: Box::default(),
            properties: Box::default(),
            state: State::Ready,
            offer: Offer::Secret,
        }
    }

    #[test]
    fn an_empty_member_id_groups_nothing_and_namespaces_are_never_merged() {
        let key = ObjectKey::namespaced("a", "x");
        assert_eq!(Group::of(&key, &facts(None, None)), None);
        assert_eq!(Group::of(&key, &facts(Some(""), None)), None);
        let of = |namespace| Group::of(&ObjectKey::namespaced(namespace, "x"), &facts(Some("1"), None));
        assert_eq!(of("a"), of("a"));
        assert_ne!(of("a"), of("b"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// In whatever order profiles come and go, the oldest of those that are there counts.
        #[test]
        fn the_oldest_counts_in_whatever_order_they_come(
            steps in prop::collection::vec((any::<bool>(), 0..6_usize), 0..40),
            ages in prop::array::uniform6(prop::option::of(0..3_u8)),
        ) {
            let names = ["f", "e", "d", "c", "b", "a"];
            let mut there = BTreeSet::new();
            let mut duplicates = Duplicates::default();
            let group = Group::of(&ObjectKey::namespaced("n", "a"), &facts(Some("1"), None)).unwrap();
            for (add, which) in steps {
                let (key, facts) = (ObjectKey::namespaced("n", names[which]), facts(Some("1"), ages[which]));
                if add {
                    duplicates.add(&group, &key, &facts);
                    there.insert(which);
                } else {
                    duplicates.remove(&group, &key, &facts);
                    there.remove(&which);
                }
                let oldest = there.iter().map(|which| (ages[*which], names[*which])).min();
                prop_assert_eq!(duplicates.first(&group).map(|name| &**name), oldest.map(|(_, name)| name));
                let all = duplicates.all(&group);
                prop_assert_eq!(all.len(), there.len());
                prop_assert_eq!(all.last().map(|key| &*key.name), oldest.map(|(_, name)| name));
            }
            if there.is_empty() {
                prop_assert!(duplicates.0.is_empty());
            }
        }
    }
}
