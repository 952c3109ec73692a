use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use parking_lot::Mutex;
use tempfile::TempDir;

use super::process::Process;
use super::{Binaries, ControlPlaneError, http_probe, port};

/// An etcd that any number of API servers may share. Cheap to clone. Each control plane holds a clone. The process
/// ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Etcd {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    // Declared before the folder, so that the process ends before its folder is removed.
    process: Mutex<Process>,
    port: u16,
    binaries: Binaries,
    folder: TempDir,
}

/// The names of the folders for the data and for their copy.
const DATA: &str = "data";
const BACKUP: &str = "backup";

impl Etcd {
    /// Starts an etcd with an empty store and waits until it is ready. The etcd never syncs to disk, because its data
    /// is removed after the test.
    ///
    /// Dropping the future kills the etcd.
    ///
    /// # Errors
    ///
    /// When the binaries are missing or etcd does not become ready within 60 s.
    pub async fn start() -> Result<Self, ControlPlaneError> {
        let binaries = Binaries::find()?;
        let start = async |port| {
            let folder = tempfile::Builder::new()
                .prefix("mcr-etcd-")
                .tempdir()
                .map_err(ControlPlaneError::io("creating a temporary folder"))?;
            let process = launch(&binaries, port, folder.path()).await?;
            Ok(Inner {
                process: Mutex::new(process),
                port,
                binaries: binaries.clone(),
                folder,
            })
        };
        let inner = Arc::new(port::on_free_port(start).await?);
        Ok(Self { inner })
    }

    /// The URL of the etcd: plain HTTP on 127.0.0.1.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.inner.port)
    }

    /// Copies the data, for [`restore`](Self::restore).
    ///
    /// # Errors
    ///
    /// When the process is gone, or the data can't be copied.
    pub fn back_up(&self) -> Result<(), ControlPlaneError> {
        let folder = self.inner.folder.path();
        let process = self.process();
        process.pause()?;
        let copied = replace(&folder.join(DATA), &folder.join(BACKUP));
        process.resume()?;
        copied.map_err(ControlPlaneError::io("backing up etcd"))
    }

    /// Kills etcd, and starts it with the data of [`back_up`](Self::back_up) on the same port, so resource versions go
    /// back. Stop the API servers before that, as Kubernetes requires: their caches would not notice the restore.
    ///
    /// Dropping the future leaves etcd stopped.
    ///
    /// # Errors
    ///
    /// When there is no copy, or etcd does not become ready.
    pub async fn restore(&self) -> Result<(), ControlPlaneError> {
        let folder = self.inner.folder.path();
        self.process().kill();
        let (data, backup) = (folder.join(DATA), folder.join(BACKUP));
        replace(&backup, &data).map_err(ControlPlaneError::io("restoring etcd"))?;
        let process = launch(&self.inner.binaries, self.inner.port, folder).await?;
        *self.process() = process;
        Ok(())
    }

    /// The process ID, for measurements.
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    pub(super) fn binaries(&self) -> &Binaries {
        &self.inner.binaries
    }

    fn process(&self) -> parking_lot::MutexGuard<'_, Process> {
        self.inner.process.lock()
    }
}

/// Starts etcd with the data of a folder, and waits until it is ready.
async fn launch(binaries: &Binaries, port: u16, folder: &Path) -> Result<Process, ControlPlaneError> {
    let url = format!("http://127.0.0.1:{port}");
    let args = [
        format!("--data-dir={}", folder.join(DATA).display()),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        // There are no peers, so any port can be used.
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        "--unsafe-no-fsync".to_owned(),
        // The only member waits this long before it elects itself. With the default, that takes up to a second.
        "--heartbeat-interval=20".to_owned(),
        "--election-timeout=200".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    let process = Process::start("etcd", &binaries.etcd(), &args, folder.join("etcd.log"), folder)?;
    let ask = async || match http_probe::get(port, "/health").await {
        Ok(answer) if answer.contains(r#""health":"true""#) => Ok(()),
        Ok(answer) => Err(answer),
        Err(error) => Err(error.to_string()),
    };
    process.until_ready(ask).await?;
    Ok(process)
}

/// Copies a folder to `to`, and replaces what is there.
fn replace(from: &Path, to: &Path) -> std::io::Result<()> {
    if to.exists() {
        std::fs::remove_dir_all(to)?;
    }
    let copied = Command::new("cp").arg("-r").args([from, to]).status()?;
    copied
        .success()
        .then_some(())
        .ok_or(std::io::ErrorKind::Other.into())
}
