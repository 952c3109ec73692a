use std::{
    collections::BTreeSet,
    ffi::OsStr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::ListParams,
    config::{Config, KubeConfigOptions, Kubeconfig},
};
use mcr_testkit::control_plane::Binaries;

use crate::program::{Program, run, run_with};

const LANG: [(&str, &str); 1] = [("LANG", "C")];

/// The file that a program tells its user to export. Only its owner can read it.
fn exported(program: &Program) -> PathBuf {
    let path = |line: &str| Some(line.trim().strip_prefix("export KUBECONFIG=")?.to_owned());
    let line = program.line("export KUBECONFIG", |line| line.as_str().and_then(path).is_some());
    let file = PathBuf::from(line.as_str().and_then(path).unwrap());
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    file
}

fn contexts(file: &Path) -> Vec<String> {
    let kubeconfig = Kubeconfig::read_from(file).unwrap();
    kubeconfig
        .contexts
        .into_iter()
        .map(|context| context.name)
        .collect()
}

async fn namespaces(file: &Path, context: &str) -> Api<Namespace> {
    let options = KubeConfigOptions {
        context: Some(context.to_owned()),
        ..KubeConfigOptions::default()
    };
    let kubeconfig = Kubeconfig::read_from(file).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    Api::all(Client::try_from(config).unwrap())
}

/// Every context leads to a cluster, and no two to the same.
async fn every_context_is_a_cluster(file: &Path) -> Vec<Api<Namespace>> {
    let (mut apis, mut uids) = (Vec::new(), BTreeSet::new());
    for context in contexts(file) {
        let api = namespaces(file, &context).await;
        let list = api.list(&ListParams::default()).await.unwrap();
        let system = list
            .iter()
            .find(|namespace| namespace.metadata.name.as_deref() == Some("kube-system"));
        assert!(
            uids.insert(system.unwrap().metadata.uid.clone()),
            "{context} is another's cluster"
        );
        apis.push(api);
    }
    apis
}

async fn clusters_live_until_ctrl_c(backend: &str) {
    let program = Program::start_text_with("clusters", ["2", "--backend", backend], LANG);
    let file = exported(&program);
    assert_eq!(contexts(&file), ["cluster-1", "cluster-2"]);
    // So that `kubectl config set-cluster` takes the names that are printed.
    let kubeconfig = Kubeconfig::read_from(&file).unwrap();
    let clusters: Vec<_> = kubeconfig
        .clusters
        .iter()
        .map(|cluster| cluster.name.as_str())
        .collect();
    assert_eq!(clusters, ["cluster-1", "cluster-2"]);
    program.logged("The contexts are cluster-1 and cluster-2.", 1);
    program.logged("cargo run -p examples --example configmaps", 1);
    if let Ok(binaries) = Binaries::find() {
        let kubectl = binaries.folder().join("kubectl");
        let printed = usize::from(kubectl.is_file());
        program.logged(&format!("A kubectl is at {}", kubectl.display()), printed);
    }
    let apis = every_context_is_a_cluster(&file).await;
    let lines = program.interrupt_text();
    assert_eq!(
        lines.len(),
        1,
        "stdout has nothing but the line for the shell: {lines:?}"
    );
    assert!(
        !file.parent().unwrap().exists(),
        "{} is still there",
        file.display()
    );
    for api in apis {
        api.list(&ListParams::default()).await.unwrap_err();
    }
}

#[tokio::test]
async fn simulated_clusters_live_until_ctrl_c_and_leave_nothing() {
    clusters_live_until_ctrl_c("sim").await;
}

#[tokio::test]
async fn real_clusters_live_until_ctrl_c_and_leave_nothing() {
    clusters_live_until_ctrl_c("real").await;
}

#[tokio::test]
async fn without_binaries_the_clusters_are_simulated() {
    let nothing = tempfile::tempdir().unwrap();
    let nowhere = [
        ("KUBEBUILDER_ASSETS", OsStr::new("")),
        ("MCR_ASSETS_DIR", nothing.path().as_os_str()),
    ];
    let program = Program::start_text_with("clusters", ["1"], nowhere);
    every_context_is_a_cluster(&exported(&program)).await;
    program.logged("running on the simulator", 1);
    program.interrupt_text();
    let refused = run_with("clusters", ["1", "--backend", "real"], nowhere);
    let error = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{error}");
    assert!(
        refused.stdout.is_empty() && error.contains("cargo xtask assets"),
        "{error}"
    );
}

#[test]
fn a_wrong_number_of_clusters_is_refused_with_the_limit() {
    for (count, backend, limit) in [
        ("0", "sim", "1..=5000"),
        ("5001", "sim", "1..=5000"),
        ("many", "sim", "invalid"),
        ("101", "real", "at most 100"),
    ] {
        let output = run("clusters", [count, "--backend", backend]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_ne!(output.status.code(), Some(0), "{error}");
        assert!(
            output.stdout.is_empty() && error.contains(count) && error.contains(limit),
            "{error}"
        );
    }
}
