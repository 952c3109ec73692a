//! Collects facts about a workspace of kcp with an endpoint slice or a WorkspaceType, and about the workspaces at the endpoints.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::future::join_all;
use http::Uri;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, ObjectList},
};
use mcr_core::Access;
use serde_json::Value;

use super::{
    ask::{GroupResource, in_time, right, user},
    facts::{KcpBinding, KcpEndpoint, KcpHub, KcpSlice, Right},
    probe,
    target::{self, Credential, Target},
};
use crate::{
    providers::{KcpApi, ProviderOptions},
    session::{Session, is_forbidden, text_of},
};

/// The verbs that the provider uses on the object that has the endpoints.
const VERBS: &[&str] = &["list", "watch"];
/// The number of objects in one answer.
const PAGE: u32 = 500;
/// The longest message of a condition that is shown, in characters.
const SHOWN: usize = 200;

/// The facts about the hub. `None` if there is no address of it.
pub(super) async fn hub(api: KcpApi, options: &ProviderOptions, limit: Duration) -> Option<KcpHub> {
    let access = options.hub_access().await.ok()?;
    let target = target::of(&access)?;
    let mut hub = KcpHub {
        api,
        address: target.address.clone(),
        is_workspace: is_workspace(&target.path),
        connection: None,
        error: None,
        user: None,
        slice_right: None,
        slice: Ok(None),
        content_right: None,
        endpoints: Vec::new(),
        now: SystemTime::now(),
    };
    if !hub.is_workspace {
        return Some(hub);
    }
    let policy = options.flags().policy().address_policy();
    hub.connection = Some(probe::connection(&target, &policy, limit).await);
    let client = match options.hub().await {
        Ok(client) => client,
        Err(why) => {
            hub.error = Some(why.to_string());
            return Some(hub);
        }
    };
    let flags = options.flags();
    let (name, export) = match api {
        KcpApi::Export => (flags.slice.as_deref(), flags.export.as_deref()),
        KcpApi::Initializing | KcpApi::Terminating => (flags.workspace_type.as_deref(), None),
    };
    let (of_slices, slice, user) = futures::join!(
        verbs(&client, (api.resource(), VERBS), name, limit),
        slice(api, &client, name, export, limit),
        user(&client, limit),
    );
    (hub.user, hub.slice_right) = (user, of_slices);
    if let Ok(Some(slice)) = &slice {
        if slice.is_beside_export {
            hub.content_right = verbs(&client, api.right(), Some(&slice.export), limit).await;
        }
        let endpoints = slice
            .urls
            .iter()
            .map(|url| endpoint(api, url, &slice.export, &access, &target, options, limit));
        hub.endpoints = join_all(endpoints).await;
    }
    hub.slice = slice;
    Some(hub)
}

/// Whether the path of an address is that of a workspace, and not that of a virtual workspace or of a whole kcp.
fn is_workspace(path: &str) -> bool {
    let workspace = path.rsplit_once("/clusters/").map(|(_, workspace)| workspace);
    !path.contains("/services/")
        && workspace.is_some_and(|name| !matches!(name, "" | "*") && !name.contains('/'))
}

async fn verbs(
    client: &Client,
    (resource, verbs): (&str, &[&str]),
    name: Option<&str>,
    limit: Duration,
) -> Option<Right> {
    let resource: GroupResource = resource.parse().ok()?;
    let resource = resource.named(name);
    let verbs: Vec<String> = verbs.iter().map(|verb| (*verb).to_owned()).collect();
    Some(right(client, &resource, &verbs, None, limit).await)
}

fn kind(group: &str, version: &str, kind: &str) -> ApiResource {
    let plural = format!("{}s", kind.to_lowercase());
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural)
}

/// The endpoint slice or the WorkspaceType of this name; or the slice of this export that has its name, or else the first one.
async fn slice(
    api: KcpApi,
    client: &Client,
    slice: Option<&str>,
    export: Option<&str>,
    limit: Duration,
) -> Result<Option<KcpSlice>, String> {
    let (group, of_kind) = api.kind();
    let slices: Api<DynamicObject> = Api::all_with(client.clone(), &kind(group, "v1alpha1", of_kind));
    let wanted = match slice {
        Some(name) => ListParams::default().fields(&format!("metadata.name={name}")),
        None => ListParams::default(),
    };
    let mut found = in_time(slices.list(&wanted), limit).await?.items;
    if let (None, Some(export)) = (slice, export) {
        found.retain(|slice| slice.data["spec"]["export"]["name"] == export);
        found.sort_by_key(|slice| slice.name_any() != export);
    }
    Ok(found.first().map(|object| match api {
        KcpApi::Export => read_slice(object),
        KcpApi::Initializing => read_type(object, "initializing"),
        KcpApi::Terminating => read_type(object, "terminating"),
    }))
}

