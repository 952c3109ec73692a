use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use parking_lot::Mutex;

use super::ControlPlaneError;

/// A server as a child process that can't outlive its owner: it is killed on drop, or by the watchdog if this process
/// is killed and nothing is dropped.
///
/// The output goes to a log file, because a pipe that nobody reads would block the server.
#[derive(Debug)]
pub(super) struct Process {
    name: String,
    pid: u32,
    child: Mutex<Child>,
    watchdog: Child,
    log: PathBuf,
}

/// The watchdog waits until its standard input is closed, which the kernel does when the test process ends in any way.
/// It ignores signals of the terminal, so that they can't end it earlier.
const WATCHDOG: &str = r#"
trap '' INT TERM HUP
read -r pid || exit 0
read -r end
kill -9 "$pid" 2>/dev/null
rm -rf "$1"
"#;

/// Pausing takes well under a millisecond, unless a thread sits in an uninterruptible system call.
const STOPPED_WITHIN: Duration = Duration::from_secs(60);

/// On an idle machine, servers are ready within seconds.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// The bytes of a log that an error shows.
const TAIL: u64 = 3_000;

impl Process {
    /// Starts `program`. `folder` is its temporary folder, which the watchdog removes as well.
    pub(super) fn start(
        name: &str,
        program: &Path,
        args: &[String],
        log: PathBuf,
        folder: &Path,
    ) -> Result<Self, ControlPlaneError> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(ControlPlaneError::io(format!("creating {}", log.display())))?;
        let errors = file
            .try_clone()
            .map_err(ControlPlaneError::io("opening the log twice"))?;

        // The watchdog is started first: if it can't be started, there is no server to clean up.
        let mut watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "sh"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(ControlPlaneError::io("starting the watchdog (sh)"))?;
        let child = Command::new(program)
            .args(args)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) => {
                end(&mut watchdog);
                return Err(ControlPlaneError::io(format!("starting {}", program.display()))(
                    error,
                ));
            }
        };

        let mut process = Self {
            name: name.to_owned(),
            pid: child.id(),
            child: Mutex::new(child),
            watchdog,
            log,
        };
        let pid = format!("{}\n", process.pid);
        if let Some(stdin) = &mut process.watchdog.stdin {
            stdin
                .write_all(pid.as_bytes())
                .map_err(ControlPlaneError::io("writing to the watchdog"))?;
        }
        Ok(process)
    }

    /// Returns an error if the process has ended.
    pub(super) fn check_running(&self) -> Result<(), ControlPlaneError> {
        let status = self.child.lock().try_wait();
        let status = status.map_err(ControlPlaneError::io(format!(
            "reading the state of {}",
            self.name
        )))?;
        match status {
            None => Ok(()),
            Some(status) => Err(ControlPlaneError::Exited {
                program: self.name.clone(),
                status: status.to_string(),
                log: self.log_tail(),
            }),
        }
    }

    /// Repeats the request until it succeeds.
    pub(super) async fn until_ready<T>(
        &self,
        ask: impl AsyncFn() -> Result<T, String>,
    ) -> Result<(), ControlPlaneError> {
        let started = Instant::now();
        loop {
            self.check_running()?;
            let Err(last) = ask().await else { break };
            if started.elapsed() > READY_WITHIN {
                return Err(ControlPlaneError::NotReady {
                    program: self.name.clone(),
                    after: READY_WITHIN,
                    last,
                    log: self.log_tail(),
                });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The answer may come from another process that has taken the port.
        self.check_running()
    }

    /// Freezes the process: its sockets stay open, and it answers nothing. Returns when all its threads are stopped,
    /// because until then some of them still answer.
    pub(super) fn pause(&self) -> Result<(), ControlPlaneError> {
        let stop = || -> rustix::io::Result<()> {
            let pid = self.raw_pid()?;
            kill_process(pid, Signal::STOP)?;
            let started = Instant::now();
            // Waits for a stop only, so that `check_running` still detects an exit. `NOWAIT` leaves the state of the
            // process waitable, so that a second `pause` works too.
            let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            while waitid(WaitId::Pid(pid), options)?.is_none() {
                if started.elapsed() > STOPPED_WITHIN {
                    return Err(Errno::TIMEDOUT);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        };
        stop().map_err(|error| ControlPlaneError::io(format!("pausing {}", self.name))(error.into()))
    }

    /// Kills the process. Its folder stays.
    pub(super) fn kill(&mut self) {
        // The watchdog ends first. Otherwise it could kill another process that gets the ID of the child after the
        // child was reaped.
        end(&mut self.watchdog);
        end(self.child.get_mut());
    }

    /// Resumes a frozen process.
    pub(super) fn resume(&self) -> Result<(), ControlPlaneError> {
        let resume = || kill_process(self.raw_pid()?, Signal::CONT);
        resume().map_err(|error| ControlPlaneError::io(format!("resuming {}", self.name))(error.into()))
    }

    /// The ID can't belong to another process, because the child is not reaped while `self` exists.
    fn raw_pid(&self) -> rustix::io::Result<Pid> {
        i32::try_from(self.pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(Errno::SRCH)
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// The last lines of the log.
    pub(super) fn log_tail(&self) -> String {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = File::open(&self.log)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
            let mut bytes = Vec::new();
            file.take(TAIL).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => String::from_utf8_lossy(&bytes).trim_end().to_owned(),
            Err(error) => format!("({}: {error})", self.log.display()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Kills the child and waits until it has ended. That is quick: SIGKILL can't be ignored, and these processes use no
/// slow devices.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
