mod random;

use super::*;

const CAP: Duration = Duration::from_secs(20);

fn text(text: &str) -> Arc<str> {
    text.into()
}

fn silent() -> ConnectError {
    ConnectError::new("no answer")
}

/// The server answers with 401.
fn refused() -> ConnectError {
    ConnectError {
        unauthorized: true,
        ..silent()
    }
}

fn announced() -> Event {
    Event::Announced { suspended: None }
}

fn connected(moved: bool) -> Event {
    Event::Connected { moved }
}

fn fallback(answers: bool, why: ConnectError) -> Event {
    Event::Fallback { answers, why }
}

fn probed(renewed: bool, answer: Result<(), ConnectError>) -> Event {
    Event::Probed { renewed, answer }
}

/// A life in each state, with its name in the table.
fn states() -> Vec<(&'static str, Life)> {
    let of = |state| Life {
        state,
        endpoint: EndpointNumber(7),
        ..Life::new(CAP, Instant::now())
    };
    let reason = || text("it sleeps");
    let mut suspended = of(State::Suspended { reason: reason() });
    suspended.suspended = Some(reason());
    vec![
        ("Discovered", of(State::Discovered)),
        ("Connecting", of(State::Connecting { why: NOT_YET })),
        ("Ready", of(State::Ready)),
        ("Unreachable", of(State::Unreachable { reason: reason() })),
        ("Suspended", suspended),
        ("Duplicate", of(State::Duplicate { reason: reason() })),
        ("Draining", of(State::Draining(End::Left))),
    ]
}

/// All events, with their names in the table.
fn events() -> Vec<(&'static str, Event)> {
    let problem = || Some("it fails".to_owned());
    let (early, late) = (Refresh::Expiring, Refresh::Unauthorized);
    let not_renewed = |why, problem| Event::NotRenewed { why, problem };
    let resolved = |change| Event::Resolved(Ok(change));
    let sleeps = Some(text("it sleeps"));
    let replaced = Event::Ended(End::Replaced);
    let reason = text("taken");
    let mut busy = silent();
    busy.busy = true;
    vec![
        ("announced", announced()),
        ("announced as suspended", Event::Announced { suspended: sleeps }),
        ("removed", Event::Ended(End::Left)),
        ("the fleet stops", Event::Ended(End::Stopped)),
        ("its hub joins, or it is declared as another one", replaced),
        ("another cluster answers", Event::AnotherAnswers),
        ("a panic", Event::Panicked { suspended: None }),
        ("the pause is over", Event::Due),
        ("the attempt succeeds", connected(false)),
        ("the attempt succeeds at a new address", connected(true)),
        ("it is engaged under another name", Event::Taken { reason }),
        ("the attempt fails", Event::NotConnected(silent())),
        ("the previous connection works", fallback(true, silent())),
        ("nor does the previous connection work", fallback(false, silent())),
        (
            "the same, and the credentials are refused",
            fallback(false, refused()),
        ),
        ("a watch or request fails, or silence", Event::Doubted),
        ("a request is refused (401)", Event::Refused),
        ("the credential is due", Event::Expiring),
        ("the probe is answered", probed(false, Ok(()))),
        ("the probe is not answered", probed(false, Err(silent()))),
        ("the probe is refused (401)", probed(false, Err(refused()))),
        ("the probe is answered with 429", probed(false, Err(busy))),
        ("the credential is accepted after all", probed(true, Ok(()))),
        ("the credential is still refused", probed(true, Err(refused()))),
        ("a newer credential is in use", Event::Renewed),
        ("nothing newer before the end", not_renewed(early, None)),
        ("nothing newer after a 401", not_renewed(late, None)),
        ("the source fails before the end", not_renewed(early, problem())),
        ("the source fails after a 401", not_renewed(late, problem())),
        ("silence while renewing", Event::FellSilent(silent())),
        (
            "the spec can't be resolved",
            Event::Resolved(Err("it is broken".into())),
        ),
        ("only labels differ", resolved(SpecChange::Info)),
        ("the credentials differ", resolved(SpecChange::Credentials)),
        ("the address differs", resolved(SpecChange::Endpoint)),
        ("the identity differs", resolved(SpecChange::Identity)),
        ("they are accepted", Event::Swapped),
        ("they are refused", Event::NotSwapped(refused())),
    ]
}

fn name(state: &State) -> &'static str {
    match state {
        State::Discovered => "Discovered",
        State::Connecting { .. } => "Connecting",
        State::Ready => "Ready",
        State::Unreachable { .. } => "Unreachable",
        State::Suspended { .. } => "Suspended",
        State::Duplicate { .. } => "Duplicate",
        State::Draining(_) => "Draining",
    }
}

