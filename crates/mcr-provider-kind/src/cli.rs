//! Runs the command line program of the engine.

use std::{
    ffi::{OsStr, OsString},
    io,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use mcr_core::process::{self, FinishError, Running};
use tokio::{process::Command, time::timeout};

use crate::error::EngineError;

/// The most bytes of output that are read. The description of a thousand containers is shorter.
const MOST_STDOUT: u64 = 32 << 20;
/// The most bytes of error output that are kept.
pub(crate) const MOST_STDERR: u64 = 16 << 10;
/// The limit for `program -v`, which does not contact the engine.
const GREETING: Duration = Duration::from_secs(5);
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
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        process::start(&mut command)
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
        let ended = timeout(deadline, running.finish(MOST_STDOUT, MOST_STDERR)).await;
        match ended {
            Err(_) => Err(EngineError::TimedOut {
                command: self.shown(args),
                deadline,
            }),
            Ok(Err(FinishError::TooMuchOutput)) => Err(EngineError::TooMuch {
                command: self.shown(args),
                most: MOST_STDOUT,
            }),
            Ok(Err(FinishError::Io(error))) => Err(EngineError::Failed {
                command: self.shown(args),
                announced: error.to_string(),
            }),
            Ok(Ok((status, stdout, stderr))) => Ok(Output {
                success: status.success(),
                stdout,
                stderr: String::from_utf8_lossy(&stderr).into_owned(),
            }),
        }
    }
}
