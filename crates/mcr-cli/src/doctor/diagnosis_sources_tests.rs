use std::time::Duration;

use super::{
    super::{
        facts::{ClusterApiFacts, KubeconfigSecret, ManagedCluster, Right, Version},
        only_finding::{fine, only},
    },
    *,
};

fn facts(of: Source) -> ProviderFacts {
    ProviderFacts {
        name: "p".into(),
        error: None,
        synced: true,
        clusters: 2,
        of,
    }
}

fn hub(namespace: Option<&str>) -> Hub {
    let right = |resource: &str, verbs: &[&str]| Right {
        resource: resource.into(),
        name: None,
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        denied: Ok(Vec::new()),
    };
    Hub {
        namespace: namespace.map(str::to_owned),
        exists: namespace.map(|_| true),
        user: Some("system:serviceaccount:fleet:robot".into()),
        rights: vec![
            right("secrets", &["list", "watch"]),
            right("events.events.k8s.io", &["create", "patch"]),
        ],
        version: Some(Version {
            shown: "v1.36.1".into(),
            minor: Some(36),
            took: Duration::ZERO,
        }),
    }
}

#[test]
fn a_provider_that_fails_is_reported_with_its_own_words() {
    let mut engine = facts(Source::Engine);
    engine.error = Some("docker can't reach its engine".into());
    let found = only(&provider(&engine), Level::Problem);
    assert_eq!(
        (found.check, found.fix_text().as_deref()),
        (Check::Engine, Some("docker ps"))
    );
    let mut hub = facts(Source::NoHub);
    hub.error = Some("connection refused".into());
    only(&provider(&hub), Level::Problem).advises("--hub-context");
    let mut late = facts(Source::Other);
    late.synced = false;
    only(&provider(&late), Level::Problem).advises("--timeout");
    fine(&provider(&facts(Source::Engine)));
}

#[test]
fn a_provider_without_clusters_is_reported_with_how_to_make_one() {
    let hint = |of| {
        let mut facts = facts(of);
        facts.clusters = 0;
        only(&provider(&facts), Level::Warning).fix_text()
    };
    assert_eq!(hint(Source::Engine).unwrap(), "kind create cluster");
    assert!(
        hint(Source::Secrets(Box::new(hub(Some("fleet")))))
            .unwrap()
            .ends_with("-n fleet")
    );
    assert!(
        hint(Source::Secrets(Box::new(hub(None))))
            .unwrap()
            .ends_with("-n NAMESPACE")
    );
    assert!(hint(Source::Files(Vec::new())).is_some());
    assert_eq!(hint(Source::Other), None);
}

#[test]
fn files_that_are_not_there_are_named() {
    let file = |is| {
        let path = "a b".to_owned();
        provider(&facts(Source::Files(vec![NamedFile {
            path,
            by_variable: false,
            is,
        }])))
    };
    assert_eq!(
        only(&file(FileIs::Missing), Level::Problem).fix_text().unwrap(),
        "ls -l 'a b'"
    );
    only(&file(FileIs::Unreadable("denied".into())), Level::Problem).shows("denied");
    assert_eq!(file(FileIs::There).len(), 1);
}

#[test]
fn a_mistyped_kubeconfig_variable_is_a_problem() {
    let file = |path: &str, is| NamedFile {
        path: path.into(),
        by_variable: true,
        is,
    };
    let found = provider(&facts(Source::Files(vec![file("/nope", FileIs::Missing)])));
    let found = only(&found, Level::Problem);
    assert_eq!(
        (found.check, found.saw.as_str()),
        (Check::Files, "/nope does not exist ($KUBECONFIG names it)")
    );
    found.advises("KUBECONFIG");
    let mut empty = facts(Source::Files(vec![file("/nope", FileIs::Missing)]));
    empty.clusters = 0;
    let fixes: Vec<_> = provider(&empty).iter().filter_map(Finding::fix_text).collect();
    let [first] = fixes.as_slice() else {
        panic!("the finding about the file has the only fix: {fixes:?}")
    };
    assert!(first.contains("KUBECONFIG"), "{first}");
    // As for kubectl, some files of a list may be missing.
    let list = vec![file("/nope", FileIs::Missing), file("/there", FileIs::There)];
    let found = provider(&facts(Source::Files(list)));
    only(&found, Level::Warning).shows("/nope");
}