/// Reads a WorkspaceType, with its endpoints for workspaces of this stage.
fn read_type(object: &DynamicObject, stage: &str) -> KcpSlice {
    let endpoints = object.data["status"]["virtualWorkspaces"].as_array();
    let of_stage = endpoints
        .into_iter()
        .flatten()
        .filter(|endpoint| endpoint["type"] == stage);
    KcpSlice {
        name: object.name_any(),
        export: object.name_any(),
        path: None,
        is_beside_export: true,
        invalid: None,
        urls: of_stage
            .filter_map(|endpoint| endpoint["url"].as_str().map(str::to_owned))
            .collect(),
    }
}

fn read_slice(object: &DynamicObject) -> KcpSlice {
    let (spec, status) = (&object.data["spec"]["export"], &object.data["status"]);
    let export = spec["name"].as_str().unwrap_or_default();
    let owns = |owner: &&_| {
        let owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference = owner;
        owner.kind == "APIExport" && owner.name == export
    };
    let urls = status["endpoints"].as_array().into_iter().flatten();
    KcpSlice {
        name: object.name_any(),
        export: export.to_owned(),
        path: spec["path"].as_str().map(str::to_owned),
        // kcp sets the owner of a slice that it creates. Owners are in the same workspace.
        is_beside_export: spec["path"].is_null() || object.owner_references().iter().find(owns).is_some(),
        invalid: ["APIExportValid", "PartitionValid"]
            .into_iter()
            .find_map(|type_| lacking(status, type_)),
        urls: urls
            .filter_map(|endpoint| endpoint["url"].as_str().map(str::to_owned))
            .collect(),
    }
}

/// Why a condition is false. `None` if it is not.
fn lacking(status: &Value, type_: &str) -> Option<String> {
    let mut conditions = status["conditions"].as_array()?.iter();
    let condition =
        conditions.find(|condition| condition["type"] == type_ && condition["status"] == "False")?;
    let text = |field: &str| condition[field].as_str().filter(|text| !text.is_empty());
    let why = text("message").or_else(|| text("reason")).unwrap_or("no message");
    Some(format!(
        "{type_} is False: {}",
        why.chars().take(SHOWN).collect::<String>()
    ))
}

/// Probes an endpoint as the provider connects to it: with the certificate authorities and the credentials of the hub.
async fn endpoint(
    api: KcpApi,
    url: &str,
    export: &str,
    hub: &Access,
    hub_target: &Target,
    options: &ProviderOptions,
    limit: Duration,
) -> KcpEndpoint {
    let at = url.parse().ok().and_then(|uri: Uri| hub_target.at(&uri));
    let mut facts = KcpEndpoint {
        // Without a user name and a password.
        url: at.as_ref().map_or(url, |target| &target.address).to_owned(),
        connection: None,
        bindings: Ok(Vec::new()),
        forbidden: false,
    };
    let Some(target) = at.filter(|target| gets_credentials(api, url, target, hub_target)) else {
        facts.bindings = Err(format!(
            "it is no https URL of a virtual workspace below /services/{}/",
            api.service()
        ));
        return facts;
    };
    let target = Target {
        // The findings about the hub have it.
        credential: Credential::default(),
        ..target
    };
    let policy = options.flags().policy().address_policy();
    facts.connection = Some(probe::connection(&target, &policy, limit).await);
    match bindings(api, &target.address, export, hub, limit).await {
        Ok(found) => facts.bindings = Ok(found),
        Err((why, forbidden)) => (facts.bindings, facts.forbidden) = (Err(why), forbidden),
    }
    facts
}

/// Whether the provider would send the credentials of the hub to this endpoint.
fn gets_credentials(api: KcpApi, url: &str, endpoint: &Target, hub: &Target) -> bool {
    let service = format!("/services/{}/", api.service());
    endpoint.path.contains(&service) && !url.contains('@') && (endpoint.tls || !hub.tls)
}

