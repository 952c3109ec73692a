//! What `mcr doctor` checks of Clusters of Cluster API.

use futures::future::BoxFuture;
use kube::Client;
use mcr_core::doctor::{
    Advice, Described, Doctor, Examiner, Fault, Hub, InHub, Kind, Level, Obstacle, Right, Selected, Values,
};
use serde_json::Value;

use crate::{secret::CLUSTER_NAME_LABEL, selection::Selection};

pub(crate) struct ClusterApiDoctor {
    hub: Hub,
    /// Whether the program decides where kubeconfigs are.
    by_program: bool,
}

const CLUSTERS: Kind = Kind {
    group: "cluster.x-k8s.io",
    version: "v1beta2",
    plural: "clusters",
    kind: "Cluster",
    api: "Cluster API",
    deletion_note: " (ClusterApiProviderBuilder::keep_while keeps it longer)",
};

const RIGHTS: &[Right<'static>] = &[
    Right::new("clusters.cluster.x-k8s.io", &["list", "watch"]),
    Right::new("secrets", &["list", "watch", "get"]),
    Right::EVENTS,
];

const WITHOUT_SECRETS: &[Right<'static>] = &[Right::new("clusters.cluster.x-k8s.io", &["list", "watch"])];

const DESCRIBE: &str = "kubectl -n {namespace} describe clusters.cluster.x-k8s.io {name}";
const LIST: &str = "kubectl get clusters.cluster.x-k8s.io --all-namespaces";
const LABEL: &str =
    "kubectl -n {namespace} label --overwrite secret {name}-kubeconfig cluster.x-k8s.io/cluster-name={name}";

const fn obstacle(cause: &'static str, action: &'static str) -> Advice {
    Advice::new(Fault::Obstacle, cause, action, DESCRIBE)
}

const ADVICE: &[Advice] = &[
    Advice::new(
        Fault::NotServed,
        "",
        "choose the management cluster with --hub-context or --hub-kubeconfig, or install Cluster API in this one",
        "kubectl config get-contexts",
    ),
    Advice::new(
        Fault::Description,
        "the Cluster: ",
        "correct the Cluster",
        DESCRIBE,
    ),
    Advice::new(
        Fault::Description,
        "",
        "correct the Secret {namespace}/{name}-kubeconfig, or delete it if a control plane provider owns it, which then writes a \
         new one",
        "",
    ),
    Advice::new(
        Fault::Address,
        "loopback",
        "allow this address, if it is meant (--allow-loopback here and AccessPolicy::addresses in the controller), or correct \
         spec.controlPlaneEndpoint of the Cluster {namespace}/{name}",
        "",
    ),
    Advice::new(
        Fault::Address,
        "",
        "allow this address, if it is meant (AccessPolicy::addresses in the controller), or correct spec.controlPlaneEndpoint \
         of the Cluster {namespace}/{name}",
        "",
    ),
    Advice::new(
        Fault::Credentials,
        "",
        "renew the credentials in the Secret {namespace}/{name}-kubeconfig, or delete it if a control plane provider owns it, \
         which then writes a new one unless the Cluster is paused",
        "",
    ),
    Advice::new(
        Fault::Suspended,
        "",
        "check the Cluster, which reports what Cluster API waits for",
        DESCRIBE,
    ),
    obstacle(
        "deleting",
        "check its condition Deleting, which reports what the deletion waits for",
    ),
    obstacle(
        "paused before",
        "check the Cluster: it is paused, so Cluster API does nothing for it",
    ),
    obstacle(
        "not initialized",
        "check its conditions, which report what Cluster API waits for",
    ),
    obstacle(
        "paused after",
        "check the Cluster: it is paused, so Cluster API does not write the Secret",
    ),
    obstacle(
        "no Secret",
        "check its conditions, and the log of its control plane provider, which writes the Secret",
    ),
    Advice::new(
        Fault::Obstacle,
        "no Cluster",
        "choose one of the Clusters that there are",
        LIST,
    ),
    Advice::new(Fault::Obstacle, "no label", "", LABEL),
];

/// The conditions on the way to a control plane, in their order.
const STEPS: [&str; 4] = [
    "InfrastructureReady",
    "ControlPlaneInitialized",
    "ControlPlaneAvailable",
    "ControlPlaneReady",
];
/// The longest message of a condition that is shown, in characters.
const SHOWN: usize = 200;

impl ClusterApiDoctor {
    pub(crate) fn new(
        client: Client,
        namespaces: Vec<String>,
        selector: Option<String>,
        selection: &Selection,
    ) -> Self {
        let by_function = selection.kubeconfig_of.is_some();
        let hub = Hub {
            client,
            kind: CLUSTERS,
            namespaces,
            selector,
            rights: if by_function { WITHOUT_SECRETS } else { RIGHTS },
        };
        Self {
            hub,
            by_program: by_function || selection.kubeconfig_secret.is_some(),
        }
    }
}

impl Doctor for ClusterApiDoctor {
    fn advice(&self) -> &'static [Advice] {
        ADVICE
    }

    fn values(&self, cluster: Option<&Described<'_>>) -> Values {
        cluster
            .map(|cluster| self.hub.values_of_name(cluster.name))
            .unwrap_or_default()
    }

    fn hub(&self) -> Option<&Hub> {
        Some(&self.hub)
    }

    fn obstacle<'a>(&'a self, of: InHub<'a>, ask: &'a dyn Examiner) -> BoxFuture<'a, Option<Obstacle>> {
        Box::pin(async move {
            if self.by_program {
                // The reason of the provider names the Secret, or is that of the function.
                let waits = of.object.is_some_and(|cluster| !is_initialized(cluster));
                return if waits { found(of, Ok(None)) } else { None };
            }
            let fields = format!("metadata.name={}-kubeconfig", of.name);
            let selected = Selected {
                namespace: Some(of.namespace),
                fields: &fields,
                labels: "",
            };
            let secrets = ask.list(&self.hub.client, ["", "v1", "secrets"], selected).await;
            found(of, secrets.map(|secrets| secrets.into_iter().next()))
        })
    }
}

