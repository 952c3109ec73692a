//! The same scripts against the simulated API server and a real one: the answers must be the same.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy takes only functions marked as tests for tests.

mod normal;
mod random;
mod script;
mod scripts;

use std::collections::HashMap;

use futures::StreamExt;
use kube::{Client, Config};
use mcr_testkit::control_plane::{ControlPlane, policy_rule};
use mcr_testkit::sim::{SimCluster, SimRule, SimUser};
use script::{Script, Server};
use serde_json::Value;

struct Real {
    plane: ControlPlane,
    clients: HashMap<&'static str, Client>,
    etcd: Client,
}

struct Sim {
    cluster: SimCluster,
    clients: HashMap<&'static str, Client>,
}

/// A client without the retries of kube-rs, which would hide differences between servers.
async fn client_of(yaml: &str) -> Client {
    let kubeconfig = kube::config::Kubeconfig::from_yaml(yaml).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

fn with_token(yaml: &str, token: &str) -> String {
    let mut config: Value = serde_saphyr_value(yaml);
    config["users"][0]["user"] = if token.is_empty() {
        serde_json::json!({})
    } else {
        serde_json::json!({ "token": token })
    };
    config.to_string()
}

fn serde_saphyr_value(yaml: &str) -> Value {
    let kubeconfig = kube::config::Kubeconfig::from_yaml(yaml).unwrap();
    serde_json::to_value(kubeconfig).unwrap()
}

impl Real {
    async fn start(arguments: &[&str]) -> Self {
        let builder = arguments
            .iter()
            .fold(ControlPlane::builder(), |builder, argument| {
                builder.arg(*argument)
            });
        let plane = builder.start().await.unwrap_or_else(|error| panic!("{error}"));
        plane
            .install_crd(scripts::crd())
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        let bob = plane
            .user("bob")
            .rules([
                policy_rule([""], ["configmaps"], ["get", "list", "watch"]),
                policy_rule(["example.com"], ["widgets/status"], ["patch"]),
            ])
            .create()
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        let yaml = plane.kubeconfig();
        let clients = HashMap::from([
            ("admin", client_of(&yaml).await),
            ("bob", client_of(&bob.kubeconfig()).await),
            ("wrong", client_of(&with_token(&yaml, "wrong")).await),
            ("nobody", client_of(&with_token(&yaml, "")).await),
        ]);
        let etcd = Config::new(plane.etcd().url().parse().unwrap());
        let etcd = Client::try_from(etcd).unwrap();
        Self { plane, clients, etcd }
    }
}

impl Server for Real {
    fn client(&self, user: &str) -> Client {
        self.clients[user].clone()
    }

    async fn compact(&self) {
        let post = |path: &str, body: Value| {
            let request = http::Request::post(path)
                .body(body.to_string().into_bytes())
                .unwrap();
            let etcd = self.etcd.clone();
            async move { etcd.request::<Value>(request).await.unwrap() }
        };
        let key = serde_json::json!({ "key": "Lw==" });
        let now = post("/v3/kv/range", key).await["header"]["revision"].clone();
        post(
            "/v3/kv/compaction",
            serde_json::json!({ "revision": now, "physical": true }),
        )
        .await;
    }
}

impl Sim {
    fn start() -> Self {
        let cluster = SimCluster::new();
        cluster.create(scripts::crd()).unwrap();
        // A real server starts with versions of several digits, by which the comparison of messages knows them.
        while cluster.resource_version() < 10 {
            let early = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "early", "namespace": "default"}});
            cluster.create(early).unwrap();
            cluster.delete("configmaps", "default/early").unwrap();
        }
        let bob = SimUser::new("bob")
            .rule(SimRule::new([""], ["configmaps"], ["get", "list", "watch"]))
            .rule(SimRule::new(["example.com"], ["widgets/status"], ["patch"]));
        cluster.set_user("bob", bob);
        let clients = HashMap::from([
            ("admin", cluster.client()),
            ("bob", cluster.client_with_token("bob")),
            ("wrong", cluster.client_with_token("wrong")),
            ("nobody", Client::new(cluster.service(), "default")),
        ]);
        Self { cluster, clients }
    }
}

