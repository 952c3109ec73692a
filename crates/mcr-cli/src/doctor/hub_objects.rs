//! Finds the objects of a hub that describe clusters.

use std::time::Duration;

use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
};

use super::ask::in_time;

/// The longest message of a condition that is shown, in characters.
pub(super) const SHOWN: usize = 200;

/// The versions of an API group that a hub serves, the preferred one first. Empty: the API is not installed.
pub(super) async fn versions(client: &Client, group: &str, limit: Duration) -> Result<Vec<String>, String> {
    let groups = in_time(client.list_api_groups(), limit).await?;
    let group = groups.groups.into_iter().find(|served| served.name == group);
    Ok(group.map_or_else(Vec::new, |group| {
        let preferred = group.preferred_version.map(|preferred| preferred.version);
        let mut versions: Vec<String> = group.versions.into_iter().map(|one| one.version).collect();
        // The sort is stable, so the rest stays in the order of the server.
        versions.sort_by_key(|version| Some(version) != preferred.as_ref());
        versions
    }))
}

/// What a provider selects.
#[derive(Debug, Clone, Copy)]
pub(super) struct Selected<'a> {
    pub(super) provider: &'a str,
    /// The namespace in which the provider looks for objects. `None`: all namespaces.
    pub(super) looks_in: Option<&'a str>,
    pub(super) selector: Option<&'a str>,
}

/// The objects of a name, and whether the selector matches each: those of one namespace, or else those of all namespaces, if
/// the hub allows the list.
pub(super) async fn named(
    of: Selected<'_>,
    client: &Client,
    kind: &ApiResource,
    (namespace, name): (Option<&str>, &str),
    limit: Duration,
) -> Vec<(DynamicObject, bool)> {
    let list = async |namespace: Option<&str>, selector: Option<&str>| {
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, kind),
            None => Api::all_with(client.clone(), kind),
        };
        let mut named = ListParams::default().fields(&format!("metadata.name={name}"));
        if let Some(selector) = selector {
            named = named.labels(selector);
        }
        let listed = in_time(api.list(&named), limit).await;
        listed.map(|list| list.items).unwrap_or_default()
    };
    let mut found = list(namespace, None).await;
    if found.is_empty() && namespace.is_some() {
        found = list(None, None).await;
    }
    let mut objects = Vec::new();
    for object in found {
        let selected = match of.selector {
            Some(selector) => !list(object.namespace().as_deref(), Some(selector))
                .await
                .is_empty(),
            None => true,
        };
        objects.push((object, selected));
    }
    objects
}
