//! What `mcr doctor` checks of kcp: the workspace with the endpoint slice or the WorkspaceType, its endpoints, and what is there.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::{BoxFuture, join_all};
use kube::Client;
use mcr_core::{
    Access, AccessPolicy, ClusterState,
    doctor::{Advice, Described, Doctor, Examiner, Fault, Finding, Fix, Level, Right, Selected, Values},
};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    config::Config,
    connections::{Connections, attempted},
    credentials::Credentials,
    slice::Api,
    url::{ALL, below, endpoint, shown, shown_text},
};

pub(crate) struct KcpDoctor {
    config: Arc<Config>,
    /// The values for the advice on the source: the address of the workspace, and the export with its workspace.
    found: Mutex<Values>,
}

const WORKSPACE: &str =
    "correct the server in the kubeconfig, or choose the context of a workspace with --hub-context";
const CONTEXTS: &str = "kubectl config get-contexts";
const SLICE: &str = "choose one of the endpoint slices that there are with --slice";
const SLICES: &str = "kubectl --server {server} get apiexportendpointslices.apis.kcp.io";
const TYPES: &str = "kubectl --server {server} get workspacetypes.tenancy.kcp.io";
const ADMINISTRATOR: &str = "grant it as an administrator of the workspace";
const ENTER: &str = "grant access to the workspace, which only its own ServiceAccounts have by themselves: a ClusterRole there with the \
                     rule {nonResourceURLs: [\"/\"], verbs: [\"access\"]}, and its binding";

const COMMON: [Advice; 6] = [
    Advice::new(Fault::Source, "is a virtual workspace", WORKSPACE, CONTEXTS),
    Advice::new(Fault::Source, "is all workspaces at once", WORKSPACE, CONTEXTS),
    Advice::new(Fault::Source, "names no workspace", WORKSPACE, CONTEXTS),
    Advice::new(
        Fault::Description,
        "",
        "add the authorities that sign the certificates of all shards to certificate-authority-data of the hub's kubeconfig: \
         the provider connects to each endpoint with the authorities and the credentials of the hub",
        "",
    ),
    Advice::new(
        Fault::Credentials,
        "",
        "renew the credentials in the kubeconfig of the hub",
        "",
    ),
    Advice::new(
        Fault::Suspended,
        "",
        "look at the conditions of the APIBinding, which say what kcp waits for",
        "kubectl --server {workspace} describe apibindings.apis.kcp.io {binding}",
    ),
];

const OF_EXPORT: &[Advice] = &[
    COMMON[0],
    COMMON[1],
    COMMON[2],
    COMMON[3],
    COMMON[4],
    COMMON[5],
    Advice::new(Fault::Source, "does not exist", SLICE, SLICES),
    Advice::new(Fault::Source, "has no APIExportEndpointSlice", SLICE, SLICES),
    Advice::new(
        Fault::NoClusters,
        "",
        "add an APIBinding for APIExport {export}{of} in the workspace of a consumer, whose users need the verb bind on the export",
        "",
    ),
];

const OF_TYPE: &[Advice] = &[
    COMMON[0],
    COMMON[1],
    COMMON[2],
    COMMON[3],
    COMMON[4],
    COMMON[5],
    Advice::new(
        Fault::Source,
        "does not exist",
        "choose one of the WorkspaceTypes that there are with --workspace-type",
        TYPES,
    ),
    // Mostly no workspace waits.
    Advice::new(Fault::NoClusters, "", "", ""),
];