/// The APIBindings of an export at an endpoint, or the LogicalClusters there. An error has its text, and whether the server has answered with 403.
async fn bindings(
    api: KcpApi,
    address: &str,
    export: &str,
    hub: &Access,
    limit: Duration,
) -> Result<Vec<KcpBinding>, (String, bool)> {
    let other = |why: String| (why, false);
    let access = moved(hub, &format!("{address}/clusters/*"))
        .await
        .map_err(other)?;
    let session = Session::open(address, access, limit).await;
    let session = session.map_err(|error| (error.to_string(), false))?;
    let (group, version, of_kind) = api.listed();
    let all: Api<DynamicObject> = Api::all_with(session.client(), &kind(group, version, of_kind));
    let ours = |binding: &&DynamicObject| {
        api != KcpApi::Export || binding.data["spec"]["reference"]["export"]["name"] == export
    };
    let listed = in_pages(async |page| all.list(&page).await, ours, limit).await;
    session.close().await;
    listed
}

/// Those of all pages. They have one limit together, because a server can have one more page for ever.
async fn in_pages(
    list: impl AsyncFn(ListParams) -> kube::Result<ObjectList<DynamicObject>>,
    ours: impl Fn(&&DynamicObject) -> bool,
    limit: Duration,
) -> Result<Vec<KcpBinding>, (String, bool)> {
    let listed = tokio::time::timeout(limit, async {
        let (mut found, mut page) = (Vec::new(), ListParams::default().limit(PAGE));
        loop {
            let list = list(page.clone()).await?;
            found.extend(list.items.iter().filter(&ours).map(read_binding));
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(found),
            }
        }
    });
    match listed.await {
        Ok(listed) => listed.map_err(|error| (text_of(&error), is_forbidden(&error))),
        Err(_) => Err((
            format!("no complete answer within {}", crate::values::seconds(limit)),
            false,
        )),
    }
}

/// The access to another address with the credentials of this one.
async fn moved(hub: &Access, address: &str) -> Result<Access, String> {
    let Access::Kubeconfig(kubeconfig) = hub else {
        return Err("the hub has no kubeconfig".to_owned());
    };
    let kubeconfig = kubeconfig.clone();
    let parsed = tokio::task::spawn_blocking(move || kubeconfig.parse()).await;
    let mut access = parsed
        .map_err(|error| error.to_string())?
        .map_err(|error| error.to_string())?;
    let server = address.parse().map_err(|_| "it is no URL".to_owned())?;
    Arc::make_mut(&mut access.endpoint).server = server;
    Ok(access.into())
}

fn read_binding(object: &DynamicObject) -> KcpBinding {
    let (spec, status) = (&object.data["spec"], &object.data["status"]);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let is_true = |type_: &str| {
        let conditions = list(&status["conditions"]);
        conditions
            .iter()
            .any(|condition| condition["type"] == type_ && condition["status"] == "True")
    };
    let accepted = list(&spec["permissionClaims"]);
    let accepts = |claim: &&Value| {
        let same = |theirs: &Value, field: &str| {
            theirs[field].as_str().unwrap_or_default() == claim[field].as_str().unwrap_or_default()
        };
        accepted.iter().any(|theirs| {
            theirs["state"] == "Accepted"
                && ["group", "resource", "identityHash"]
                    .iter()
                    .all(|field| same(theirs, field))
        })
    };
    let claims = list(&status["exportPermissionClaims"]);
    let (granted, refused): (Vec<&Value>, Vec<&Value>) = claims.iter().partition(accepts);
    let named = |claims: Vec<&Value>| claims.into_iter().map(claimed).collect();
    KcpBinding {
        cluster: object
            .annotations()
            .get("kcp.io/cluster")
            .cloned()
            .unwrap_or_default(),
        path: object.annotations().get("kcp.io/path").cloned(),
        name: object.name_any(),
        phase: status["phase"].as_str().unwrap_or_default().to_owned(),
        deleting: object.metadata.deletion_timestamp.is_some(),
        ready: is_true("Ready"),
        claims_applied: claims.is_empty() || is_true("PermissionClaimsApplied"),
        granted: named(granted),
        refused: named(refused),
    }
}

/// The kind that a claim is about, as kubectl writes it.
fn claimed(claim: &Value) -> String {
    let resource = claim["resource"].as_str().unwrap_or_default();
    match claim["group"].as_str().unwrap_or_default() {
        "" => resource.to_owned(),
        group => format!("{resource}.{group}"),
    }
}

#[cfg(test)]
mod tests {
    use mcr_core::Trust;
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    #[tokio::test]
    async fn pages_without_end_are_given_up() {
        let page = json!({"apiVersion": "v1", "kind": "List", "metadata": {"continue": "x"}, "items": []});
        let another = async |_| {
            tokio::task::yield_now().await;
            Ok(serde_json::from_value(page.clone()).unwrap())
        };
        let listed = in_pages(another, |_| true, Duration::from_millis(50)).await;
        assert!(listed.unwrap_err().0.starts_with("no complete answer within"));
    }

