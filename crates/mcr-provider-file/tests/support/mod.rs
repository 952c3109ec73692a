//! Reads the changes of a discovery, with a deadline.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "each test file uses a part of it"
)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use futures::StreamExt;
use mcr_core::{Change, ClusterSpec, Discovery, Provider};
use mcr_provider_file::{Environment, FileProvider, FileProviderBuilder};
use mcr_testkit::discovery::address_and_token;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// The limit for any wait. Each takes far less.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// A temporary folder.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        fs::write(self.at(name), text).unwrap();
        self.at(name)
    }
}

/// A provider with notifications that does not poll, so that a test fails if notifications don't work.
pub fn reported() -> FileProviderBuilder {
    FileProvider::builder()
        .environment(Environment::empty())
        .poll_interval(Duration::from_secs(3600))
        .debounce(Duration::from_millis(60))
}

/// A provider that polls.
pub fn polling() -> FileProviderBuilder {
    reported()
        .notifications(false)
        .poll_interval(Duration::from_millis(20))
}

/// A kubeconfig with a context, a cluster and a user of each name.
pub fn kubeconfig(names: &[&str]) -> String {
    kubeconfig_with_token(names, "secret")
}

pub fn kubeconfig_with_token(names: &[&str], token: &str) -> String {
    let list = |entry: &dyn Fn(&str) -> String| names.iter().map(|name| entry(name)).collect::<String>();
    format!(
        "apiVersion: v1\nkind: Config\ncontexts:\n{}clusters:\n{}users:\n{}",
        list(&|n| format!("- {{name: {n}, context: {{cluster: {n}, user: {n}}}}}\n")),
        list(&|n| format!("- {{name: {n}, cluster: {{server: \"https://{n}:6443\"}}}}\n")),
        list(&|n| format!("- {{name: {n}, user: {{token: \"{token}\"}}}}\n")),
    )
}

/// The announcements so far.
pub struct Received {
    discovery: Discovery,
    /// The state of each cluster: `ok`, or its object and error.
    pub clusters: BTreeMap<String, String>,
    pub specs: BTreeMap<String, ClusterSpec>,
    /// All announcements, in order.
    pub log: Vec<String>,
    folder: String,
}

impl Received {
    /// Starts a discovery. The folder is shown as `.`.
    pub fn new(provider: &FileProvider, folder: &Folder) -> Self {
        Self {
            discovery: provider.discover(CancellationToken::new()),
            clusters: BTreeMap::new(),
            specs: BTreeMap::new(),
            log: Vec::new(),
            folder: folder.path().to_str().unwrap().to_owned(),
        }
    }

    /// Starts a discovery and listens until it is synced.
    pub async fn synced(builder: FileProviderBuilder, folder: &Folder) -> Self {
        let mut received = Self::new(&builder.build().unwrap(), folder);
        received.until_synced().await;
        received
    }

    pub async fn until_synced(&mut self) {
        self.until(|received| received.log.iter().any(|item| item == "synced"))
            .await;
    }

    /// Listens until the condition holds.
    pub async fn until(&mut self, so: impl Fn(&Self) -> bool) {
        let listen = async {
            while !so(self) {
                self.next().await;
            }
        };
        if tokio::time::timeout(DEADLINE, listen).await.is_err() {
            panic!("not announced in time; announced: {:#?}", self.log);
        }
    }

    /// Listens until exactly these clusters are announced, and all are good.
    pub async fn until_names(&mut self, names: &[&str]) {
        self.until(|received| {
            received.clusters.keys().eq(names) && received.clusters.values().all(|c| c == "ok")
        })
        .await;
    }

    /// Listens until all earlier changes have been announced: writes and removes a marker file, and waits for both
    /// announcements. The provider must read a file with this name. The marker is not recorded.
    pub async fn unchanged(&mut self, folder: &Folder, marker: &str) {
        let path = folder.write(marker, kubeconfig(&["marker"]));
        self.until(|received| received.clusters.contains_key("marker"))
            .await;
        fs::remove_file(path).unwrap();
        self.until(|received| !received.clusters.contains_key("marker"))
            .await;
        self.log.retain(|item| item != "+marker" && item != "-marker");
    }

    async fn next(&mut self) {
        let item = match self.discovery.next().await.expect("the discovery ended").unwrap() {
            Change::Upsert(spec) => {
                let name = self.shown(&spec.name);
                self.clusters.insert(name.clone(), "ok".into());
                self.specs.insert(name.clone(), spec);
                format!("+{name}")
            }
            Change::Broken(broken) => {
                let name = self.shown(&broken.name);
                let text = self.shown(&format!("{}: {}", broken.object, broken.error));
                self.clusters.insert(name.clone(), text);
                format!("!{name}")
            }
            Change::Remove(name) => {
                let name = self.shown(&name);
                self.clusters.remove(&name);
                format!("-{name}")
            }
            Change::Synced => "synced".into(),
            other => panic!("{other:?}"),
        };
        self.log.push(item);
    }

    fn shown(&self, text: &str) -> String {
        text.replace(&self.folder, ".")
    }

    pub fn names(&self) -> Vec<&str> {
        self.clusters.keys().map(String::as_str).collect()
    }

    /// The address and the token that a cluster was announced with.
    pub fn access(&self, name: &str) -> String {
        address_and_token(&self.specs[name].access)
    }

    /// Clears the log of announcements, and keeps the state of the clusters.
    pub fn forget(&mut self) {
        self.log.clear();
    }
}
