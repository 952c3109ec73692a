//! A process that was started here: what it says, and what the kernel knows of it.

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
    proc::Usage,
    subject::message::{Message, Sighting, now},
};

/// How long an answer to a question may take.
const ANSWER: Duration = Duration::from_secs(30);

/// A process that ends when this is dropped.
pub struct Running {
    child: Child,
    pid: u32,
    started: u64,
    said: Lines<BufReader<ChildStdout>>,
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
        let pid = child.id().context("it has ended at once")?;
        let said = child.stdout.take().context("it has no stdout")?;
        let ask = child.stdin.take().context("it has no stdin")?;
        Ok(Self {
            said: BufReader::new(said).lines(),
            name: name.to_owned(),
            child,
            pid,
            started,
            ask,
        })
    }

    /// Starts a subject.
    ///
    /// # Errors
    ///
    /// When it can't be started, or is not there.
    pub fn subject(subject: Subject, programs: &Programs, job: &Job<'_>) -> Result<Self> {
        let (program, args) = subject.command(programs, job)?;
        Self::start(subject.name(), &program, &args)
    }

    /// When it was started, in nanoseconds since 1970.
    pub fn started(&self) -> u64 {
        self.started
    }

    /// Memory and CPU time until now.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.pid).with_context(|| self.name.clone())
    }

    /// What it says next.
    ///
    /// # Errors
    ///
    /// When it says nothing for `limit`, something else than a line of the protocol, or has ended.
    pub async fn next(&mut self, limit: Duration) -> Result<Message> {
        let name = &self.name;
        let line = timeout(limit, self.said.next_line())
            .await
            .with_context(|| format!("{name} has said nothing for {limit:?}"))??;
        let Some(line) = line else {
            let status = self.child.wait().await?;
            bail!("{name} has ended ({status})");
        };
        serde_json::from_str(&line).with_context(|| format!("{name} said {line:?}"))
    }

    /// Waits until every object was seen; when that was.
    ///
    /// # Errors
    ///
    /// When that is not so within `limit`.
    pub async fn synced(&mut self, limit: Duration) -> Result<u64> {
        match self.next(limit).await? {
            Message::Synced { at } => Ok(at),
            other => bail!("{} said {other:?} before it was synced", self.name),
        }
    }

    /// Sends a line and waits for what is said to it.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub async fn ask(&mut self, line: &str) -> Result<Message> {
        self.ask_for(line, ANSWER).await
    }

    /// The same, where an answer takes long.
    ///
    /// # Errors
    ///
    /// When it does not answer within `limit`.
    pub async fn ask_for(&mut self, line: &str, limit: Duration) -> Result<Message> {
        self.ask.write_all(format!("{line}\n").as_bytes()).await?;
        self.next(limit).await
    }

    /// What was seen since the last time this was asked.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub async fn beats(&mut self) -> Result<Vec<Sighting>> {
        match self.ask("beats").await? {
            Message::Beats { beats } => Ok(beats),
            other => bail!("{} answered {other:?}", self.name),
        }
    }

    /// How many objects passed its reconciler, those that did again included.
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

    /// What is allocated in it.
    ///
    /// # Errors
    ///
    /// When it does not answer, or does not count.
    pub async fn heap(&mut self) -> Result<usize> {
        match self.ask("heap").await? {
            Message::Heap { bytes: Some(bytes) } => Ok(bytes),
            other => bail!("{} answered {other:?}", self.name),
        }
    }

    /// Ends it and waits for that.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub async fn stop(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }
}
