//! Events of several ClusterProfiles in any order.

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone, Copy)]
enum Health {
    True,
    False,
    Unknown,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Create(usize),
    Health(usize, Health),
    /// A member id, or none.
    Member(usize, Option<u8>),
    /// An address, or none.
    Server(usize, Option<u8>),
    Wrong(usize),
    Delete(usize),
    /// The discovery fails, and the next one begins.
    Restart,
}

#[derive(Debug, Clone, Copy)]
struct There {
    uid: u32,
    created: u8,
    health: Health,
    member: Option<u8>,
    /// An error is an address that can't be used.
    server: Option<Result<u8, ()>>,
}

/// What a fleet has of a cluster.
#[derive(Debug, Default)]
struct Shown {
    /// An error is the reason why it is suspended.
    spec: Option<Result<String, String>>,
    broken: Option<String>,
}

#[derive(Default)]
struct World {
    uids: u32,
    hub: HashMap<usize, There>,
    fleet: HashMap<String, Shown>,
}

impl There {
    fn facts(&self) -> Arc<Facts> {
        let mut profile = profile(&format!("u{}", self.uid), "s0");
        profile["metadata"]["creationTimestamp"] = format!("2026-01-01T00:00:{:02}Z", self.created).into();
        if let Some(member) = self.member {
            profile["metadata"]["labels"] = json!({MEMBER_ID_LABEL: format!("m{member}")});
        }
        profile["status"]["conditions"][0]["status"] = format!("{:?}", self.health).into();
        let providers = &mut profile["status"]["accessProviders"];
        match self.server {
            None => *providers = json!([]),
            Some(Ok(number)) => {
                providers[0]["cluster"]["server"] = format!("https://s{number}.example").into();
            }
            Some(Err(())) => providers[0]["cluster"]["server"] = "wrong".into(),
        }
        facts(profile)
    }
}

impl World {
    fn step(&mut self, step: Step, inventory: &mut Inventory) {
        let which = match step {
            Step::Create(which) => {
                self.uids += 1;
                let new = There {
                    uid: self.uids,
                    // Some are equally old.
                    created: (self.uids / 2).min(59) as u8,
                    health: Health::True,
                    member: None,
                    server: Some(Ok(0)),
                };
                self.hub.insert(which, new);
                which
            }
            Step::Health(which, health) => self.change(which, |there| there.health = health),
            Step::Member(which, member) => self.change(which, |there| there.member = member),
            Step::Server(which, server) => self.change(which, |there| there.server = server.map(Ok)),
            Step::Wrong(which) => self.change(which, |there| there.server = Some(Err(()))),
            Step::Delete(which) => {
                self.hub.remove(&which);
                which
            }
            Step::Restart => return self.restart(inventory),
        };
        let key = key(NAMES[which]);
        let announced = match self.hub.get(&which) {
            Some(there) => inventory.profile(&key, there.facts()),
            None => inventory.profile_gone(&key),
        };
        self.follow(&announced);
    }

    fn change(&mut self, which: usize, change: impl FnOnce(&mut There)) -> usize {
        if let Some(there) = self.hub.get_mut(&which) {
            change(there);
        }
        which
    }

    /// The fleet keeps what it has, and removes what the new discovery has not named when it is in sync.
    fn restart(&mut self, inventory: &mut Inventory) {
        *inventory = with(inventory.memory.clone());
        let mut announced = Vec::new();
        for (which, there) in &self.hub {
            announced.extend(inventory.profile(&key(NAMES[*which]), there.facts()));
        }
        announced.extend(inventory.profiles_synced());
        self.follow(&announced);
        let there: Vec<&str> = self.hub.keys().map(|which| NAMES[*which]).collect();
        self.fleet.retain(|name, _| there.contains(&name.as_str()));
    }

