//! A subject of suite `kcp`: a process that tells its events in lines. `crate::subject::kcp` describes them.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{Instant, sleep},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{proc::Usage, subject::message::now};

/// A running subject. It ends when this is dropped.
pub struct KcpSubject {
    child: Child,
    pid: u32,
    started: u64,
    ask: ChildStdin,
    events: Arc<Mutex<Events>>,
    _reading: AbortOnDropHandle<()>,
}

/// The events that a subject has told. Times are nanoseconds since 1970.
#[derive(Debug, Default)]
pub struct Events {
    /// When each cluster that has not left became available, by its name.
    pub engaged: HashMap<String, u64>,
    /// When each cluster that has not come back left, by its name.
    pub disengaged: HashMap<String, u64>,
    /// When each write was reconciled first, by cluster and then by stamp.
    pub stamps: HashMap<String, BTreeMap<u64, u64>>,
    /// When each object of a cluster that has not left was reconciled first, by cluster and name.
    pub objects: HashMap<(String, String), u64>,
    /// How many reconciles there were.
    pub reconciles: u64,
    tasks: Option<u64>,
    /// Lines that are no event.
    unread: Vec<String>,
    ended: bool,
}

impl Events {
    /// When a write was reconciled, or a later one of the same cluster that came before the subject had looked.
    pub fn written(&self, cluster: &str, stamp: u64) -> Option<u64> {
        let (_, at) = self.stamps.get(cluster)?.range(stamp..).next()?;
        Some(*at)
    }

    fn read(&mut self, line: &str) -> Option<()> {
        let (event, at) = line.rsplit_once(' ')?;
        let at = at.parse().ok()?;
        let mut words = event.split(' ');
        match (words.next()?, words.next()?) {
            ("engaged", cluster) => {
                self.disengaged.remove(cluster);
                self.engaged.insert(cluster.to_owned(), at);
            }
            ("disengaged", cluster) => {
                self.engaged.remove(cluster);
                self.objects.retain(|(of, _), _| of != cluster);
                self.disengaged.insert(cluster.to_owned(), at);
            }
            ("reconciled", cluster) => {
                let (object, stamp) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
                self.objects.entry((cluster.to_owned(), object)).or_insert(at);
                let stamps = self.stamps.entry(cluster.to_owned()).or_default();
                stamps.entry(stamp).or_insert(at);
                self.reconciles += 1;
            }
            ("gone", _) => self.reconciles += 1,
            ("tasks", count) => self.tasks = Some(count.parse().ok()?),
            _ => return None,
        }
        Some(())
    }
}

async fn read(out: ChildStdout, events: Arc<Mutex<Events>>) {
    let mut lines = BufReader::new(out).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let mut events = events.lock();
        if events.read(&line).is_none() {
            events.unread.push(line);
        }
    }
    events.lock().ended = true;
}

impl KcpSubject {
    /// Starts a subject.
    ///
    /// # Errors
    ///
    /// When the program can't be started.
    pub fn start(program: &Path, kubeconfig: &Path, slice: &str) -> Result<Self> {
        let started = now();
        let mut child = Command::new(program)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--slice={slice}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let pid = child.id().context("it has ended at once")?;
        let out = child.stdout.take().context("it has no stdout")?;
        let ask = child.stdin.take().context("it has no stdin")?;
        let events = Arc::<Mutex<Events>>::default();
        Ok(Self {
            _reading: AbortOnDropHandle::new(tokio::spawn(read(out, events.clone()))),
            child,
            pid,
            started,
            ask,
            events,
        })
    }

    /// When it was started, in nanoseconds since 1970.
    pub fn started(&self) -> u64 {
        self.started
    }

    /// Waits until the events are as wanted. `what` says what is waited for.
    ///
    /// # Errors
    ///
    /// When that is not so within `limit`, when the process has ended, or when a line is no event.
    pub async fn until<T>(
        &self,
        limit: Duration,
        what: &str,
        wanted: impl Fn(&Events) -> Option<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + limit;
        loop {
            {
                let events = self.events.lock();
                if let Some(found) = wanted(&events) {
                    return Ok(found);
                }
                if let Some(line) = events.unread.first() {
                    bail!("the subject said {line:?}, which is no event");
                }
                if events.ended {
                    bail!("the subject has ended before {what}");
                }
            }
            if Instant::now() >= deadline {
                bail!("after {limit:?} still not: {what}");
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Memory and CPU time until now.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.pid)
    }

    /// How many tasks or goroutines it has.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub async fn tasks(&mut self) -> Result<u64> {
        self.events.lock().tasks = None;
        self.ask.write_all(b"tasks\n").await?;
        self.until(Duration::from_secs(30), "it says its tasks", |events| {
            events.tasks
        })
        .await
    }

    /// How many sockets it has open.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn sockets(&self) -> Result<usize> {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.pid))?;
        let targets = files
            .flatten()
            .filter_map(|file| std::fs::read_link(file.path()).ok());
        Ok(targets
            .filter(|target| target.to_string_lossy().starts_with("socket:"))
            .count())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reconcile_of_an_object_and_of_a_write_count() {
        let mut events = Events::default();
        for line in [
            "engaged a 1",
            "reconciled a default/w 7 2",
            "reconciled a default/w 7 3",
            "reconciled a default/w 8 4",
            "gone a default/w 5",
        ] {
            assert_eq!(events.read(line), Some(()), "{line}");
        }
        let of = |name: &str| ("a".to_owned(), name.to_owned());
        assert_eq!(events.objects.get(&of("default/w")), Some(&2));
        assert_eq!(
            [6, 7, 8, 9].map(|stamp| events.written("a", stamp)),
            [Some(2), Some(2), Some(4), None]
        );
        for line in ["disengaged a 6", "tasks 12 7"] {
            assert_eq!(events.read(line), Some(()), "{line}");
        }
        assert_eq!((events.reconciles, events.tasks), (4, Some(12)));
        assert_eq!(
            (events.engaged.get("a"), events.disengaged.get("a")),
            (None, Some(&6))
        );
        assert!(events.objects.is_empty());
        for line in ["", "hello", "engaged a soon", "reconciled a default/w 3"] {
            assert_eq!(events.read(line), None, "{line}");
        }
    }
}
