use std::{
    collections::BTreeSet,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::ListParams,
    config::{Config, KubeConfigOptions, Kubeconfig},
};

use crate::program::Program;

const LANG: [(&str, &str); 1] = [("LANG", "C")];

/// The file that a program prints for its user to export. Only its owner can read it.
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
    program.logged("The contexts are cluster-1 and cluster-2.", 1);
    program.logged("cargo run -p examples --example configmaps", 1);
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