impl KcpDoctor {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            found: Mutex::default(),
        }
    }

    /// The group, version and plural of the objects with the endpoints, and of those at the endpoints.
    fn kinds(&self) -> [[&'static str; 3]; 2] {
        match self.config.api.stage() {
            None => [
                ["apis.kcp.io", "v1alpha1", "apiexportendpointslices"],
                ["apis.kcp.io", "v1alpha2", "apibindings"],
            ],
            Some(_) => [
                ["tenancy.kcp.io", "v1alpha1", "workspacetypes"],
                ["core.kcp.io", "v1alpha1", "logicalclusters"],
            ],
        }
    }

    /// The resource and the verbs that give the right to the workspaces, and the role that grants it.
    fn content_right(&self) -> (&'static str, &'static [&'static str], &'static str) {
        match self.config.api.stage().map(|stage| stage.verb()) {
            None => (
                "apiexports.apis.kcp.io/content",
                &["list", "watch"],
                "mcr-apiexport-content",
            ),
            Some("initialize") => (
                "workspacetypes.tenancy.kcp.io",
                &["initialize"],
                "mcr-workspacetypes-initialize",
            ),
            Some(_) => (
                "workspacetypes.tenancy.kcp.io",
                &["terminate"],
                "mcr-workspacetypes-terminate",
            ),
        }
    }

    async fn examine(&self, ask: &dyn Examiner) -> Vec<Finding> {
        let (config, api, policy) = (&self.config, &self.config.api, AccessPolicy::default());
        // The error of the provider says so already.
        let Ok(credentials) = Credentials::of(&config.access, &policy, api.kind_in_words()).await else {
            return Vec::new();
        };
        let server = shown(credentials.server()).trim_end_matches('/').to_owned();
        self.found.lock().insert("server", server.clone());
        let mut connections = Connections::start(&config.name, policy);
        let access = credentials.workspace();
        let client = connect(&mut connections, &server, access.clone(), ask).await;
        let mut found = named(
            "workspace",
            ask.address(self, &access, client.as_ref().err().map(String::as_str))
                .await,
        );
        let Ok(client) = client else { return found };
        let (wanted, name) = match api {
            Api::Slice(name) | Api::Type(_, name) => (format!("metadata.name={name}"), Some(&**name)),
            Api::Export(_) => (String::new(), None),
        };
        let ([group, version, plural], resource) = (self.kinds()[0], self.resource());
        let selected = Selected {
            fields: &wanted,
            ..Selected::default()
        };
        let right = Right {
            name,
            ..Right::new(&resource, &["list", "watch"])
        };
        let (user, right, sources) = futures::join!(
            ask.user(&client),
            ask.right(&client, right, None, ""),
            ask.list(&client, [group, version, plural], selected),
        );
        let missing = match &sources {
            // In the 404 of a path without a workspace.
            Err(why) if why.contains("workspaces.tenancy.kcp.io") => Some(""),
            // In the 403 of a front proxy, which tells neither from the other.
            Err(why) if why.contains("workspace access not permitted") => {
                Some(", or the user has no right to enter it")
            }
            _ => None,
        };
        if let Some(or) = missing {
            let action = "correct the workspace in the server of the kubeconfig, or choose another context with --hub-context";
            let saw = format!("there is no workspace at {server}{or}");
            found.push(problem("hub", saw, fix(action, CONTEXTS, [])));
            return found;
        }
        found.push(ok("hub", format!("workspace {server}; asked as {user}")));
        let verbs = (
            resource.as_str(),
            &["list", "watch"][..],
            format!("mcr-{plural}").replace("workspacetypes", "workspacetypes-list-watch"),
        );
        found.push(granted(right, grant(&verbs.2, verbs.1, verbs.0, None, &user)));
        // Without a source, the provider's own finding has the error and the fix.
        let mut sources = sources.unwrap_or_default();
        if let Api::Export(export) = api {
            sources.retain(|slice| slice["spec"]["export"]["name"] == **export);
            sources.sort_by_key(|slice| slice["metadata"]["name"] != **export);
        }
        if let Some(source) = sources.first() {
            found.extend(
                self.examine_source(source, &credentials, &client, &mut connections, &user, ask)
                    .await,
            );
        }
        found
    }

    fn resource(&self) -> String {
        let [group, _, plural] = self.kinds()[0];
        format!("{plural}.{group}")
    }

    /// The findings about an endpoint slice or a WorkspaceType, and about its endpoints.
    async fn examine_source(
        &self,
        source: &Value,
        credentials: &Credentials,
        client: &Client,
        connections: &mut Connections,
        user: &str,
        ask: &dyn Examiner,
    ) -> Vec<Finding> {
        let server = self.found.lock()["server"].clone();
        let name = text(&source["metadata"]["name"]);
        let stage = self.config.api.stage();
        let (spec, status) = (&source["spec"]["export"], &source["status"]);
        let (finding, export, urls, is_beside, place) = match stage {
            Some(stage) => {
                let urls: Vec<&str> = list(&status["virtualWorkspaces"])
                    .filter(|endpoint| endpoint["type"] == stage.of_endpoint())
                    .filter_map(|endpoint| endpoint["url"].as_str())
                    .collect();
                let endpoints = match urls.len() {
                    0 => "no endpoints yet".to_owned(),
                    count => many(count, "endpoint"),
                };
                let saw = format!("WorkspaceType {name} has {endpoints} for its {}", stage.word());
                (
                    ok("type", saw),
                    name,
                    urls,
                    true,
                    format!(" with the name {name}"),
                )
            }
            None => {
                let export = text(&spec["name"]);
                let path = spec["path"].as_str();
                let of = path
                    .map(|path| format!(" of workspace {path}"))
                    .unwrap_or_default();
                self.found
                    .lock()
                    .extend([("export", export.to_owned()), ("of", of)]);
                let urls: Vec<&str> = list(&status["endpoints"])
                    .filter_map(|endpoint| endpoint["url"].as_str())
                    .collect();
                // kcp sets the owner of a slice that it creates. Owners are in the same workspace.
                let owns = |owner: &Value| owner["kind"] == "APIExport" && owner["name"] == export;
                let is_beside = path.is_none() || list(&source["metadata"]["ownerReferences"]).any(owns);
                let finding = of_slice(source, export, urls.len(), &server);
                (
                    finding,
                    export,
                    urls,
                    is_beside,
                    format!(" of APIExport {export}"),
                )
            }
        };
        let mut found = vec![finding];
        let (resource, verbs, role) = self.content_right();
        let grant = || grant(role, verbs, resource, Some(export), user);
        // The right of an export in another workspace can't be asked for here.
        let mut is_reported = false;
        if is_beside {
            let right = Right {
                name: Some(export),
                ..Right::new(resource, verbs)
            };
            let right = ask.right(client, right, None, &place).await;
            is_reported = right.level != Level::Ok;
            found.push(granted(right, grant()));
        }
        let mut connected = Vec::new();
        for url in urls {
            connected.push(match endpoint(url, credentials.server(), stage) {
                Ok((uri, _)) => {
                    let all = below(&uri, ALL).unwrap_or_else(|| uri.clone());
                    let address = shown(&uri);
                    let client = connect(connections, &address, credentials.at(all), ask).await;
                    Ok((address, credentials.at(uri), client))
                }
                Err(_) => Err(shown_text(url)),
            });
        }
        let [_, listed] = self.kinds();
        let service = stage.map_or("apiexport", |stage| stage.service());
        let examined = connected.into_iter().map(async |connected| {
            let (url, access, client) = match connected {
                Ok(connected) => connected,
                Err(url) => {
                    let why = format!("it is no https URL of a virtual workspace below /services/{service}/");
                    let action = "correct spec.virtualWorkspaceURL of its Shard";
                    let saw = format!("endpoint {url:?} is not used: {why}");
                    return (vec![problem("slice", saw, fix(action, "", []))], Vec::new());
                }
            };
            let objects = match client {
                Ok(client) => ask.list(&client, listed, Selected::default()).await,
                Err(why) => Err(why),
            };
            let is_forbidden = objects.as_ref().is_err_and(|why| why.contains("forbidden"));
            let error = objects
                .as_ref()
                .err()
                .filter(|_| !is_forbidden)
                .map(String::as_str);
            let mut found = named("endpoint", ask.address(self, &access, error).await);
            // The findings about the hub have them.
            found.retain(|finding| finding.check != "credentials" || finding.level != Level::Ok);
            let kind = self.config.api.watched();
            if is_forbidden {
                let saw = format!("{user} may not list the {kind}s at {url} (403)");
                let fix = Some(grant()).filter(|_| !is_reported);
                found.push(Finding {
                    fix,
                    ..problem("rights", saw, Fix::default())
                });
            }
            let is_listed = objects.is_ok();
            let mut objects = objects.unwrap_or_default();
            objects
                .retain(|object| stage.is_some() || object["spec"]["reference"]["export"]["name"] == export);
            if is_listed {
                let check = if stage.is_some() { "workspaces" } else { "bindings" };
                let saw = format!("{url}: {}{}", many(objects.len(), kind), by_state(&objects));
                found.push(ok(check, saw));
            }
            (found, objects)
        });
        let mut all = Vec::new();
        for (of_endpoint, objects) in join_all(examined).await {
            found.extend(of_endpoint);
            all.extend(objects);
        }
        found.extend(of_claims(&all, &server));
        found
    }
}

impl Doctor for KcpDoctor {
    fn advice(&self) -> &'static [Advice] {
        self.config.api.stage().map_or(OF_EXPORT, |_| OF_TYPE)
    }

    fn display_name(&self) -> &'static str {
        "the path of a workspace"
    }

    fn values(&self, cluster: Option<&Described<'_>>) -> Values {
        let mut values = self.found.lock().clone();
        let Some(cluster) = cluster else { return values };
        let id = cluster.identity.unwrap_or(cluster.name);
        let workspace = values.get("server").map(|server| workspace_address(server, id));
        values.extend(workspace.map(|workspace| ("workspace", workspace)));
        // `APIBinding NAME is not bound yet` or `APIBinding NAME: …`.
        let binding = cluster
            .reason
            .and_then(|reason| reason.strip_prefix("APIBinding ")?.split(' ').next());
        values.extend(binding.map(|binding| ("binding", binding.trim_end_matches(':').to_owned())));
        values
    }

    fn source<'a>(&'a self, ask: &'a dyn Examiner) -> BoxFuture<'a, Vec<Finding>> {
        Box::pin(self.examine(ask))
    }

    /// kcp has no reviews of rights in a workspace, and refuses `/version` to users with few rights. The rights in a workspace are
    /// those to the content of the export or the type.
    fn ready(&self, cluster: &Described<'_>) -> Option<Finding> {
        let path = cluster.properties.get("kcp.io/path").map(String::as_str);
        let workspace = path.unwrap_or(cluster.name);
        Some(ok("state", format!("Ready; workspace {workspace}")))
    }
}