fn named(action: &Action) -> &'static str {
    match action {
        Action::Adopt => "use it",
        Action::ShowSpec => "show them",
        Action::Disconnect => "disconnect",
        Action::Release => "let others be engaged",
        Action::Warn(_) => "warn",
        Action::Connect(Refresh::Unauthorized) => "connect with a newer credential",
        Action::Connect(_) => "connect",
        Action::TryPrevious(_) => "try the previous connection",
        Action::AwaitTurn => "wait for its turn",
        Action::Probe(_) => "probe",
        Action::ProbeCredential => "probe the credential",
        Action::Renew(_) => "renew",
        Action::Resolve => "compare the specs",
        Action::TryCredentials => "try them",
    }
}

fn takes_time(action: &Action) -> bool {
    !matches!(
        action,
        Action::Adopt | Action::ShowSpec | Action::Disconnect | Action::Release | Action::Warn(_)
    )
}

/// What becomes of a life. A pause is an action here.
fn outcome(life: &Life, event: &Event) -> (State, String) {
    let (mut life, now) = (life.clone(), Instant::now());
    let actions = life.decide(event.clone(), now);
    let mut words: Vec<_> = actions.iter().map(named).collect();
    if life.retry_at.is_some() {
        words.push("pause");
    }
    (life.state, words.join(", "))
}

/// A page of docs/design.
fn page(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/");
    std::fs::read_to_string(format!("{folder}{name}")).unwrap()
}

/// The table of docs/design/fleet.md: how each state is published.
#[test]
fn the_page_has_the_table_of_states() {
    let mut table = String::from("| state | shown as | link |\n| --- | --- | --- |\n");
    for (state, life) in states() {
        let Published {
            state: shown, link, ..
        } = life.published();
        let link = match link {
            Some(LinkState::Up(_)) => "up",
            Some(LinkState::Down {
                ends_requests: true, ..
            }) => "down, and ends requests that wait",
            Some(LinkState::Down { .. }) => "down",
            None => "as it was",
        };
        table += &format!("| {state} | {} | {link} |\n", shown.as_str());
    }
    assert!(
        page("fleet.md").contains(&table),
        "the page has another table than:\n{table}"
    );
}

/// The table of docs/design/fleet-states.md: for each event, the states that it changes or in which something is done.
fn table() -> String {
    let mut lines = String::from("| event | in | then | and |\n| --- | --- | --- | --- |\n");
    for (event_name, event) in events() {
        // States in which the same happens share a line.
        let mut rows: Vec<(Vec<&str>, String, String)> = Vec::new();
        for (state, life) in states() {
            let (to, actions) = outcome(&life, &event);
            if to == life.state && actions.is_empty() {
                continue;
            }
            let to = name(&to).to_owned();
            match rows.iter_mut().find(|row| row.1 == to && row.2 == actions) {
                Some(row) => row.0.push(state),
                None => rows.push((vec![state], to, actions)),
            }
        }
        for (from, to, actions) in rows {
            let any = from.len() + 1 == states().len() && !from.contains(&"Draining");
            let from = if any { "any".to_owned() } else { from.join(", ") };
            lines += &format!("| {event_name} | {from} | {to} | {actions} |\n");
        }
    }
    lines
}

#[test]
fn the_page_has_the_table_of_events() {
    let table = table();
    assert!(
        page("fleet-states.md").contains(&table),
        "the page has another table than:\n{table}"
    );
}

#[test]
fn an_ended_engagement_follows_no_event_any_more() {
    for end in [End::Left, End::Replaced, End::Stopped] {
        let mut life = Life::new(CAP, Instant::now());
        assert!(life.decide(Event::Ended(end), Instant::now()).is_empty());
        for (event_name, event) in events() {
            assert!(life.decide(event, Instant::now()).is_empty(), "{event_name}");
            assert_eq!(life.state, State::Draining(end), "{event_name}");
        }
    }
}

/// The link and the state that is shown belong together, in each state.
#[test]
fn the_link_is_up_only_while_the_cluster_is_ready_and_lost_only_when_it_is_unreachable() {
    for (state, life) in states() {
        let Published {
            state: shown,
            link,
            closes,
        } = life.published();
        let is_up = link == Some(LinkState::Up(EndpointNumber(7)));
        assert_eq!(
            (is_up, shown.is_ready()),
            (state == "Ready", state == "Ready"),
            "{state}"
        );
        let is_lost = matches!(
            link,
            Some(LinkState::Down {
                ends_requests: true,
                ..
            })
        );
        assert_eq!(is_lost, state == "Unreachable", "{state}");
        assert_eq!(link.is_none(), state == "Draining", "{state}");
        assert!(!closes, "{state}: running work has a grace period");
        if let Some(LinkState::Down { reason, .. }) = link {
            assert!(
                !reason.is_empty() && shown.reason().is_none_or(|shown| reason.contains(shown)),
                "{state}"
            );
        }
    }
    for (end, closes) in [(End::Left, false), (End::Stopped, false), (End::Replaced, true)] {
        let mut life = Life::new(CAP, Instant::now());
        life.decide(Event::Ended(end), Instant::now());
        assert_eq!(
            life.published().closes,
            closes,
            "{end:?}: another cluster may answer there"
        );
    }
}

