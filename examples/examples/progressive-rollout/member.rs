//! The clusters: what is known of each, and the Deployment that is written there.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use mcr::{Cluster, ClusterState, Fleet, HUB, ObjectKey};
use serde_json::json;

use super::api::Rollout;

/// On Deployments, a label: this program manages them. It leaves others alone.
pub(crate) const MANAGED: (&str, &str) = ("app.kubernetes.io/managed-by", "progressive-rollout");
/// On Deployments, an annotation: their version.
const REVISION: &str = "fleet.example.com/revision";

/// A cluster, as it is known.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) contact: Contact,
    /// The version of its Deployment, as last seen; `None` without a Deployment.
    pub(crate) revision: Option<String>,
    pub(crate) health: Health,
    /// The answer, if the cluster was just given the version and did not take it.
    pub(crate) answer: Option<Answer>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Contact {
    Connected,
    /// It connects, or its Deployments are not listed, and why if that does not end by itself. No event reports the end of a list
    /// without objects.
    Unlisted(Option<String>),
    Unreachable(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Health {
    Healthy,
    Progressing(String),
    Failed(String),
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The API server refuses the Deployment.
    Refused(String),
    /// The next try may succeed.
    Error(String),
}

/// All clusters but the hub, with the Deployment of this key. Reads from memory only.
pub(crate) fn members(fleet: &Fleet, key: &ObjectKey) -> BTreeMap<String, Member> {
    let clusters = fleet
        .clusters()
        .into_iter()
        .filter(|cluster| *cluster.name() != HUB);
    clusters
        .map(|cluster| (cluster.name().to_string(), member(&cluster, key)))
        .collect()
}

fn member(cluster: &Cluster, key: &ObjectKey) -> Member {
    // A store stays readable while its cluster is unreachable, and has what was there last.
    let found = cluster.store::<Deployment>().and_then(|store| store.get(key));
    let contact = match (cluster.state(), &found) {
        (state @ (ClusterState::Unreachable { .. } | ClusterState::Suspended { .. }), _) => {
            Contact::Unreachable(state.to_string())
        }
        (ClusterState::Ready, Ok(_)) => Contact::Connected,
        (ClusterState::Ready, Err(_)) => Contact::Unlisted(blocked(cluster)),
        _ => Contact::Unlisted(None),
    };
    let deployment = found.ok().flatten();
    let revision = deployment
        .as_ref()
        .and_then(|deployment| deployment.annotations().get(REVISION).cloned());
    Member {
        labels: cluster.labels(),
        contact,
        // One that was just labelled, to hand it over, has another version than this program's.
        revision: deployment.as_ref().map(|_| revision.unwrap_or_default()),
        health: deployment.map_or(Health::Progressing(String::new()), |deployment| {
            health(&deployment)
        }),
        answer: None,
    }
}

/// Why the Deployments can't be listed before something is changed in the cluster.
fn blocked(cluster: &Cluster) -> Option<String> {
    cluster.kinds().into_iter().find(|kind| kind.blocked)?.problem
}

/// As `kubectl rollout status` sees it.
pub(crate) fn health(deployment: &Deployment) -> Health {
    let status = deployment.status.clone().unwrap_or_default();
    if status.observed_generation < deployment.metadata.generation {
        return Health::Progressing("the Deployment controller has not seen the change yet".to_owned());
    }
    let mut conditions = status.conditions.iter().flatten();
    let exceeded =
        conditions.find(|condition| condition.reason.as_deref() == Some("ProgressDeadlineExceeded"));
    if let Some(exceeded) = exceeded {
        return Health::Failed(
            exceeded
                .message
                .clone()
                .unwrap_or_else(|| "ProgressDeadlineExceeded".to_owned()),
        );
    }
    let wanted = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1);
    let counts = [
        status.replicas,
        status.updated_replicas,
        status.available_replicas,
    ];
    let [all, updated, available] = counts.map(Option::unwrap_or_default);
    if updated < wanted || available < wanted || all > updated {
        let text = format!("{updated} of {wanted} replicas are updated, and {available} are available");
        return Health::Progressing(text);
    }
    Health::Healthy
}

/// Gives the version to a cluster.
pub(crate) async fn apply(cluster: &Cluster, rollout: &Rollout) -> Result<(), Answer> {
    let (name, namespace) = (rollout.name_any(), rollout.namespace().unwrap_or_default());
    let deployments = cluster.namespaced::<Deployment>(&namespace);
    let found = deployments.get_opt(&name).await?;
    if found.is_some_and(|found| !is_managed(&found)) {
        let (label, value) = MANAGED;
        let text = format!(
            "Deployment {namespace}/{name} is not managed by this program; to hand it over, give it the label {label}={value}"
        );
        return Err(Answer::Refused(text));
    }
    let template = &rollout.spec.template;
    let (mut labels, mut annotations) = (
        template.metadata.labels.clone(),
        template.metadata.annotations.clone(),
    );
    labels.insert(MANAGED.0.to_owned(), MANAGED.1.to_owned());
    annotations.insert(REVISION.to_owned(), rollout.spec.revision());
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "spec": template.spec,
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
    });
    let parameters = PatchParams::apply(MANAGED.1).force();
    deployments
        .patch(&name, &parameters, &Patch::Apply(deployment))
        .await?;
    Ok(())
}

/// Deletes the Deployment of a cluster. Returns whether it was there.
pub(crate) async fn remove(cluster: &Cluster, rollout: &Rollout) -> Result<bool, kube::Error> {
    let deployments = cluster.namespaced::<Deployment>(&rollout.namespace().unwrap_or_default());
    let Some(found) = deployments.get_opt(&rollout.name_any()).await?.filter(is_managed) else {
        return Ok(false);
    };
    // This Deployment, and no other one that gets its name meanwhile.
    let only_this = Preconditions {
        uid: found.uid(),
        resource_version: None,
    };
    let parameters = DeleteParams::default().preconditions(only_this);
    deployments.delete(&rollout.name_any(), &parameters).await?;
    Ok(true)
}

fn is_managed(deployment: &Deployment) -> bool {
    deployment
        .labels()
        .get(MANAGED.0)
        .is_some_and(|value| value == MANAGED.1)
}

impl From<kube::Error> for Answer {
    fn from(error: kube::Error) -> Self {
        match error {
            // Unauthorized, too slow, a conflict, too many requests: the next try may succeed.
            kube::Error::Api(status)
                if (400..500).contains(&status.code) && ![401, 408, 409, 429].contains(&status.code) =>
            {
                Self::Refused(status.message)
            }
            error => Self::Error(error.to_string()),
        }
    }
}
