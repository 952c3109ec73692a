use super::{
    super::{
        only_finding::{fine, only},
        sample_cluster::{now, well},
    },
    *,
};
use crate::doctor::{
    diagnosis_sources::provider,
    facts::{Bad, Failure, FailureKind, ProviderFacts, Source, Verdict},
    finding::Finding,
};

const SLICES: &str = "apiexportendpointslices.apis.kcp.io";
const CONTENT: &str = "apiexports.apis.kcp.io/content";
const ADDRESS: &str = "https://kcp:6443/clusters/root:provider";
const URL: &str = "https://shard-1:6444/services/apiexport/1rlzadlzb44i0g5n/widgets";

fn right(resource: &str, denied: &[&str]) -> Right {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Right {
        resource: resource.into(),
        name: None,
        verbs: texts(&["list", "watch"]),
        denied: Ok(texts(denied)),
    }
}

fn connection(address: &str) -> Connection {
    let host = address.split(['/', ':']).nth(3).unwrap_or_default().to_owned();
    Connection {
        address: address.into(),
        host,
        ..well().connection.unwrap()
    }
}

fn binding(cluster: &str) -> KcpBinding {
    KcpBinding {
        cluster: cluster.into(),
        path: Some(format!("root:{cluster}")),
        name: "widgets".into(),
        phase: "Bound".into(),
        ready: true,
        claims_applied: true,
        granted: vec!["configmaps".into()],
        ..KcpBinding::default()
    }
}

fn endpoint(bindings: Vec<KcpBinding>) -> KcpEndpoint {
    KcpEndpoint {
        url: URL.into(),
        connection: Some(connection(URL)),
        bindings: Ok(bindings),
        forbidden: false,
    }
}

/// A hub without problems.
fn facts() -> KcpHub {
    KcpHub {
        api: KcpApi::Export,
        address: ADDRESS.into(),
        is_workspace: true,
        connection: Some(connection(ADDRESS)),
        error: None,
        user: Some("robot".into()),
        slice_right: Some(right(SLICES, &[])),
        slice: Ok(Some(KcpSlice {
            name: "widgets".into(),
            export: "widgets".into(),
            path: Some("root:provider".into()),
            is_beside_export: true,
            invalid: None,
            urls: vec![URL.into()],
        })),
        content_right: Some(right(CONTENT, &[])),
        endpoints: vec![endpoint(vec![binding("a"), binding("b")])],
        now: now(),
    }
}

fn of(clusters: usize, error: Option<&str>, hub: KcpHub) -> Vec<Finding> {
    provider(&ProviderFacts {
        name: "kcp".into(),
        error: error.map(str::to_owned),
        synced: error.is_none(),
        clusters,
        of: Source::Kcp(Box::new(hub)),
    })
}

fn reports(found: &[Finding], check: Check, part: &str) {
    let found = found
        .iter()
        .any(|finding| finding.check == check && finding.saw.contains(part));
    assert!(found, "{check:?} {part}");
}

#[test]
fn a_hub_in_order_is_reported_with_its_endpoints_and_bindings() {
    let found = of(2, None, facts());
    fine(&found);
    for (check, part) in [
        (
            Check::Hub,
            "workspace https://kcp:6443/clusters/root:provider; asked as robot",
        ),
        (
            Check::Rights,
            "may list, watch apiexportendpointslices.apis.kcp.io",
        ),
        (
            Check::Rights,
            "may list, watch apiexports.apis.kcp.io/content of APIExport widgets",
        ),
        (
            Check::Slice,
            "APIExportEndpointSlice widgets serves APIExport widgets of root:provider at 1 endpoint",
        ),
        (Check::Connection, "endpoint https://shard-1:6444/"),
        (Check::Tls, "endpoint shard-1: the server's certificate is signed"),
        (Check::Bindings, "2 APIBindings: 2 ready"),
        (
            Check::Claims,
            "the claim on configmaps is accepted by all 2 consumers",
        ),
    ] {
        reports(&found, check, part);
    }
}

#[test]
fn an_address_that_is_no_workspace_has_one_finding() {
    let mut hub = facts();
    (hub.is_workspace, hub.connection) = (false, None);
    let found = only(
        &of(0, Some("https://kcp/services/… is a virtual workspace"), hub),
        Level::Problem,
    );
    found.advises("correct the server").advises("--hub-context");
}

#[test]
fn a_workspace_that_refuses_the_credentials_has_the_finding_of_any_cluster() {
    let mut hub = facts();
    (hub.error, hub.slice, hub.slice_right) = (Some("401 Unauthorized".into()), Ok(None), None);
    let found = of(
        0,
        Some("the workspace of the endpoint slice can't be reached"),
        hub,
    );
    let refused = found
        .iter()
        .find(|finding| finding.check == Check::Credentials && finding.result == Level::Problem);
    let refused = refused.unwrap_or_else(|| panic!("{found:#?}"));
    assert!(refused.saw.ends_with("401 Unauthorized"), "{}", refused.saw);
    assert!(refused.fix_text().unwrap().contains("kubeconfig of the hub"));
    assert!(found.iter().all(|finding| finding.check != Check::Slice));
    assert!(
        found
            .iter()
            .filter_map(Finding::fix_text)
            .all(|fix| !fix.contains("--slice"))
    );
}

