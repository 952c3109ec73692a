//! Turns facts about a ClusterProfile of the Cluster Inventory API into findings. Without I/O.

use super::{
    command::{Command, PROFILES},
    diagnosis_cluster_api::Obstacle,
    facts::ProfileFacts,
    fix::Fix,
};
use crate::level::Level;

/// The label that two ClusterProfiles of one namespace share if they describe the same cluster.
pub(super) const MEMBER_ID_LABEL: &str = "multicluster.x-k8s.io/inventory-member-id";

/// The obstacle of a cluster that the provider announces, and that waits for this reason.
pub(super) fn waits(facts: &ProfileFacts, reason: &str) -> Obstacle {
    let mut saw = reason.to_owned();
    if let Some(why) = &facts.not_joined {
        saw.push_str(&format!("; its condition Joined is not True: {why}"));
    }
    let found = |level, fix| Obstacle {
        level,
        saw: saw.clone(),
        fix: Some(fix),
    };
    if facts.older.is_some() {
        let fix = format!(
            "choose this ClusterProfile with -l, if it is the one to use, or correct the label {MEMBER_ID_LABEL} of one of them"
        );
        return found(
            Level::Warning,
            Fix::action(fix).and_run(Command::ListAll(PROFILES)),
        );
    }
    if !facts.healthy {
        let fix = format!(
            "look at the ClusterProfile, whose conditions its cluster manager {} writes",
            facts.manager
        );
        return found(Level::Warning, describe(facts, fix));
    }
    if facts.by_secrets {
        let fix = "look at the cluster manager, which writes the Secret, and correct --consumer if it writes the Secret for \
                   another one";
        return found(Level::Problem, Fix::action(fix));
    }
    if facts.offers.is_empty() && !facts.hidden.is_empty() {
        saw.push_str(&format!(
            "; it has only the deprecated credentialProviders {}, which v1alpha2 does not show",
            facts.hidden.join(", ")
        ));
        let fix = "allow them with ClusterInventoryProviderBuilder::v1alpha1 in the controller";
        return Obstacle {
            level: Level::Problem,
            saw,
            fix: Some(Fix::action(fix)),
        };
    }
    if facts.offers.is_empty() {
        let fix = "look at the cluster manager: it, or an add-on of it, writes status.accessProviders";
        return found(Level::Warning, describe(facts, fix));
    }
    let fix = match facts.has_plugins {
        true => "add one of these access providers to the provider file, with the plugin that belongs to it",
        false => "repeat with the provider file of the controller, --clusterprofile-provider-file PATH",
    };
    found(Level::Problem, Fix::action(fix))
}

/// Why the provider does not announce a ClusterProfile. `None`: the facts show no reason.
pub(super) fn absent(facts: &ProfileFacts) -> Option<Obstacle> {
    let ProfileFacts { namespace, name, .. } = facts;
    let problem = |saw: String, fix: Fix| {
        Some(Obstacle {
            level: Level::Problem,
            saw,
            fix: Some(fix),
        })
    };
    if let Some(wanted) = facts.looks_in.as_ref().filter(|wanted| *wanted != namespace) {
        let saw = format!(
            "there is a ClusterProfile {name} in namespace {namespace}, but the provider looks in {wanted}"
        );
        return problem(saw, Fix::action(format!("repeat with -n {namespace}")));
    }
    if !facts.selected {
        let saw = format!("the labels of the ClusterProfile {namespace}/{name} do not match --selector");
        let fix = Fix::action("add the labels to the ClusterProfile, or repeat with another --selector");
        return problem(saw, fix);
    }
    if facts.deleting {
        let saw = format!(
            "the ClusterProfile {namespace}/{name} is being deleted; it left the fleet when its deletion began"
        );
        return problem(
            saw,
            describe(
                facts,
                "look at its finalizers, which say what the deletion waits for",
            ),
        );
    }
    None
}

fn describe(facts: &ProfileFacts, action: impl Into<String>) -> Fix {
    Fix::action(action).and_run(Command::Describe {
        resource: PROFILES,
        namespace: facts.namespace.clone(),
        name: facts.name.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> ProfileFacts {
        ProfileFacts {
            provider: "cluster-inventory".into(),
            namespace: "fleet".into(),
            name: "eu-1".into(),
            looks_in: Some("fleet".into()),
            selected: true,
            healthy: true,
            manager: "ocm".into(),
            offers: vec!["a".into()],
            has_plugins: true,
            ..ProfileFacts::default()
        }
    }

    const WARNING: Level = Level::Warning;
    const PROBLEM: Level = Level::Problem;
    const DESCRIBE: &str = "kubectl -n fleet describe clusterprofiles.multicluster.x-k8s.io eu-1";

    #[test]
    fn each_reason_to_wait_has_its_fix_and_the_first_on_the_way_goes_first() {
        let waits = |facts: &ProfileFacts| waits(facts, "why");
        let mut one = facts();
        waits(&one).is(PROBLEM, "why", "add one of these access providers");
        one.has_plugins = false;
        waits(&one).is(PROBLEM, "why", "--clusterprofile-provider-file PATH");
        one.offers.clear();
        waits(&one).is(WARNING, "why", "an add-on of it");
        waits(&one).is(WARNING, "why", DESCRIBE);
        one.hidden.push("old".into());
        waits(&one).is(PROBLEM, "deprecated credentialProviders old", "Builder::v1alpha1");
        one.by_secrets = true;
        waits(&one).is(PROBLEM, "why", "--consumer");
        one.healthy = false;
        waits(&one).is(WARNING, "why", "cluster manager ocm");
        one.not_joined = Some("no agent".into());
        waits(&one).is(
            WARNING,
            "why; its condition Joined is not True: no agent",
            DESCRIBE,
        );
        one.older = Some("us-1".into());
        waits(&one).is(WARNING, "why", MEMBER_ID_LABEL);
    }

    #[test]
    fn a_profile_that_is_elsewhere_or_not_selected_is_reported_before_its_deletion() {
        let mut one = facts();
        assert_eq!(absent(&one), None);
        one.deleting = true;
        absent(&one).unwrap().is(PROBLEM, "is being deleted", DESCRIBE);
        one.selected = false;
        absent(&one)
            .unwrap()
            .is(PROBLEM, "do not match --selector", "--selector");
        one.looks_in = Some("default".into());
        absent(&one)
            .unwrap()
            .is(PROBLEM, "looks in default", "repeat with -n fleet");
        one.looks_in = None;
        absent(&one).unwrap().is(PROBLEM, "do not match --selector", "");
    }
}
