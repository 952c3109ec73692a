//! kind and its engine, for the clusters of one test.

use std::{
    process::Output,
    time::{Instant, SystemTime},
};

use mcr_testkit::e2e::{E2e, E2eKind};
use tokio::process::Command;

use crate::{DEADLINE, announce};

/// Makes clusters whose names begin with what no others do, and removes them.
pub(crate) struct Kind {
    pub(crate) with: E2eKind,
    pub(crate) prefix: String,
    pub(crate) folder: tempfile::TempDir,
}

impl Kind {
    pub(crate) fn new(e2e: &E2e, purpose: &str) -> Self {
        let with = e2e.kind();
        Self {
            prefix: format!("{}{purpose}-", with.prefix),
            with,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn name(&self, cluster: &str) -> String {
        format!("{}{cluster}", self.prefix)
    }

    pub(crate) fn node(&self, cluster: &str) -> String {
        format!("{}-control-plane", self.name(cluster))
    }

    /// The command that makes a cluster.
    pub(crate) fn creation(&self, cluster: &str) -> Command {
        let mut create = self.kind(&["create", "cluster", "--quiet", "--name", &self.name(cluster)]);
        if let Some(image) = &self.with.node_image {
            create.args(["--image", image]);
        }
        create
    }

    pub(crate) async fn create(&self, cluster: &str) {
        let start = Instant::now();
        run(self.creation(cluster)).await;
        announce(&format!("kind made a cluster in {:?}", start.elapsed()));
    }

    pub(crate) async fn delete(&self, cluster: &str) {
        run(self.kind(&["delete", "cluster", "--quiet", "--name", &self.name(cluster)])).await;
    }

    pub(crate) fn kind(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.with.program);
        // kind writes what it made into a kubeconfig; not into the user's.
        command
            .args(args)
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"));
        command
    }

    pub(crate) async fn engine(&self, args: &[&str]) -> String {
        let mut command = Command::new(&self.with.engine);
        command.args(args);
        let output = run(command).await.stdout;
        String::from_utf8(output).unwrap().trim().to_owned()
    }

    /// When a node's container ran.
    pub(crate) async fn started(&self, cluster: &str) -> SystemTime {
        let node = self.node(cluster);
        let started = self
            .engine(&["inspect", "--format", "{{.State.StartedAt}}", &node])
            .await;
        started.parse::<k8s_openapi::jiff::Timestamp>().unwrap().into()
    }
}

impl Drop for Kind {
    fn drop(&mut self) {
        // Also after a failure: nothing of a test stays in the engine.
        let name = |cluster: &str| self.node(cluster);
        let nodes = ["a", "b"].map(name);
        let _ = std::process::Command::new(&self.with.engine)
            .args(["rm", "-f", "-v"])
            .args(nodes)
            .output();
    }
}

pub(crate) async fn run(mut command: Command) -> Output {
    let shown = format!("{command:?}");
    let output = tokio::time::timeout(DEADLINE, command.kill_on_drop(true).output());
    let output = output.await.unwrap_or_else(|_| panic!("{shown} hangs")).unwrap();
    assert!(
        output.status.success(),
        "{shown}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