#[test]
fn a_namespace_that_does_not_exist_is_the_problem_and_not_the_rights_in_it() {
    let mut hub = hub(Some("nons"));
    hub.exists = Some(false);
    hub.rights[0].denied = Ok(vec!["list".into()]);
    let mut facts = facts(Source::Secrets(Box::new(hub)));
    let found = only(&provider(&facts), Level::Problem);
    assert_eq!(
        (found.check, found.saw.as_str()),
        (Check::Hub, "the hub has no namespace nons")
    );
    assert!(
        found
            .fix_text()
            .unwrap()
            .ends_with("kubectl create namespace nons")
    );
    // A Secret can't be created there, so nobody is told to.
    facts.clusters = 0;
    let found = provider(&facts);
    let none = found
        .iter()
        .find(|finding| finding.check == Check::Provider)
        .unwrap();
    assert_eq!((none.result, none.fix_text().as_deref()), (Level::Warning, None));
}

#[test]
fn rights_at_the_hub_are_reported_with_the_role_to_create() {
    let denied = |which: usize, namespace| {
        let mut hub = hub(namespace);
        hub.rights[which].denied = Ok(vec!["watch".into()]);
        provider(&facts(Source::Secrets(Box::new(hub))))
    };
    let found = only(&denied(0, Some("fleet")), Level::Problem);
    assert_eq!(
        found.fix_text().unwrap(),
        "kubectl create role mcr-secrets -n fleet --verb=list,watch --resource=secrets; kubectl create rolebinding mcr-secrets \
         -n fleet --role=mcr-secrets --user=system:serviceaccount:fleet:robot"
    );
    let found = only(&denied(0, None), Level::Problem);
    found.advises("clusterrolebinding mcr-secrets --clusterrole=mcr-secrets");
    // Without the right to write events, everything else works.
    only(&denied(1, Some("fleet")), Level::Warning).shows("can't write events");
    let mut unknown = hub(None);
    unknown.rights[0].denied = Err("no answer".into());
    only(
        &provider(&facts(Source::Secrets(Box::new(unknown)))),
        Level::Warning,
    )
    .shows("it is unknown");
}

fn secret(namespace: &str, labelled: Option<&str>) -> MissingFacts {
    MissingFacts {
        name: "eu-1".into(),
        known: vec!["us-1".into()],
        clusters: Vec::new(),
        profiles: Vec::new(),
        shoots: Vec::new(),
        workspaces: Vec::new(),
        secrets: vec![SecretFact {
            provider: "kubeconfig".into(),
            namespace: namespace.into(),
            name: "eu-1".into(),
            label: "example.com/l".into(),
            labelled: labelled.map(str::to_owned),
            looks_in: Some("fleet".into()),
        }],
    }
}

#[test]
fn a_secret_that_is_no_cluster_is_reported_with_what_it_lacks() {
    let label = "kubectl -n fleet label --overwrite secret eu-1 example.com/l=true";
    let found = only(&missing(&secret("fleet", None)), Level::Problem);
    found.shows("without the label");
    assert_eq!(found.fix_text().as_deref(), Some(label));
    let found = only(&missing(&secret("fleet", Some("yes"))), Level::Problem);
    found.shows("\"yes\" and not \"true\"");
    assert_eq!(found.fix_text().as_deref(), Some(label));
    let found = only(&missing(&secret("other", None)), Level::Problem);
    found.shows("in namespace other, but the provider looks in fleet");
    assert_eq!(found.fix_text().unwrap(), "repeat with -n other");
    only(&missing(&secret("fleet", Some("true"))), Level::Problem).shows("not said so yet");
}

#[test]
fn a_name_that_nobody_knows_is_answered_with_those_that_are_known() {
    let mut facts = secret("fleet", None);
    facts.secrets.clear();
    facts.known = vec!["kind#eu-1".into(), "kind#us-1".into()];
    let found = only(&missing(&facts), Level::Problem);
    assert!(found.saw.ends_with("(there are kind#eu-1)"), "{}", found.saw);
    facts.name = "elsewhere".into();
    assert!(
        only(&missing(&facts), Level::Problem)
            .saw
            .ends_with("(there are kind#eu-1, kind#us-1)")
    );
    facts.known.clear();
    assert!(
        only(&missing(&facts), Level::Problem)
            .saw
            .ends_with("(there are none)")
    );
}

fn management(versions: Result<&[&str], &str>) -> ProviderFacts {
    let versions = versions.map(|versions| versions.iter().map(ToString::to_string).collect());
    facts(Source::Served(Box::new(ServedHub {
        api: HubApi::ClusterApi,
        hub: hub(Some("fleet")),
        versions: versions.map_err(str::to_owned),
    })))
}

