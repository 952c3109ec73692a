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
    binding::{Binding, RawBinding},
    config::Config,
    connections::{Connections, attempted},
    credentials::Credentials,
    labels::LabelKeys,
    readiness::Readiness,
    slice::{Api, Slice},
    stage::Stage,
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
        "check the conditions of the APIBinding, which report what kcp waits for",
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

    /// The resource and the verbs that give the right to the workspaces.
    fn content_right(&self) -> (&'static str, &'static [&'static str]) {
        const TYPES: &str = "workspacetypes.tenancy.kcp.io";
        match self.config.api.stage() {
            None => ("apiexports.apis.kcp.io/content", &["list", "watch"]),
            Some(Stage::Initializing) => (TYPES, &["initialize"]),
            Some(Stage::Terminating) => (TYPES, &["terminate"]),
        }
    }

    async fn examine(&self, ask: &dyn Examiner) -> Vec<Finding> {
        let (config, api, policy) = (&self.config, &self.config.api, AccessPolicy::default());
        // The error of the provider reports it.
        let Ok(credentials) = Credentials::of(&config.access, &policy, api.kind_in_words()).await else {
            return Vec::new();
        };
        let server = shown(credentials.server()).trim_end_matches('/').to_owned();
        self.found.lock().insert("server", server.clone());
        let mut connections = Connections::start(&config.name, policy);
        let access = credentials.workspace();
        let client = connect(&mut connections, &server, access.clone(), ask).await;
        let error = client.as_ref().err().map(String::as_str);
        let mut found = named("workspace", ask.address(self, &access, error).await);
        let Ok(client) = client else { return found };
        let (fields, name) = match api {
            Api::Slice(name) | Api::Type(_, name) => (format!("metadata.name={name}"), Some(&**name)),
            Api::Export(_) => (String::new(), None),
        };
        let (kind, verbs) = (api.with_endpoints(), &["list", "watch"]);
        let resource = format!("{}.{}", kind.plural, kind.group);
        let selected = Selected {
            fields: &fields,
            ..Selected::default()
        };
        let right = Right {
            name,
            ..Right::new(&resource, verbs)
        };
        let (user, right, sources) = futures::join!(
            ask.user(&client),
            ask.right(&client, right, None, ""),
            ask.list(&client, [&kind.group, &kind.version, &kind.plural], selected),
        );
        let missing = match &sources {
            // In the 404 of a path without a workspace.
            Err(why) if why.contains("workspaces.tenancy.kcp.io") => Some(""),
            // In the 403 of a front proxy, which does not distinguish the two.
            Err(why) if why.contains("workspace access not permitted") => {
                Some(", or the user has no right to enter it")
            }
            _ => None,
        };
        if let Some(or) = missing {
            let action = "correct the workspace in the server of the kubeconfig, or choose another context with --hub-context";
            let message = format!("there is no workspace at {server}{or}");
            found.push(problem("hub", message, fix(action, CONTEXTS, [])));
            return found;
        }
        found.push(ok("hub", format!("workspace {server}; asked as {user}")));
        found.push(granted(right, grant(verbs, &resource, None, &user)));
        // Without a source, the provider's own finding has the error and the fix.
        let sources = sources.unwrap_or_default();
        let read = |source: &Value| {
            let slice = Slice::of(source.clone(), api.stage()).ok()?;
            Some((Arc::from(text(&source["metadata"]["name"])), slice))
        };
        let known: BTreeMap<Arc<str>, Slice> = sources.iter().filter_map(read).collect();
        if let Ok((name, slice)) = api.choose(&known) {
            // kcp sets the owner of a slice that it creates. Owners are in the same workspace.
            let owns = |owner: &Value| owner["kind"] == "APIExport" && owner["name"] == *slice.export;
            let is_owned = |source: &&Value| {
                source["metadata"]["name"] == **name && list(&source["metadata"]["ownerReferences"]).any(owns)
            };
            let is_beside = slice.path.is_none() || sources.iter().any(|source| is_owned(&source));
            let source = Source {
                name,
                slice,
                is_beside,
                credentials: &credentials,
                client: &client,
                user: &user,
            };
            found.extend(self.examine_source(source, &mut connections, ask).await);
        }
        found
    }

    /// The findings about an endpoint slice or a WorkspaceType, and about its endpoints.
    async fn examine_source(
        &self,
        source: Source<'_>,
        connections: &mut Connections,
        ask: &dyn Examiner,
    ) -> Vec<Finding> {
        let Source {
            name,
            slice,
            credentials,
            user,
            ..
        } = source;
        let server = self.found.lock()["server"].clone();
        let stage = self.config.api.stage();
        let of = slice.path.as_ref().map(|path| format!(" of workspace {path}"));
        let (finding, right_on, place) = match stage {
            Some(stage) => {
                let endpoints = match slice.urls.len() {
                    0 => "no endpoints yet".to_owned(),
                    count => many(count, "endpoint"),
                };
                let message = format!("WorkspaceType {name} has {endpoints} for its {}", stage.word());
                (ok("type", message), &**name, format!(" with the name {name}"))
            }
            None => {
                let values = [
                    ("export", slice.export.to_string()),
                    ("of", of.unwrap_or_default()),
                ];
                self.found.lock().extend(values);
                let place = format!(" of APIExport {}", slice.export);
                (of_slice(name, slice, &server), &*slice.export, place)
            }
        };
        let mut found = vec![finding];
        let (resource, verbs) = self.content_right();
        let grant = || grant(verbs, resource, Some(right_on), user);
        // The right of an export in another workspace can't be asked for here.
        let mut is_reported = false;
        if source.is_beside {
            let right = Right {
                name: Some(right_on),
                ..Right::new(resource, verbs)
            };
            let right = ask.right(source.client, right, None, &place).await;
            is_reported = right.level != Level::Ok;
            found.push(granted(right, grant()));
        }
        let mut connected = Vec::new();
        for url in &slice.urls {
            match endpoint(url, credentials.server(), stage) {
                Ok((uri, mut export)) => {
                    export.path.clone_from(&slice.path);
                    let all = below(&uri, ALL).unwrap_or_else(|| uri.clone());
                    let address = shown(&uri);
                    let client = connect(connections, &address, credentials.at(all), ask).await;
                    connected.push((address, export, credentials.at(uri), client));
                }
                Err(_) => {
                    let service = stage.map_or("apiexport", Stage::service);
                    let message = format!(
                        "endpoint {:?} is not used: it is no https URL of a virtual workspace below /services/{service}/",
                        shown_text(url)
                    );
                    let action = "correct spec.virtualWorkspaceURL of its Shard";
                    found.push(problem("slice", message, fix(action, "", [])));
                }
            }
        }
        let examined = connected.into_iter().map(async |(url, export, access, client)| {
            let kind = self.config.api.members();
            let objects = match client {
                Ok(client) => {
                    let kind = [&*kind.group, &*kind.version, &*kind.plural];
                    ask.list(&client, kind, Selected::default()).await
                }
                Err(why) => Err(why),
            };
            let error = objects.as_ref().err().map(String::as_str);
            let is_forbidden = error.is_some_and(|why| why.contains("forbidden"));
            let mut found = named(
                "endpoint",
                ask.address(self, &access, error.filter(|_| !is_forbidden)).await,
            );
            // The findings about the hub have them.
            found.retain(|finding| finding.check != "credentials" || finding.level != Level::Ok);
            if is_forbidden {
                let message = format!("{user} may not list the {}s at {url} (403)", kind.kind);
                found.push(Finding {
                    fix: Some(grant()).filter(|_| !is_reported),
                    ..problem("rights", message, Fix::default())
                });
            }
            let mut consumers = Vec::new();
            if let Ok(objects) = objects {
                let (check, states) = match stage {
                    Some(_) => ("workspaces", objects.iter().map(phase).collect()),
                    None => {
                        consumers = objects
                            .into_iter()
                            .filter_map(|object| Consumer::of(object, &export))
                            .collect();
                        let state = |consumer: &Consumer| consumer.state;
                        (
                            "bindings",
                            consumers.iter().map(state).map(str::to_owned).collect::<Vec<_>>(),
                        )
                    }
                };
                let message = format!("{url}: {}{}", many(states.len(), &kind.kind), counted(states));
                found.push(ok(check, message));
            }
            (found, consumers)
        });
        let mut all = Vec::new();
        for (of_endpoint, consumers) in join_all(examined).await {
            found.extend(of_endpoint);
            all.extend(consumers);
        }
        found.extend(of_claims(&all, &server));
        found
    }
}

