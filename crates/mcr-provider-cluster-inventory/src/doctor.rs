//! What `mcr doctor` checks of ClusterProfiles.

use futures::future::BoxFuture;
use kube::Client;
use mcr_core::doctor::{
    Advice, Described, Doctor, Examiner, Fault, Hub, InHub, Kind, Level, Obstacle, Right, Selected, Values,
};
use serde_json::Value;

use crate::{
    config::Access,
    facts::{MANAGER_PROPERTY, MEMBER_ID_LABEL},
};

pub(crate) struct InventoryDoctor {
    hub: Hub,
    access: Access,
}

/// This version shows all fields, also the deprecated ones.
const PROFILES: Kind = Kind {
    group: "multicluster.x-k8s.io",
    version: "v1alpha1",
    plural: "clusterprofiles",
    kind: "ClusterProfile",
    api: "the Cluster Inventory API",
    deletion_note: "",
};
/// The version that a provider reads if the hub serves it. It does not show the deprecated fields.
const NEWEST: [&str; 3] = [PROFILES.group, "v1alpha2", PROFILES.plural];

const READ: Right<'static> = Right::new("clusterprofiles.multicluster.x-k8s.io", &["list", "watch"]);
const WITHOUT_SECRETS: &[Right<'static>] = &[READ];
const WITH_SECRETS: &[Right<'static>] = &[READ, Right::new("secrets", &["list", "watch"])];

/// Why the rest of a profile does not matter.
const BY_PROGRAM: &str = "by program";

const DESCRIBE: &str = "kubectl -n {namespace} describe clusterprofiles.multicluster.x-k8s.io {name}";

const ADVICE: &[Advice] = &[
    Advice::new(
        Fault::NotServed,
        "",
        "choose the hub of the cluster manager with --hub-context or --hub-kubeconfig, or install the CRD of ClusterProfile in \
         this one",
        "kubectl config get-contexts",
    ),
    Advice::new(
        Fault::Description,
        "",
        "check status.accessProviders of the ClusterProfile, which its cluster manager writes",
        DESCRIBE,
    ),
    Advice::new(
        Fault::Credentials,
        "",
        "renew the credentials that the plugin gives, or the Secret of the cluster",
        "",
    ),
    Advice::new(
        Fault::Suspended,
        "",
        "check the ClusterProfile, whose conditions its cluster manager writes",
        DESCRIBE,
    ),
    Advice::new(
        Fault::Obstacle,
        "deleting",
        "check its finalizers, which show what the deletion waits for",
        DESCRIBE,
    ),
    Advice::new(
        Fault::Obstacle,
        "older",
        "choose this ClusterProfile with -l, if it is the one to use, or correct the label \
         multicluster.x-k8s.io/inventory-member-id of one of them",
        "kubectl get clusterprofiles.multicluster.x-k8s.io --all-namespaces",
    ),
    Advice::new(
        Fault::Obstacle,
        "unhealthy",
        "check the ClusterProfile, whose conditions its cluster manager {manager} writes",
        DESCRIBE,
    ),
    Advice::new(
        Fault::Obstacle,
        "no Secret",
        "check the cluster manager, which writes the Secret, and correct --consumer if it writes the Secret for another one",
        "",
    ),
    Advice::new(
        Fault::Obstacle,
        BY_PROGRAM,
        "check what ClusterInventoryProviderBuilder::kubeconfig_secret or kubeconfig_of gives for it in the controller",
        "",
    ),
    Advice::new(
        Fault::Obstacle,
        "deprecated",
        "allow them with ClusterInventoryProviderBuilder::v1alpha1 in the controller",
        "",
    ),
    Advice::new(
        Fault::Obstacle,
        "no access",
        "check the cluster manager: it, or an add-on of it, writes status.accessProviders",
        DESCRIBE,
    ),
    Advice::new(
        Fault::Obstacle,
        "unknown",
        "add one of these access providers to the provider file, with the plugin that belongs to it",
        "",
    ),
    Advice::new(
        Fault::Obstacle,
        "no file",
        "repeat with the provider file of the controller, --clusterprofile-provider-file PATH",
        "",
    ),
];

impl InventoryDoctor {
    pub(crate) fn new(
        client: Client,
        namespaces: Vec<String>,
        selector: Option<String>,
        access: Access,
    ) -> Self {
        let hub = Hub {
            client,
            kind: PROFILES,
            namespaces,
            selector,
            rights: match access {
                Access::Secrets(_) => WITH_SECRETS,
                Access::Plugins(_) | Access::Computed(_) => WITHOUT_SECRETS,
            },
        };
        Self { hub, access }
    }
}

impl Doctor for InventoryDoctor {
    fn advice(&self) -> &'static [Advice] {
        ADVICE
    }

    fn values(&self, cluster: Option<&Described<'_>>) -> Values {
        let Some(cluster) = cluster else {
            return Values::new();
        };
        let mut values = self.hub.values_of_name(cluster.name);
        let manager = cluster.properties.get(MANAGER_PROPERTY).cloned();
        values.extend(manager.map(|manager| ("manager", manager)));
        values
    }

    fn hub(&self) -> Option<&Hub> {
        Some(&self.hub)
    }

    fn obstacle<'a>(&'a self, of: InHub<'a>, ask: &'a dyn Examiner) -> BoxFuture<'a, Option<Obstacle>> {
        Box::pin(async move {
            let (profile, reason) = (of.object?, of.reason?);
            let (client, version) = (&self.hub.client, PROFILES.version);
            let in_namespace = Selected {
                namespace: Some(of.namespace),
                ..Selected::default()
            };
            let id = profile["metadata"]["labels"][MEMBER_ID_LABEL]
                .as_str()
                .unwrap_or_default();
            let mut same = format!("{MEMBER_ID_LABEL}={id}");
            if let Some(selector) = &self.hub.selector {
                same = format!("{same},{selector}");
            }
            let same = Selected {
                labels: &same,
                ..in_namespace
            };
            let served = profile["apiVersion"]
                .as_str()
                .and_then(|version| version.split_once('/'));
            let served = served.map_or(version, |(_, version)| version);
            let same = ask
                .list(client, [PROFILES.group, served, PROFILES.plural], same)
                .await;
            let fields = format!("metadata.name={}", of.name);
            let this = Selected {
                fields: &fields,
                ..in_namespace
            };
            let newest = ask.list(client, NEWEST, this).await;
            let facts = Facts {
                is_older: !id.is_empty()
                    && same.is_ok_and(|same| same.iter().any(|other| age(other) < age(profile))),
                hides_deprecated: newest.is_ok(),
                access: &self.access,
            };
            Some(found(profile, reason, &facts))
        })
    }
}

