use serde_json::{Value, json};

use super::kinds::{Kind, Kinds};

/// `/version`.
pub(super) fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.1-sim", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc", "platform": "simulated",
    })
}

/// `/api`.
pub(super) fn core_versions() -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:443" }],
    })
}

/// `/apis`.
pub(super) fn groups(kinds: &Kinds) -> Value {
    let groups: Vec<Value> = kinds
        .groups()
        .iter()
        .map(|(name, versions)| group_of(name, versions))
        .collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// `/apis/<group>`.
pub(super) fn group(kinds: &Kinds, name: &str) -> Option<Value> {
    let groups = kinds.groups();
    let (name, versions) = groups.iter().find(|(group, _)| group == name)?;
    let mut group = group_of(name, versions);
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    Some(group)
}

fn group_of(name: &str, versions: &[String]) -> Value {
    let version =
        |version: &String| json!({ "groupVersion": format!("{name}/{version}"), "version": version });
    let versions: Vec<Value> = versions.iter().map(version).collect();
    json!({ "name": name, "versions": versions, "preferredVersion": versions.first() })
}

/// `/api/v1` and `/apis/<group>/<version>`.
pub(super) fn resources(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let mut list = Vec::new();
    for kind in kinds.in_version(group, version) {
        list.push(resource(kind));
        if kind.has_status {
            list.push(json!({
                "name": format!("{}/status", kind.plural), "singularName": "", "namespaced": kind.namespaced,
                "kind": kind.kind, "verbs": ["get", "patch", "update"],
            }));
        }
    }
    if list.is_empty() {
        return None;
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list,
    }))
}

fn resource(kind: &Kind) -> Value {
    let mut resource = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
        "kind": kind.kind, "verbs": kind.verbs(),
    });
    if !kind.short_names.is_empty() {
        resource["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        resource["categories"] = json!(kind.categories);
    }
    resource
}
