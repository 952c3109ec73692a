//! Turns facts about a Cluster of Cluster API into a finding. Without I/O.

use super::{
    command::{CLUSTERS, Command},
    facts::{ClusterApiFacts, ManagedCluster},
    fix::Fix,
};
use crate::level::Level;

/// The label of a Secret that names its Cluster.
pub(super) const CLUSTER_LABEL: &str = "cluster.x-k8s.io/cluster-name";

/// Why controllers do not use a Cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Obstacle {
    pub(super) level: Level,
    pub(super) saw: String,
    pub(super) fix: Option<Fix>,
}

/// The first obstacle on the way of a Cluster into the fleet. `None`: the facts show none.
pub(super) fn obstacle(facts: &ClusterApiFacts) -> Option<Obstacle> {
    let ClusterApiFacts { namespace, name, .. } = facts;
    let found = |level, saw, fix| Some(Obstacle { level, saw, fix });
    let problem = |saw: String, fix: Fix| found(Level::Problem, saw, Some(fix));
    let describe = |action: &str| {
        Fix::action(action).and_run(Command::Describe {
            resource: CLUSTERS,
            namespace: namespace.clone(),
            name: name.clone(),
        })
    };
    let Some(cluster) = &facts.cluster else {
        let secret = facts.secret.as_ref().ok().and_then(Option::as_ref);
        let secret = secret.map_or("", |secret| secret.name.as_str());
        let saw = format!(
            "there is a Secret {namespace}/{secret}, but no Cluster {namespace}/{name}; a Secret alone is no cluster"
        );
        let fix =
            Fix::action("choose one of the Clusters that there are").and_run(Command::ListAll(CLUSTERS));
        return problem(saw, fix);
    };
    if let Some(wanted) = facts.looks_in.as_ref().filter(|wanted| *wanted != namespace) {
        let saw =
            format!("there is a Cluster {name} in namespace {namespace}, but the provider looks in {wanted}");
        return problem(saw, Fix::action(format!("repeat with -n {namespace}")));
    }
    if !cluster.selected {
        let saw = format!("the labels of the Cluster {namespace}/{name} do not match --selector");
        let fix = Fix::action("add the labels to the Cluster, or repeat with another --selector");
        return problem(saw, fix);
    }
    if cluster.deleting {
        let saw = format!(
            "the Cluster {namespace}/{name} is being deleted; it left the fleet when its deletion began \
             (ClusterApiProviderBuilder::keep_while keeps it longer)"
        );
        let fix = "look at its condition Deleting, which says what the deletion waits for";
        return problem(saw, describe(fix));
    }
    if !cluster.initialized {
        let progress = progress(cluster);
        let saw = format!("the control plane of the Cluster {namespace}/{name} is not initialized{progress}");
        let fix = match cluster.paused {
            true => "look at the Cluster: it is paused, so Cluster API does nothing for it",
            false => "look at its conditions, which say what Cluster API waits for",
        };
        return found(Level::Warning, saw, Some(describe(fix)));
    }
    match &facts.secret {
        Err(why) => {
            let saw = format!("the Secret of the Cluster {namespace}/{name} can't be read: {why}");
            found(Level::Warning, saw, None)
        }
        Ok(None) => {
            let saw = format!(
                "the Cluster {namespace}/{name} is initialized, but there is no Secret {name}-kubeconfig with its kubeconfig"
            );
            let fix = match cluster.paused {
                true => "look at the Cluster: it is paused, so Cluster API does not write the Secret",
                false => {
                    "look at its conditions, and at the log of its control plane provider, which writes the Secret"
                }
            };
            problem(saw, describe(fix))
        }
        Ok(Some(secret)) if secret.label.is_none() => {
            let secret = &secret.name;
            let saw = format!(
                "the Secret {namespace}/{secret} lacks the label {CLUSTER_LABEL}, so neither Cluster API nor the provider \
                 sees it"
            );
            let label = Command::LabelSecret {
                namespace: namespace.clone(),
                name: secret.clone(),
                label: CLUSTER_LABEL.to_owned(),
                value: name.clone(),
            };
            problem(saw, label.into())
        }
        Ok(Some(_)) => None,
    }
}

