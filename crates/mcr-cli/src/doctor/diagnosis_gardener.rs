//! Turns facts about a Shoot of Gardener into a finding. Without I/O.

use super::{
    command::{Command, SHOOTS},
    diagnosis_cluster_api::Obstacle,
    facts::ShootFacts,
    fix::Fix,
};
use crate::level::Level;

/// Why a Shoot is not in the fleet. `None`: the facts show no reason.
pub(super) fn absent(facts: &ShootFacts) -> Option<Obstacle> {
    let ShootFacts { namespace, name, .. } = facts;
    let problem = |saw: String, fix: Fix| {
        Some(Obstacle {
            level: Level::Problem,
            saw,
            fix: Some(fix),
        })
    };
    if let Some(wanted) = facts.looks_in.as_ref().filter(|wanted| *wanted != namespace) {
        let saw =
            format!("there is a Shoot {name} in namespace {namespace}, but the provider looks in {wanted}");
        return problem(saw, Fix::action(format!("repeat with -n {namespace}")));
    }
    if !facts.selected {
        let saw = format!("the labels of the Shoot {namespace}/{name} do not match --selector");
        let fix = Fix::action("add the labels to the Shoot, or repeat with another --selector");
        return problem(saw, fix);
    }
    if facts.deleting {
        let saw = format!(
            "the Shoot {namespace}/{name} is being deleted; it left the fleet when its deletion began \
             (GardenerProviderBuilder::keep_while keeps it longer)"
        );
        let look = Fix::action("look at its last operation, which says what the deletion waits for");
        return problem(saw, look.and_run(describe(namespace, name)));
    }
    None
}

/// Shows a Shoot, with its last operation and conditions.
pub(super) fn describe(namespace: &str, name: &str) -> Command {
    Command::Describe {
        resource: SHOOTS,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shoot_that_is_not_in_the_fleet_has_one_reason() {
        let mut facts = ShootFacts {
            provider: "gardener".into(),
            namespace: "garden-dev".into(),
            name: "one".into(),
            looks_in: Some("garden-other".into()),
            selected: false,
            deleting: true,
        };
        let found = |facts: &ShootFacts, saw: &str, fix: &str| {
            absent(facts).unwrap().is(Level::Problem, saw, fix);
        };
        found(&facts, "looks in garden-other", "repeat with -n garden-dev");
        facts.looks_in = None;
        found(&facts, "do not match --selector", "--selector");
        facts.selected = true;
        let describe = "kubectl -n garden-dev describe shoots.core.gardener.cloud one";
        found(&facts, "is being deleted", describe);
        facts.deleting = false;
        assert_eq!(absent(&facts), None);
    }
}
