//! Runs the command line program of the engine.

use std::{
    ffi::{OsStr, OsString},
    io,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use mcr_core::process::{self, Ended, Limits, RunError, Running};
use tokio::process::Command;

use crate::error::EngineError;

/// The most bytes of output that are read. The description of a thousand containers is shorter.
const MOST_STDOUT: u64 = 32 << 20;
/// The most bytes of error output that are kept.
pub(crate) const MOST_STDERR: u64 = 16 << 10;
/// The time limit for `program -v`, which does not contact the engine.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);
/// Why a program is expected to be installed after the discovery has begun.
const WAS_THERE: &str = "it was there when discovery began";

/// A program with its environment and the deadline for its runs.
#[derive(Debug, Clone)]
pub(crate) struct Cli {
    program: PathBuf,
    env: Arc<[(OsString, OsString)]>,
    deadline: Duration,
}

/// The output of a run that was not killed.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) success: bool,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Cli {
    pub(crate) fn new(program: PathBuf, env: Arc<[(OsString, OsString)]>, deadline: Duration) -> Self {
        Self {
            program,
            env,
            deadline,
        }
    }

    /// The program, as text for people.
    pub(crate) fn program(&self) -> String {
        self.program.display().to_string()
    }

    /// The first words of a command, as text for people. The whole command may name a thousand containers.
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

    /// The output of `program -v`. Does not contact the engine. `chosen`: why this program was chosen.
    pub(crate) async fn version_output(&self, chosen: &str) -> Result<String, EngineError> {
        let args = ["-v"];
        let deadline = VERSION_TIMEOUT.min(self.deadline);
        match self.run_within(&args, deadline).await {
            Ok(ended) => Ok(String::from_utf8_lossy(&ended.stdout).into_owned()),
            Err(error) => Err(self.error(&args, error, deadline, chosen)),
        }
    }

    /// Runs a command until it ends, or until its deadline. Dropping the future kills the command.
    pub(crate) async fn run(&self, args: &[impl AsRef<OsStr>]) -> Result<Output, EngineError> {
        let ended = self.run_within(args, self.deadline).await;
        let ended = ended.map_err(|error| self.error(args, error, self.deadline, WAS_THERE))?;
        Ok(Output {
            success: ended.status.success(),
            stdout: ended.stdout,
            stderr: String::from_utf8_lossy(&ended.stderr).into_owned(),
        })
    }

    /// Starts a command that runs until the returned value is dropped.
    pub(crate) fn follow(&self, args: &[impl AsRef<OsStr>]) -> Result<Running, EngineError> {
        process::start(&mut self.command(args)).map_err(|error| self.not_started(&error, WAS_THERE))
    }

    /// The error of a failed run.
    pub(crate) fn failed(&self, args: &[impl AsRef<OsStr>], output: &Output) -> EngineError {
        EngineError::from_output(&self.program(), self.shown(args), &output.stderr)
    }

    fn command(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    fn not_started(&self, error: &io::Error, chosen: &str) -> EngineError {
        let program = self.program();
        match error.kind() {
            io::ErrorKind::NotFound => EngineError::NotInstalled {
                program,
                chosen: chosen.to_owned(),
            },
            _ => EngineError::Start {
                program,
                why: error.to_string(),
            },
        }
    }

    async fn run_within(&self, args: &[impl AsRef<OsStr>], deadline: Duration) -> Result<Ended, RunError> {
        let limits = Limits {
            deadline,
            stdout: MOST_STDOUT,
            stderr: MOST_STDERR,
        };
        process::run(&mut self.command(args), limits, |_| ()).await
    }

    fn error(
        &self,
        args: &[impl AsRef<OsStr>],
        error: RunError,
        deadline: Duration,
        chosen: &str,
    ) -> EngineError {
        let command = self.shown(args);
        match error {
            RunError::Start(error) => self.not_started(&error, chosen),
            RunError::TimedOut => EngineError::TimedOut { command, deadline },
            RunError::TooMuchOutput => EngineError::TooMuch {
                command,
                most: MOST_STDOUT,
            },
            RunError::Io(error) => EngineError::Failed {
                command,
                announced: error.to_string(),
            },
        }
    }
}
