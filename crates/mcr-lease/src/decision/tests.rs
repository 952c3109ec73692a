//! Several candidates over a simulated API server with delays, lost responses, pauses, deaths and deletions.

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);
const DURATIONS: Durations = Durations {
    lease: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};
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
                    record.holder = None;
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
        if self.now.subsec_millis() % 100 != 0 {
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
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

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

fn record(version: &str, holder: Option<&str>) -> Record {
    Record {
        uid: "u".to_owned(),
        version: version.to_owned(),
        holder: holder.map(str::to_owned),
        duration: Some(DURATIONS.lease),
        written: true,
    }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn candidate() -> Decision {
    Decision::new("me".into(), DURATIONS)
}

#[test]
fn a_foreign_record_expires_when_it_was_not_changed_for_its_duration_on_the_local_clock() {
    let mut me = candidate();
    assert_eq!(me.step(at(100)), Step::Read);
    me.read(at(100), Some(record("1", Some("other"))));
    me.read(at(110), Some(record("2", Some("other"))));
    me.read(at(124), Some(record("2", Some("other"))));
    assert_eq!(me.step(at(124)), Step::Wait(at(125)));
    assert_eq!(me.step(at(125)), Step::Update);
}

#[test]
fn a_holder_believes_from_the_time_at_which_it_sent_the_write() {
    let mut me = candidate();
    me.read(at(100), Some(record("1", None)));
    me.written(at(100), at(104), record("2", Some("me")));
    assert!(me.is_held(at(109)) && !me.is_held(at(110)));
    assert_eq!(me.term().stop_by, at(112) + MS * 500);
    // A response that comes after the deadline of its write gives nothing.
    let mut late = candidate();
    late.read(at(100), Some(record("1", None)));
    late.written(at(100), at(110), record("2", Some("me")));
    assert!(!late.is_held(at(110)) && late.term().number == 0);
}

#[test]
fn a_lapse_begins_a_new_term_and_a_renewal_does_not() {
    let mut me = candidate();
    me.read(at(100), Some(record("1", None)));
    me.written(at(100), at(100), record("2", Some("me")));
    me.written(at(109), at(109), record("3", Some("me")));
    assert_eq!(me.term().number, 1);
    me.written(at(120), at(120), record("4", Some("me")));
    assert_eq!(me.term().number, 2);
}

#[test]
fn a_rival_in_the_record_ends_the_term_at_once() {
    let mut me = candidate();
    me.read(at(100), Some(record("1", None)));
    me.written(at(100), at(100), record("2", Some("me")));
    me.rejected(at(102));
    assert!(me.is_held(at(102)), "a conflict alone may come from a label");
    assert_eq!(me.step(at(102)), Step::Read);
    me.read(at(102), Some(record("3", Some("other"))));
    assert!(!me.is_held(at(102)) && me.term().stop_by.is_zero());
}

#[test]
fn a_deleted_lease_is_created_again_by_its_holder_and_claimed_by_others() {
    let mut me = candidate();
    me.read(at(100), Some(record("1", None)));
    me.written(at(100), at(100), record("2", Some("me")));
    me.rejected(at(102));
    me.read(at(102), None);
    assert_eq!((me.step(at(102)), me.is_held(at(102))), (Step::Create, true));
    let created = Record {
        uid: "v".to_owned(),
        ..record("3", Some("me"))
    };
    me.written(at(102), at(102), created.clone());
    assert!(me.is_held(at(111)) && me.term().number == 1);

    let mut rival = candidate();
    rival.read(at(100), Some(record("2", Some("other"))));
    rival.read(at(101), None);
    assert_eq!(
        rival.step(at(101)),
        Step::Wait(at(104)),
        "the holder has time to create it"
    );
    assert_eq!(rival.step(at(104)), Step::Create);

    let mut other = candidate();
    other.read(at(100), None);
    assert_eq!(other.step(at(100)), Step::Create);
    other.written(at(100), at(101), created);
    assert!(!other.is_held(at(101)) && !other.may_release(at(101)));
    // It keeps its claim, and leads after a write at the end of the wait.
    other.written(at(115), at(115), record("4", Some("me")));
}

#[test]
fn a_claim_becomes_a_term_by_a_write_after_the_wait() {
    // The response to the creation was lost.
    let mut me = candidate();
    me.read(at(100), None);
    me.failed(at(104));
    me.read(at(106), Some(record("1", Some("me"))));
    me.written(at(106), at(106), record("2", Some("me")));
    assert!(!me.is_held(at(106)));
    me.written(at(119), at(119), record("3", Some("me")));
    assert_eq!(me.step(at(120)), Step::Wait(at(121)));
    // The wait ends at 121 s, while this write is on its way.
    me.written(at(120), at(122), record("4", Some("me")));
    assert!(!me.is_held(at(122)));
    me.written(at(122), at(122), record("5", Some("me")));
    assert!(me.is_held(at(122)) && me.term().number == 1);
}

#[test]
fn a_lease_that_no_candidate_has_written_is_claimed() {
    let mut me = candidate();
    let blank = Record {
        written: false,
        duration: None,
        ..record("1", None)
    };
    me.read(at(100), Some(blank));
    assert_eq!(me.step(at(100)), Step::Update);
    me.written(at(100), at(100), record("2", Some("me")));
    assert!(!me.is_held(at(100)));
    me.written(at(115), at(115), record("3", Some("me")));
    assert!(me.is_held(at(115)));
}

#[test]
fn a_server_that_refuses_every_write_is_asked_with_pauses() {
    let mut me = candidate();
    me.read(at(100), Some(record("1", None)));
    me.rejected(at(100));
    me.read(at(100), Some(record("1", None)));
    assert_eq!(me.step(at(100)), Step::Update);
    me.rejected(at(100));
    assert_eq!(me.step(at(100)), Step::Wait(at(102)));
}