#[test]
fn a_hub_without_cluster_api_is_reported_once() {
    let served = provider(&management(Ok(&["v1beta2", "v1beta1"])));
    fine(&served);
    let text_of = |text: &str| served.iter().any(|finding| finding.saw == text);
    assert!(
        text_of("serves cluster.x-k8s.io in v1beta2, v1beta1"),
        "{served:#?}"
    );

    let mut nowhere = management(Ok(&[]));
    nowhere.error = Some("the hub has no Cluster API".into());
    let found = provider(&nowhere);
    let [finding] = found.as_slice() else {
        panic!("the provider's own error is all there is to say: {found:#?}")
    };
    finding.advises("--hub-context").advises("install Cluster API");

    let unknown = only(&provider(&management(Err("no answer"))), Level::Warning);
    assert!(unknown.saw.ends_with("no answer"), "{}", unknown.saw);

    let mut empty = management(Ok(&["v1beta2"]));
    empty.clusters = 0;
    let fix = only(&provider(&empty), Level::Warning).fix_text().unwrap();
    assert!(
        fix.contains("-A") && fix.ends_with("get clusters.cluster.x-k8s.io --all-namespaces"),
        "{fix}"
    );
}

#[test]
fn a_hub_without_shoots_is_reported_although_its_provider_goes_on_to_ask() {
    let mut nowhere = management(Ok(&[]));
    let Source::Served(hub) = &mut nowhere.of else {
        panic!("it is one")
    };
    hub.api = HubApi::Garden;
    (nowhere.synced, nowhere.error) = (false, None);
    let found = only(&provider(&nowhere), Level::Problem);
    let fix = found.fix_text().unwrap();
    assert!(
        found.saw.contains("does not serve core.gardener.cloud") && fix.contains("add --seed"),
        "{}: {fix}",
        found.saw
    );
}

#[test]
fn a_right_on_one_object_or_a_subresource_has_a_role_of_its_own() {
    let mut denied = management(Ok(&["v1beta1"]));
    let Source::Served(found) = &mut denied.of else {
        panic!("it is one")
    };
    found.hub.rights.truncate(1);
    let right = &mut found.hub.rights[0];
    right.resource = "shoots.core.gardener.cloud/adminkubeconfig".into();
    (right.verbs, right.denied) = (vec!["create".into()], Ok(vec!["create".into()]));
    let fix = only(&provider(&denied), Level::Problem).fix_text().unwrap();
    let role = "kubectl create role mcr-shoots-adminkubeconfig -n fleet --verb=create \
                --resource=shoots.core.gardener.cloud/adminkubeconfig; ";
    assert!(fix.starts_with(role), "{fix}");

    let Source::Served(found) = &mut denied.of else {
        panic!("it is one")
    };
    let right = &mut found.hub.rights[0];
    (right.resource, right.name) = ("secrets".into(), Some("gardener".into()));
    let found = only(&provider(&denied), Level::Problem);
    found.shows("secrets named gardener");
    let fix = found.fix_text().unwrap();
    assert!(
        fix.contains("--resource=secrets --resource-name=gardener"),
        "{fix}"
    );
}

#[test]
fn a_right_on_clusters_has_a_role_of_its_own() {
    let mut denied = management(Ok(&["v1beta2"]));
    let Source::Served(found) = &mut denied.of else {
        panic!("it is one")
    };
    found.hub.rights[0] = Right {
        resource: "clusters.cluster.x-k8s.io".into(),
        name: None,
        verbs: vec!["list".into(), "watch".into()],
        denied: Ok(vec!["watch".into()]),
    };
    let fix = only(&provider(&denied), Level::Problem).fix_text().unwrap();
    let role =
        "kubectl create role mcr-clusters -n fleet --verb=list,watch --resource=clusters.cluster.x-k8s.io; ";
    assert!(fix.starts_with(role), "{fix}");
}

#[test]
fn a_cluster_of_cluster_api_that_is_missing_is_reported_with_its_obstacle() {
    let mut facts = secret("fleet", None);
    facts.secrets.clear();
    facts.clusters.push(ClusterApiFacts {
        provider: "cluster-api".into(),
        namespace: "fleet".into(),
        name: "eu-1".into(),
        looks_in: None,
        cluster: None,
        secret: Ok(None),
    });
    let found = only(&missing(&facts), Level::Problem);
    assert_eq!(
        (found.check, found.provider.as_deref()),
        (Check::Name, Some("cluster-api"))
    );
    found.shows("no Cluster fleet/eu-1");
    facts.clusters[0].cluster = Some(ManagedCluster {
        selected: true,
        initialized: true,
        ..ManagedCluster::default()
    });
    facts.clusters[0].secret = Ok(Some(KubeconfigSecret {
        name: "eu-1-kubeconfig".into(),
        label: Some("eu-1".into()),
    }));
    let found = only(&missing(&facts), Level::Problem);
    found.shows("has not said so yet");
}