/// The first obstacle on the way of a Cluster into the fleet.
fn found(of: InHub<'_>, secret: Result<Option<Value>, String>) -> Option<Obstacle> {
    let InHub { namespace, name, .. } = of;
    let (secret_name, cluster_name) = (
        format!("{namespace}/{name}-kubeconfig"),
        format!("{namespace}/{name}"),
    );
    let (level, cause, message) = match (of.object, secret) {
        (None, Ok(Some(_))) => (
            Level::Problem,
            "no Cluster",
            format!(
                "there is a Secret {secret_name}, but no Cluster {cluster_name}; a Secret alone is no cluster"
            ),
        ),
        (None, _) => return None,
        (Some(cluster), _) if !is_initialized(cluster) => (
            Level::Warning,
            if is_paused(cluster) {
                "paused before"
            } else {
                "not initialized"
            },
            format!(
                "the control plane of the Cluster {cluster_name} is not initialized{}",
                progress(cluster)
            ),
        ),
        (Some(_), Err(why)) => (
            Level::Warning,
            "unreadable",
            format!("the Secret of the Cluster {cluster_name} can't be read: {why}"),
        ),
        (Some(cluster), Ok(None)) => (
            Level::Problem,
            if is_paused(cluster) {
                "paused after"
            } else {
                "no Secret"
            },
            format!(
                "the Cluster {cluster_name} is initialized, but there is no Secret {name}-kubeconfig with its kubeconfig"
            ),
        ),
        (Some(_), Ok(Some(secret))) if secret["metadata"]["labels"][CLUSTER_NAME_LABEL].is_null() => (
            Level::Problem,
            "no label",
            format!(
                "the Secret {secret_name} lacks the label {CLUSTER_NAME_LABEL}, so neither Cluster API nor the provider sees it"
            ),
        ),
        (Some(_), Ok(Some(_))) => return None,
    };
    Some(Obstacle {
        level,
        cause,
        message,
    })
}

fn is_paused(cluster: &Value) -> bool {
    let annotation = &cluster["metadata"]["annotations"]["cluster.x-k8s.io/paused"];
    cluster["spec"]["paused"] == true || !annotation.is_null()
}

fn condition<'a>(cluster: &'a Value, name: &str) -> Option<&'a Value> {
    let mut conditions = cluster["status"]["conditions"].as_array()?.iter();
    conditions.find(|condition| condition["type"] == name)
}

/// Whether a Cluster of any version has a control plane.
fn is_initialized(cluster: &Value) -> bool {
    cluster["status"]["initialization"]["controlPlaneInitialized"] == true
        || condition(cluster, "ControlPlaneInitialized")
            .is_some_and(|condition| condition["status"] == "True")
}