/// What has the endpoints, and who asks.
struct Source<'a> {
    name: &'a Arc<str>,
    slice: &'a Slice,
    /// Whether the export or the type is in the workspace that is asked.
    is_beside: bool,
    credentials: &'a Credentials,
    client: &'a Client,
    user: &'a str,
}

/// A workspace that binds the export.
struct Consumer {
    id: String,
    path: Option<Arc<str>>,
    binding: String,
    state: &'static str,
    /// The kinds that the export claims, and whether the binding accepts each.
    claims: Vec<(String, bool)>,
}

impl Consumer {
    /// None if the binding is not one of the export.
    fn of(object: Value, export: &crate::url::Export) -> Option<Self> {
        let metadata = &object["metadata"];
        let id = text(&metadata["annotations"]["kcp.io/cluster"]).to_owned();
        let binding = text(&metadata["name"]).to_owned();
        let raw: RawBinding = serde_json::from_value(object).ok()?;
        let facts = |readiness| Binding::of(&raw, export, readiness, &LabelKeys::default());
        let all = facts(Readiness::PermissionClaimsApplied)?;
        let state = match facts(Readiness::Ready)? {
            facts if facts.deleting => "being deleted",
            facts if facts.not_ready.is_some() => "not ready",
            _ if all.not_ready.is_some() => "ready without PermissionClaimsApplied",
            _ => "ready",
        };
        Some(Self {
            id,
            binding,
            state,
            claims: raw.claims(),
            path: all.path,
        })
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
        finding.message = format!("{what} {}", finding.message);
    }
    found
}

