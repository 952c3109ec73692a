//! `mcr clusters` and `mcr doctor` with the provider `cluster-inventory`, on a simulated hub.

use std::os::unix::fs::PermissionsExt;

use base64::{Engine, engine::general_purpose::STANDARD};
use mcr_testkit::{
    sim::{SimCluster, SimRule, SimServer, SimUser},
    waiting::OrFail,
};
use serde_json::{Value, json};

use crate::harness::{LABEL, Output, User};

const PROFILES: &str = "clusterprofiles.multicluster.x-k8s.io";
const DESCRIBE: &str = "kubectl -n fleet describe clusterprofiles.multicluster.x-k8s.io";

fn crd() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": PROFILES},
        "spec": {
            "group": "multicluster.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": "ClusterProfile", "plural": "clusterprofiles"},
            "versions": [version("v1alpha1", true), version("v1alpha2", false)],
        },
    })
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// A ClusterProfile with these conditions, whose cluster is reached by an access provider of this name.
fn profile(member: &SimServer, name: &str, conditions: &[(&str, &str)], access: &str) -> Value {
    let conditions = conditions.iter().map(|(name, status)| {
        json!({"type": name, "status": status, "reason": "Why", "message": format!("{name} it is"),
               "lastTransitionTime": "2026-01-31T09:00:00Z"})
    });
    let cluster =
        json!({"server": member.url(), "certificate-authority-data": STANDARD.encode(member.ca_pem())});
    json!({
        "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
        "metadata": {"namespace": "fleet", "name": name, "labels": {"env": "prod"}},
        "spec": {"clusterManager": {"name": "ocm"}},
        "status": {
            "conditions": conditions.collect::<Vec<_>>(),
            "accessProviders": [{"name": access, "cluster": cluster}],
        },
    })
}

const HEALTHY: &[(&str, &str)] = &[("ControlPlaneHealthy", "True"), ("Joined", "True")];

/// A hub with a ClusterProfile for each obstacle.
async fn inventory(member: &SimServer) -> SimServer {
    let hub = SimCluster::builder().name("hub").admin_token("admin").build();
    let with = |mut profile: Value, pointer: &str, value: Value| {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        profile.pointer_mut(parent).unwrap()[field] = value;
        profile
    };
    let id = "multicluster.x-k8s.io/inventory-member-id";
    let one = |name: &str| {
        with(
            profile(member, name, HEALTHY, "p"),
            "/metadata/labels",
            json!({"env": "prod", id: "1"}),
        )
    };
    let none = with(
        profile(member, "without", HEALTHY, "p"),
        "/status/accessProviders",
        json!([]),
    );
    let old = with(
        profile(member, "old", HEALTHY, "p"),
        "/status/accessProviders",
        json!([]),
    );
    let deleting = profile(member, "deleting", HEALTHY, "p");
    for object in [
        crd(),
        namespace("fleet"),
        namespace("other"),
        one("ready"),
        one("twin"),
        profile(member, "unhealthy", &[("ControlPlaneHealthy", "False")], "p"),
        profile(member, "unjoined", &[("Joined", "False")], "p"),
        none,
        with(old, "/status/credentialProviders", json!([{"name": "p"}])),
        profile(member, "unknown", HEALTHY, "cloud"),
        profile(member, "missing", HEALTHY, "gone"),
        profile(member, "failing", HEALTHY, "fails"),
        with(deleting, "/metadata/finalizers", json!(["example.io/x"])),
        with(
            profile(member, "elsewhere", HEALTHY, "p"),
            "/metadata/namespace",
            "other".into(),
        ),
    ] {
        hub.create(object).or_fail();
    }
    hub.delete(PROFILES, "fleet/deleting").or_fail();
    hub.serve().await.or_fail()
}

async fn member() -> SimServer {
    let member = SimCluster::builder()
        .name("member")
        .admin_token("token-of-member");
    member.build().serve().await.or_fail()
}

/// A provider file with a plugin that works, one that is not there, and one that fails.
fn provider_file(user: &User) -> String {
    let plugin = |name: &str, text: &str| {
        let path = user.file(name, format!("#!/bin/sh\n{text}\n"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "token-of-member"},
    });
    let works = plugin("works", &format!("echo '{credential}'"));
    let fails = plugin("fails", "exit 3");
    let exec = |name: &str, command: &str| {
        json!({"name": name, "execConfig": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": command, "installHint": "install the add-on",
        }})
    };
    let providers = [
        exec("p", works.to_str().unwrap()),
        exec("gone", "/nowhere/plugin"),
        exec("fails", fails.to_str().unwrap()),
    ];
    let file = user.file("providers.json", json!({"providers": providers}).to_string());
    file.to_str().unwrap().to_owned()
}

