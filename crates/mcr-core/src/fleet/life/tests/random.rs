//! Random histories.

use proptest::prelude::*;

use super::*;

/// The server, as an action finds it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Server {
    Answers,
    Refuses,
    Silent,
}

/// The longest time that an attempt takes at a server that answers, or a probe at one that does not.
const ATTEMPT: Duration = Duration::from_secs(8);

/// What an action brings that takes time, at this server.
fn brings(action: &Action, server: Server) -> Event {
    let failure = if server == Server::Refuses {
        refused()
    } else {
        silent()
    };
    let answers = server == Server::Answers;
    let answer = if answers { Ok(()) } else { Err(failure.clone()) };
    match action {
        Action::Connect(_) if answers => connected(false),
        Action::Connect(_) => Event::NotConnected(failure),
        Action::TryPrevious(why) => fallback(false, why.clone()),
        Action::AwaitTurn => Event::Due,
        Action::Probe(_) => probed(false, answer),
        Action::ProbeCredential => probed(true, answer),
        Action::Renew(why) => match server {
            Server::Answers => Event::Renewed,
            Server::Refuses => Event::NotRenewed {
                why: *why,
                problem: None,
            },
            Server::Silent => Event::FellSilent(failure),
        },
        Action::Resolve => Event::Resolved(Ok(SpecChange::Endpoint)),
        Action::TryCredentials if answers => Event::Swapped,
        Action::TryCredentials => Event::NotSwapped(failure),
        action => unreachable!("{action:?} takes no time"),
    }
}

/// A life with what is under way, as the supervisor runs it.
struct World {
    life: Life,
    now: Instant,
    under_way: Option<Action>,
}

impl World {
    fn follow(&mut self, event: Event) {
        let actions = self.life.decide(event, self.now);
        let adopts = actions.iter().position(|action| *action == Action::Adopt);
        assert!(
            adopts.is_none_or(|at| at == 0),
            "the link goes up before it is used: {actions:?}"
        );
        let mut long = actions.into_iter().filter(takes_time);
        self.under_way = long.next();
        assert_eq!(long.next(), None, "one action at a time takes time");
    }

    /// Whether the supervisor may receive an event now.
    fn may_receive(&self, event: &Event) -> bool {
        match event {
            Event::Announced { .. } => matches!(
                self.under_way,
                None | Some(Action::Connect(_) | Action::AwaitTurn | Action::TryCredentials)
            ),
            Event::Panicked { .. } => true,
            Event::Doubted | Event::Refused | Event::Expiring => {
                self.under_way.is_none() && self.life.state == State::Ready
            }
            _ => false,
        }
    }

    /// Something is always going to happen, unless the cluster is suspended or its engagement has ended.
    fn is_never_stuck(&self) {
        let idle = self.under_way.is_none() && self.life.retry_at.is_none();
        let rests = matches!(
            self.life.state,
            State::Ready | State::Suspended { .. } | State::Draining(_)
        );
        assert!(!idle || rests, "{:?} waits for nothing", self.life.state);
    }

    /// What was under way ends, or the pause.
    fn go_on(&mut self, server: Server) {
        if let Some(action) = self.under_way.take() {
            if action == Action::AwaitTurn {
                self.now += Duration::from_secs(20);
            } else {
                self.now += if server == Server::Silent {
                    ATTEMPT
                } else {
                    ATTEMPT / 8
                };
            }
            self.follow(brings(&action, server));
        } else if let Some(at) = self.life.retry_at {
            self.now = self.now.max(at);
            self.follow(Event::Due);
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Happens(Event),
    GoesOn(Server),
}

fn server() -> impl Strategy<Value = Server> {
    prop_oneof![Just(Server::Answers), Just(Server::Refuses), Just(Server::Silent)]
}

fn step() -> impl Strategy<Value = Step> {
    let external = [
        announced(),
        Event::Announced {
            suspended: Some(text("it sleeps")),
        },
        Event::Panicked { suspended: None },
        Event::Doubted,
        Event::Refused,
        Event::Expiring,
    ];
    prop_oneof![
        1 => proptest::sample::select(external.to_vec()).prop_map(Step::Happens),
        2 => server().prop_map(Step::GoesOn),
    ]
}

proptest! {
    /// Promise 1: within 35 s of the end of the fault.
    #[test]
    fn after_any_history_a_cluster_whose_server_answers_is_ready_within_the_promised_time(
        steps in proptest::collection::vec(step(), 0..60),
    ) {
        let mut world = World {
            life: Life::new(CAP, Instant::now()),
            now: Instant::now(),
            under_way: None,
        };
        world.follow(announced());
        for step in steps {
            match step {
                Step::Happens(event) if world.may_receive(&event) => world.follow(event),
                Step::Happens(_) => {}
                Step::GoesOn(server) => world.go_on(server),
            }
            world.is_never_stuck();
        }
        if world.life.suspended.is_some() {
            world.follow(announced());
        }
        // The attempt under way does not know yet that the server answers again.
        let end_of_fault = world.now;
        if world.under_way.is_some() {
            world.go_on(Server::Silent);
        }
        for _ in 0..20 {
            if world.life.state == State::Ready && world.under_way.is_none() {
                break;
            }
            world.go_on(Server::Answers);
        }
        prop_assert_eq!(&world.life.state, &State::Ready);
        let took = world.now - end_of_fault;
        prop_assert!(took <= Duration::from_secs(35), "{:?}", took);
        // Nothing is left of the fault.
        prop_assert!(!world.life.refused);
    }
}