fn of_slice(name: &str, slice: &Slice, server: &str) -> Finding {
    let Slice {
        export,
        path,
        urls,
        invalid,
    } = slice;
    let of = path
        .as_ref()
        .map(|path| format!(" of {path}"))
        .unwrap_or_default();
    let serves = format!("APIExportEndpointSlice {name} serves APIExport {export}{of}");
    if let Some(invalid) = invalid {
        let describe = "kubectl --server {server} describe apiexports.apis.kcp.io {export}";
        let values = [("server", server), ("export", &**export)];
        let fix = fix("check the export and its conditions", describe, values);
        return problem("slice", format!("{serves}, but its condition {invalid}"), fix);
    }
    let at = match urls.len() {
        0 => {
            "; it has no endpoints, which is normal: kcp adds one for a shard with the first APIBinding there"
                .to_owned()
        }
        count => format!(" at {}", many(count, "endpoint")),
    };
    ok("slice", format!("{serves}{at}"))
}

/// The state of a LogicalCluster.
fn phase(object: &Value) -> String {
    let phase = match text(&object["status"]["phase"]) {
        _ if !object["metadata"]["deletionTimestamp"].is_null() => "being deleted",
        "" => "without a phase yet",
        phase => phase,
    };
    phase.to_owned()
}

/// How many objects are in each state, as text.
fn counted(states: Vec<String>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for state in states {
        *counts.entry(state).or_default() += 1;
    }
    let counts = counts.iter().map(|(state, count)| format!("{count} {state}"));
    match counts.collect::<Vec<_>>().join(", ") {
        counts if counts.is_empty() => counts,
        counts => format!(": {counts}"),
    }
}

/// The findings about each claim of the export: which consumers have not accepted it.
fn of_claims(consumers: &[Consumer], server: &str) -> Vec<Finding> {
    /// The most workspaces that a finding names.
    const NAMED: usize = 3;
    let mut claims: BTreeMap<&str, (usize, Vec<&Consumer>)> = BTreeMap::new();
    for consumer in consumers {
        for (kind, accepted) in &consumer.claims {
            let (all, refused) = claims.entry(kind).or_default();
            *all += 1;
            refused.extend(Some(consumer).filter(|_| !accepted));
        }
    }
    let found = claims.into_iter().map(|(kind, (all, refused))| {
        let Some(first) = refused.first() else {
            return ok("claims", format!("the claim on {kind} is accepted by all {all} consumers"));
        };
        let shown = |consumer: &&Consumer| match &consumer.path {
            Some(path) => format!("{path} ({})", consumer.id),
            None => consumer.id.clone(),
        };
        let named: Vec<String> = refused.iter().take(NAMED).map(shown).collect();
        let more = match refused.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let message = format!(
            "the claim on {kind} is not accepted by {} of {all} consumers: {}{more}; controllers see no such objects there",
            refused.len(),
            named.join(", ")
        );
        let action = "add the claim to spec.permissionClaims of the APIBinding with the state Accepted, which only the consumer \
                      can do";
        let describe = "kubectl --server {workspace} describe apibindings.apis.kcp.io {binding}";
        let values = [("workspace", &*workspace_address(server, &first.id)), ("binding", &first.binding)];
        Finding {
            level: Level::Warning,
            ..problem("claims", message, fix(action, describe, values))
        }
    });
    found.collect()
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
        Level::Warning if right.message.contains("forbidden") || right.message.contains("access denied") => {
            (right.level, right.fix) = (Level::Problem, Some(fix(ENTER, "", [])));
        }
        Level::Warning => {}
    }
    right
}

