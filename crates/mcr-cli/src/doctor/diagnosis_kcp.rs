//! Turns facts about a workspace of kcp and its endpoint slice or WorkspaceType into findings. Without I/O.

use std::collections::BTreeMap;

use super::{
    command::{Command, Grant},
    diagnosis::diagnose,
    facts::{ClusterFacts, Connection, KcpBinding, KcpEndpoint, KcpHub, KcpSlice, Origin, Right},
    finding::Check,
    fix::Fix,
};
use crate::{level::Level, providers::KcpApi};

/// The most workspaces that a finding names.
const NAMED: usize = 3;
const BINDINGS: &str = "apibindings.apis.kcp.io";
const EXPORTS: &str = "apiexports.apis.kcp.io";

/// The findings about a hub.
pub(super) fn hub(provider: &str, hub: &KcpHub, add: &mut impl FnMut(Check, Level, String, Option<Fix>)) {
    // The error of the provider says so already.
    if !hub.is_workspace {
        return;
    }
    if let Some(connection) = &hub.connection {
        let answers = hub.error.as_deref().map_or(Ok(()), Err);
        of_connection(provider, "workspace", connection, answers, hub, add);
    }
    if hub.error.is_some() {
        return;
    }
    let missing = match &hub.slice {
        // In the 404 of a path without a workspace.
        Err(why) if why.contains("workspaces.tenancy.kcp.io") => Some(""),
        // In the 403 of a front proxy, which tells neither from the other.
        Err(why) if why.contains("workspace access not permitted") => {
            Some(", or the user has no right to enter it")
        }
        _ => None,
    };
    if let Some(or) = missing {
        let fix = "correct the workspace in the server of the kubeconfig, or choose another context with --hub-context";
        let fix = Fix::action(fix).and_run(Command::ShowContexts);
        add(
            Check::Hub,
            Level::Problem,
            format!("there is no workspace at {}{or}", hub.address),
            Some(fix),
        );
        return;
    }
    let user = hub.user.as_deref().unwrap_or("USER");
    add(
        Check::Hub,
        Level::Ok,
        format!("workspace {}; asked as {user}", hub.address),
        None,
    );
    if let Some(right) = &hub.slice_right {
        of_right(right, "", None, hub, add);
    }
    // Without a slice, the provider's own finding has the error and the fix.
    if let Ok(Some(slice)) = &hub.slice {
        match hub.api.of_type() {
            Some(word) => of_type(slice, word, add),
            None => of_slice(slice, hub, add),
        }
        of_endpoints(provider, slice, hub, add);
    }
}

/// The advice if the provider can't use its hub.
pub(super) fn look_at_hub(hub: &KcpHub) -> Option<Fix> {
    if !hub.is_workspace {
        let correct =
            "correct the server in the kubeconfig, or choose the context of a workspace with --hub-context";
        return Some(Fix::action(correct).and_run(Command::ShowContexts));
    }
    let is_missing = hub.error.is_none() && matches!(hub.slice, Ok(None));
    is_missing.then(|| {
        let choose = match hub.api {
            KcpApi::Export => "choose one of the endpoint slices that there are with --slice",
            KcpApi::Initializing | KcpApi::Terminating => {
                "choose one of the WorkspaceTypes that there are with --workspace-type"
            }
        };
        Fix::action(choose).and_run(Command::Look {
            server: hub.address.clone(),
            verb: "get",
            resource: hub.api.resource(),
            name: None,
        })
    })
}

/// The advice if no workspace has bound the export.
pub(super) fn bind(hub: &KcpHub) -> Option<Fix> {
    // Nobody binds a type, and mostly no workspace waits.
    let (KcpApi::Export, Ok(Some(slice))) = (hub.api, &hub.slice) else {
        return None;
    };
    let of = slice
        .path
        .as_deref()
        .map(|path| format!(" of workspace {path}"))
        .unwrap_or_default();
    Some(Fix::action(format!(
        "add an APIBinding for APIExport {}{of} in the workspace of a consumer, whose users need the verb bind on the export",
        slice.export
    )))
}

/// The provider's own finding has the error and the fix if the type has no initializer or terminator.
fn of_type(of_type: &KcpSlice, word: &str, add: &mut impl FnMut(Check, Level, String, Option<Fix>)) {
    let endpoints = match of_type.urls.len() {
        0 => "no endpoints yet".to_owned(),
        1 => "1 endpoint".to_owned(),
        count => format!("{count} endpoints"),
    };
    let saw = format!("WorkspaceType {} has {endpoints} for its {word}", of_type.name);
    add(Check::Type, Level::Ok, saw, None);
}

