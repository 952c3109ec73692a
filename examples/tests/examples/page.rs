//! The commands of a page, typed as a reader does.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use mcr_testkit::{control_plane::Binaries, waiting::OrFail};
use serde_json::Value;

/// A file or folder of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The blocks of commands of a page, without the programs that go on.
pub(crate) fn blocks(page: &str) -> Vec<String> {
    let text = fs::read_to_string(repository(page)).or_fail();
    let blocks = text
        .split("\n```sh\n")
        .skip(1)
        .map(|rest| rest.split_once("\n```").unwrap().0.to_owned());
    blocks.filter(|block| !block.starts_with("cargo ")).collect()
}

/// Where a reader types the commands of a page: the root of the repository.
pub(crate) struct Terminal {
    pub(crate) folder: tempfile::TempDir,
    path: std::ffi::OsString,
}

impl Terminal {
    /// With a file, such as a kubeconfig. `None` without kubectl, which is logged.
    pub(crate) fn open(test: &str, file: &str, content: &str) -> Option<Self> {
        let kubectl = Binaries::find().or_fail().folder().to_owned();
        if !kubectl.join("kubectl").is_file() {
            mcr_testkit::e2e::skipped(test, "there is no kubectl beside the control-plane binaries");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_MANIFEST_DIR"), folder.path().join("examples")).unwrap();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([kubectl].into_iter().chain(std::env::split_paths(&path))).unwrap();
        Some(Self { folder, path })
    }

    /// A file that the commands name.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Types a block, and returns what it prints.
    pub(crate) async fn run(&self, block: &str) -> String {
        let mut shell = Command::new("sh");
        shell
            // One block after the other in one terminal: each sees the variables of those before.
            .args([
                "-euc",
                &format!("set -a; [ ! -f env ] || . ./env\n{block}\nexport -p >env"),
            ])
            .current_dir(self.folder.path())
            .env("PATH", &self.path)
            .env("KUBECACHEDIR", self.file("cache"));
        let output = tokio::task::spawn_blocking(move || shell.output())
            .await
            .unwrap()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{block}\n{}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    }
}

/// The folder of an example, with its manifests.
#[derive(Clone, Copy)]
pub(crate) struct Example(pub(crate) &'static str);

impl Example {
    pub(crate) fn folder(self) -> PathBuf {
        repository("examples/examples").join(self.0)
    }

    /// The objects of a manifest.
    pub(crate) fn manifest(self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.folder().join(name)).or_fail();
        text.split("\n---\n")
            .map(|document| serde_saphyr::from_str(document).or_fail())
            .collect()
    }
}

pub(crate) fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.map(|text| text.as_str().unwrap().to_owned()).collect()
}
