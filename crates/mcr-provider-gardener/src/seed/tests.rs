use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn shoot(namespace: &str, name: &str) -> Shoot {
    let metadata = kube::api::ObjectMeta {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        ..Default::default()
    };
    Shoot {
        metadata,
        ..Shoot::default()
    }
}

fn named(control_plane: &str, shoot: Option<&Shoot>) -> String {
    let (key, project) = names(&control_plane.into(), shoot);
    format!("{key} of {project}")
}

#[test]
fn the_name_of_the_control_plane_has_the_project() {
    let one = shoot("garden-dev", "one");
    assert_eq!(named("shoot--dev--one", Some(&one)), "garden-dev/one of dev");
    assert_eq!(named("shoot--dev--one", None), "garden-dev/one of dev");
    assert_eq!(named("shoot-dev-one", Some(&one)), "garden-dev/one of garden-dev");
    assert_eq!(named("other", None), "other/other of other");
}

#[derive(Debug, Clone)]
enum Step {
    Cluster(bool),
    ClusterGone,
    Secret(Option<u8>),
    SecretsListed,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<bool>().prop_map(Step::Cluster),
        Just(Step::ClusterGone),
        prop::option::of(0..3_u8).prop_map(Step::Secret),
        Just(Step::SecretsListed),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the order in which two watches report it.
    #[test]
    fn a_shoot_is_joined_with_the_version_of_its_secret(steps in prop::collection::vec(step(), 0..20)) {
        let control_plane: Arc<str> = "shoot--dev--one".into();
        let facts = Arc::new(Facts::of(&shoot("garden-dev", "one")));
        let cluster = |facts| Arc::new(SeedShoot {
            key: ObjectKey::namespaced("garden-dev", "one"),
            project: "dev".into(),
            facts,
        });
        let (mut seed, mut places) = (Seed::default(), BTreeMap::new());
        let (mut there, mut secret, mut listed) = (None, None, false);
        for step in steps {
            match step {
                Step::Cluster(readable) => {
                    let read = if readable { Ok(facts.clone()) } else { Err("no JSON".into()) };
                    prop_assert_eq!(seed.cluster(&control_plane, cluster(read)), None);
                    there = Some((readable, readable || there.is_some_and(|(_, ever)| ever)));
                }
                Step::ClusterGone => {
                    prop_assert_eq!(seed.cluster_gone(&control_plane).is_some(), there.take().is_some());
                }
                Step::Secret(version) => {
                    seed.secret(&control_plane, version.map(|version| Fingerprint::of(&version)));
                    secret = version;
                }
                Step::SecretsListed => {
                    let without = seed.secrets_listed();
                    prop_assert_eq!(without.is_empty(), there.is_none() || secret.is_some());
                    listed = true;
                }
            }
            let joined = seed.joined(&control_plane);
            prop_assert_eq!(joined.is_some(), there.is_some() && (listed || secret.is_some()));
            let (Some(joined), Some((readable, ever))) = (joined, there) else { continue };
            prop_assert_eq!((joined.unreadable.is_none(), joined.facts.is_some()), (readable, ever));
            if let Some(named) = joined.facts {
                let place = format!("{:?}", named.place);
                prop_assert_eq!(places.entry(secret).or_insert_with(|| place.clone()), &place);
            }
        }
        let different: std::collections::BTreeSet<_> = places.values().collect();
        prop_assert_eq!(different.len(), places.len(), "each version is another place");
    }
}
