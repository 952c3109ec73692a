//! `cluster-api`, on a simulated management cluster and simulated clusters of its own.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use mcr_testkit::{
    sim::{SimCluster, SimRule, SimServer, SimUser},
    waiting::eventually,
};
use serde_json::{Value, json};

use crate::{
    common::{
        cluster_api::{cluster, crd, secret},
        deploy::{Right, rights},
    },
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

/// The role that the provider's crate has for users to apply. That of `examples/deploy` has the same rules.
fn role() -> Value {
    let role = include_str!("../../../crates/mcr-provider-cluster-api/deploy/rbac.yaml");
    let role: Value = serde_saphyr::from_str(role).unwrap();
    let overlay = include_str!("../../deploy/overlays/cluster-api/role.yaml");
    let overlay = overlay.split("\n---\n").next().unwrap();
    assert_eq!(rights(&role), rights(&serde_saphyr::from_str(overlay).unwrap()));
    role
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
        sim.set_user("controller", user(&role()["rules"]));
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

fn reports<'a>(cluster: &'a str, name: &'a str, event: &'a str) -> impl Fn(&Value) -> bool + 'a {
    move |line| line["cluster"] == cluster && line["name"] == name && line["event"] == event
}

fn lists(member: &SimServer) -> usize {
    member
        .cluster()
        .audit()
        .count(|event| event.is_list("configmaps"))
}

/// An event on a broken Secret. `again`: it has been reported once more since.
async fn reported(hub: &Hub, reason: &str, again: bool) {
    let found = || {
        let events = hub.sim.list("events.events.k8s.io", "eu");
        let mut about = events
            .iter()
            .filter(|event| event["regarding"]["name"] == "broken-kubeconfig");
        about
            .any(|event| event["reason"] == reason && (!again || !event["series"].is_null()))
            .then_some(())
    };
    eventually(PATIENCE, reason, found).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configmaps_of_clusters_that_are_made_renewed_broken_and_deleted_with_the_rights_of_the_manifest() {
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
        reports("eu/berlin", "settings", "live"),
    );
    assert_eq!(line["version"], "v1.36.1");
    // The other order: the Secret comes last.
    hub.put(cluster("us", "boston", true));
    hub.put(secret("us", "boston", &kubeconfig(&boston, "first")));
    program.line("another", reports("us/boston", "settings", "live"));

    // New credentials cost no list.
    let tried = || berlin.cluster().audit().count(|event| event.user == "second");
    hub.put(secret("eu", "berlin", &kubeconfig(&berlin, "second")));
    eventually(PATIENCE, "the second token", || (tried() > 0).then_some(())).await;
    berlin.cluster().create(map("later")).unwrap();
    program.line("a new object", reports("eu/berlin", "later", "live"));
    assert_eq!(lists(&berlin), 1);

    // A broken Secret hurts no other.
    hub.put(cluster("eu", "broken", true));
    let usable = kubeconfig(&berlin, "first");
    for (content, reason, again) in [
        ("contexts: 7", "KubeconfigBroken", false),
        (usable.as_str(), "KubeconfigUsable", false),
        ("contexts: 7", "KubeconfigBroken", true),
    ] {
        hub.put(secret("eu", "broken", content));
        reported(&hub, reason, again).await;
    }

    // The finalizer keeps the Cluster, and the program releases it when the deletion begins.
    hub.sim.delete("clusters.cluster.x-k8s.io", "us/boston").unwrap();
    program.logged("cluster is gone", 1);
    assert!(hub.sim.get("clusters.cluster.x-k8s.io", "us/boston").is_some());
    let lines = program.interrupt();
    assert!(
        !lines.iter().any(reports("us/boston", "settings", "deleted")),
        "{lines:#?}"
    );
    let audit = hub.sim.audit();
    let own = audit
        .events()
        .filter(|event| event.user == "controller" && event.is_start());
    let mut used = BTreeSet::<Right>::new();
    for event in own.filter(|event| !event.resource.is_empty() && event.resource != "namespaces") {
        assert_ne!(event.code, 403, "{event:?}");
        used.insert((event.group.clone(), event.resource.clone(), event.verb.clone()));
    }
    assert_eq!(used, rights(&role()), "used, and granted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_selected_clusters_of_one_namespace_for_every_example_with_the_provider() {
    let (hub, berlin) = (Hub::start().await, member("berlin").await);
    for (namespace, name, env) in [
        ("eu", "berlin", "prod"),
        ("eu", "dev", "dev"),
        ("us", "boston", "prod"),
    ] {
        let mut object = cluster(namespace, name, true);
        object["metadata"]["labels"] = json!({"env": env});
        hub.put(object);
        hub.put(secret(namespace, name, &berlin.kubeconfig_with_token("first")));
    }
    // A Secret without a Cluster is no cluster.
    hub.put(secret("eu", "orphan", &berlin.kubeconfig_with_token("first")));
    let path = hub.kubeconfig();
    let args = "--namespace eu --selector env=prod --allow-loopback --hub-kubeconfig";
    let args: Vec<&str> = args.split(' ').chain([path.to_str().unwrap()]).collect();
    for (example, provider) in [
        ("cluster-api", &[][..]),
        ("configmaps", &["--provider", "cluster-api"]),
    ] {
        let program = Program::start(example, [provider, &args[..]].concat());
        program.line("the one cluster", reports("berlin", "settings", "live"));
        let lines = program.interrupt();
        assert!(lines.iter().all(|line| line["cluster"] == "berlin"), "{lines:#?}");
    }
}
