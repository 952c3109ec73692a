//! The simulated API server, through the real kubectl of the test binaries.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy takes only functions marked as tests for tests.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use mcr_testkit::{
    control_plane::Binaries,
    sim::{SimCluster, SimServer},
};
use tempfile::TempDir;
use tokio::process::Command;

struct Kubectl {
    program: PathBuf,
    folder: TempDir,
    _server: SimServer,
}

impl Kubectl {
    /// None where there is no kubectl beside the test binaries.
    async fn start() -> Option<Self> {
        let program = Binaries::find().ok()?.folder().join("kubectl");
        if !program.is_file() {
            return None;
        }
        let server = SimCluster::builder()
            .name("berlin")
            .build()
            .serve()
            .await
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("kubeconfig"), server.kubeconfig()).unwrap();
        Some(Self {
            program,
            folder,
            _server: server,
        })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs it as a user would: its output, and what it says on stderr, where it must succeed.
    async fn run(&self, line: &str) -> String {
        let output = Command::new(&self.program)
            .arg("--kubeconfig")
            .arg(self.path().join("kubeconfig"))
            // Its cache of discovery must not be that of the person who runs the test.
            .env("HOME", self.path())
            .env("KUBECACHEDIR", self.path())
            .current_dir(self.path())
            .args(line.split(' '))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "kubectl {line}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned() + &said
    }
}

const FILE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: filed}\ndata: {a: '1'}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_finds_the_kinds_and_reads_and_writes_objects() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let says = async |line: &str, parts: &[&str]| {
        let said = kubectl.run(line).await;
        for part in parts {
            assert!(said.contains(part), "kubectl {line}: no {part:?} in {said}");
        }
    };
    says(
        "api-resources",
        &["configmaps", "deployments", "apps/v1", "Namespace"],
    )
    .await;
    says("get ns", &["NAME", "default", "kube-system"]).await;
    says(
        "create configmap made --from-literal=a=1",
        &["configmap/made created"],
    )
    .await;
    says(
        "create secret generic made --from-literal=a=1",
        &["secret/made created"],
    )
    .await;
    says("get secret made -o jsonpath={.data.a}", &["MQ=="]).await;
    says("create namespace team", &["namespace/team created"]).await;
    says(
        "create serviceaccount made -n team",
        &["serviceaccount/made created"],
    )
    .await;
    says("get configmaps", &["NAME", "AGE", "made"]).await;
    says("label configmap made team=a", &["configmap/made labeled"]).await;
    says("get cm -l team=a -o name", &["configmap/made"]).await;

    let path = kubectl.path().join("file.yaml");
    std::fs::write(&path, FILE).unwrap();
    says("apply -f file.yaml", &["configmap/filed created"]).await;
    std::fs::write(&path, FILE.replace("'1'", "'2'")).unwrap();
    says("apply -f file.yaml", &["configmap/filed configured"]).await;
    says("get cm filed -o jsonpath={.data.a}", &["2"]).await;
    says(
        "apply -f file.yaml --server-side --force-conflicts",
        &["serverside-applied"],
    )
    .await;
    says("delete -f file.yaml", &["\"filed\" deleted"]).await;
    says("create -f file.yaml", &["configmap/filed created"]).await;
    says(
        "delete configmap filed made",
        &["\"filed\" deleted", "\"made\" deleted"],
    )
    .await;
}
