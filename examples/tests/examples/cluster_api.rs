//! `cluster-api`, on a simulated management cluster and simulated clusters of its own.

use std::{path::PathBuf, time::Duration};

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use mcr_testkit::{
    sim::{SimCluster, SimRule, SimServer, SimUser},
    waiting::eventually,
};
use serde_json::{Value, json};

use crate::{
    common::cluster_api::{cluster, crd, secret},
    program::Program,
};

const PATIENCE: Duration = Duration::from_secs(90);

/// The rights in `rules`, in all namespaces.
fn user(rules: &Value) -> SimUser {
    let texts = |list: &Value| -> Vec<String> { serde_json::from_value(list.clone()).unwrap() };
    let rules = rules.as_array().unwrap().iter();
    rules.fold(SimUser::new("controller"), |user, rule| {
        let of = |field: &str| texts(&rule[field]);
        user.rule(SimRule::new(of("apiGroups"), of("resources"), of("verbs")))
    })
}

/// The rules of the role that the provider's crate has for users to apply.
fn granted() -> Value {
    let role = include_str!("../../../crates/mcr-provider-cluster-api/deploy/rbac.yaml");
    let mut role: Value = serde_saphyr::from_str(role).unwrap();
    role["rules"].take()
}

/// A management cluster, and a folder with the program's kubeconfig of it.
struct Hub {
    sim: SimCluster,
    _server: SimServer,
    folder: tempfile::TempDir,
}

impl Hub {
    async fn start() -> Self {
        let sim = SimCluster::builder().name("hub").build();
        sim.create(crd()).unwrap();
        for namespace in ["eu", "us"] {
            sim.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
                .unwrap();
        }
        sim.set_user("controller", user(&granted()));
        let server = sim.serve().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join("hub"),
            server.kubeconfig_with_token("controller"),
        )
        .unwrap();
        Self {
            sim,
            _server: server,
            folder,
        }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("hub")
    }

    fn put(&self, object: Value) {
        self.sim.apply(object).unwrap();
    }

    fn program(&self, args: &[&str]) -> Program {
        let hub = self.kubeconfig();
        let hub = ["--hub-kubeconfig", hub.to_str().unwrap(), "--allow-loopback"];
        Program::start("cluster-api", [&hub[..], args].concat())
    }
}

/// A cluster with a ConfigMap, and two tokens of its administrator.
async fn member(name: &str) -> SimServer {
    let sim = SimCluster::builder().name(name).admin_token("first").build();
    sim.set_user("second", SimUser::new("second").rule(SimRule::all()));
    sim.create(map("settings")).unwrap();
    sim.serve().await.unwrap()
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": name}})
}

fn says<'a>(cluster: &'a str, name: &'a str, event: &'a str) -> impl Fn(&Value) -> bool + 'a {
    move |line| line["cluster"] == cluster && line["name"] == name && line["event"] == event
}

fn lists(member: &SimServer) -> usize {
    member
        .cluster()
        .audit()
        .count(|event| event.is_list("configmaps"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configmaps_of_clusters_that_are_made_renewed_and_deleted() {
    let (hub, berlin, boston) = (Hub::start().await, member("berlin").await, member("boston").await);
    let kubeconfig = |of: &SimServer, token: &str| of.kubeconfig_with_token(token);
    // Cluster API writes the Secret long before the API server answers.
    hub.put(secret("eu", "berlin", &kubeconfig(&berlin, "first")));
    hub.put(cluster("eu", "berlin", false));
    let program = hub.program(&["--all-namespaces"]);
    program.logged("not initialized", 1);
    assert!(program.lines().is_empty() && lists(&berlin) == 0);

    hub.put(cluster("eu", "berlin", true));
    let line = program.line(
        "a cluster that is initialized",
        says("eu/berlin", "settings", "live"),
    );
    assert_eq!(line["version"], "v1.36.1");
    // The other order: the Secret comes last.
    hub.put(cluster("us", "boston", true));
    hub.put(secret("us", "boston", &kubeconfig(&boston, "first")));
    program.line("another", says("us/boston", "settings", "live"));

    // New credentials cost no list.
    let tried = || berlin.cluster().audit().count(|event| event.user == "second");
    hub.put(secret("eu", "berlin", &kubeconfig(&berlin, "second")));
    eventually(PATIENCE, "the second token", || (tried() > 0).then_some(())).await;
    berlin.cluster().create(map("later")).unwrap();
    program.line("a new object", says("eu/berlin", "later", "live"));
    assert_eq!(lists(&berlin), 1);
    berlin.cluster().delete("configmaps", "default/later").unwrap();
    program.line("a deletion", says("eu/berlin", "later", "deleted"));

    // The finalizer keeps the Cluster, and the program lets go of it when the deletion begins.
    hub.sim.delete("clusters.cluster.x-k8s.io", "us/boston").unwrap();
    program.logged("cluster is gone", 1);
    assert!(hub.sim.get("clusters.cluster.x-k8s.io", "us/boston").is_some());
    let refused = hub.sim.audit().count(|event| event.code == 403);
    assert_eq!(refused, 0, "the rights of the manifest are enough");
    let lines = program.interrupt();
    assert!(
        !lines.iter().any(says("us/boston", "settings", "deleted")),
        "{lines:#?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_selected_clusters_of_one_namespace_and_a_broken_secret_hurts_no_other() {
    let (hub, berlin) = (Hub::start().await, member("berlin").await);
    let labelled = |name: &str, env: &str| {
        let mut object = cluster("eu", name, true);
        object["metadata"]["labels"] = json!({"env": env});
        object
    };
    for (name, env) in [("berlin", "prod"), ("broken", "prod"), ("dev", "dev")] {
        hub.put(labelled(name, env));
        hub.put(secret("eu", name, &berlin.kubeconfig_with_token("first")));
    }
    hub.put(secret("eu", "broken", "contexts: 7"));
    hub.put(cluster("us", "boston", true));
    hub.put(secret("us", "boston", &berlin.kubeconfig_with_token("first")));
    // A Secret without a Cluster is no cluster.
    hub.put(secret("eu", "orphan", &berlin.kubeconfig_with_token("first")));
    let program = hub.program(&["--namespace", "eu", "--selector", "env=prod"]);
    program.line("the one cluster", says("berlin", "settings", "live"));
    program.logged("broken-kubeconfig", 1);
    let event = |hub: &Hub| {
        let events = hub.sim.list("events.events.k8s.io", "eu");
        let about = |event: &Value| event["regarding"]["name"] == "broken-kubeconfig";
        events.into_iter().find(about)
    };
    eventually(PATIENCE, "an event on the broken Secret", || event(&hub)).await;
    let lines = program.interrupt();
    assert!(lines.iter().all(|line| line["cluster"] == "berlin"), "{lines:#?}");

    // The same clusters for every example with --provider.
    let path = hub.kubeconfig();
    let path = path.to_str().unwrap();
    let args = [
        "--provider",
        "cluster-api",
        "--hub-kubeconfig",
        path,
        "--allow-loopback",
    ];
    let args = [&args[..], &["--namespace", "eu", "--selector", "env=prod"]].concat();
    let program = Program::start("configmaps", args);
    program.line("the same", says("berlin", "settings", "live"));
    program.interrupt();
}

const DEPLOYMENTS: &str = "deployments.apps";