    fn follow(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Upsert(spec) => {
                    let shown = self.fleet.entry(spec.name.to_string()).or_default();
                    let identity = spec.identity.as_deref().unwrap_or_default();
                    shown.broken = None;
                    shown.spec = Some(match &spec.availability {
                        Availability::Suspended { reason } => Err(reason.to_string()),
                        _ => Ok(format!("{identity} {}", server(spec))),
                    });
                }
                Change::Broken(broken) => {
                    let shown = self.fleet.entry(broken.name.to_string()).or_default();
                    shown.broken = Some(broken.error.to_string());
                }
                Change::Remove(name) => _ = self.fleet.remove(name.as_str()),
                _ => {}
            }
        }
    }

    /// The profile that counts for a member.
    fn first_of(&self, member: u8) -> Option<usize> {
        let members = self.hub.iter().filter(|(_, there)| there.member == Some(member));
        let first = members.min_by_key(|(which, there)| (there.created, NAMES[**which]));
        first.map(|(which, _)| *which)
    }

    /// Whether the fleet shows this cluster as the hub has it.
    fn check(&self, which: usize, there: &There) -> Result<(), TestCaseError> {
        let shown = &self.fleet[NAMES[which]];
        let first = there.member.and_then(|member| self.first_of(member));
        if let Some(first) = first.filter(|first| *first != which) {
            let reason = format!("ClusterProfile {} is older", NAMES[first]);
            let waits = matches!(&shown.spec, Some(Err(why)) if why.starts_with(&reason));
            prop_assert!(waits && shown.broken.is_none(), "a duplicate: {:?}", shown);
            return Ok(());
        }
        // Nothing of an earlier profile of this name.
        let identity = format!("u{} ", there.uid);
        if let Some(Ok(spec)) = &shown.spec {
            prop_assert!(spec.starts_with(&identity), "{} {}", spec, identity);
        }
        let fits = match (there.health, there.server) {
            (Health::True, Some(Ok(server))) => {
                shown.spec == Some(Ok(format!("{identity}s{server}"))) && shown.broken.is_none()
            }
            (Health::True, Some(Err(()))) => {
                !matches!(shown.spec, Some(Err(_)))
                    && shown.broken.as_ref().is_some_and(|why| why.contains("scheme"))
            }
            // It waits, or goes on with what it had.
            (Health::True, None) => matches!(
                (&shown.spec, &shown.broken),
                (Some(Err(_)), None) | (Some(Ok(_)) | None, Some(_))
            ),
            (Health::False, _) => {
                matches!(&shown.spec, Some(Err(why)) if why.contains("is False")) && shown.broken.is_none()
            }
            (Health::Unknown, _) => !matches!(
                (&shown.spec, &shown.broken),
                (Some(Err(_)), Some(_)) | (None, None)
            ),
        };
        prop_assert!(fits, "{:?} {:?}", there, shown);
        Ok(())
    }
}

fn step() -> impl Strategy<Value = Step> {
    let which = || 0..NAMES.len();
    let health = prop_oneof![
        2 => Just(Health::True),
        1 => Just(Health::False),
        1 => Just(Health::Unknown),
    ];
    let id = prop::option::weighted(0.8, 0..2_u8);
    let server = prop::option::weighted(0.7, 0..2_u8);
    prop_oneof![
        4 => which().prop_map(Step::Create),
        3 => (which(), health).prop_map(|(which, health)| Step::Health(which, health)),
        4 => (which(), id).prop_map(|(which, id)| Step::Member(which, id)),
        3 => (which(), server).prop_map(|(which, server)| Step::Server(which, server)),
        1 => which().prop_map(Step::Wrong),
        2 => which().prop_map(Step::Delete),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens to the ClusterProfiles of an inventory: a fleet that follows what is said shows what the hub has, and no
    /// cluster twice.
    #[test]
    fn a_fleet_shows_what_the_hub_has_and_no_cluster_twice(steps in prop::collection::vec(step(), 0..40)) {
        let (mut world, mut inventory) = (World::default(), synced());
        for step in steps {
            world.step(step, &mut inventory);
            let mut names: Vec<&str> = world.fleet.keys().map(String::as_str).collect();
            names.sort_unstable();
            let mut there: Vec<&str> = world.hub.keys().map(|which| NAMES[*which]).collect();
            there.sort_unstable();
            prop_assert_eq!(names, there);
            for (which, there) in &world.hub {
                world.check(*which, there)?;
            }
        }
    }
}