fn grant(verbs: &[&str], resource: &str, name: Option<&str>, user: &str) -> Fix {
    let of_name = if name.is_some() {
        " --resource-name={name}"
    } else {
        ""
    };
    let kubectl = "kubectl --context CONTEXT create";
    let kind = resource.split('.').next().unwrap_or_default();
    let role = match resource.split_once('/') {
        Some((_, subresource)) => format!("mcr-{}-{subresource}", kind.trim_end_matches('s')),
        None => format!("mcr-{kind}-{}", verbs.join("-")),
    };
    let values = [
        ("role", &*role),
        ("verbs", &verbs.join(",")),
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

fn ok(check: &'static str, message: String) -> Finding {
    Finding {
        check,
        level: Level::Ok,
        message,
        fix: None,
    }
}

fn problem(check: &'static str, message: String, fix: Fix) -> Finding {
    Finding {
        check,
        level: Level::Problem,
        message,
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
        let right = |level, message: &str| Finding {
            level,
            ..ok("rights", message.to_owned())
        };
        let content = || {
            grant(
                &["list"],
                "apiexports.apis.kcp.io/content",
                Some("widgets"),
                "robot",
            )
        };
        assert_eq!(granted(right(Level::Ok, ""), content()).fix, None);
        let denied = granted(right(Level::Problem, "robot may not list"), content());
        let denied = denied.fix.unwrap();
        assert!(denied.command.contains("--resource-name={name}; ") && denied.values["name"] == "widgets");
        assert_eq!(denied.values["role"], "mcr-apiexport-content");
        assert_eq!(granted(right(Level::Warning, "no answer"), content()).fix, None);
        // A user from outside of the workspace may not even ask.
        let outside = right(
            Level::Warning,
            "selfsubjectaccessreviews is forbidden: access denied",
        );
        let outside = granted(outside, content());
        assert_eq!(outside.level, Level::Problem);
        let fix = outside.fix.unwrap();
        assert!(fix.action.contains("verbs: [\"access\"]"), "{fix:?}");
    }

    #[test]
    fn claims_that_are_not_accepted_are_named() {
        let fixture = include_str!("../tests/fixtures/apibinding-v1alpha2.json");
        let export = crate::url::Export {
            cluster: "1rlzadlzb44i0g5n".into(),
            name: "mongodb".into(),
            path: None,
        };
        let consumer = |id: &str, state: &str| {
            let mut binding: Value = serde_json::from_str(fixture).unwrap();
            binding["metadata"]["annotations"] =
                json!({"kcp.io/cluster": id, "kcp.io/path": format!("root:{id}")});
            binding["spec"]["permissionClaims"] =
                json!([{"resource": "events", "verbs": ["*"], "state": state}]);
            // Both groups of events are one claim.
            binding["status"]["exportPermissionClaims"] =
                json!([{"group": "events.k8s.io", "resource": "events", "verbs": ["*"]}]);
            Consumer::of(binding, &export).unwrap()
        };
        let mut consumers = ["a", "b", "c", "d"]
            .map(|id| consumer(id, "Rejected"))
            .into_iter()
            .collect::<Vec<_>>();
        consumers[1].path = None;
        consumers.push(consumer("e", "Accepted"));
        assert_eq!(consumers[0].state, "ready without PermissionClaimsApplied");
        let found = of_claims(&consumers, "https://kcp:6443/clusters/root:provider");
        assert_eq!(
            found[0].message,
            "the claim on events.events.k8s.io is not accepted by 4 of 5 consumers: root:a (a), b, root:c (c) and 1 more; \
             controllers see no such objects there"
        );
        let fix = found[0].fix.as_ref().unwrap();
        assert_eq!(fix.values["workspace"], "https://kcp:6443/clusters/a");
        let all = of_claims(&consumers[4..], "https://kcp:6443/clusters/root:provider");
        assert_eq!(
            all[0].message,
            "the claim on events.events.k8s.io is accepted by all 1 consumers"
        );
    }
}