#[test]
fn the_endpoint_has_another_number_exactly_after_a_move() {
    let mut life = Life::new(CAP, Instant::now());
    let now = Instant::now();
    let mut endpoints = Vec::new();
    for event in [
        announced(),
        connected(true),
        Event::Doubted,
        probed(false, Err(silent())),
        connected(false),
        announced(),
        Event::Resolved(Ok(SpecChange::Credentials)),
        Event::Swapped,
        announced(),
        Event::Resolved(Ok(SpecChange::Endpoint)),
        connected(true),
    ] {
        life.decide(event, now);
        if let Some(LinkState::Up(endpoint)) = life.published().link {
            endpoints.push(endpoint.0);
        }
    }
    assert_eq!(endpoints, [1, 1, 1, 1, 1, 1, 1, 2]);
}

#[test]
fn a_refusal_fetches_one_newer_credential_at_once_and_then_pauses() {
    let (mut life, now) = (Life::new(CAP, Instant::now()), Instant::now());
    life.decide(announced(), now);
    let still_refused = || fallback(false, refused());
    assert_eq!(
        life.decide(still_refused(), now),
        [Action::Connect(Refresh::Unauthorized)]
    );
    assert_eq!(
        (life.decide(still_refused(), now), life.retry_at.is_some()),
        (vec![], true)
    );
    assert_eq!(
        life.decide(Event::Due, now),
        [Action::Connect(Refresh::Unauthorized)]
    );
    life.decide(connected(true), now);
    life.decide(Event::FellSilent(silent()), now);
    life.decide(Event::NotConnected(silent()), now);
    assert_eq!(
        life.decide(still_refused(), now),
        [Action::Connect(Refresh::Unauthorized)],
        "it was accepted meanwhile"
    );
}

/// Code of a user may panic when the spec before is dropped.
#[test]
fn a_cluster_that_is_announced_as_suspended_by_an_announcement_that_panics_is_suspended_after_the_pause() {
    let (mut life, now) = (Life::new(CAP, Instant::now()), Instant::now());
    life.decide(announced(), now);
    life.decide(connected(true), now);
    let suspended = Some(text("it sleeps"));
    assert_eq!(life.decide(Event::Panicked { suspended }, now), []);
    assert!(life.retry_at.is_some() && matches!(life.state, State::Unreachable { .. }));
    assert_eq!(life.decide(Event::Due, now), [Action::Disconnect]);
    assert!(matches!(life.state, State::Suspended { .. }));
    life.decide(Event::Announced { suspended: None }, now);
    assert_eq!(life.published().link, Some(LinkState::down(WAS_SUSPENDED)));
}

#[test]
fn a_probe_waits_half_a_second_after_the_last_one() {
    let (mut life, begin) = (Life::new(CAP, Instant::now()), Instant::now());
    life.decide(announced(), begin);
    let answered = begin + Duration::from_secs(3);
    life.decide(connected(true), answered);
    let probe = |at: Instant| vec![Action::Probe(at + Duration::from_millis(500))];
    assert_eq!(life.decide(Event::Doubted, answered), probe(answered));
    let later = begin + Duration::from_secs(9);
    life.decide(probed(false, Ok(())), later);
    assert_eq!(life.decide(Event::Doubted, later), probe(later));
}

#[test]
fn only_an_attempt_that_succeeds_shortens_the_pauses_again() {
    let (mut life, now) = (Life::new(CAP, Instant::now()), Instant::now());
    life.decide(announced(), now);
    let fails = |life: &mut Life| {
        life.decide(Event::NotConnected(silent()), now);
        life.decide(fallback(false, silent()), now);
        let pause = life.retry_at.unwrap() - now;
        life.decide(Event::Due, now);
        pause
    };
    let pauses: Vec<_> = (0..10).map(|_| fails(&mut life)).collect();
    assert!(pauses[0] <= Duration::from_millis(500) && pauses.iter().all(|pause| *pause <= CAP));
    assert!(pauses[9] >= CAP / 2, "{pauses:?}");
    life.decide(announced(), now);
    assert!(fails(&mut life) >= CAP / 2, "an announcement is no success");
    life.decide(connected(true), now);
    for end in [Event::NotSwapped(refused()), Event::Swapped] {
        for _ in 0..10 {
            life.decide(end.clone(), now);
        }
    }
    life.decide(Event::FellSilent(silent()), now);
    assert!(fails(&mut life) <= Duration::from_millis(500));
}