/// The phase and the condition that a Cluster waits for.
fn progress(cluster: &ManagedCluster) -> String {
    let phase = cluster.phase.as_ref().map(|phase| format!("phase {phase}"));
    let shown: Vec<String> = phase.into_iter().chain(cluster.waits_for.clone()).collect();
    match shown.as_slice() {
        [] => String::new(),
        shown => format!(" ({})", shown.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::facts::KubeconfigSecret, *};

    fn initialized() -> ManagedCluster {
        ManagedCluster {
            selected: true,
            initialized: true,
            ..ManagedCluster::default()
        }
    }

    fn facts(cluster: ManagedCluster, label: Option<&str>) -> ClusterApiFacts {
        ClusterApiFacts {
            provider: "cluster-api".into(),
            namespace: "fleet".into(),
            name: "eu-1".into(),
            looks_in: Some("fleet".into()),
            cluster: Some(cluster),
            secret: Ok(Some(KubeconfigSecret {
                name: "eu-1-kubeconfig".into(),
                label: label.map(str::to_owned),
            })),
        }
    }

    #[track_caller]
    fn found(facts: &ClusterApiFacts, level: Level, saw: &str, fix: &str) {
        obstacle(facts).unwrap().is(level, saw, fix);
    }

    const DESCRIBE: &str = "kubectl -n fleet describe clusters.cluster.x-k8s.io eu-1";

    #[test]
    fn a_cluster_that_is_not_initialized_is_reported_with_its_phase_and_condition() {
        let mut cluster = ManagedCluster {
            initialized: false,
            ..initialized()
        };
        found(
            &facts(cluster.clone(), Some("eu-1")),
            Level::Warning,
            "fleet/eu-1 is not initialized",
            DESCRIBE,
        );
        cluster.phase = Some("Provisioning".into());
        cluster.waits_for = Some("InfrastructureReady: no quota".into());
        let shown = "is not initialized (phase Provisioning; InfrastructureReady: no quota)";
        found(
            &facts(cluster.clone(), None),
            Level::Warning,
            shown,
            "look at its conditions",
        );
        cluster.paused = true;
        found(&facts(cluster, None), Level::Warning, shown, "it is paused");
    }

    #[test]
    fn a_secret_that_is_not_there_or_not_labelled_is_a_problem() {
        let mut without = facts(initialized(), None);
        without.secret = Ok(None);
        let saw = "there is no Secret eu-1-kubeconfig";
        found(&without, Level::Problem, saw, "control plane provider");
        found(&without, Level::Problem, saw, DESCRIBE);
        without.cluster.as_mut().unwrap().paused = true;
        found(&without, Level::Problem, saw, "it is paused");
        without.secret = Err("403".into());
        found(&without, Level::Warning, "can't be read: 403", "");

        let label =
            "kubectl -n fleet label --overwrite secret eu-1-kubeconfig cluster.x-k8s.io/cluster-name=eu-1";
        let unlabelled = facts(initialized(), None);
        found(&unlabelled, Level::Problem, "lacks the label", label);
        // The provider only asks whether there is the label.
        for label in ["eu-1", "us-1"] {
            assert_eq!(obstacle(&facts(initialized(), Some(label))), None);
        }
    }

    #[test]
    fn a_cluster_that_left_or_is_not_selected_is_reported_before_its_state() {
        let mut deleting = facts(initialized(), Some("eu-1"));
        deleting.cluster.as_mut().unwrap().deleting = true;
        found(
            &deleting,
            Level::Problem,
            "keep_while keeps it longer",
            "condition Deleting",
        );
        found(&deleting, Level::Problem, "is being deleted", DESCRIBE);

        let mut other = deleting.clone();
        other.cluster.as_mut().unwrap().selected = false;
        found(&other, Level::Problem, "do not match --selector", "--selector");
        other.looks_in = Some("default".into());
        found(
            &other,
            Level::Problem,
            "the provider looks in default",
            "repeat with -n fleet",
        );
        other.looks_in = None;
        found(&other, Level::Problem, "do not match --selector", "");

        let mut orphan = facts(initialized(), Some("eu-1"));
        orphan.cluster = None;
        let list = "kubectl get clusters.cluster.x-k8s.io --all-namespaces";
        found(&orphan, Level::Problem, "a Secret alone is no cluster", list);
    }
}