#[test]
fn a_slice_that_is_missing_invalid_or_without_endpoints() {
    let mut hub = facts();
    (hub.slice, hub.content_right, hub.endpoints) = (Ok(None), None, Vec::new());
    let fix = only(
        &of(0, Some("APIExportEndpointSlice x does not exist"), hub),
        Level::Problem,
    )
    .fix_text();
    let get = format!("kubectl --server {ADDRESS} get apiexportendpointslices.apis.kcp.io");
    assert!(fix.as_ref().is_some_and(|fix| fix.ends_with(&get)), "{fix:?}");

    let slice = |change: fn(&mut KcpSlice)| {
        let mut hub = facts();
        hub.endpoints.clear();
        let Ok(Some(slice)) = &mut hub.slice else {
            panic!("it is there")
        };
        slice.urls.clear();
        change(slice);
        hub
    };
    // The advice how to get a cluster comes with the provider's own finding.
    let none = of(0, None, slice(|_| ()));
    let found = only(&none, Level::Warning);
    found.advises("add an APIBinding for APIExport widgets of workspace root:provider");
    reports(&none, Check::Slice, "it has no endpoints, which is normal");
    let invalid = slice(|slice| slice.invalid = Some("APIExportValid is False: gone".into()));
    let found = only(&of(1, None, invalid), Level::Problem);
    assert!(
        found
            .saw
            .ends_with("but its condition APIExportValid is False: gone"),
        "{}",
        found.saw
    );
    assert!(
        found
            .fix_text()
            .unwrap()
            .ends_with("describe apiexports.apis.kcp.io widgets")
    );
}

#[test]
fn missing_rights_are_reported_with_the_commands_that_grant_them() {
    let mut hub = facts();
    hub.slice_right = Some(right(SLICES, &["watch"]));
    let found = only(&of(2, None, hub), Level::Problem);
    assert!(
        found
            .saw
            .starts_with("robot may not watch apiexportendpointslices.apis.kcp.io"),
        "{}",
        found.saw
    );
    found.advises("--resource=apiexportendpointslices.apis.kcp.io;");

    let mut hub = facts();
    hub.content_right = Some(right(CONTENT, &["list", "watch"]));
    hub.endpoints[0].bindings = Err("forbidden".into());
    hub.endpoints[0].forbidden = true;
    let grants = |found: &[Finding]| found.iter().filter_map(Finding::fix_text).collect::<Vec<_>>();
    let grant = "--verb=list,watch --resource=apiexports.apis.kcp.io/content --resource-name=widgets; ";
    let reported = grants(&of(0, Some("forbidden"), hub.clone()));
    assert!(
        reported.len() == 1 && reported[0].contains(grant) && reported[0].ends_with("--user=robot"),
        "{reported:?}"
    );
    // A user from outside of the workspace may not even ask.
    hub.content_right = Some(Right {
        denied: Err("selfsubjectaccessreviews.authorization.k8s.io is forbidden: access denied".into()),
        ..right(CONTENT, &[])
    });
    let reported = grants(&of(0, Some("forbidden"), hub.clone()));
    assert!(reported[0].contains("verbs: [\"access\"]"), "{reported:?}");
    // The export of another workspace: only its endpoint tells.
    hub.content_right = None;
    let reported = grants(&of(0, Some("forbidden"), hub));
    assert!(reported.len() == 1 && reported[0].contains(grant), "{reported:?}");
}

#[test]
fn an_endpoint_with_another_authority_or_without_an_answer() {
    let mut hub = facts();
    hub.endpoints[0].bindings = Err("certificate".into());
    let reach = |hub: &mut KcpHub| {
        hub.endpoints[0]
            .connection
            .as_mut()
            .unwrap()
            .reach
            .clone()
            .unwrap()
    };
    let mut unknown = reach(&mut hub);
    if let Some(Ok(tls)) = &mut unknown.greeted {
        tls.verdict = Some(Verdict::Bad {
            why: Bad::UnknownIssuer,
            text: "unknown issuer".into(),
        });
    }
    hub.endpoints[0].connection.as_mut().unwrap().reach = Some(unknown);
    let found = only(&of(1, None, hub.clone()), Level::Problem);
    assert_eq!(found.saw, "endpoint shard-1: unknown issuer");
    found.advises("sign the certificates of all shards");

    let mut refused = reach(&mut hub);
    let failure = Failure {
        kind: FailureKind::Refused,
        text: "connection refused".into(),
    };
    (refused.connected, refused.greeted, refused.answered) = (Some(Err(failure)), None, None);
    hub.endpoints[0].connection.as_mut().unwrap().reach = Some(refused);
    let found = only(&of(1, None, hub.clone()), Level::Problem);
    assert!(
        found.saw.starts_with("endpoint https://shard-1:6444/") && found.saw.ends_with("connection refused")
    );

    hub.endpoints[0].connection = None;
    hub.endpoints[0].bindings = Err("it is no https URL".into());
    let found = only(&of(1, None, hub), Level::Problem);
    found.shows("is not used: it is no https URL");
    found.advises("virtualWorkspaceURL");
}

