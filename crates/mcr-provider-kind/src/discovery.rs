//! One discovery: runs the programs of the engine and passes their output to the inventory.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use mcr_core::{
    BoxError, Change,
    hub::Backoff,
    process::{self, Running as Process},
};
use rand::Rng;
use tokio::{io::AsyncReadExt, time::sleep};

use crate::{
    cli::{Cli, MOST_STDERR},
    config::Config,
    containers::{self, Node},
    detection::{Chosen, choose},
    engine::Engine,
    error::{EngineError, one_line},
    events::Lines,
    inventory::{Inventory, Read, ReadError, next_read},
    kubeconfig,
};

/// The pause between an event and the observation. Events come in groups: starting a container causes five.
const QUIET_FOR: Duration = Duration::from_millis(30);
/// The shortest time between the starts of two observations, however many events there are.
const BETWEEN_LISTS: Duration = Duration::from_millis(200);
/// The stream of events needs at most this long to start. Then another observation finds changes from before.
const EVENTS_BEGUN: Duration = Duration::from_millis(700);
/// The first and the longest pause between two attempts to follow events.
const EVENTS_AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// If a stream of events has lasted this long, the next attempt follows after the first pause again.
const EVENTS_GOOD: Duration = Duration::from_secs(60);
/// The first and the longest pause between two attempts to reach an engine with which the previous discovery has
/// failed.
const ENGINE_AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2));
/// How long a discovery tries to reach such an engine before it ends with the error.
const ENGINE_GIVE_UP: Duration = Duration::from_secs(60);

/// A discovery.
pub(crate) struct Running {
    config: Arc<Config>,
    failed: Arc<AtomicBool>,
    work: Option<Work>,
    ready: VecDeque<Change>,
}

impl Running {
    pub(crate) fn new(config: Arc<Config>, failed: Arc<AtomicBool>) -> Self {
        Self {
            config,
            failed,
            work: None,
            ready: VecDeque::new(),
        }
    }

    /// The next change. An error is the last item. Not cancel safe: dropping the future loses the discovery.
    pub(crate) async fn next(&mut self) -> Result<Change, BoxError> {
        let next = self.advance().await;
        if next.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        next.map_err(Into::into)
    }

    async fn advance(&mut self) -> Result<Change, EngineError> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Ok(change);
            }
            let work = match &mut self.work {
                Some(work) => work,
                None => {
                    let work = begin(&self.config, self.failed.load(Ordering::Relaxed)).await?;
                    self.work.insert(work)
                }
            };
            self.ready.extend(work.step().await?);
            if work.synced {
                self.failed.store(false, Ordering::Relaxed);
            }
        }
    }
}

/// Finds the engine and observes it for the first time.
///
/// The fleet restarts a failed discovery after a growing pause of up to a minute, and logs each failure. So a
/// discovery that follows a failed one waits for the engine itself: it notices within seconds that the engine is back,
/// and logs nothing until then.
async fn begin(config: &Arc<Config>, follows_failure: bool) -> Result<Work, EngineError> {
    let started = Instant::now();
    let mut backoff = Backoff::new(ENGINE_AGAIN.0, ENGINE_AGAIN.1);
    loop {
        match try_to_begin(config).await {
            Ok(work) => return Ok(work),
            Err(error) if !follows_failure || started.elapsed() > ENGINE_GIVE_UP => return Err(error),
            Err(error) => tracing::debug!(%error, "the engine does not answer yet"),
        }
        sleep(backoff.pause()).await;
    }
}

async fn try_to_begin(config: &Arc<Config>) -> Result<Work, EngineError> {
    let chosen = choose(config).await?;
    let mut work = Work::new(config.clone(), chosen);
    // Follows events before it observes, so that no change during the observation is missed.
    work.follow();
    let nodes = observe(work.cli.clone())
        .await
        .map_err(|error| error.with_others(&work.others))?;
    work.first = Some(nodes);
    Ok(work)
}

struct Work {
    config: Arc<Config>,
    engine: Engine,
    cli: Cli,
    others: Vec<Engine>,
    inventory: Inventory,
    events: Events,
    first: Option<Vec<Node>>,
    /// The running observation.
    observe: Option<BoxFuture<'static, Result<Vec<Node>, EngineError>>>,
    observed_at: Instant,
    /// When the next observation is due.
    observe_at: Instant,
    reads: FuturesUnordered<BoxFuture<'static, Answer>>,
    /// How many of `reads` are for clusters whose last read failed.
    failing: usize,
    waiting: VecDeque<Read>,
    synced: bool,
}

/// The admin.conf of a node, or the reason why it can't be read.
type Answer = (Read, Result<Vec<u8>, ReadError>);

