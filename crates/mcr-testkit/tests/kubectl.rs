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
        let server = SimCluster::builder().name("berlin").build().serve().await;
        let server = server.unwrap();
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

    /// Runs it as a user would: its output and its stderr. It must succeed.
    async fn run(&self, line: &str) -> String {
        let (succeeded, printed) = self.try_run(line).await;
        assert!(succeeded, "kubectl {line}: {printed}");
        printed
    }

    /// As [`run`](Self::run), with whether it succeeded.
    async fn try_run(&self, line: &str) -> (bool, String) {
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
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        (
            output.status.success(),
            printed + &String::from_utf8_lossy(&output.stderr),
        )
    }
}

const FILE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: filed}\ndata: {a: '1'}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_finds_the_kinds_and_reads_and_writes_objects() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    // Each line is a command and parts of what it prints.
    let prints = async |lines: &str| {
        for line in lines.trim().lines() {
            let (command, parts) = line.trim().split_once(" | ").unwrap();
            let printed = kubectl.run(command).await;
            for part in parts.split(" | ") {
                assert!(
                    printed.contains(part),
                    "kubectl {command}: no {part:?} in {printed}"
                );
            }
        }
    };
    prints(
        "api-resources | configmaps | deployments | apps/v1 | Namespace
         get ns | NAME | default | kube-system
         create configmap made --from-literal=a=1 | configmap/made created
         create secret generic made --from-literal=a=1 | secret/made created
         get secret made -o jsonpath={.data.a} | MQ==
         create namespace team | namespace/team created
         create serviceaccount made -n team | serviceaccount/made created",
    )
    .await;
    let path = kubectl.path().join("file.yaml");
    std::fs::write(&path, FILE).unwrap();
    prints("apply -f file.yaml | configmap/filed created").await;
    std::fs::write(&path, FILE.replace("'1'", "'2'")).unwrap();
    prints(
        "apply -f file.yaml | configmap/filed configured
         get cm filed -o jsonpath={.data.a} | 2
         get configmaps | NAME | AGE | filed
         label configmap filed team=a | configmap/filed labeled
         get cm -l team=a -o name | configmap/filed
         apply -f file.yaml --server-side --force-conflicts | serverside-applied
         delete -f file.yaml | \"filed\" deleted
         create -f file.yaml | configmap/filed created
         delete configmap filed | \"filed\" deleted",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_gets_advice_instead_where_the_simulator_does_not_do_it() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let apply = "use `--dry-run=client -o yaml | kubectl apply -f -`";
    let create = "use `kubectl create -f FILE -o yaml`";
    for (line, parts) in [
        (
            "create deployment web --image=nginx",
            ["takes no protobuf for Deployment: ", apply],
        ),
        (
            "create role reader --verb=get --resource=pods",
            ["takes no protobuf for Role: ", apply],
        ),
        (
            "auth can-i get pods",
            ["takes no protobuf for SelfSubjectAccessReview: ", create],
        ),
        ("create token default", ["issues no tokens", "--backend real"]),
    ] {
        let (succeeded, printed) = kubectl.try_run(line).await;
        assert!(!succeeded, "kubectl {line}: {printed}");
        for part in parts {
            assert!(printed.contains(part), "kubectl {line}: no {part:?} in {printed}");
        }
    }

    // Both pieces of advice lead somewhere.
    let path = kubectl.path().join("file.yaml");
    let deployment = kubectl
        .run("create deployment web --image=nginx --dry-run=client -o yaml")
        .await;
    std::fs::write(&path, deployment).unwrap();
    let printed = kubectl.run("apply -f file.yaml").await;
    assert!(printed.contains("deployment.apps/web created"), "{printed}");
    let review = "apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\n\
                  spec: {resourceAttributes: {verb: get, resource: pods}}\n";
    std::fs::write(&path, review).unwrap();
    let printed = kubectl.run("create -f file.yaml -o yaml").await;
    assert!(printed.contains("allowed: true"), "{printed}");
}