    #[test]
    fn only_the_address_of_one_workspace_is_a_hub() {
        for path in ["/clusters/root:widgets", "/prefix/clusters/1rlzadlzb44i0g5n"] {
            assert!(is_workspace(path), "{path}");
        }
        for path in [
            "",
            "/clusters/",
            "/clusters/*",
            "/clusters/root/api",
            "/services/apiexport/1rlzadlzb44i0g5n/widgets",
            "/services/apiexport/1rlzadlzb44i0g5n/widgets/clusters/root",
        ] {
            assert!(!is_workspace(path), "{path}");
        }
    }

    #[test]
    fn only_an_endpoint_of_an_export_gets_the_credentials() {
        let yaml = |server: &str| {
            format!(
                "current-context: x\ncontexts: [{{name: x, context: {{cluster: c}}}}]\n\
                 clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n"
            )
        };
        let target = |server: &str| target::of(&Access::kubeconfig(yaml(server), Trust::Trusted)).unwrap();
        let hub = target("https://kcp:6443/clusters/root:sites");
        let gets =
            |url: &str| gets_credentials(KcpApi::Export, url, &hub.at(&url.parse().unwrap()).unwrap(), &hub);
        assert!(gets(
            "https://shard-1:6444/services/apiexport/1rlzadlzb44i0g5n/sites"
        ));
        for url in [
            "http://shard-1:6444/services/apiexport/1rlzadlzb44i0g5n/sites",
            "https://anna:secret@shard-1:6444/services/apiexport/1rlzadlzb44i0g5n/sites",
            "https://shard-1:6444/clusters/root",
            "https://shard-1:6444/services/initializingworkspaces/root:sites",
        ] {
            assert!(!gets(url), "{url}");
        }
        let moved = hub
            .at(&"https://anna:secret@shard-1:6444/a".parse().unwrap())
            .unwrap();
        assert_eq!((&*moved.address, moved.port), ("https://shard-1:6444/a", 6444));
    }

    #[test]
    fn a_claim_counts_as_accepted_with_its_group_and_identity_only() {
        let claim = |group: &str, state: &str| json!({"group": group, "resource": "events", "verbs": ["*"], "state": state});
        let read = |theirs: Value| {
            read_binding(&object(json!({
                "metadata": {"name": "widgets", "annotations": {"kcp.io/cluster": "a", "kcp.io/path": "root:a"}},
                "spec": {"permissionClaims": theirs},
                "status": {
                    "phase": "Bound",
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "exportPermissionClaims": [
                        {"group": "", "resource": "configmaps", "verbs": ["*"]},
                        {"group": "events.k8s.io", "resource": "events", "verbs": ["*"]},
                    ],
                },
            })))
        };
        let binding = read(json!([claim("events.k8s.io", "Accepted")]));
        assert_eq!(binding.granted, ["events.events.k8s.io"]);
        assert_eq!(binding.refused, ["configmaps"]);
        assert!(binding.ready && !binding.claims_applied && !binding.deleting);
        for theirs in [
            json!([claim("", "Accepted")]),
            json!([claim("events.k8s.io", "Rejected")]),
            Value::Null,
        ] {
            assert_eq!(
                read(theirs.clone()).refused,
                ["configmaps", "events.events.k8s.io"],
                "{theirs}"
            );
        }
    }

    #[test]
    fn a_slice_without_a_status_has_no_endpoints() {
        let read = |value: Value| read_slice(&object(value));
        let bare =
            read(json!({"metadata": {"name": "eu"}, "spec": {"export": {"name": "e", "path": "root:x"}}}));
        assert!(bare.urls.is_empty() && bare.invalid.is_none() && !bare.is_beside_export);
        let condition = json!({"type": "APIExportValid", "status": "False", "reason": "NotFound"});
        let slice = read(json!({
            "metadata": {"name": "e", "ownerReferences": [
                {"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "name": "e", "uid": "1"},
            ]},
            "spec": {"export": {"name": "e", "path": "root:x"}},
            "status": {"endpoints": [{"url": "https://a"}, {}], "conditions": [condition]},
        }));
        assert!(slice.is_beside_export);
        assert_eq!(slice.urls, ["https://a"]);
        assert_eq!(
            slice.invalid.as_deref(),
            Some("APIExportValid is False: NotFound")
        );
    }
}
