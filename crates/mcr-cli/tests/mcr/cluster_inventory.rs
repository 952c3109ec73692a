//! `mcr clusters` and `mcr doctor` with the provider `cluster-inventory`, on a simulated hub.

use std::os::unix::fs::PermissionsExt;

use base64::{Engine, engine::general_purpose::STANDARD};
use mcr_testkit::{
    sim::{SimCluster, SimRule, SimServer, SimUser},
    waiting::OrFail,
};
use serde_json::{Value, json};

use crate::harness::{LABEL, User, crd, namespace_object, sim};

const PROFILES: &str = "clusterprofiles.multicluster.x-k8s.io";

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
    let none = |name: &str| {
        with(
            profile(member, name, HEALTHY, "p"),
            "/status/accessProviders",
            json!([]),
        )
    };
    let deleting = profile(member, "deleting", HEALTHY, "p");
    for object in [
        crd(
            "multicluster.x-k8s.io",
            "ClusterProfile",
            "clusterprofiles",
            ["v1alpha1", "v1alpha2"],
        ),
        namespace_object("fleet"),
        namespace_object("other"),
        one("ready"),
        one("twin"),
        profile(member, "unhealthy", &[("ControlPlaneHealthy", "False")], "p"),
        profile(member, "unjoined", &[("Joined", "False")], "p"),
        none("without"),
        with(none("old"), "/status/credentialProviders", json!([{"name": "p"}])),
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

const FLAGS: &str = "-n fleet --allow-loopback --timeout 30s --provider";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn profiles_that_wait_are_shown_with_the_reason_and_the_doctor_has_the_fix_of_each_obstacle() {
    let member = member().await;
    let hub = inventory(&member).await;
    let user = User::with([hub.kubeconfig()]);
    let flags = format!(
        "{FLAGS} cluster-inventory --clusterprofile-provider-file {}",
        provider_file(&user)
    );
    let (shown, text_of, unknown, unselected) = futures::join!(
        user.run(format!("clusters {flags}")),
        user.run(format!("doctor {flags} -o json")),
        user.run(format!("doctor {flags} -o json deleting elsewhere")),
        user.run(format!("doctor {flags} -l env=dev -o json ready")),
    );
    let shown = shown.ended(0);
    shown.shows(
        "ready     | Ready     |
         twin      | Suspended | ClusterProfile ready is older
         unhealthy | Suspended | ControlPlaneHealthy is False
         unjoined  | Suspended | no condition ControlPlaneHealthy
         without   | Suspended | no access providers
         unknown   | Suspended | the access providers \"cloud\", and this program knows \"p\"
         missing   | | install the add-on
         failing   | | failed (exit status: 3)",
    );
    assert_eq!(shown.out.lines().count(), 10, "{}", shown.out);

    let text_of = text_of.ended(1);
    text_of.of_provider("hub", "serves multicluster.x-k8s.io in v1alpha");
    let right = "may list, watch clusterprofiles.multicluster.x-k8s.io in namespace fleet";
    assert_eq!(text_of.of_provider("rights", right)["result"], "ok");
    text_of.finds(
        "ready     | connection  | ok      | |
         ready     | tls         | ok      | signed by a trusted authority |
         twin      | state       | warning | ClusterProfile ready is older | inventory-member-id
         unhealthy | state       | warning | ControlPlaneHealthy is False | cluster manager ocm
         unhealthy | state       | warning | | kubectl -n fleet describe clusterprofiles.multicluster.x-k8s.io unhealthy
         unjoined  | state       | warning | Joined is not True: Joined it is | cluster manager ocm
         without   | state       | warning | no access providers | an add-on of it
         old       | state       | problem | deprecated credentialProviders p | Builder::v1alpha1
         unknown   | state       | problem | \"cloud\" | add one of these access providers
         missing   | credentials | problem | install the add-on | /nowhere/plugin
         failing   | credentials | problem | failed (exit status: 3) | run the program",
    );
    assert!(!text_of.out.contains("token-of-member"));
    unknown.ended(1).finds(
        "deleting  | name | problem | is being deleted | kubectl -n fleet describe clusterprofiles.multicluster.x-k8s.io deleting
         elsewhere | name | problem | provider looks in fleet | repeat with -n other",
    );
    let unselected = unselected.ended(1);
    unselected.finds("ready | name | problem | do not match --selector | --selector");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_without_the_api_missing_rights_and_a_missing_provider_file_have_their_own_findings() {
    let plain = sim("plain").await;
    let member = member().await;
    let hub = inventory(&member).await;
    let namespaces = SimRule::new([""], ["namespaces"], ["get"]);
    hub.cluster()
        .set_user("nobody", SimUser::new("robot").rule(namespaces));
    let denied = hub.kubeconfig_with_token("nobody");
    let users = [plain.kubeconfig(), denied, hub.kubeconfig()].map(|hub| User::with([hub]));
    let doctor = format!("doctor -o json {FLAGS} cluster-inventory");
    let (nothing, denied, bare, secrets) = futures::join!(
        users[0].run("doctor -o json --provider cluster-inventory"),
        users[1].run(&doctor),
        users[2].run(&doctor),
        users[2].run(format!("{doctor} --consumer me"))
    );
    let nothing = nothing.ended(1);
    nothing.finds(
        "| provider | problem | the hub has no Cluster Inventory API | --hub-context
         | provider | problem | the hub has no Cluster Inventory API | install the CRD",
    );
    assert_eq!(nothing.json()["problems"], 1, "{}", nothing.out);

    let right = "may not list, watch clusterprofiles.multicluster.x-k8s.io";
    let found = denied.ended(1).of_provider("rights", right);
    let role = "kubectl create role mcr-clusterprofiles -n fleet --verb=list,watch";
    assert!(found["fix"].as_str().unwrap().starts_with(role), "{found}");

    bare.ended(1)
        .finds("ready | state | problem | knows no access provider | --clusterprofile-provider-file PATH");
    let text_of = secrets.ended(1);
    assert_eq!(
        text_of.of_provider("rights", "may list, watch secrets")["result"],
        "ok"
    );
    text_of.finds("ready | state | problem | no Secret in namespace fleet | --consumer");

    // A wrong file is a wrong command line, and the error names the access provider.
    let file = users[2].file("wrong.json", r#"{"providers": [{"name": "p"}]}"#);
    let wrong = format!("clusters --clusterprofile-provider-file {}", file.display());
    let wrong = users[2].run(wrong).await.ended(2);
    wrong
        .reports("--clusterprofile-provider-file")
        .reports("\"p\" has no command");
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
    let both = format!("clusters {FLAGS} kubeconfig,cluster-inventory --clusterprofile-provider-file {file}");
    let text_of = user.run(both).await.ended(0);
    text_of.shows("cluster-inventory#ready | Ready |\n kubeconfig#thief | Broken | plugin");
}