/// The stream of events, if it runs.
struct Events {
    process: Option<Process>,
    lines: Lines,
    buffer: Vec<u8>,
    started: Instant,
    /// When to start the stream again.
    again_at: Option<Instant>,
    backoff: Backoff,
    reported: bool,
}

enum Next {
    Observed(Result<Vec<Node>, EngineError>),
    Read(Read, Result<Vec<u8>, ReadError>),
    Event(bool),
    EventsBroke(String),
    Time,
}

impl Work {
    fn new(config: Arc<Config>, chosen: Chosen) -> Self {
        let now = Instant::now();
        Self {
            inventory: Inventory::new(chosen.engine, config.prefix.clone(), config.refresh),
            engine: chosen.engine,
            cli: chosen.cli,
            others: chosen.others,
            events: Events {
                process: None,
                lines: Lines::default(),
                buffer: vec![0; 16 << 10],
                started: now,
                again_at: config.events.then_some(now),
                backoff: Backoff::new(EVENTS_AGAIN.0, EVENTS_AGAIN.1),
                reported: false,
            },
            observe_at: now + config.poll,
            config,
            first: None,
            observe: None,
            observed_at: now,
            reads: FuturesUnordered::new(),
            failing: 0,
            waiting: VecDeque::new(),
            synced: false,
        }
    }

    /// Waits for the next event, answer or timer, and handles it. Returns the changes to announce.
    async fn step(&mut self) -> Result<Vec<Change>, EngineError> {
        let mut changes = Vec::new();
        if let Some(nodes) = self.first.take() {
            changes.extend(self.observed(nodes));
        } else {
            match self.wait().await {
                Next::Observed(result) => {
                    self.observe = None;
                    let nodes = result.map_err(|error| error.with_others(&self.others))?;
                    changes.extend(self.observed(nodes));
                }
                Next::Read(read, result) => {
                    self.failing -= usize::from(read.failing);
                    if matches!(result, Err(ReadError::Gone)) {
                        self.observe_soon();
                    }
                    let jitter = rand::rng().random_range(0.0..=1.0);
                    changes.extend(self.inventory.read(&read, result, Instant::now(), jitter));
                }
                Next::Event(true) => self.observe_soon(),
                Next::Event(false) | Next::Time => {}
                Next::EventsBroke(why) => self.events_broke(&why),
            }
        }
        let now = Instant::now();
        if self.events.again_at.is_some_and(|at| at <= now) {
            self.follow();
        }
        if self.observe.is_none() && self.observe_at <= now {
            self.observe = Some(observe(self.cli.clone()).boxed());
            self.observed_at = now;
        }
        self.waiting.extend(self.inventory.due(now));
        while let Some(due) = next_read(&mut self.waiting, self.reads.len(), self.failing) {
            self.failing += usize::from(due.failing);
            self.reads.push(read(self.engine, self.cli.clone(), due).boxed());
        }
        if !self.synced && self.inventory.complete() {
            self.synced = true;
            changes.push(Change::Synced);
        }
        Ok(changes)
    }

    /// Cancel safe: the running observation, reads and streams are kept in `self`.
    async fn wait(&mut self) -> Next {
        let observing = self.observe.is_some();
        let times = [
            (!observing).then_some(self.observe_at),
            self.inventory.next_due(),
            self.events.again_at,
        ];
        let until = times.into_iter().flatten().min();
        let pause = until.map(|at| at.saturating_duration_since(Instant::now()));
        tokio::select! {
            result = async {
                match &mut self.observe {
                    Some(observe) => observe.await,
                    None => std::future::pending().await,
                }
            } => Next::Observed(result),
            Some((read, result)) = self.reads.next() => Next::Read(read, result),
            next = self.events.next() => next,
            () = async {
                match pause {
                    Some(pause) => sleep(pause).await,
                    None => std::future::pending().await,
                }
            } => Next::Time,
        }
    }

    fn observed(&mut self, nodes: Vec<Node>) -> Vec<Change> {
        let now = Instant::now();
        let changes = self.inventory.observe(nodes, now);
        tracing::debug!(
            clusters = self.inventory.len(),
            changes = changes.len(),
            "kind clusters observed"
        );
        let poll = match self.events.process {
            Some(_) => self.config.poll,
            None => self.config.poll_without_events.min(self.config.poll),
        };
        // If there was an event during the observation, another observation is due.
        self.observe_at = if self.observe_at > self.observed_at {
            self.observe_at.min(now + poll)
        } else {
            now + poll
        };
        changes
    }

    fn observe_soon(&mut self) {
        let soon = (Instant::now() + QUIET_FOR).max(self.observed_at + BETWEEN_LISTS);
        self.observe_at = if self.observe.is_some() {
            // The observation that runs may have an outdated answer already.
            soon
        } else {
            self.observe_at.min(soon)
        };
    }

