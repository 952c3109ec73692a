//! The program beside the plugins of the Cluster Inventory API: both get the same requests and the same hub. The test runs if
//! `MCR_UPSTREAM_INVENTORY` names a folder with the programs `kubeconfig-secretreader` and `secretreader`.

use std::path::Path;

use base64::{Engine, engine::general_purpose::STANDARD};
use mcr_core::ApiVersion;
use mcr_testkit::e2e::skipped;
use serde_json::{Value, json};

use crate::{Hub, Output, PROGRAM, info, kubeconfig_of, run_program, token};

/// What both programs do with a request.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Both give the same credential.
    Same,
    /// Both fail.
    BothFail,
    /// Only the upstream plugin gives a credential.
    OnlyThere,
    /// Only this program gives a credential.
    OnlyHere,
    /// Each gives another one.
    Differ,
}
use Outcome::*;

/// The credential without its expiry, which only this program reports.
fn credential(ran: &Output) -> Option<Value> {
    if ran.code != Some(0) {
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", ran.err);
        return None;
    }
    let mut answer: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(answer["kind"], "ExecCredential");
    let mut status = answer["status"].take();
    status.as_object_mut().unwrap().remove("expirationTimestamp");
    Some(status)
}

async fn compare(hub: &Hub, upstream: &Path, request: &str) -> (Outcome, String) {
    let here = run_program(PROGRAM.as_ref(), Some(request), hub.kubeconfig()).await;
    let there = run_program(upstream, Some(request), hub.kubeconfig()).await;
    let outcome = match (credential(&here), credential(&there)) {
        (None, None) => BothFail,
        (None, Some(_)) => OnlyThere,
        (Some(_), None) => OnlyHere,
        (Some(here), Some(there)) if here == there => Same,
        (Some(_), Some(_)) => Differ,
    };
    (outcome, format!("here: {}there: {}", here.err, there.err))
}

fn kubeconfig(user: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "c", "user": "a"}}],
        "clusters": [{"name": "c", "cluster": {
            "server": "https://c", "extensions": [{"name": "x", "extension": {"any": 1}}],
        }}],
        "users": [{"name": "a", "user": user}],
    })
}

/// A certificate and its key as fields of a user.
fn pair() -> Value {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["a".to_owned()]).unwrap();
    let chain = params.self_signed(&key).unwrap().pem();
    json!({
        "client-certificate-data": STANDARD.encode(chain),
        "client-key-data": STANDARD.encode(key.serialize_pem()),
    })
}

fn with(mut object: Value, more: Value) -> Value {
    let fields = object.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    object
}

