//! Runs the command line program of the engine.

use std::{
    ffi::{OsStr, OsString},
    io,
    path::PathBuf,
    pin::pin,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, ChildStderr, ChildStdout, Command},
    time::timeout,
};

use crate::EngineError;

/// The most bytes of output that are read. The description of a thousand containers is shorter.
const MOST_STDOUT: u64 = 32 << 20;
/// The most bytes of error output that are kept.
const MOST_STDERR: u64 = 16 << 10;
/// The limit for `program -v`, which does not contact the engine.
const GREETING: Duration = Duration::from_secs(5);
/// How long to wait for output after the program ended; its children may hold the pipe open.
const LINGER: Duration = Duration::from_millis(500);

/// A program with its environment and the deadline for its runs.
#[derive(Debug, Clone)]
pub(crate) struct Cli {
    program: PathBuf,
    env: Arc<[(OsString, OsString)]>,
    deadline: Duration,
}

/// The output of a run that ended by itself.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) success: bool,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

/// Why `program -v` failed.
#[derive(Debug)]
pub(crate) enum Mute {
    NotThere,
    Error(EngineError),
}

impl Mute {
    pub(crate) fn of(self, cli: &Cli, chosen: &str) -> EngineError {
        match self {
            Self::NotThere => EngineError::NotInstalled {
                program: cli.program(),
                chosen: chosen.to_owned(),
            },
            Self::Error(error) => error,
        }
    }
}

impl Cli {
    pub(crate) fn new(program: PathBuf, env: Arc<[(OsString, OsString)]>, deadline: Duration) -> Self {
        Self {
            program,
            env,
            deadline,
        }
    }

    /// The program, for people.
    pub(crate) fn program(&self) -> String {
        self.program.display().to_string()
    }

    /// The first words of a command, for people. The whole command may name a thousand containers.
    pub(crate) fn shown(&self, args: &[impl AsRef<OsStr>]) -> String {
        const MOST: usize = 3;
        let mut shown = self.program();
        for arg in args.iter().take(MOST) {
            shown.push(' ');
            shown.push_str(&arg.as_ref().to_string_lossy());
        }
        if args.len() > MOST {
            shown.push_str(" …");
        }
        shown
    }

    /// The output of `program -v`. Does not contact the engine.
    pub(crate) async fn greeting(&self) -> Result<String, Mute> {
        let args = ["-v"];
        let started = self.start(&args);
        let mut running = started.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Mute::NotThere,
            _ => Mute::Error(self.not_started(&error)),
        })?;
        let deadline = GREETING.min(self.deadline);
        let output = self
            .finish(&mut running, &args, deadline)
            .await
            .map_err(Mute::Error)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a command to its end, or to its deadline. Dropping the future kills it.
    pub(crate) async fn run(&self, args: &[impl AsRef<OsStr>]) -> Result<Output, EngineError> {
        let mut running = self.start(args).map_err(|error| self.not_started(&error))?;
        self.finish(&mut running, args, self.deadline).await
    }

    /// Starts a command that runs until it is dropped.
    pub(crate) fn follow(&self, args: &[impl AsRef<OsStr>]) -> Result<Running, EngineError> {
        self.start(args).map_err(|error| self.not_started(&error))
    }

    /// The error for a failed run.
    pub(crate) fn failed(&self, args: &[impl AsRef<OsStr>], output: &Output) -> EngineError {
        EngineError::sort(&self.program(), self.shown(args), &output.stderr)
    }

    fn start(&self, args: &[impl AsRef<OsStr>]) -> io::Result<Running> {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // A process group of its own, so that children of the program (ssh, a helper of its context) are killed with
        // it.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn()?;
        Ok(Running {
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            group: child.id(),
            child,
        })
    }

    fn not_started(&self, error: &io::Error) -> EngineError {
        let program = self.program();
        match error.kind() {
            io::ErrorKind::NotFound => EngineError::NotInstalled {
                program,
                chosen: "it was there when discovery began".to_owned(),
            },
            _ => EngineError::Start {
                program,
                why: error.to_string(),
            },
        }
    }

    async fn finish(
        &self,
        running: &mut Running,
        args: &[impl AsRef<OsStr>],
        deadline: Duration,
    ) -> Result<Output, EngineError> {
        let ended = timeout(deadline, running.finish()).await;
        // The children that it left behind are killed too: see `Drop`.
        match ended {
            Err(_) => Err(EngineError::TimedOut {
                command: self.shown(args),
                deadline,
            }),
            Ok(Err(End::TooMuch)) => Err(EngineError::TooMuch {
                command: self.shown(args),
                most: MOST_STDOUT,
            }),
            Ok(Err(End::Io(error))) => Err(EngineError::Failed {
                command: self.shown(args),
                said: error.to_string(),
            }),
            Ok(Ok((status, stdout, stderr))) => Ok(Output {
                success: status.success(),
                stdout,
                stderr: String::from_utf8_lossy(&stderr).into_owned(),
            }),
        }
    }
}

/// A child process. Dropping this kills the process and its children.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    pub(crate) stdout: Option<ChildStdout>,
    pub(crate) stderr: Option<ChildStderr>,
    #[cfg_attr(not(unix), allow(dead_code, reason = "groups are a matter of Unix"))]
    group: Option<u32>,
}

enum End {
    TooMuch,
    Io(io::Error),
}

impl Running {
    async fn finish(&mut self) -> Result<(ExitStatus, Vec<u8>, Vec<u8>), End> {
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        let (mut out, mut complaint) = (Vec::new(), Vec::new());
        let status = {
            let collect = async {
                let collected = futures::future::join(
                    collect(stdout, MOST_STDOUT, &mut out),
                    complain(stderr, &mut complaint),
                );
                collected.await.0
            };
            let mut pipes = pin!(collect);
            tokio::select! {
                status = self.child.wait() => {
                    if let Ok(collected) = timeout(LINGER, pipes).await {
                        collected?;
                    }
                    status
                }
                collected = &mut pipes => {
                    collected?;
                    self.child.wait().await
                }
            }
        };
        Ok((status.map_err(End::Io)?, out, complaint))
    }
}

async fn collect(pipe: Option<impl AsyncRead + Unpin>, most: u64, into: &mut Vec<u8>) -> Result<(), End> {
    let Some(pipe) = pipe else { return Ok(()) };
    pipe.take(most + 1).read_to_end(into).await.map_err(End::Io)?;
    if into.len() as u64 > most {
        Err(End::TooMuch)
    } else {
        Ok(())
    }
}

/// Keeps the beginning of the error output. Reads the rest too, or the program would block on a full pipe.
pub(crate) async fn complain(pipe: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) {
    let Some(mut pipe) = pipe else { return };
    if (&mut pipe).take(MOST_STDERR).read_to_end(into).await.is_ok() {
        tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await.ok();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(group) = self
            .group
            .and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?))
        {
            // Fails if no process of the group is left, which is fine.
            rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
        }
    }
}