impl Server for Sim {
    fn client(&self, user: &str) -> Client {
        self.clients[user].clone()
    }

    async fn compact(&self) {
        self.cluster.compact(self.cluster.resource_version());
    }
}

/// Runs a script against both and reports where they differ.
async fn differences(real: &Real, sim: &Sim, script: &Script) -> Vec<String> {
    let (truth, claim) = tokio::join!(script::run(real, script), script::run(sim, script));
    let (truth_normal, claim_normal) = (normal::transcript(&truth), normal::transcript(&claim));
    let mut found = Vec::new();
    for (index, (truth_normal, claim_normal)) in truth_normal.iter().zip(&claim_normal).enumerate() {
        if truth_normal == claim_normal {
            continue;
        }
        let mut places = Vec::new();
        places_of(truth_normal, claim_normal, "", &mut places);
        let step = &truth[index].step;
        found.push(format!(
            "{} step {index}: {step}\n{}",
            script.name,
            places.join("\n")
        ));
    }
    found
}

/// Where two values differ.
fn places_of(truth: &Value, claim: &Value, path: &str, to: &mut Vec<String>) {
    if truth == claim {
        return;
    }
    static NONE: Value = Value::Null;
    match (truth, claim) {
        (Value::Object(a), Value::Object(b)) => {
            let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names {
                let (a, b) = (a.get(name), b.get(name));
                let at = format!("{path}/{name}");
                match (a, b) {
                    (Some(a), Some(b)) => places_of(a, b, &at, to),
                    (a, b) => to.push(format!(
                        "   {at}\n      real {}\n      sim  {}",
                        a.unwrap_or(&NONE),
                        b.unwrap_or(&NONE)
                    )),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                places_of(a, b, &format!("{path}/{index}"), to);
            }
        }
        (a, b) => to.push(format!("   {path}\n      real {a}\n      sim  {b}")),
    }
}

async fn compare(scripts: Vec<Script>, arguments: &[&str]) {
    let (real, sim) = (Real::start(arguments).await, Sim::start());
    let count = scripts.len();
    let only = std::env::var("MCR_SIM_SCRIPT").unwrap_or_default();
    let runs = scripts
        .into_iter()
        .filter(|script| script.name.contains(&only))
        .map(|script| {
            let (real, sim) = (&real, &sim);
            async move { differences(real, sim, &script).await }
        });
    // One after the other where history is cut; the rest wait for watches most of the time.
    let found: Vec<Vec<String>> = futures::stream::iter(runs).buffer_unordered(8).collect().await;
    let found: Vec<String> = found.into_iter().flatten().collect();
    assert!(
        found.is_empty(),
        "{} of the answers to {count} scripts differ:\n{}\n{}",
        found.len(),
        found.join("\n"),
        if found.len() > 500 {
            real.plane.log_tail()
        } else {
            String::new()
        },
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_simulator_answers_as_a_real_api_server() {
    compare(scripts::all(), &[]).await;
}

/// Seeds are fixed, so that a run means something; other ones with `MCR_SIM_SEEDS=<from>..<to>`.
#[tokio::test(flavor = "multi_thread")]
async fn random_scripts_are_answered_alike() {
    let seeds = std::env::var("MCR_SIM_SEEDS").unwrap_or_else(|_| "1..9".to_owned());
    let (from, to) = seeds.split_once("..").unwrap();
    let seeds = from.parse::<u64>().unwrap()..to.parse().unwrap();
    compare(seeds.map(|seed| random::script(seed, 60)).collect(), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn history_that_is_gone_is_refused_alike() {
    // Its cache would remember what etcd has forgotten.
    compare(
        scripts::compaction(),
        &["--feature-gates=ListFromCacheSnapshot=false"],
    )
    .await;
}
