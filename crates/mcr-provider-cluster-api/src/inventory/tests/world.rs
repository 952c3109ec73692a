//! Events of a Cluster and its Secret in any order.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone, Copy)]
enum Step {
    Create,
    Initialize,
    Delete,
    Secret(u8),
    BreakSecret,
    DeleteSecret,
    /// The watch of Clusters, the watch of Secrets, or a read gets on.
    Clusters,
    Secrets,
    Read(u8),
}

/// A hub with one Cluster and its Secret, and a fleet that follows what is said of it.
#[derive(Default)]
struct World {
    uids: u32,
    versions: u32,
    cluster: Option<(u32, bool)>,
    /// The version, and the token if it is good.
    secret: Option<(u32, Option<u8>)>,
    reads: Vec<Read>,
    spec: Option<Result<String, String>>,
    broken: Option<String>,
}

impl World {
    fn step(&mut self, step: Step, inventory: &mut Inventory) {
        let version = self.versions + 1;
        match step {
            Step::Create => {
                self.uids += 1;
                self.cluster = Some((self.uids, false));
            }
            Step::Initialize => self.cluster = self.cluster.map(|(uid, _)| (uid, true)),
            Step::Delete => self.cluster = None,
            Step::Secret(token) => self.secret = Some((version, Some(token))),
            Step::BreakSecret => self.secret = Some((version, None)),
            Step::DeleteSecret => self.secret = None,
            Step::Clusters => {
                let outcome = match self.cluster {
                    Some((uid, true)) => inventory.cluster(&key(), ready(&uid.to_string())),
                    Some((uid, false)) => inventory.cluster(&key(), waiting(&uid.to_string())),
                    None => inventory.cluster_gone(&key()),
                };
                self.follow(outcome);
            }
            Step::Secrets => {
                let stamp = self.secret.map(|(version, _)| stamp(&version.to_string()));
                let outcome = inventory.secret(&secret_key(), stamp);
                self.follow(outcome);
            }
            Step::Read(which) if !self.reads.is_empty() => {
                let read = self.reads.remove(usize::from(which) % self.reads.len());
                let answer = match self.secret {
                    Some(_) if which % 7 == 6 && read.failures < 3 => failed(),
                    Some((version, Some(token))) => good(&version.to_string(), &token.to_string()),
                    Some((version, None)) => bad(&version.to_string()),
                    None => Answer::Gone,
                };
                let outcome = inventory.answered(read, answer);
                self.follow(outcome);
            }
            Step::Read(_) => {}
        }
        self.versions = version;
    }

    fn follow(&mut self, outcome: Outcome) {
        self.reads.extend(outcome.reads);
        for change in &outcome.changes {
            match change {
                Change::Upsert(spec) => {
                    self.spec = Some(match &spec.availability {
                        Availability::Suspended { reason } => Err(reason.to_string()),
                        _ => Ok(format!("{:?} {}", spec.identity, token(spec))),
                    });
                    self.broken = None;
                }
                Change::Broken(broken) => self.broken = Some(broken.error.to_string()),
                Change::Remove(_) => (self.spec, self.broken) = (None, None),
                _ => {}
            }
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Create),
        3 => Just(Step::Initialize),
        1 => Just(Step::Delete),
        3 => (0..3_u8).prop_map(Step::Secret),
        1 => Just(Step::BreakSecret),
        2 => Just(Step::DeleteSecret),
        4 => Just(Step::Clusters),
        4 => Just(Step::Secrets),
        6 => any::<u8>().prop_map(Step::Read),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens to a Cluster and its Secret, and in whatever order it is told: a fleet that follows what is said ends where
    /// the hub is.
    #[test]
    fn events_in_any_order_end_in_the_same_announcements(steps in prop::collection::vec(step(), 0..40)) {
        let (mut world, mut inventory) = (World::default(), synced());
        for step in steps {
            world.step(step, &mut inventory);
        }
        // Everything is told.
        world.step(Step::Clusters, &mut inventory);
        world.step(Step::Secrets, &mut inventory);
        while !world.reads.is_empty() {
            world.step(Step::Read(0), &mut inventory);
        }
        let (spec, broken) = (&world.spec, world.broken.as_deref());
        match (world.cluster, world.secret) {
            (None, _) => prop_assert_eq!((spec, broken), (&None, None)),
            (Some((uid, true)), Some((_, Some(token)))) => {
                let good = Some(Ok(format!("Some(\"{uid}\") {token}")));
                prop_assert_eq!((spec, broken), (&good, None));
            }
            (Some((_, true)), Some((_, None))) => prop_assert_eq!(broken, Some("half")),
            (Some((uid, true)), None) => match spec {
                Some(Err(reason)) => prop_assert!(reason.ends_with(NO_SECRET) && broken.is_none()),
                Some(Ok(spec)) => {
                    prop_assert!(spec.starts_with(&format!("Some(\"{uid}\")")), "{}", spec);
                    prop_assert_eq!(broken, Some(NO_SECRET));
                }
                None => prop_assert_eq!(broken, Some(NO_SECRET)),
            },
            (Some((_, false)), _) => {
                let not_yet = Some(Err(NOT_YET[1..].to_owned()));
                prop_assert_eq!((spec, broken), (&not_yet, None));
            }
        }
    }
}
