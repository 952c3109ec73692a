//! Several candidates over a simulated API server with delays, lost responses, pauses, deaths and deletions.

use proptest::prelude::*;

use super::*;

/// The timeout of a request.
const LIMIT: Duration = Duration::from_secs(4);

/// Chooses what happens. The same seed chooses the same.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// How sick the world is.
#[derive(Debug, Clone, Copy)]
struct Sickness {
    /// The longest time of a request to the server, and of its response back.
    delay: u64,
    /// The share of lost responses, in percent.
    lost: u64,
    /// Each 100 ms, in a thousand: a candidate is paused, a candidate dies and another starts, a Lease is deleted.
    pauses: u64,
    deaths: u64,
    deletions: u64,
}

const HEALTHY: Sickness = Sickness {
    delay: 50,
    lost: 0,
    pauses: 0,
    deaths: 0,
    deletions: 0,
};

/// The Lease on the server.
#[derive(Default)]
struct Server {
    record: Option<Record>,
    writes: u64,
}

impl Server {
    fn version(&mut self) -> String {
        self.writes += 1;
        self.writes.to_string()
    }

    fn apply(&mut self, request: &Request) -> Response {
        let held = |uid: String, version: String| Record {
            uid,
            version,
            holder: Some(request.identity.to_string()),
            duration: Some(DURATIONS.lease),
            written: true,
        };
        match (&request.kind, &self.record) {
            (Kind::Read, record) => return Response::Read(record.clone()),
            (Kind::Create, None) => {
                let version = self.version();
                self.record = Some(held(format!("uid-{version}"), version));
            }
            (Kind::Update(seen) | Kind::Release(seen), Some(record))
                if (&seen.uid, &seen.version) == (&record.uid, &record.version) =>
            {
                let uid = record.uid.clone();
                let mut record = held(uid, self.version());
                if matches!(request.kind, Kind::Release(_)) {
                    (record.holder, record.duration) = (None, Some(RELEASED));
                }
                self.record = Some(record);
            }
            _ => return Response::Rejected,
        }
        Response::Written(self.record.clone().unwrap())
    }
}

enum Kind {
    Read,
    Create,
    Update(Record),
    Release(Record),
}

enum Response {
    Read(Option<Record>),
    Written(Record),
    Rejected,
}

/// A request on its way. The server applies it even if its sender has given up or died.
struct Request {
    number: u64,
    identity: Arc<str>,
    kind: Kind,
    sent: Duration,
    arrives: Duration,
    response: Option<(Duration, Response)>,
    lost: bool,
}

struct Process {
    decision: Decision,
    identity: Arc<str>,
    alive: bool,
    /// A paused process runs nothing until then. Its clock goes on.
    paused_until: Duration,
    /// The number of the request that the process waits for, and when it gives up.
    waits: Option<(u64, Duration)>,
    /// The clock of the process minus the time of the simulation.
    offset: Duration,
}

impl Process {
    fn believes(&self, now: Duration) -> bool {
        self.alive && self.decision.is_held(now + self.offset)
    }
}

struct World {
    now: Duration,
    chance: Chance,
    sickness: Sickness,
    server: Server,
    processes: Vec<Process>,
    requests: Vec<Request>,
    sent: u64,
    /// Terms that have begun, by process and number.
    terms: usize,
}

impl World {
    fn new(seed: u64, candidates: usize, sickness: Sickness) -> Self {
        let mut world = Self {
            now: Duration::ZERO,
            chance: Chance(seed | 1),
            sickness,
            server: Server::default(),
            processes: Vec::new(),
            requests: Vec::new(),
            sent: 0,
            terms: 0,
        };
        for _ in 0..candidates {
            world.start();
        }
        world
    }

    fn start(&mut self) {
        let identity: Arc<str> = format!("candidate-{}", self.processes.len()).into();
        let offset = Duration::from_secs(self.chance.below(100_000));
        self.processes.push(Process {
            decision: Decision::new(identity.clone(), DURATIONS),
            identity,
            alive: true,
            paused_until: Duration::ZERO,
            waits: None,
            offset,
        });
    }

    fn holders(&self) -> Vec<usize> {
        (0..self.processes.len())
            .filter(|at| self.processes[*at].believes(self.now))
            .collect()
    }

    /// Lets 10 ms pass.
    fn tick(&mut self) {
        self.now += MS * 10;
        self.misfortune();
        let now = self.now;
        let longest = self.sickness.delay;
        for at in 0..self.requests.len() {
            let request = &self.requests[at];
            if request.response.is_none() && request.arrives <= now {
                let response = self.server.apply(request);
                let back = now + MS * u32::try_from(self.chance.below(longest + 1)).unwrap();
                self.requests[at].response = Some((back, response));
            }
        }
        for at in 0..self.processes.len() {
            let process = &self.processes[at];
            if process.alive && process.paused_until <= now {
                self.run(at);
            }
        }
        self.requests.retain(|request| {
            request
                .response
                .as_ref()
                .is_none_or(|(back, _)| *back + LIMIT * 10 > now)
        });
    }

