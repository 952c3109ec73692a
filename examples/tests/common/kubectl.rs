//! What a user does with kubectl.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

/// `kubectl` against one cluster, as one user.
pub(crate) struct Kubectl {
    program: PathBuf,
    /// Has the kubeconfig.
    folder: tempfile::TempDir,
}

impl Kubectl {
    /// None where there is no kubectl beside the test binaries.
    pub(crate) fn new(kubeconfig: &str) -> Option<Self> {
        let assets = std::env::var_os("KUBEBUILDER_ASSETS")?;
        let program = Path::new(&assets).join("kubectl");
        program.is_file().then(|| Self::with(program, kubeconfig))
    }

    /// This `kubectl`.
    pub(crate) fn with(program: PathBuf, kubeconfig: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig).unwrap();
        Self { program, folder }
    }

    /// Where its kubeconfig is.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Runs it for the sake of tidiness: whether it succeeds does not matter.
    pub(crate) fn try_run(&self, args: &[&str]) {
        let _ = self.command(args).stdin(Stdio::null()).output();
    }

    /// Runs it, which must succeed.
    pub(crate) fn run(&self, args: &[&str]) -> String {
        self.run_with(args, "")
    }

    /// What a server has at a path, or what kubectl prints about its refusal. A timeout would become a part of the query.
    pub(crate) fn raw(&self, path: &str) -> Result<String, String> {
        let output = self
            .command(&["get", "--raw", path, "--request-timeout=0"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    /// What it reads with these arguments.
    pub(crate) fn get(&self, what: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[&["get", "-o", "json"][..], what].concat())).unwrap()
    }

    /// As [`run`](Self::run), with an input.
    pub(crate) fn run_with(&self, args: &[&str], input: &str) -> String {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {args:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Makes the kind Rollout known, and waits until it is served.
    pub(crate) fn apply_rollout_crd(&self) {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/progressive-rollout/rollout-crd.yaml");
        self.run(&["apply", "-f", path.to_str().unwrap()]);
        let name = "crd/rollouts.fleet.example.com";
        self.run(&["wait", "--for=condition=Established", "--timeout=30s", name]);
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .arg("--request-timeout=30s")
            .args(args)
            // Its cache of what a server has is not to be shared with other tests, nor with the user.
            .env("KUBECACHEDIR", self.folder.path().join("cache"));
        command
    }
}

/// A kubeconfig with a token in place of its user, and a namespace as its default.
pub(crate) fn with_token(kubeconfig: &str, token: &str, namespace: &str) -> String {
    let mut document: Value = serde_saphyr::from_str(kubeconfig).unwrap();
    document["users"][0]["user"] = json!({ "token": token.trim() });
    document["contexts"][0]["context"]["namespace"] = namespace.into();
    document.to_string()
}

/// A kustomization on top of one of `examples/deploy`, in a folder of its own.
pub(crate) fn kustomization(of: &str, mut more: Value) -> tempfile::TempDir {
    // With a path such as kubectl wants it: relative, and without links.
    let folder = tempfile::tempdir().unwrap();
    let there = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(of);
    let up: PathBuf = folder
        .path()
        .canonicalize()
        .unwrap()
        .components()
        .skip(1)
        .map(|_| "..")
        .collect();
    let resource = up.join(there.canonicalize().unwrap().strip_prefix("/").unwrap());
    more["apiVersion"] = "kustomize.config.k8s.io/v1beta1".into();
    more["kind"] = "Kustomization".into();
    more["resources"] = json!([resource]);
    std::fs::write(folder.path().join("kustomization.yaml"), more.to_string()).unwrap();
    folder
}