/// The phase and the first condition that a Cluster waits for.
fn progress(cluster: &Value) -> String {
    let phase = cluster["status"]["phase"]
        .as_str()
        .map(|phase| format!("phase {phase}"));
    let waits_for = STEPS.iter().find_map(|name| {
        let condition = condition(cluster, name).filter(|condition| condition["status"] != "True")?;
        let text = |field: &str| condition[field].as_str().filter(|text| !text.is_empty());
        let why = text("message").or_else(|| text("reason")).unwrap_or("not yet");
        Some(format!("{name}: {}", why.chars().take(SHOWN).collect::<String>()))
    });
    let shown: Vec<String> = phase.into_iter().chain(waits_for).collect();
    match shown.as_slice() {
        [] => String::new(),
        shown => format!(" ({})", shown.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mcr_core::{
        Access,
        doctor::Finding,
        hub::{Closure, KubeconfigOf, SecretKeyRef},
    };
    use serde_json::json;

    use super::*;

    /// A hub without Secrets.
    struct NoSecrets;

    impl Examiner for NoSecrets {
        fn limit(&self) -> Duration {
            Duration::MAX
        }

        fn list<'a>(
            &'a self,
            _: &'a Client,
            _: [&'a str; 3],
            _: Selected<'a>,
        ) -> BoxFuture<'a, Result<Vec<Value>, String>> {
            Box::pin(async { Ok(Vec::new()) })
        }

        fn user<'a>(&'a self, _: &'a Client) -> BoxFuture<'a, String> {
            unreachable!("nobody asks for the user")
        }

        fn right<'a>(
            &'a self,
            _: &'a Client,
            _: Right<'a>,
            _: Option<&'a str>,
            _: &'a str,
        ) -> BoxFuture<'a, Finding> {
            unreachable!("nobody asks for rights")
        }

        fn address<'a>(
            &'a self,
            _: &'a dyn Doctor,
            _: &'a Access,
            _: Option<&'a str>,
        ) -> BoxFuture<'a, Vec<Finding>> {
            unreachable!("nobody asks for an address")
        }
    }

    #[tokio::test]
    async fn the_secret_is_missed_only_where_the_program_names_no_other_one() {
        let client = mcr_testkit::sim::SimCluster::new().client();
        let secret = Selection {
            kubeconfig_secret: Some(Closure::new(|_| SecretKeyRef::new("a", "b"))),
            ..Selection::default()
        };
        let function = Selection {
            kubeconfig_of: Some(KubeconfigOf::new(Duration::MAX, |_| async { Ok(None) })),
            ..Selection::default()
        };
        let up = json!({"status": {"initialization": {"controlPlaneInitialized": true}}});
        for (selection, missed, rights) in [
            (Selection::default(), Some("no Secret"), 3),
            (secret, None, 3),
            (function, None, 1),
        ] {
            let doctor = ClusterApiDoctor::new(client.clone(), Vec::new(), None, &selection);
            assert_eq!(doctor.hub().unwrap().rights.len(), rights);
            for (object, cause) in [(&up, missed), (&json!({}), Some("not initialized"))] {
                let of = InHub {
                    namespace: "fleet",
                    name: "eu-1",
                    object: Some(object),
                    reason: None,
                };
                let found = doctor.obstacle(of, &NoSecrets).await;
                assert_eq!(found.map(|found| found.cause), cause);
            }
        }
    }

    #[test]
    fn the_first_obstacle_on_the_way_of_a_cluster_is_reported() {
        let secret = |labels: Value| Ok(Some(json!({"metadata": {"labels": labels}})));
        let labelled = || secret(json!({"cluster.x-k8s.io/cluster-name": "another"}));
        let unready = |name: &str| json!({"type": name, "status": "False", "reason": "Why", "message": "x".repeat(999)});
        let waits = json!({"status": {
            "phase": "Provisioning", "conditions": [unready("ControlPlaneInitialized"), unready("InfrastructureReady")],
        }});
        let new = json!({"status": {"initialization": {"controlPlaneInitialized": true}}});
        let old = json!({"status": {"conditions": [{"type": "ControlPlaneInitialized", "status": "True"}]}});
        let mut paused = old.clone();
        paused["spec"]["paused"] = true.into();
        let annotated = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}});
        for (object, secret, cause) in [
            (Some(&waits), labelled(), Some("not initialized")),
            (Some(&annotated), labelled(), Some("paused before")),
            (Some(&new), Err("403".to_owned()), Some("unreadable")),
            (Some(&new), Ok(None), Some("no Secret")),
            (Some(&paused), Ok(None), Some("paused after")),
            (Some(&old), secret(json!(null)), Some("no label")),
            // The provider only asks whether there is the label.
            (Some(&old), labelled(), None),
            (None, labelled(), Some("no Cluster")),
            (None, Ok(None), None),
        ] {
            let of = InHub {
                namespace: "fleet",
                name: "eu-1",
                object,
                reason: None,
            };
            assert_eq!(found(of, secret).map(|found| found.cause), cause, "{object:?}");
        }
        let progress = progress(&waits);
        let shown = format!(
            " (phase Provisioning; InfrastructureReady: {})",
            "x".repeat(SHOWN)
        );
        assert_eq!(progress, shown);
    }
}
