use std::path::Path;

use tempfile::TempDir;

use super::process::Process;
use super::{ControlPlaneError, http_probe, port};

/// Another program that a test needs, such as a controller: a child process in a temporary folder.
///
/// The process is killed when the value is dropped, and when the test process is killed. Its output goes to a file in
/// the folder.
#[derive(Debug)]
pub struct Program {
    // Declared before the folder, so that the process ends before its folder is removed.
    process: Process,
    _folder: TempDir,
}

impl Program {
    /// A port of 127.0.0.1 on which no socket listens. This process gets each port only once, but another process may
    /// take it.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn free_port() -> Result<u16, ControlPlaneError> {
        port::free_port()
    }

    /// Writes the files (name and content) into a new folder, and starts the program there.
    ///
    /// # Errors
    ///
    /// When the folder can't be written, or the program can't be started.
    pub fn start(
        name: &str,
        program: &Path,
        files: &[(&str, &str)],
        args: &[String],
    ) -> Result<Self, ControlPlaneError> {
        let folder = tempfile::Builder::new()
            .prefix("mcr-program-")
            .tempdir()
            .map_err(ControlPlaneError::io("creating a temporary folder"))?;
        for (file, content) in files {
            let path = folder.path().join(file);
            std::fs::write(&path, content)
                .map_err(ControlPlaneError::io(format!("writing {}", path.display())))?;
        }
        let log = folder.path().join("output.log");
        Ok(Self {
            process: Process::start(name, program, args, log, folder.path())?,
            _folder: folder,
        })
    }

    /// Waits until the program answers `200` to a plain HTTP GET of `path` on this port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// When the program ends, or is not ready within 120 s; both with the end of its log.
    pub async fn wait_ready(&self, port: u16, path: &str) -> Result<(), ControlPlaneError> {
        let ask = async || match http_probe::get(port, path).await {
            Ok(answer) if answer.split(' ').nth(1) == Some("200") => Ok(()),
            Ok(answer) => Err(answer),
            Err(error) => Err(error.to_string()),
        };
        self.process.until_ready(ask).await
    }

    /// Returns an error with the end of the log if the program has ended.
    ///
    /// # Errors
    ///
    /// [`ControlPlaneError::Exited`].
    pub fn check_running(&self) -> Result<(), ControlPlaneError> {
        self.process.check_running()
    }

    /// The process ID, for measurements.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The end of the program's log, for the message of a failing test.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }
}