#[test]
fn bindings_are_counted_by_state_and_claims_that_are_not_accepted_are_named() {
    let change = |cluster: &str, change: fn(&mut KcpBinding)| {
        let mut binding = binding(cluster);
        change(&mut binding);
        binding
    };
    let refuses = |binding: &mut KcpBinding| binding.refused = std::mem::take(&mut binding.granted);
    let mut bindings = vec![
        change("a", |_| ()),
        change("b", |binding| binding.claims_applied = false),
        change("c", |binding| binding.ready = false),
        change("d", |binding| binding.phase = "Binding".into()),
        change("e", |binding| binding.phase.clear()),
        change("f", |binding| binding.deleting = true),
    ];
    bindings.extend(["g", "h", "i", "j"].map(|cluster| change(cluster, refuses)));
    bindings[7].path = None;
    let mut hub = facts();
    hub.endpoints = vec![endpoint(bindings)];
    let found = of(9, None, hub);
    reports(
        &found,
        Check::Bindings,
        "10 APIBindings: 1 Binding, 1 Bound and not Ready, 1 being deleted, 5 ready, 1 ready without \
         PermissionClaimsApplied, 1 without a phase yet",
    );
    let found = only(&found, Level::Warning);
    assert_eq!(
        found.saw,
        "the claim on configmaps is not accepted by 4 of 10 consumers: root:g (g), h, root:i (i) and 1 more; controllers \
         see no such objects there"
    );
    let describe = "kubectl --server https://kcp:6443/clusters/g describe apibindings.apis.kcp.io widgets";
    assert!(found.fix_text().unwrap().ends_with(describe));
}

/// A hub with a WorkspaceType without problems.
fn of_type() -> KcpHub {
    let mut hub = facts();
    hub.api = KcpApi::Terminating;
    let types = hub.api.resource();
    hub.slice_right = Some(right(types, &[]));
    hub.content_right = Some(Right {
        verbs: vec!["terminate".into()],
        ..right(types, &[])
    });
    let waits = KcpBinding {
        cluster: "a".into(),
        name: "cluster".into(),
        deleting: true,
        ..KcpBinding::default()
    };
    hub.endpoints = vec![endpoint(vec![waits])];
    hub
}

#[test]
fn a_type_in_order_is_reported_with_its_endpoints_and_the_workspaces_that_wait() {
    for clusters in [0, 1] {
        let found = of(clusters, None, of_type());
        let fine = |finding: &Finding| finding.result == Level::Ok && finding.fix.is_none();
        assert!(found.iter().all(fine), "{found:#?}");
        reports(
            &found,
            Check::Type,
            "WorkspaceType widgets has 1 endpoint for its terminator",
        );
        let right = "may terminate workspacetypes.tenancy.kcp.io with the name widgets";
        reports(&found, Check::Rights, right);
        reports(&found, Check::Workspaces, "1 LogicalCluster: 1 being deleted");
    }
}

#[test]
fn a_type_that_is_missing_or_a_missing_right_to_its_workspaces() {
    let mut hub = of_type();
    (hub.slice, hub.content_right, hub.endpoints) = (Ok(None), None, Vec::new());
    let found = only(
        &of(0, Some("WorkspaceType x does not exist"), hub),
        Level::Problem,
    );
    let fix = found.fix_text().unwrap();
    let get = format!("kubectl --server {ADDRESS} get workspacetypes.tenancy.kcp.io");
    assert!(fix.contains("--workspace-type") && fix.ends_with(&get), "{fix}");

    let mut hub = of_type();
    hub.content_right = None;
    hub.endpoints[0].bindings = Err("forbidden".into());
    hub.endpoints[0].forbidden = true;
    let found = only(&of(1, None, hub), Level::Problem);
    assert!(
        found
            .saw
            .starts_with("robot may not list the LogicalClusters at https://shard-1:6444/"),
        "{}",
        found.saw
    );
    let grant = "create clusterrole mcr-workspacetypes-terminate --verb=terminate \
                 --resource=workspacetypes.tenancy.kcp.io --resource-name=widgets; ";
    found.advises(grant);
}