    fn misfortune(&mut self) {
        if !self.now.subsec_millis().is_multiple_of(100) {
            return;
        }
        let Sickness {
            pauses,
            deaths,
            deletions,
            ..
        } = self.sickness;
        let alive: Vec<usize> = (0..self.processes.len())
            .filter(|at| self.processes[*at].alive)
            .collect();
        let one = alive[usize::try_from(self.chance.below(alive.len() as u64)).unwrap()];
        if self.chance.below(1000) < pauses {
            let long = MS * u32::try_from(self.chance.below(30_000)).unwrap();
            self.processes[one].paused_until = self.now + long;
        }
        if self.chance.below(1000) < deaths {
            // Half of the processes that end release the Lease. The response comes too late for them.
            if self.chance.percent(50) {
                self.release(one);
            }
            self.processes[one].alive = false;
            self.start();
        }
        if self.chance.below(1000) < deletions {
            self.server.record = None;
        }
    }

    fn release(&mut self, at: usize) {
        let process = &mut self.processes[at];
        if process.decision.may_release(self.now + process.offset)
            && let Seen::Record(seen) = process.decision.seen.clone()
        {
            process.decision.lose();
            self.send(at, Kind::Release(seen));
        }
    }

    /// Runs a process: takes the response that it waits for, and takes its next step.
    fn run(&mut self, at: usize) {
        let local = self.now + self.processes[at].offset;
        if let Some((number, until)) = self.processes[at].waits {
            let request = self.requests.iter_mut().find(|request| request.number == number);
            let arrived = request.filter(|request| {
                !request.lost
                    && request
                        .response
                        .as_ref()
                        .is_some_and(|(back, _)| *back <= self.now)
            });
            let decision = &mut self.processes[at].decision;
            match arrived {
                Some(request) => {
                    let sent = request.sent;
                    let before = decision.term().number;
                    match request.response.take().unwrap().1 {
                        Response::Read(record) => decision.read(local, record),
                        Response::Written(record) => decision.written(sent, local, record),
                        Response::Rejected => decision.rejected(local),
                    }
                    self.terms += usize::from(decision.term().number > before);
                    self.requests.retain(|request| request.number != number);
                }
                None if until <= self.now => decision.failed(local),
                None => return,
            }
            self.processes[at].waits = None;
        }
        let decision = &self.processes[at].decision;
        let kind = match (decision.step(local), &decision.seen) {
            (Step::Wait(_), _) => return,
            (Step::Read, _) => Kind::Read,
            (Step::Create, _) => Kind::Create,
            (Step::Update, Seen::Record(seen)) => Kind::Update(seen.clone()),
            (Step::Update, seen) => panic!("an update of {seen:?}"),
        };
        let number = self.send(at, kind);
        self.processes[at].waits = Some((number, self.now + LIMIT));
    }

    fn send(&mut self, at: usize, kind: Kind) -> u64 {
        self.sent += 1;
        let late = MS * u32::try_from(self.chance.below(self.sickness.delay + 1)).unwrap();
        let lost = self.chance.percent(self.sickness.lost);
        self.requests.push(Request {
            number: self.sent,
            identity: self.processes[at].identity.clone(),
            kind,
            sent: self.now + self.processes[at].offset,
            arrives: self.now + late,
            response: None,
            lost,
        });
        self.sent
    }

    /// Lets time pass until somebody leads.
    fn until_led(&mut self, within: Duration) -> usize {
        let until = self.now + within;
        loop {
            if let [holder] = self.holders()[..] {
                return holder;
            }
            assert!(self.now < until, "nobody leads within {within:?}");
            self.tick();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn there_are_never_two_holders(
        seed: u64,
        candidates in 2..5_usize,
        delay in prop_oneof![Just(100_u64), Just(3_000), Just(15_000)],
        lost in 0..40_u64,
        pauses in 0..30_u64,
        deaths in 0..10_u64,
        deletions in 0..30_u64,
    ) {
        let mut world = World::new(seed, candidates, Sickness { delay, lost, pauses, deaths, deletions });
        while world.now < Duration::from_secs(300) {
            world.tick();
            let holders = world.holders();
            prop_assert!(holders.len() < 2, "{holders:?} lead at {:?}", world.now);
        }
    }

    #[test]
    fn another_candidate_leads_within_the_lease_and_two_seconds_after_a_death(
        seed: u64,
        candidates in 2..5_usize,
        after in 0..10_000_u32,
    ) {
        let mut world = World::new(seed, candidates, HEALTHY);
        world.until_led(DURATIONS.lease * 2);
        for _ in 0..3 {
            let alive_until = world.now + MS * (5_000 + after);
            while world.now < alive_until {
                world.tick();
                prop_assert_eq!(world.holders().len(), 1);
            }
            let holder = world.holders()[0];
            world.processes[holder].alive = false;
            world.start();
            world.until_led(DURATIONS.lease + Duration::from_secs(2));
        }
    }

    #[test]
    fn a_released_lease_is_taken_at_the_next_read(seed: u64) {
        let mut world = World::new(seed, 2, HEALTHY);
        let holder = world.until_led(DURATIONS.lease * 2);
        while world.now < Duration::from_secs(40) {
            world.tick();
        }
        world.release(holder);
        world.processes[holder].alive = false;
        prop_assert!(world.holders().is_empty());
        world.until_led(DURATIONS.retry_period);
    }
}

/// Whether the simulation reaches the interesting states at all.
#[test]
fn a_sick_world_has_many_terms() {
    let sickness = Sickness {
        delay: 3_000,
        lost: 20,
        pauses: 10,
        deaths: 5,
        deletions: 1,
    };
    let mut world = World::new(7, 3, sickness);
    while world.now < Duration::from_secs(3_000) {
        world.tick();
    }
    assert!(world.terms > 20, "{}", world.terms);
}
