use std::{collections::BTreeSet, fmt, sync::Arc};

use futures::{StreamExt, stream};
use mcr_core::{BoxError, Change, Discovery, Provider, doctor::Doctor};
use parking_lot::Mutex;
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::{JoinHandle, spawn_blocking},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Config,
    diff::{Clusters, Desired, announce, changes},
    doctor::FileDoctor,
    resolve::LastGoodFiles,
    scan::Scanner,
    search::{Environment, sources},
    watch::{FolderWatch, Signal},
};

/// A provider whose clusters are the contexts of kubeconfig files. It follows changes of the files.
///
/// Clones share the last valid content of the files.
///
/// # Cancellation
/// A discovery has no task of its own. Dropping it, or cancelling its token, ends its watch. If it is reading a file
/// at that moment, the read finishes in the background.
#[derive(Clone)]
pub struct FileProvider {
    pub(crate) name: Arc<str>,
    pub(crate) config: Arc<Config>,
    pub(crate) known: Arc<Mutex<LastGoodFiles>>,
    /// Where the last discovery searches, as text for people. Empty until a discovery has started.
    pub(crate) searched: Arc<Mutex<String>>,
}

impl fmt::Debug for FileProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileProvider")
            .field("name", &self.name)
            .field("config", &self.config)
            .finish()
    }
}

impl Provider for FileProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn doctor(&self) -> Option<Arc<dyn Doctor>> {
        Some(Arc::new(FileDoctor(self.config.clone())))
    }

    fn searched(&self) -> String {
        self.searched.lock().clone()
    }

    /// Starts a discovery. Must be polled within a tokio runtime that has its time driver enabled.
    fn discover(&self, stop: CancellationToken) -> Discovery {
        let running = Running {
            provider: self.clone(),
            signal: Arc::default(),
            work: None,
            round: None,
        };
        stream::try_unfold(running, async |mut running| {
            let change = running.next().await?;
            Ok::<_, BoxError>(Some((change, running)))
        })
        .take_until(stop.cancelled_owned())
        .boxed()
    }
}

/// If a file changes all the time, it is read after this many times the debounce time, counted from its first change.
const DEBOUNCE_AT_MOST: u32 = 10;

struct Running {
    provider: FileProvider,
    signal: Arc<Signal>,
    /// `None` before the first round and during a round.
    work: Option<Work>,
    round: Option<Round>,
}

/// A scan of all files, on a thread that may block. It sends clusters as soon as it finds them, so that the fleet
/// connects before the scan ends.
struct Round {
    changes: UnboundedReceiver<Change>,
    work: JoinHandle<Work>,
    first: bool,
}

/// The state that a round takes to its thread and then returns.
struct Work {
    scanner: Scanner,
    watch: FolderWatch,
    announced: Clusters,
}

impl Running {
    /// The next change. An error is the last item. Not cancel safe: dropping the future loses the discovery.
    async fn next(&mut self) -> Result<Change, BoxError> {
        loop {
            let change = match &mut self.round {
                Some(round) => match round.changes.recv().await {
                    Some(change) => Some(change),
                    None => self.end_round().await?,
                },
                None => {
                    self.advance().await?;
                    None
                }
            };
            if let Some(change) = change {
                return Ok(change);
            }
        }
    }

    fn begin_round(&mut self, first: bool, work: impl FnOnce() -> Work + Send + 'static) {
        let (report, changes) = unbounded_channel();
        let work = spawn_blocking(move || {
            let mut work = work();
            work.round(&report);
            work
        });
        self.round = Some(Round { changes, work, first });
    }

    async fn end_round(&mut self) -> Result<Option<Change>, BoxError> {
        let Some(round) = self.round.take() else {
            return Ok(None);
        };
        self.work = Some(round.work.await?);
        Ok(round.first.then_some(Change::Synced))
    }

    /// Waits for the next change, poll or result of a round, and handles it.
    async fn advance(&mut self) -> Result<(), BoxError> {
        let Some(mut work) = self.work.take() else {
            let (provider, signal) = (self.provider.clone(), self.signal.clone());
            self.begin_round(true, move || Work::new(provider, signal));
            return Ok(());
        };
        let config = &self.provider.config;
        let reported = tokio::select! {
            () = self.signal.changed() => true,
            () = sleep(config.poll) => false,
        };
        let mut outdated = reported;
        if !reported {
            (work, outdated) = spawn_blocking(move || {
                let outdated = work.scanner.is_outdated();
                (work, outdated)
            })
            .await?;
        }
        if outdated {
            // Waits until files stop changing, so that a file that is removed and then written again is not announced
            // as removed.
            let at_most = config.debounce.saturating_mul(DEBOUNCE_AT_MOST);
            self.signal.until_quiet(config.debounce, at_most).await;
            self.begin_round(false, move || work);
        } else {
            self.work = Some(work);
        }
        Ok(())
    }
}

impl Work {
    fn new(provider: FileProvider, signal: Arc<Signal>) -> Self {
        let config = provider.config;
        let environment = config.environment.clone().unwrap_or_else(Environment::of_process);
        let sources = sources(&config.files, &config.dirs, &environment, |path| path.exists());
        tracing::info!(
            files = ?sources.lists, folders = ?sources.dirs, chosen_by = sources.origin,
            "looking for kubeconfigs"
        );
        *provider.searched.lock() = sources.in_words(&config.globs);
        let watch = FolderWatch::new(config.notifications, signal);
        Self {
            scanner: Scanner::new(config, sources, provider.known),
            watch,
            announced: Clusters::new(),
        }
    }

    /// Watches before it reads, so that a change during the read leads to another round.
    fn round(&mut self, report: &UnboundedSender<Change>) {
        /// A folder on the path to a file may be created just before its parent is watched. So each pass may find one
        /// more folder to watch.
        const MOST_DEPTH: usize = 64;
        for _ in 0..MOST_DEPTH {
            if !self.watch.follow(&self.scanner.watch_points()) {
                break;
            }
        }
        let mut count = 0;
        let mut report = |change| {
            count += 1;
            // Fails only if the discovery was dropped.
            let _ = report.send(change);
        };
        loop {
            let (mut seen, mut hidden) = (Clusters::new(), BTreeSet::new());
            let mut now = self.scanner.scan(&mut |name, desired| {
                if seen.contains_key(name) || hidden.contains(name) {
                    return;
                }
                if self.announced.get(name) != Some(&*desired) {
                    match announce((name, &*desired)) {
                        Some(change) => report(change),
                        None => {
                            hidden.insert(name.clone());
                            return;
                        }
                    }
                }
                // Drops the access now, so that its memory is free for further clusters.
                desired.drop_access();
                seen.insert(name.clone(), desired.clone());
            });
            self.announced.extend(seen);
            let Some(changes) = changes(&self.announced, &now) else {
                // Another cluster had the same name and hid this one until now. The access of this cluster was
                // dropped, so its file must be read again although it has not changed.
                self.scanner.forget();
                continue;
            };
            changes.into_iter().for_each(&mut report);
            tracing::debug!(clusters = now.len(), changes = count, "kubeconfigs read");
            now.values_mut().for_each(Desired::drop_access);
            self.scanner.drop_accesses();
            self.announced = now;
            return;
        }
    }
}