fn age(profile: &Value) -> (&str, &str) {
    let text = |field: &str| profile["metadata"][field].as_str().unwrap_or_default();
    (text("creationTimestamp"), text("name"))
}

/// What else decides about a ClusterProfile.
struct Facts<'a> {
    /// Whether another profile of the same cluster is older.
    is_older: bool,
    /// Whether the provider reads a version without the deprecated fields.
    hides_deprecated: bool,
    access: &'a Access,
}

/// What a ClusterProfile waits for: the first on its way.
fn found(profile: &Value, reason: &str, facts: &Facts<'_>) -> Obstacle {
    let status = &profile["status"];
    let condition = |name: &str| {
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.find(|condition| condition["type"] == name)
    };
    let names = |field: &str| -> Vec<&str> {
        let entries = status[field].as_array().into_iter().flatten();
        entries.filter_map(|entry| entry["name"].as_str()).collect()
    };
    let mut message = reason.to_owned();
    if let Some(joined) = condition("Joined").filter(|joined| joined["status"] != "True") {
        let text = |field: &str| joined[field].as_str().filter(|text| !text.is_empty());
        let why = text("message")
            .or_else(|| text("reason"))
            .unwrap_or("it is not True");
        let why: String = why.chars().take(200).collect();
        message.push_str(&format!("; its condition Joined is not True: {why}"));
    }
    let is_healthy = condition("ControlPlaneHealthy").is_some_and(|condition| condition["status"] == "True");
    let (offers, deprecated) = (names("accessProviders"), names("credentialProviders"));
    let has_plugins = matches!(facts.access, Access::Plugins(plugins) if !plugins.0.is_empty());
    let (level, cause) = if facts.is_older {
        (Level::Warning, "older")
    } else if !is_healthy {
        (Level::Warning, "unhealthy")
    } else if matches!(facts.access, Access::Secrets(_)) {
        (Level::Problem, "no Secret")
    } else if matches!(facts.access, Access::Computed(_)) {
        (Level::Problem, BY_PROGRAM)
    } else if offers.is_empty() && !deprecated.is_empty() && facts.hides_deprecated {
        message.push_str(&format!(
            "; it has only the deprecated credentialProviders {}, which v1alpha2 does not show",
            deprecated.join(", ")
        ));
        (Level::Problem, "deprecated")
    } else if offers.is_empty() && deprecated.is_empty() {
        (Level::Warning, "no access")
    } else if has_plugins {
        (Level::Problem, "unknown")
    } else {
        (Level::Problem, "no file")
    };
    Obstacle {
        level,
        cause,
        message,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mcr_core::hub::KubeconfigOf;
    use serde_json::json;

    use super::*;
    use crate::access_providers::{AccessProviderConfig, AccessProviders};

    #[test]
    fn the_first_reason_on_the_way_of_a_profile_is_reported() {
        let plugins = AccessProviders::new([AccessProviderConfig::new("p", "/p")]).unwrap();
        let plugins = Access::Plugins(plugins.into());
        let no_plugins = Access::Plugins(AccessProviders::default().into());
        let function = KubeconfigOf::new(Duration::MAX, |_| async { Ok(None) });
        let (secrets, computed) = (Access::Secrets("me".into()), Access::Computed(function));
        let mut facts = Facts {
            is_older: false,
            hides_deprecated: true,
            access: &plugins,
        };
        let mut profile = json!({"status": {
            "accessProviders": [{"name": "a"}], "credentialProviders": [{"name": "old"}],
            "conditions": [{"type": "ControlPlaneHealthy", "status": "True"}],
        }});
        let cause = |profile: &Value, facts: &Facts<'_>| found(profile, "why", facts).cause;
        assert_eq!(cause(&profile, &facts), "unknown");
        facts.access = &no_plugins;
        assert_eq!(cause(&profile, &facts), "no file");
        profile["status"]["accessProviders"] = json!([]);
        assert_eq!(cause(&profile, &facts), "deprecated");
        facts.hides_deprecated = false;
        assert_eq!(cause(&profile, &facts), "no file");
        profile["status"]["credentialProviders"] = json!([]);
        assert_eq!(cause(&profile, &facts), "no access");
        facts.access = &secrets;
        assert_eq!(cause(&profile, &facts), "no Secret");
        facts.access = &computed;
        assert_eq!(cause(&profile, &facts), BY_PROGRAM);
        profile["status"]["conditions"] =
            json!([{"type": "Joined", "status": "False", "reason": "NoAgent", "message": ""}]);
        let unhealthy = found(&profile, "why", &facts);
        assert_eq!(
            (unhealthy.cause, &*unhealthy.message),
            ("unhealthy", "why; its condition Joined is not True: NoAgent")
        );
        facts.is_older = true;
        assert_eq!(cause(&profile, &facts), "older");
    }
}