fn of_slice(slice: &KcpSlice, hub: &KcpHub, add: &mut impl FnMut(Check, Level, String, Option<Fix>)) {
    let KcpSlice { name, export, .. } = slice;
    let of = slice
        .path
        .as_deref()
        .map(|path| format!(" of {path}"))
        .unwrap_or_default();
    let serves = format!("APIExportEndpointSlice {name} serves APIExport {export}{of}");
    match (&slice.invalid, slice.urls.len()) {
        (Some(invalid), _) => {
            let fix = Fix::action("look at the export, and at its conditions").and_run(Command::Look {
                server: hub.address.clone(),
                verb: "describe",
                resource: EXPORTS,
                name: Some(export.clone()),
            });
            add(
                Check::Slice,
                Level::Problem,
                format!("{serves}, but its condition {invalid}"),
                Some(fix),
            );
        }
        (None, 0) => {
            let why = "it has no endpoints, which is normal: kcp adds one for a shard with the first APIBinding there";
            add(Check::Slice, Level::Ok, format!("{serves}; {why}"), None);
        }
        (None, 1) => add(Check::Slice, Level::Ok, format!("{serves} at 1 endpoint"), None),
        (None, count) => add(
            Check::Slice,
            Level::Ok,
            format!("{serves} at {count} endpoints"),
            None,
        ),
    }
}

fn of_endpoints(
    provider: &str,
    slice: &KcpSlice,
    hub: &KcpHub,
    add: &mut impl FnMut(Check, Level, String, Option<Fix>),
) {
    let export = &slice.export;
    if let Some(right) = &hub.content_right {
        let of = match hub.api {
            KcpApi::Export => format!(" of APIExport {export}"),
            KcpApi::Initializing | KcpApi::Terminating => format!(" with the name {export}"),
        };
        of_right(right, &of, Some(export), hub, add);
    }
    let mut all = Vec::new();
    for endpoint in &hub.endpoints {
        of_endpoint(provider, endpoint, export, hub, add);
        all.extend(endpoint.bindings.iter().flatten());
    }
    of_claims(&all, hub, add);
}

fn of_endpoint(
    provider: &str,
    endpoint: &KcpEndpoint,
    export: &str,
    hub: &KcpHub,
    add: &mut impl FnMut(Check, Level, String, Option<Fix>),
) {
    let url = &endpoint.url;
    let Some(connection) = &endpoint.connection else {
        let why = endpoint.bindings.as_ref().err().map_or("", String::as_str);
        let fix = Fix::action("correct spec.virtualWorkspaceURL of its Shard");
        add(
            Check::Slice,
            Level::Problem,
            format!("endpoint {url:?} is not used: {why}"),
            Some(fix),
        );
        return;
    };
    let state = match &endpoint.bindings {
        Err(why) if !endpoint.forbidden => Err(why.as_str()),
        _ => Ok(()),
    };
    of_connection(provider, "endpoint", connection, state, hub, add);
    match &endpoint.bindings {
        Ok(bindings) => {
            let (check, (.., kind)) = match hub.api {
                KcpApi::Export => (Check::Bindings, hub.api.listed()),
                KcpApi::Initializing | KcpApi::Terminating => (Check::Workspaces, hub.api.listed()),
            };
            let saw = match bindings.len() {
                1 => format!("1 {kind}"),
                count => format!("{count} {kind}s"),
            };
            add(
                check,
                Level::Ok,
                format!("{url}: {saw}{}", by_state(bindings)),
                None,
            );
        }
        Err(_) if endpoint.forbidden => {
            let user = hub.user.as_deref().unwrap_or("USER");
            let (.., kind) = hub.api.listed();
            let saw = format!("{user} may not list the {kind}s at {url} (403)");
            let (resource, verbs) = hub.api.right();
            let right = Right {
                resource: resource.to_owned(),
                name: None,
                verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
                denied: Ok(Vec::new()),
            };
            // The finding about the right has the same fix.
            let reported = hub
                .content_right
                .as_ref()
                .is_some_and(|right| right.denied != Ok(Vec::new()));
            let fix = (!reported).then(|| grant(&right, Some(export), hub));
            add(Check::Rights, Level::Problem, saw, fix);
        }
        Err(_) => {}
    }
}

/// How many bindings or LogicalClusters are in each state, as text.
fn by_state(bindings: &[KcpBinding]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for binding in bindings {
        let state = match (binding.deleting, binding.phase.as_str(), binding.ready) {
            (true, ..) => "being deleted".to_owned(),
            (false, "Bound", true) if binding.claims_applied => "ready".to_owned(),
            (false, "Bound", true) => "ready without PermissionClaimsApplied".to_owned(),
            (false, "Bound", false) => "Bound and not Ready".to_owned(),
            (false, "", _) => "without a phase yet".to_owned(),
            (false, phase, _) => phase.to_owned(),
        };
        *counts.entry(state).or_default() += 1;
    }
    let counts: Vec<String> = counts
        .iter()
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    match counts.as_slice() {
        [] => String::new(),
        counts => format!(": {}", counts.join(", ")),
    }
}

