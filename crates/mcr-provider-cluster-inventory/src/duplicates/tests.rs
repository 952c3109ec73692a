use mcr_core::hub::Description;
use proptest::prelude::*;

use super::*;
use crate::{facts::State, offer::Offer};

fn facts(id: Option<&str>, created: Option<u8>) -> Facts {
    let created = created.map(|second| format!("2026-01-01T00:00:{second:02}Z").into());
    Facts {
        description: Description::default(),
        created: created.map(|created| serde_json::from_value(created).unwrap()),
        member_id: id.map(Into::into),
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
