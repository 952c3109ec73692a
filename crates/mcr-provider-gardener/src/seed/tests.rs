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
    Cluster,
    ClusterGone,
    Secret(u8),
    SecretGone,
    ClustersSynced,
    SecretsSynced,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Cluster),
        Just(Step::ClusterGone),
        (0..3_u8).prop_map(Step::Secret),
        Just(Step::SecretGone),
        Just(Step::ClustersSynced),
        Just(Step::SecretsSynced),
    ]
}

proptest! {
    /// Whatever the order in which two watches tell it.
    #[test]
    fn what_was_reported_last_is_what_is_there(steps in prop::collection::vec(step(), 0..20)) {
        let control_plane: Arc<str> = "shoot--dev--one".into();
        let mut facts = Facts::of(&shoot("garden-dev", "one"));
        facts.state = State::Ready;
        let cluster = Arc::new(SeedShoot {
            key: ObjectKey::namespaced("garden-dev", "one"),
            facts: Arc::new(facts),
        });
        let mut seed = Seed::default();
        let (mut there, mut secret, mut reported) = (false, None, None);
        let mut synced = (false, false);
        for step in steps {
            let events = match step {
                Step::Cluster => { there = true; seed.cluster(&control_plane, cluster.clone()) }
                Step::ClusterGone => { there = false; seed.cluster_gone(&control_plane) }
                Step::Secret(version) => {
                    secret = Some(Fingerprint::of(&version));
                    seed.secret(&control_plane, secret)
                }
                Step::SecretGone => { secret = None; seed.secret(&control_plane, None) }
                Step::ClustersSynced if synced.0 => continue,
                Step::SecretsSynced if synced.1 => continue,
                Step::ClustersSynced => { synced.0 = true; seed.clusters_synced() }
                Step::SecretsSynced => { synced.1 = true; seed.secrets_synced() }
            };
            for event in events {
                let early = !synced.1 && secret.is_none();
                match event {
                    // It is told once more when its Secret is known.
                    ShootEvent::Applied(..) if early => prop_assert!(false),
                    ShootEvent::Applied(_, facts) => reported = Some(facts),
                    ShootEvent::Deleted(_) => reported = None,
                    ShootEvent::Synced => prop_assert_eq!(synced, (true, true)),
                    ShootEvent::Failing => prop_assert!(false),
                }
            }
            prop_assert!(there || reported.is_none());
            if let Some(facts) = &reported {
                prop_assert_eq!(&facts.state, &State::Ready);
            }
            if there && (synced.1 || secret.is_some()) {
                let facts = reported.as_ref().unwrap();
                let place = Fingerprint::of(&(cluster.facts.place, secret.as_ref()));
                prop_assert_eq!(facts.place, place);
            }
        }
    }
}
