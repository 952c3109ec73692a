//! Collects facts about Shoots of Gardener.

use std::time::Duration;

use kube::{
    Client, ResourceExt,
    api::{ApiResource, GroupVersionKind},
};

use super::{
    facts::{HubApi, ShootFacts},
    hub_objects::{Selected, named},
};

/// The Shoots of a name that may belong to this Project: in its usual namespace, or else in all namespaces, if the garden allows
/// the list.
pub(super) async fn shoots(
    of: Selected<'_>,
    client: &Client,
    (project, name): (Option<&str>, &str),
    limit: Duration,
) -> Vec<ShootFacts> {
    let kind = GroupVersionKind::gvk(HubApi::Garden.group().0, "v1beta1", "Shoot");
    let kind = ApiResource::from_gvk_with_plural(&kind, "shoots");
    let usual = project.map(|project| format!("garden-{project}"));
    let namespace = usual.as_deref().or(of.looks_in);
    let found = named(of, client, &kind, (namespace, name), limit).await;
    let of_project = |namespace: &str| match &usual {
        Some(usual) => namespace == usual || Some(namespace) == project,
        None => true,
    };
    let facts = found.into_iter().map(|(shoot, selected)| ShootFacts {
        provider: of.provider.to_owned(),
        namespace: shoot.namespace().unwrap_or_default(),
        name: name.to_owned(),
        looks_in: of.looks_in.map(str::to_owned),
        selected,
        deleting: shoot.metadata.deletion_timestamp.is_some(),
    });
    facts.filter(|shoot| of_project(&shoot.namespace)).collect()
}