/// Secrets with a kubeconfig, and what both programs make of it.
fn kubeconfigs() -> Vec<(&'static str, String, Outcome)> {
    let of = |user: Value| kubeconfig(user).to_string();
    let token_and = |more: Value| of(with(json!({"token": "t"}), more));
    let without = |field: &str| {
        let mut pair = pair();
        pair.as_object_mut().unwrap().remove(field);
        of(pair)
    };
    let mismatched = with(pair(), json!({"client-key-data": pair()["client-key-data"]}));
    let expired = token("expired", std::time::Duration::ZERO).0;
    let exec = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x"}});
    let yaml = "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n- name: a\n  context: {cluster: c, user: a}\n\
                users:\n- name: a\n  user:\n    token: t\n";
    vec![
        ("token", token_and(json!({})), Same),
        ("two-contexts", kubeconfig_of("t"), Same),
        ("yaml", yaml.to_owned(), Same),
        ("certificate", of(pair()), Same),
        ("both", token_and(pair()), Same),
        ("exec-beside", token_and(exec.clone()), Same),
        (
            "password-beside",
            token_and(json!({"username": "u", "password": "p"})),
            Same,
        ),
        ("token-file-beside", token_and(json!({"tokenFile": "/t"})), Same),
        ("unknown-field", token_and(json!({"unknown": 1})), Same),
        ("exec", of(exec), BothFail),
        (
            "password",
            of(json!({"username": "u", "password": "p"})),
            BothFail,
        ),
        ("token-file", of(json!({"tokenFile": "/t"})), BothFail),
        ("nothing", of(json!({})), BothFail),
        ("no-key", without("client-key-data"), BothFail),
        ("no-certificate", without("client-certificate-data"), BothFail),
        (
            "files",
            of(json!({"client-certificate": "/c", "client-key": "/k"})),
            BothFail,
        ),
        (
            "file-beside",
            of(with(pair(), json!({"client-certificate": "/c"}))),
            Same,
        ),
        (
            "no-base64",
            of(with(pair(), json!({"client-key-data": "?"}))),
            BothFail,
        ),
        ("text", "no kubeconfig".to_owned(), BothFail),
        ("empty", String::new(), BothFail),
        (
            "no-context",
            with(kubeconfig(json!({"token": "t"})), json!({"current-context": ""})).to_string(),
            BothFail,
        ),
        (
            "no-user",
            with(kubeconfig(json!({"token": "t"})), json!({"users": []})).to_string(),
            BothFail,
        ),
        ("impersonation", token_and(json!({"as": "admin"})), OnlyThere),
        ("mismatched", of(mismatched), OnlyThere),
        ("expired", of(json!({"token": expired})), OnlyThere),
        (
            "extensions",
            with(
                kubeconfig(json!({"token": "t"})),
                json!({"extensions": [{"name": "x", "extension": {}}]}),
            )
            .to_string(),
            OnlyHere,
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_upstream_plugins_and_this_program_differ_only_as_the_readme_reports() {
    let Some(folder) = std::env::var_os("MCR_UPSTREAM_INVENTORY") else {
        return skipped(
            "upstream plugins",
            "MCR_UPSTREAM_INVENTORY names no folder with them",
        );
    };
    let of_kubeconfig = Path::new(&folder).join("kubeconfig-secretreader");
    let of_token = Path::new(&folder).join("secretreader");
    let hub = Hub::new().await;
    let mut wrong = Vec::new();
    let mut check = async |upstream: &Path, request: String, expected: Outcome| {
        let (outcome, text_of) = compare(&hub, upstream, &request).await;
        if outcome != expected {
            wrong.push(format!("{request}: {outcome:?}, not {expected:?}\n{text_of}"));
        }
    };
    let v1 = |config: Value| info(ApiVersion::V1, config);

    for (name, kubeconfig, expected) in kubeconfigs() {
        hub.set(name, "value", &kubeconfig);
        check(
            &of_kubeconfig,
            v1(json!({"name": name, "key": "value"})),
            expected,
        )
        .await;
    }
    for (config, expected) in [
        (
            json!({"name": "token", "key": "value", "namespace": "fleet"}),
            Same,
        ),
        (
            json!({"name": "two-contexts", "key": "value", "context": "b"}),
            Same,
        ),
        (
            json!({"name": "token", "key": "value", "context": "", "namespace": "", "other": [1]}),
            Same,
        ),
        (json!({"name": "token", "key": "value", "context": "b"}), BothFail),
        (json!({"name": "token", "key": "other"}), BothFail),
        (json!({"name": "token"}), BothFail),
        (json!({"key": "value"}), BothFail),
        (json!({"name": 1, "key": "value"}), BothFail),
        (json!({"name": "missing", "key": "value"}), BothFail),
        (
            json!({"name": "token", "key": "value", "namespace": "kube-system"}),
            BothFail,
        ),
        (json!({"name": "../secrets/token", "key": "value"}), BothFail),
        (json!({}), BothFail),
        (json!(null), BothFail),
        (json!({"Name": "token", "KEY": "value"}), OnlyThere),
    ] {
        check(&of_kubeconfig, v1(config), expected).await;
    }

    hub.set("plain", "token", "opaque");
    hub.set("newline", "token", "opaque\n");
    hub.set("spaces", "token", "a b");
    hub.set("blank", "token", "");
    for (config, expected) in [
        (json!({"clusterName": "plain"}), Same),
        (json!({"clusterName": "plain", "context": "x", "key": "y"}), Same),
        (json!({"clusterName": "token"}), BothFail),
        (json!({"clusterName": "blank"}), BothFail),
        (json!({"clusterName": "missing"}), BothFail),
        (json!({"clusterName": ""}), BothFail),
        (json!({"clusterName": "../secrets/plain"}), BothFail),
        (json!({"clusterName": "newline"}), Differ),
        (json!({"clusterName": "spaces"}), OnlyThere),
        (
            json!({"clusterName": "plain", "namespace": "kube-system"}),
            OnlyThere,
        ),
    ] {
        check(&of_token, v1(config), expected).await;
    }

    let config = json!({"name": "token", "key": "value"});
    check(
        &of_kubeconfig,
        info(ApiVersion::V1Beta1, config.clone()),
        OnlyHere,
    )
    .await;
    let mut no_server: Value = serde_json::from_str(&v1(config)).unwrap();
    no_server["spec"]["cluster"]["server"] = "".into();
    check(&of_kubeconfig, no_server.to_string(), OnlyHere).await;
    for request in ["", "{", "{}"] {
        check(&of_kubeconfig, request.to_owned(), BothFail).await;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
