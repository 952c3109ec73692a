//! Images of the examples, without an image registry.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use mcr_testkit::e2e::E2e;

use crate::{cluster::on_kind, common::member::unique, program};

/// Runs a program, which must succeed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Images of a test. Removed when dropped.
pub(crate) struct Images {
    engine: String,
    name: String,
    tags: Vec<String>,
}

impl Images {
    pub(crate) fn new(e2e: &E2e) -> Self {
        Self {
            engine: e2e.kind().engine,
            name: unique("mcr-e2e"),
            tags: Vec::new(),
        }
    }

    fn tag(&mut self, of: &str) -> String {
        let tag = format!("localhost/{}:{of}", self.name);
        self.tags.push(tag.clone());
        tag
    }

    /// On what is imported, and so on every stage that is built on it.
    fn label(&self) -> String {
        format!("mcr.dev/e2e={}", self.name)
    }

    pub(crate) fn engine(&self, args: &[&str]) -> String {
        run(Command::new(&self.engine).args(args))
    }

    /// An image of the files of a folder.
    fn import(&mut self, folder: &Path, of: &str) -> String {
        let (tag, tar) = (self.tag(of), folder.with_extension("tar"));
        let tar = tar.to_str().unwrap();
        run(Command::new("tar").args(["-C", folder.to_str().unwrap(), "-cf", tar, "."]));
        self.engine(&[
            "import",
            "--change",
            &format!("LABEL {}", self.label()),
            tar,
            &tag,
        ]);
        tag
    }

    /// An image with the C library of this machine, which is that of the programs here, and nothing else.
    pub(crate) fn base(&mut self, program: &Path) -> String {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        let libraries = run(Command::new("ldd").arg(program));
        for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
            let to = root.join(library.trim_start_matches('/'));
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(library, to).unwrap();
        }
        self.import(&root, "base")
    }

    /// Builds `examples/deploy/Dockerfile`.
    pub(crate) fn build(&mut self, of: &str, context: &Path, args: &[&str]) -> String {
        let tag = self.tag(of);
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/Dockerfile");
        let build = ["build", "--file", file.to_str().unwrap(), "--tag", &tag];
        self.engine(&[&build[..], args, &[context.to_str().unwrap()]].concat());
        tag
    }

    /// An image of an example that is built already, by the Dockerfile.
    pub(crate) fn of_example(&mut self, example: &str) -> String {
        let (program, folder) = (program::path(example), tempfile::tempdir().unwrap());
        let base = format!("BASE={}", self.base(&program));
        fs::copy(program, folder.path().join(example)).unwrap();
        let name = format!("EXAMPLE={example}");
        let args = ["--target", "prebuilt", "--build-arg", &base, "--build-arg", &name];
        self.build(example, folder.path(), &args)
    }

    /// Runs an image as the Deployment does.
    fn help(&self, tag: &str) -> String {
        let limits = [
            "--rm",
            "--read-only",
            "--network=none",
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges",
        ];
        let user = self.engine(&["image", "inspect", "--format", "{{.Config.User}}", tag]);
        assert_eq!(user.trim(), "65532:65532");
        self.engine(&[&["run"][..], &limits, &[tag, "--help"]].concat())
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        // Last first: one that another is made of can't go before it.
        for tag in self.tags.iter().rev() {
            let mut command = Command::new(&self.engine);
            let _ = command.args(["image", "rm", "--force", tag]).output();
        }
        // Stages have no tag.
        let filter = format!("label={}", self.label());
        let mut command = Command::new(&self.engine);
        let _ = command
            .args(["image", "prune", "--force", "--filter", &filter])
            .output();
    }
}

#[test]
fn an_image_is_made_of_a_program() {
    on_kind(|e2e| async move {
        let mut images = Images::new(&e2e);
        let tag = images.of_example("fleet-policy");
        assert!(images.help(&tag).contains("--policy <PATH>"));
    });
}