/// Connects as a discovery does. An error has text for people.
async fn connect(
    connections: &mut Connections,
    address: &str,
    access: Access,
    ask: &dyn Examiner,
) -> Result<Client, String> {
    let opened = connections.open(address, access).await;
    let connection = opened.map_err(|error| error.to_string())?;
    match tokio::time::timeout(ask.limit(), attempted(&connection)).await {
        Ok(ClusterState::Ready) => Ok(connection.client()),
        Ok(state) => Err(state.reason().unwrap_or("it is not connected").to_owned()),
        Err(_) => Err(format!("no answer within {} s", ask.limit().as_secs())),
    }
}

/// The findings about an address, which begin with what it is.
fn named(what: &str, mut found: Vec<Finding>) -> Vec<Finding> {
    for finding in &mut found {
        finding.saw = format!("{what} {}", finding.saw);
    }
    found
}

fn of_slice(slice: &Value, export: &str, endpoints: usize, server: &str) -> Finding {
    let of = slice["spec"]["export"]["path"]
        .as_str()
        .map(|path| format!(" of {path}"));
    let (name, of) = (text(&slice["metadata"]["name"]), of.unwrap_or_default());
    let serves = format!("APIExportEndpointSlice {name} serves APIExport {export}{of}");
    let lacks = |condition: &Value| {
        let is_one = ["APIExportValid", "PartitionValid"].contains(&text(&condition["type"]));
        is_one && condition["status"] == "False"
    };
    if let Some(condition) = list(&slice["status"]["conditions"]).find(|condition| lacks(condition)) {
        let why = ["message", "reason"]
            .into_iter()
            .map(|field| text(&condition[field]));
        let why = why.filter(|why| !why.is_empty()).next().unwrap_or("no message");
        let why: String = why.chars().take(200).collect();
        let saw = format!(
            "{serves}, but its condition {} is False: {why}",
            text(&condition["type"])
        );
        let describe = "kubectl --server {server} describe apiexports.apis.kcp.io {export}";
        let values = [("server", server), ("export", export)];
        return problem(
            "slice",
            saw,
            fix("look at the export, and at its conditions", describe, values),
        );
    }
    let at = match endpoints {
        0 => {
            "; it has no endpoints, which is normal: kcp adds one for a shard with the first APIBinding there"
                .to_owned()
        }
        count => format!(" at {}", many(count, "endpoint")),
    };
    ok("slice", format!("{serves}{at}"))
}

