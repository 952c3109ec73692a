//! Plays a scenario: does what its steps say, and compares the consumer's fleet with the expected one after each.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    Consumer, Seen, State,
    scenario::{Run, Scenario, Step},
    world::{Failure, PROFILES, World, fill},
};
use crate::suite::fail;

type Fleet = BTreeMap<String, Seen>;

/// A ClusterProfile that is added after each step. When the consumer has it, the consumer has noticed what came before.
const MARKER: &str = "fleet/marker-";

pub(super) async fn play<C: Consumer>(name: &str, scenario: &Scenario) {
    if let Err(error) = steps::<C>(scenario).await {
        fail(format!(
            "scenario {name}: {} (source: {})\n{error}",
            scenario.about, scenario.source
        ));
    }
}

async fn steps<C: Consumer>(scenario: &Scenario) -> Result<(), Failure> {
    let world = World::new(scenario).await?;
    let setup = world.setup(scenario);
    let mut consumer: Option<C> = None;
    let mut checks = Checks {
        world: &world,
        version: scenario.best_version(),
        reachable: BTreeSet::new(),
        before: Fleet::new(),
    };
    for (number, step) in scenario.steps.iter().enumerate() {
        let reported =
            |error: Failure| -> Failure { format!("step {number} ({}): {error}", step.about).into() };
        if step.restart
            && let Some(consumer) = consumer.take()
        {
            consumer.stop().await;
        }
        let mark = world.hub.audit().mark();
        act(&world, checks.version, step).map_err(reported)?;
        let marker = json!({"metadata": {"name": format!("marker-{number}")}, "status": null});
        world
            .hub
            .create(world.profile(checks.version, &marker))
            .map_err(|error| reported(error.into()))?;
        let running = match &mut consumer {
            Some(running) => running,
            None => consumer.insert(C::start(&setup).await),
        };
        let marker = format!("{MARKER}{number}");
        let end = Instant::now() + C::patience();
        let mut runs = Vec::new();
        loop {
            let mut fleet = running.fleet().await;
            let noticed = fleet.contains_key(&marker);
            fleet.retain(|key, _| !key.starts_with(MARKER));
            world.take_runs(&mut runs).map_err(reported)?;
            let so = if noticed {
                checks.compare(step, &fleet, &runs)
            } else {
                Err(format!(
                    "the consumer has not noticed the ClusterProfile {marker}"
                ))
            };
            match so {
                Ok(()) => {
                    checks.before = fleet;
                    break;
                }
                Err(why) if Instant::now() > end => {
                    let waited = C::patience();
                    let why =
                        format!("{why}\nwaited {waited:?}; the fleet is {fleet:#?}\nplugins: {runs:#?}");
                    return Err(reported(why.into()));
                }
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
        }
        let lists = world.lists_since(mark);
        if let Some(most) = step.lists.filter(|most| lists > *most) {
            let why = format!("ClusterProfiles were listed {lists} times, and at most {most} times is right");
            return Err(reported(why.into()));
        }
        let others = world.of_another_version(checks.version);
        if !others.is_empty() {
            let why = format!(
                "{} is the version to read, and these were asked for: {others:?}",
                checks.version
            );
            return Err(reported(why.into()));
        }
    }
    if let Some(consumer) = consumer {
        consumer.stop().await;
    }
    Ok(())
}

/// Does what the step says.
fn act(world: &World, version: &str, step: &Step) -> Result<(), Failure> {
    for key in &step.delete {
        world.hub.delete(PROFILES, key)?;
    }
    for more in &step.create {
        world.create(version, more)?;
    }
    for round in 0..step.repeat {
        for (key, patch) in &step.merge {
            let mut patch: Value = patch.clone();
            fill(&mut patch, &|text| {
                text.replace("$(round)", &format!("{round:02}"))
            });
            world.merge(key, &patch)?;
        }
    }
    Ok(())
}

struct Checks<'a> {
    world: &'a World,
    version: &'static str,
    /// The clusters that may have been reached by now, each with the access provider.
    reachable: BTreeSet<(String, String)>,
    /// The fleet after the last step.
    before: Fleet,
}

impl Checks<'_> {
    /// An error says how the fleet differs from the expected one.
    fn compare(&mut self, step: &Step, fleet: &Fleet, runs: &[Run]) -> Result<(), String> {
        if let Some(key) = fleet.keys().find(|key| !step.fleet.contains_key(*key)) {
            return Err(format!("{key} is in the fleet, and does not belong there"));
        }
        let mut reached_now = BTreeSet::new();
        for (key, expected) in &step.fleet {
            let seen = fleet
                .get(key)
                .ok_or_else(|| format!("{key} is not in the fleet"))?;
            if (seen.state, seen.reason) != (expected.state, expected.reason) {
                return Err(format!(
                    "{key} is {:?} for {:?}, and should be {:?} for {:?}",
                    seen.state, seen.reason, expected.state, expected.reason
                ));
            }
            for (name, value) in &expected.properties {
                let seen = seen.properties.get(name);
                if seen != Some(value) {
                    return Err(format!(
                        "{key}: its property {name} is {seen:?}, and should be {value:?}"
                    ));
                }
            }
            if expected.state == State::Ready {
                let named = key.split_once('/').map_or("", |(_, name)| name);
                let member = expected.member.as_deref().unwrap_or(named);
                reached_now.insert((member.to_owned(), expected.by.clone()));
            }
        }
        self.compare_engagements(step, fleet)?;
        self.reachable.extend(reached_now.iter().cloned());
        let reached = self.world.reached();
        if let Some((member, by)) = reached_now.difference(&reached).next() {
            return Err(format!(
                "cluster {member} was not reached with the credentials of {by}"
            ));
        }
        if let Some((member, by)) = reached.difference(&self.reachable).next() {
            return Err(format!(
                "cluster {member} was reached with the credentials of {by}, and should not be"
            ));
        }
        let Some(expected) = &step.runs else {
            return Ok(());
        };
        if let Some(run) = runs.iter().find(|run| !expected.contains(run)) {
            return Err(format!("a plugin was run so, and should not be: {run:?}"));
        }
        if let Some(run) = expected.iter().find(|run| !runs.contains(run)) {
            return Err(format!("a plugin was not run so: {run:?}"));
        }
        Ok(())
    }

    fn compare_engagements(&self, step: &Step, fleet: &Fleet) -> Result<(), String> {
        let of = |fleet: &Fleet, key: &String| fleet.get(key).map(|seen| seen.engagement);
        for key in &step.unchanged {
            if of(fleet, key) != of(&self.before, key) {
                return Err(format!(
                    "{key} was engaged anew, and nothing of it has changed that needs it"
                ));
            }
        }
        for key in &step.replaced {
            if of(fleet, key) == of(&self.before, key) {
                return Err(format!("{key} is another cluster now, and was not engaged anew"));
            }
        }
        Ok(())
    }
}