    fn follow(&mut self) {
        let events = &mut self.events;
        if events.again_at.take().is_none() {
            return;
        }
        events.started = Instant::now();
        events.lines = Lines::default();
        match self.cli.follow(self.engine.events()) {
            Ok(process) => {
                events.process = Some(process);
                self.observe_at = self.observe_at.min(events.started + EVENTS_BEGUN);
            }
            Err(error) => self.events_broke(&error.to_string()),
        }
    }

    fn events_broke(&mut self, why: &str) {
        let events = &mut self.events;
        events.process = None;
        if events.started.elapsed() > EVENTS_GOOD {
            events.backoff.reset();
        }
        let pause = events.backoff.pause();
        events.again_at = Some(Instant::now() + pause);
        let every = self.config.poll_without_events;
        if events.reported {
            tracing::debug!(engine = %self.engine, why, retry_in = ?pause, "the stream of the engine's events has ended again");
        } else {
            events.reported = true;
            tracing::info!(
                engine = %self.engine, why, retry_in = ?pause, asking_every = ?every,
                "the stream of the engine's events has ended; until it runs again, the engine is polled more often"
            );
        }
        // The engine may have stopped. In any case, changes since the end of the stream are unknown.
        self.observe_soon();
    }
}

impl Events {
    /// Waits for the next event, or for the end of the stream. Without a stream, waits for ever.
    async fn next(&mut self) -> Next {
        let Some(process) = &mut self.process else {
            return std::future::pending().await;
        };
        let Some(stdout) = &mut process.stdout else {
            return Next::EventsBroke("its output can't be read".to_owned());
        };
        match stdout.read(&mut self.buffer).await {
            Ok(0) => {}
            Ok(count) => return Next::Event(self.lines.take(&self.buffer[..count])),
            Err(error) => return Next::EventsBroke(error.to_string()),
        }
        // The program has ended, so its error output is complete, unless a child process keeps the pipe open.
        let mut stderr = Vec::new();
        let reading = process::begin(process.stderr.take(), MOST_STDERR, &mut stderr);
        tokio::time::timeout(Duration::from_millis(100), reading)
            .await
            .ok();
        Next::EventsBroke(one_line(&String::from_utf8_lossy(&stderr)))
    }
}

/// Lists all nodes.
async fn observe(cli: Cli) -> Result<Vec<Node>, EngineError> {
    /// The second command fails if a node is removed between the two commands. Then both are repeated.
    const TRIES: usize = 5;
    let garbage = |args: &[String], problem: String| EngineError::Garbage {
        command: cli.shown(args),
        problem,
    };
    let list: Vec<String> = containers::LIST.map(str::to_owned).to_vec();
    for left in (0..TRIES).rev() {
        let output = cli.run(&list).await?;
        if !output.success {
            return Err(cli.failed(&list, &output));
        }
        let ids = containers::ids(&output.stdout).map_err(|problem| garbage(&list, problem.to_owned()))?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut inspect = vec!["container".to_owned(), "inspect".to_owned()];
        inspect.extend(ids);
        let output = cli.run(&inspect).await?;
        if output.success {
            return containers::nodes(&output.stdout).map_err(|problem| garbage(&inspect, problem));
        }
        if left == 0 || !is_gone(&output.stderr) {
            return Err(cli.failed(&inspect, &output));
        }
    }
    Ok(Vec::new()) // never reached: the last try returns
}

/// Reads the admin.conf of a node.
async fn read(engine: Engine, cli: Cli, read: Read) -> Answer {
    let args = ["exec", read.node.as_str(), "cat", kubeconfig::PATH];
    let result = match cli.run(&args).await {
        Ok(output) if output.success => Ok(output.stdout),
        Ok(output) if is_gone(&output.stderr) => Err(ReadError::Gone),
        Ok(output) => Err(ReadError::Failed(read_failure(engine, &output.stderr))),
        Err(error) => Err(ReadError::Failed(error.to_string())),
    };
    (read, result)
}

fn read_failure(engine: Engine, stderr: &str) -> String {
    let low = stderr.to_lowercase();
    if low.contains("no such file") && low.contains("admin.conf") {
        "it is not there yet: kind is making the cluster, or was interrupted; it is read again, and if it does not come, \
         delete the cluster and create it again"
            .to_owned()
    } else {
        format!("{engine} reports: {}", one_line(stderr))
    }
}

/// Whether a program failed because a container is gone or does not run.
fn is_gone(stderr: &str) -> bool {
    let low = stderr.to_lowercase();
    const WORDS: [&str; 8] = [
        "no such container",
        "no such object",
        "no such id",
        "is not running",
        "is paused",
        "container state improper",
        "no container with",
        "is restarting",
    ];
    WORDS.iter().any(|word| low.contains(word))
}