/// How many bindings or LogicalClusters are in each state, as text.
fn by_state(objects: &[Value]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for object in objects {
        let is_true = |type_: &str| {
            let is_it = |condition: &Value| condition["type"] == type_ && condition["status"] == "True";
            list(&object["status"]["conditions"]).any(is_it)
        };
        let has_claims = list(&object["status"]["exportPermissionClaims"]).next().is_some();
        let state = match text(&object["status"]["phase"]) {
            _ if !object["metadata"]["deletionTimestamp"].is_null() => "being deleted",
            "Bound" if !is_true("Ready") => "Bound and not Ready",
            "Bound" if has_claims && !is_true("PermissionClaimsApplied") => {
                "ready without PermissionClaimsApplied"
            }
            "Bound" => "ready",
            "" => "without a phase yet",
            phase => phase,
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
fn of_claims(bindings: &[Value], server: &str) -> Vec<Finding> {
    /// The most workspaces that a finding names.
    const NAMED: usize = 3;
    let mut claims: BTreeMap<String, (usize, Vec<&Value>)> = BTreeMap::new();
    for binding in bindings {
        for claim in list(&binding["status"]["exportPermissionClaims"]) {
            let (all, refused) = claims.entry(claimed(claim)).or_default();
            *all += 1;
            if !accepts(binding, claim) {
                refused.push(binding);
            }
        }
    }
    let found = claims.into_iter().map(|(kind, (all, refused))| {
        let Some(first) = refused.first() else {
            return ok("claims", format!("the claim on {kind} is accepted by all {all} consumers"));
        };
        let named: Vec<String> = refused.iter().take(NAMED).map(|binding| workspace(binding)).collect();
        let more = match refused.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let saw = format!(
            "the claim on {kind} is not accepted by {} of {all} consumers: {}{more}; controllers see no such objects there",
            refused.len(),
            named.join(", ")
        );
        let action = "add the claim to spec.permissionClaims of the APIBinding with the state Accepted, which only the consumer \
                      can do";
        let describe = "kubectl --server {workspace} describe apibindings.apis.kcp.io {binding}";
        let address = workspace_address(server, text(&first["metadata"]["annotations"]["kcp.io/cluster"]));
        let values = [("workspace", &*address), ("binding", text(&first["metadata"]["name"]))];
        Finding {
            level: Level::Warning,
            ..problem("claims", saw, fix(action, describe, values))
        }
    });
    found.collect()
}

/// Whether a binding grants a claim of the export: the same kind with the same identity.
fn accepts(binding: &Value, claim: &Value) -> bool {
    list(&binding["spec"]["permissionClaims"]).any(|theirs| {
        let same = |field: &&str| text(&theirs[*field]) == text(&claim[*field]);
        theirs["state"] == "Accepted" && ["group", "resource", "identityHash"].iter().all(same)
    })
}

/// The kind of a claim, as kubectl writes it.
fn claimed(claim: &Value) -> String {
    match (text(&claim["resource"]), text(&claim["group"])) {
        (resource, "") => resource.to_owned(),
        (resource, group) => format!("{resource}.{group}"),
    }
}

fn workspace(object: &Value) -> String {
    let annotations = &object["metadata"]["annotations"];
    let id = text(&annotations["kcp.io/cluster"]);
    match annotations["kcp.io/path"].as_str() {
        Some(path) => format!("{path} ({id})"),
        None => id.to_owned(),
    }
}

/// The address of another workspace of the same kcp.
fn workspace_address(server: &str, cluster: &str) -> String {
    let clusters = server.rsplit_once('/').map_or("", |(clusters, _)| clusters);
    format!("{clusters}/{cluster}")
}

/// A finding about a right, with the command that grants it. Everybody who may enter a workspace may ask what is allowed there.
fn granted(mut right: Finding, grant: Fix) -> Finding {
    match right.level {
        Level::Ok => {}
        Level::Problem => right.fix = Some(grant),
        Level::Warning if right.saw.contains("forbidden") || right.saw.contains("access denied") => {
            (right.level, right.fix) = (Level::Problem, Some(fix(ENTER, "", [])));
        }
        Level::Warning => {}
    }
    right
}

fn grant(role: &str, verbs: &[&str], resource: &str, name: Option<&str>, user: &str) -> Fix {
    let of_name = if name.is_some() {
        " --resource-name={name}"
    } else {
        ""
    };
    let kubectl = "kubectl --context CONTEXT create";
    let verbs = verbs.join(",");
    let values = [
        ("role", role),
        ("verbs", &verbs),
        ("resource", resource),
        ("name", name.unwrap_or_default()),
        ("user", user),
    ];
    Fix {
        command: format!(
            "{kubectl} clusterrole {{role}} --verb={{verbs}} --resource={{resource}}{of_name}; \
             {kubectl} clusterrolebinding {{role}} --clusterrole={{role}} --user={{user}}"
        )
        .into(),
        ..fix(ADMINISTRATOR, "", values)
    }
}

fn fix<const N: usize>(
    action: &'static str,
    command: &'static str,
    values: [(&'static str, &str); N],
) -> Fix {
    Fix {
        action: action.into(),
        command: command.into(),
        values: values.map(|(name, value)| (name, value.to_owned())).into(),
    }
}

fn ok(check: &'static str, saw: String) -> Finding {
    Finding {
        check,
        level: Level::Ok,
        saw,
        fix: None,
    }
}

fn problem(check: &'static str, saw: String, fix: Fix) -> Finding {
    Finding {
        check,
        level: Level::Problem,
        saw,
        fix: Some(fix),
    }
}

fn many(count: usize, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {what}{s}")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_rights_are_reported_with_the_commands_that_grant_them() {
        let right = |level, saw: &str| Finding {
            level,
            ..ok("rights", saw.to_owned())
        };
        let content = || {
            grant(
                "mcr-r",
                &["list"],
                "apiexports.apis.kcp.io/content",
                Some("widgets"),
                "robot",
            )
        };
        assert_eq!(granted(right(Level::Ok, ""), content()).fix, None);
        let denied = granted(right(Level::Problem, "robot may not list"), content())
            .fix
            .unwrap();
        assert!(denied.command.contains("--resource-name={name}; ") && denied.values["name"] == "widgets");
        assert_eq!(granted(right(Level::Warning, "no answer"), content()).fix, None);
        // A user from outside of the workspace may not even ask.
        let outside = right(
            Level::Warning,
            "selfsubjectaccessreviews is forbidden: access denied",
        );
        let outside = granted(outside, content());
        let fix = outside.fix.unwrap();
        assert!(
            outside.level == Level::Problem && fix.action.contains("verbs: [\"access\"]"),
            "{fix:?}"
        );
    }

    #[test]
    fn a_slice_is_reported_with_the_condition_that_is_false() {
        let mut slice =
            json!({"metadata": {"name": "e"}, "spec": {"export": {"name": "e", "path": "root:x"}}});
        let none = of_slice(&slice, "e", 0, "https://a/clusters/x");
        assert!(
            none.level == Level::Ok
                && none
                    .saw
                    .contains("e of root:x; it has no endpoints, which is normal")
        );
        slice["status"]["conditions"] =
            json!([{"type": "APIExportValid", "status": "False", "reason": "NotFound"}]);
        let invalid = of_slice(&slice, "e", 1, "https://a/clusters/x");
        let saw = "but its condition APIExportValid is False: NotFound";
        assert!(
            invalid.level == Level::Problem && invalid.saw.ends_with(saw),
            "{invalid:?}"
        );
    }

    #[test]
    fn bindings_are_counted_by_state_and_claims_that_are_not_accepted_are_named() {
        let claim = json!({"group": "events.k8s.io", "resource": "events", "verbs": ["*"]});
        let binding = |cluster: &str, phase: &str, ready: &str, granted: &[&str]| {
            let granted = granted.iter().map(
                |group| json!({"group": group, "resource": "events", "verbs": ["*"], "state": "Accepted"}),
            );
            json!({
                "metadata": {"name": "widgets", "annotations": {"kcp.io/cluster": cluster, "kcp.io/path": format!("root:{cluster}")}},
                "spec": {"permissionClaims": granted.collect::<Vec<_>>()},
                "status": {
                    "phase": phase, "exportPermissionClaims": [claim],
                    "conditions": [{"type": "Ready", "status": ready}, {"type": "PermissionClaimsApplied", "status": ready}],
                },
            })
        };
        let mut bindings: Vec<Value> = ["a", "b", "c", "d"]
            .map(|cluster| binding(cluster, "Bound", "True", &[""]))
            .into();
        bindings[1]["metadata"]["annotations"]["kcp.io/path"] = Value::Null;
        bindings[2]["status"]["conditions"][1]["status"] = "False".into();
        bindings[3]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        bindings.push(binding("e", "Binding", "False", &["events.k8s.io"]));
        bindings.push(binding("f", "Bound", "False", &["events.k8s.io"]));
        bindings.push(binding("g", "", "False", &["events.k8s.io"]));
        assert_eq!(
            by_state(&bindings),
            ": 1 Binding, 1 Bound and not Ready, 1 being deleted, 2 ready, 1 ready without PermissionClaimsApplied, 1 without \
             a phase yet"
        );
        let found = of_claims(&bindings, "https://kcp:6443/clusters/root:provider");
        assert_eq!(
            found[0].saw,
            "the claim on events.events.k8s.io is not accepted by 4 of 7 consumers: root:a (a), b, root:c (c) and 1 more; \
             controllers see no such objects there"
        );
        assert_eq!(
            found[0].fix.as_ref().unwrap().values["workspace"],
            "https://kcp:6443/clusters/a"
        );
        let all = of_claims(&bindings[4..], "https://kcp:6443/clusters/root:provider");
        assert_eq!(
            all[0].saw,
            "the claim on events.events.k8s.io is accepted by all 3 consumers"
        );
    }
}
