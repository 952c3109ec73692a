//! A child process: its messages and its resource usage.

use std::{path::Path, process::Stdio, time::Duration};

use anyhow::{Context, Result, bail};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use super::{
    Subject,
    who::{Job, Programs},
};
use crate::{
    alone::Figures,
    proc::Usage,
    subject::message::{Message, Observation, now},
};

/// The limit for an answer to a question.
const ANSWER: Duration = Duration::from_secs(30);

/// A process that ends when this is dropped.
pub struct Running {
    child: Child,
    /// The id of the process.
    pub pid: u32,
    /// When it was started, in nanoseconds since 1970.
    pub started: u64,
    /// The seconds from its start until it had seen every object, once it has reported that.
    pub synced_s: Option<f64>,
    output: Lines<BufReader<ChildStdout>>,
    ask: ChildStdin,
    name: String,
}

impl Running {
    /// Starts a program.
    ///
    /// # Errors
    ///
    /// When it can't be started.
    pub fn start(name: &str, program: &Path, args: &[String]) -> Result<Self> {
        let started = now();
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let output = child.stdout.take().context("it has no stdout")?;
        Ok(Self {
            output: BufReader::new(output).lines(),
            name: name.to_owned(),
            pid: child.id().context("it has ended at once")?,
            ask: child.stdin.take().context("it has no stdin")?,
            child,
            started,
            synced_s: None,
        })
    }

    /// Starts a subject.
    ///
    /// # Errors
    ///
    /// When it can't be started, or is not there.
    pub fn subject(subject: Subject, programs: &Programs, job: &Job<'_>) -> Result<Self> {
        let (program, args) = subject.command(programs, job)?;
        Self::start(&subject.name(), &program, &args)
    }

    /// Memory and CPU time until now.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.pid).with_context(|| self.name.clone())
    }

    /// The next message of the process.
    ///
    /// # Errors
    ///
    /// When no message comes within `limit`, a line is no message, or the process has ended.
    pub async fn next(&mut self, limit: Duration) -> Result<Message> {
        let name = &self.name;
        let line = timeout(limit, self.output.next_line()).await;
        let line = line.with_context(|| format!("{name} has sent nothing for {limit:?}"))??;
        let Some(line) = line else {
            bail!("{name} has ended ({})", self.child.wait().await?);
        };
        serde_json::from_str(&line).with_context(|| format!("{name} sent {line:?}"))
    }

    /// Waits until the process has seen every object.
    ///
    /// # Errors
    ///
    /// When that is not so within `limit`.
    pub async fn synced(&mut self, limit: Duration) -> Result<()> {
        match self.next(limit).await? {
            Message::Synced { at } => {
                self.synced_s = Some(at.saturating_sub(self.started) as f64 / 1e9);
                Ok(())
            }
            other => bail!("{} sent {other:?} before it was synced", self.name),
        }
    }

    /// Waits for the figures of the process.
    ///
    /// # Errors
    ///
    /// When they don't come within `limit`.
    pub async fn figures(&mut self, limit: Duration) -> Result<Figures> {
        match self.next(limit).await? {
            Message::Figures { figures } => Ok(figures),
            other => bail!("{} sent {other:?}", self.name),
        }
    }

    /// Sends a line and waits for the answer.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub async fn ask(&mut self, line: &str) -> Result<Message> {
        self.ask_for(line, ANSWER).await
    }

    /// As [`ask`](Self::ask), with a limit of the caller.
    ///
    /// # Errors
    ///
    /// When it does not answer within `limit`.
    pub async fn ask_for(&mut self, line: &str, limit: Duration) -> Result<Message> {
        self.ask.write_all(format!("{line}\n").as_bytes()).await?;
        self.next(limit).await
    }

    /// The beats that the process has seen since the last call.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub async fn beats(&mut self) -> Result<Vec<Observation>> {
        match self.ask("beats").await? {
            Message::Beats { beats } => Ok(beats),
            other => bail!("{} answered {other:?}", self.name),
        }
    }

    /// The number of reconciles so far, repeated ones included.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub async fn seen(&mut self) -> Result<u64> {
        match self.ask("seen").await? {
            Message::Seen { count } => Ok(count),
            other => bail!("{} answered {other:?}", self.name),
        }
    }

    /// The allocated bytes of the process.
    ///
    /// # Errors
    ///
    /// When it does not answer, or does not count its allocations.
    pub async fn heap(&mut self) -> Result<usize> {
        match self.ask("heap").await? {
            Message::Heap { bytes: Some(bytes) } => Ok(bytes),
            other => bail!("{} answered {other:?}", self.name),
        }
    }

    /// Kills the process and waits for its end.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub async fn stop(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }
}