/// The findings about each claim of the export: which consumers have not accepted it.
fn of_claims(
    bindings: &[&KcpBinding],
    hub: &KcpHub,
    add: &mut impl FnMut(Check, Level, String, Option<Fix>),
) {
    let mut claims: BTreeMap<&str, (usize, Vec<&KcpBinding>)> = BTreeMap::new();
    for binding in bindings {
        for kind in &binding.granted {
            claims.entry(kind).or_default().0 += 1;
        }
        for kind in &binding.refused {
            claims.entry(kind).or_default().1.push(binding);
        }
    }
    for (kind, (granted, refused)) in claims {
        let all = granted + refused.len();
        let Some(first) = refused.first() else {
            let saw = format!("the claim on {kind} is accepted by all {all} consumers");
            add(Check::Claims, Level::Ok, saw, None);
            continue;
        };
        let named: Vec<String> = refused
            .iter()
            .take(NAMED)
            .map(|binding| workspace(binding))
            .collect();
        let more = match refused.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let saw = format!(
            "the claim on {kind} is not accepted by {} of {all} consumers: {}{more}; controllers see no such objects there",
            refused.len(),
            named.join(", ")
        );
        let fix = "add the claim to spec.permissionClaims of the APIBinding with the state Accepted, which only the consumer \
                   can do";
        let fix = Fix::action(fix).and_run(Command::Look {
            server: workspace_address(hub, &first.cluster),
            verb: "describe",
            resource: BINDINGS,
            name: Some(first.name.clone()),
        });
        add(Check::Claims, Level::Warning, saw, Some(fix));
    }
}

fn workspace(binding: &KcpBinding) -> String {
    match &binding.path {
        Some(path) => format!("{path} ({})", binding.cluster),
        None => binding.cluster.clone(),
    }
}

/// The address of another workspace of the same kcp.
fn workspace_address(hub: &KcpHub, cluster: &str) -> String {
    let clusters = hub.address.rsplit_once('/').map_or("", |(clusters, _)| clusters);
    format!("{clusters}/{cluster}")
}

fn of_right(
    right: &Right,
    of: &str,
    name: Option<&str>,
    hub: &KcpHub,
    add: &mut impl FnMut(Check, Level, String, Option<Fix>),
) {
    let user = hub.user.as_deref().unwrap_or("USER");
    let resource = &right.resource;
    match &right.denied {
        Ok(denied) if denied.is_empty() => {
            let saw = format!("may {} {resource}{of}", right.verbs.join(", "));
            add(Check::Rights, Level::Ok, saw, None);
        }
        Ok(denied) => {
            let saw = format!("{user} may not {} {resource}{of} (403)", denied.join(", "));
            add(Check::Rights, Level::Problem, saw, Some(grant(right, name, hub)));
        }
        Err(why) => {
            let saw = format!(
                "it is unknown whether {user} may {} {resource}{of}: {why}",
                right.verbs.join(", ")
            );
            // Everybody who may enter a workspace may ask what is allowed there.
            let locked_out = why.contains("forbidden") || why.contains("access denied");
            let fix = "grant access to the workspace, which only its own ServiceAccounts have by themselves: a ClusterRole there with the rule \
                       {nonResourceURLs: [\"/\"], verbs: [\"access\"]}, and its binding";
            let (level, fix) = match locked_out {
                true => (Level::Problem, Some(Fix::action(fix))),
                false => (Level::Warning, None),
            };
            add(Check::Rights, level, saw, fix);
        }
    }
}

fn grant(right: &Right, name: Option<&str>, hub: &KcpHub) -> Fix {
    let grant = Command::Grant(Box::new(Grant {
        elsewhere: true,
        role: match right.resource.as_str() {
            "apiexports.apis.kcp.io/content" => "mcr-apiexport-content".to_owned(),
            "apiexportendpointslices.apis.kcp.io" => "mcr-apiexportendpointslices".to_owned(),
            _ => format!("mcr-workspacetypes-{}", right.verbs.join("-")),
        },
        namespace: None,
        verbs: right.verbs.join(","),
        resource: right.resource.clone(),
        name: name.map(str::to_owned),
        user: hub.user.clone(),
    }));
    Fix::action("grant it as an administrator of the workspace").and_run(grant)
}

/// The findings about a connection, which are those about the connection of a cluster. `answers`: why requests with
/// credentials fail there.
fn of_connection(
    provider: &str,
    what: &str,
    connection: &Connection,
    answers: Result<(), &str>,
    hub: &KcpHub,
    add: &mut impl FnMut(Check, Level, String, Option<Fix>),
) {
    let facts = ClusterFacts {
        name: connection.address.clone(),
        provider: provider.to_owned(),
        origin: Origin::KcpAddress,
        state: if answers.is_ok() { "Ready" } else { "Unreachable" }.to_owned(),
        reason: answers.err().map(str::to_owned),
        warnings: Vec::new(),
        connection: Some(connection.clone()),
        api: None,
        cluster_api: None,
        profile: None,
        now: hub.now,
    };
    for finding in diagnose(&facts) {
        let saw = finding.saw;
        // The finding about the connection begins with the address.
        let saw = match saw.starts_with(connection.address.as_str()) {
            true => format!("{what} {saw}"),
            false => format!("{what} {}: {saw}", connection.host),
        };
        add(finding.check, finding.result, saw, finding.fix);
    }
}

#[cfg(test)]
#[path = "diagnosis_kcp_tests.rs"]
mod tests;