#[track_caller]
fn is(said: &Output, cluster: &str, check: &str, level: &str, saw: &str, fix: &str) {
    let found = said.found(cluster, check);
    assert!(
        found.0 == level && found.1.contains(saw) && found.2.contains(fix),
        "{cluster}: {found:?}"
    );
}

const FLAGS: [&str; 7] = [
    "--provider",
    "cluster-inventory",
    "-n",
    "fleet",
    "--allow-loopback",
    "--timeout",
    "30s",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn profiles_that_wait_are_shown_with_the_reason_and_the_doctor_has_the_fix_of_each_obstacle() {
    let member = member().await;
    let hub = inventory(&member).await;
    let user = User::with([hub.kubeconfig()]);
    let file = provider_file(&user);
    let plugins = ["--clusterprofile-provider-file", &file];
    let run = async |command: &str, more: &[&str]| {
        user.mcr([&[command], &FLAGS[..], &plugins[..], more].concat())
            .await
    };
    let absent = ["-o", "json", "deleting", "elsewhere"];
    let (shown, said, unknown, unselected) = futures::join!(
        run("clusters", &[]),
        run("doctor", &["-o", "json"]),
        run("doctor", &absent),
        run("doctor", &["-l", "env=dev", "-o", "json", "ready"]),
    );
    let shown = shown.ended(0);
    for (name, state, reason) in [
        ("ready", "Ready", ""),
        ("twin", "Suspended", "ClusterProfile ready is older"),
        ("unhealthy", "Suspended", "ControlPlaneHealthy is False"),
        ("unjoined", "Suspended", "no condition ControlPlaneHealthy"),
        ("without", "Suspended", "no access providers"),
        (
            "unknown",
            "Suspended",
            "the access providers \"cloud\", and this program knows \"p\"",
        ),
        ("missing", "", "install the add-on"),
        ("failing", "", "failed (exit status: 3)"),
    ] {
        let mut lines = shown.out.lines();
        let line = lines.find(|line| line.split_whitespace().next() == Some(name));
        let line = line.unwrap_or_else(|| panic!("no {name}:\n{}", shown.out));
        assert!(line.contains(state) && line.contains(reason), "{line}");
    }
    assert_eq!(shown.out.lines().count(), 10, "{}", shown.out);

    let said = said.ended(1);
    said.of_provider("hub", "serves multicluster.x-k8s.io in v1alpha");
    let right = "may list, watch clusterprofiles.multicluster.x-k8s.io in namespace fleet";
    assert_eq!(said.of_provider("rights", right)["result"], "ok");
    is(&said, "ready", "connection", "ok", "", "");
    is(&said, "ready", "tls", "ok", "signed by a trusted authority", "");
    is(
        &said,
        "twin",
        "state",
        "warning",
        "ClusterProfile ready is older",
        "inventory-member-id",
    );
    is(
        &said,
        "unhealthy",
        "state",
        "warning",
        "ControlPlaneHealthy is False",
        "cluster manager ocm",
    );
    is(
        &said,
        "unhealthy",
        "state",
        "warning",
        "",
        &format!("{DESCRIBE} unhealthy"),
    );
    is(
        &said,
        "unjoined",
        "state",
        "warning",
        "Joined is not True: Joined it is",
        "cluster manager ocm",
    );
    is(
        &said,
        "without",
        "state",
        "warning",
        "no access providers",
        "an add-on of it",
    );
    is(
        &said,
        "old",
        "state",
        "problem",
        "deprecated credentialProviders p",
        "Builder::v1alpha1",
    );
    is(
        &said,
        "unknown",
        "state",
        "problem",
        "\"cloud\"",
        "add one of these access providers",
    );
    is(
        &said,
        "missing",
        "credentials",
        "problem",
        "install the add-on",
        "/nowhere/plugin",
    );
    is(
        &said,
        "failing",
        "credentials",
        "problem",
        "failed (exit status: 3)",
        "run the program",
    );
    assert!(!said.out.contains("token-of-member"));

    let said = unknown.ended(1);
    is(
        &said,
        "deleting",
        "name",
        "problem",
        "is being deleted",
        &format!("{DESCRIBE} deleting"),
    );
    is(
        &said,
        "elsewhere",
        "name",
        "problem",
        "provider looks in fleet",
        "repeat with -n other",
    );
    let said = unselected.ended(1);
    is(
        &said,
        "ready",
        "name",
        "problem",
        "do not match --selector",
        "--selector",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_without_the_api_missing_rights_and_a_missing_provider_file_have_their_own_findings() {
    let plain = crate::harness::served("plain").await;
    let member = member().await;
    let hub = inventory(&member).await;
    let namespaces = SimRule::new([""], ["namespaces"], ["get"]);
    hub.cluster()
        .set_user("nobody", SimUser::new("robot").rule(namespaces));
    let users = [
        plain.kubeconfig(),
        hub.kubeconfig_with_token("nobody"),
        hub.kubeconfig(),
    ]
    .map(|hub| User::with([hub]));
    let doctor = [&["doctor", "-o", "json"][..], &FLAGS[..]].concat();
    let secrets = [&doctor[..], &["--consumer", "me"]].concat();
    let (nothing, denied, bare, secrets) = futures::join!(
        users[0].mcr([&doctor[..3], &FLAGS[..2]].concat()),
        users[1].mcr(&doctor),
        users[2].mcr(&doctor),
        users[2].mcr(secrets)
    );
    let nothing = nothing.ended(1);
    let found = nothing.of_provider("provider", "the hub has no Cluster Inventory API");
    let fix = found["fix"].as_str().unwrap();
    assert!(
        fix.contains("--hub-context") && fix.contains("install the CRD"),
        "{fix}"
    );
    assert_eq!(nothing.json()["problems"], 1, "{}", nothing.out);

    let denied = denied.ended(1);
    let found = denied.of_provider(
        "rights",
        "may not list, watch clusterprofiles.multicluster.x-k8s.io",
    );
    let fix = found["fix"].as_str().unwrap();
    assert!(
        fix.starts_with("kubectl create role mcr-clusterprofiles -n fleet --verb=list,watch"),
        "{fix}"
    );

    let file = "--clusterprofile-provider-file PATH";
    is(
        &bare.ended(1),
        "ready",
        "state",
        "problem",
        "knows no access provider",
        file,
    );
    let said = secrets.ended(1);
    assert_eq!(
        said.of_provider("rights", "may list, watch secrets")["result"],
        "ok"
    );
    is(
        &said,
        "ready",
        "state",
        "problem",
        "no Secret in namespace fleet",
        "--consumer",
    );

    // A wrong file is a wrong command line, and the error names the access provider.
    let file = users[2].file("wrong.json", r#"{"providers": [{"name": "p"}]}"#);
    let wrong = [
        "clusters",
        "--clusterprofile-provider-file",
        file.to_str().unwrap(),
    ];
    let wrong = users[2].mcr(wrong).await.ended(2);
    wrong
        .tells("--clusterprofile-provider-file")
        .tells("\"p\" has no command");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plugins_of_the_provider_file_are_not_for_kubeconfigs_of_other_providers() {
    let member = member().await;
    let hub = inventory(&member).await;
    let user = User::with([hub.kubeconfig()]);
    let file = provider_file(&user);
    let works = user.home().join("works");
    let kubeconfig = json!({
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {
            "server": member.url(), "certificate-authority-data": STANDARD.encode(member.ca_pem()),
        }}],
        "users": [{"name": "x", "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": works, "interactiveMode": "Never",
        }}}],
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": "fleet", "name": "thief", "labels": {LABEL: "true"}},
        "stringData": {"kubeconfig": kubeconfig.to_string()},
    });
    hub.cluster().create(secret).or_fail();
    let both = ["clusters", "--provider", "kubeconfig,cluster-inventory"];
    let plugins = ["--clusterprofile-provider-file", &file];
    let said = user
        .mcr([&both[..], &FLAGS[2..], &plugins].concat())
        .await
        .ended(0);
    let line = |name: &str| {
        let mut lines = said.out.lines();
        let found = lines.find(|line| line.starts_with(name));
        found.unwrap_or_else(|| panic!("no {name}:\n{}", said.out))
    };
    assert!(line("cluster-inventory#ready ").contains("Ready"), "{}", said.out);
    let thief = line("kubeconfig#thief ");
    assert!(thief.contains("Broken") && thief.contains("plugin"), "{thief}");
}
