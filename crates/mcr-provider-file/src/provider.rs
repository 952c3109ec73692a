use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex},
};

use futures::{StreamExt, stream};
use mcr_core::{BoxError, Change, Discovery, Provider};
use tokio::{task::spawn_blocking, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    Environment, FileProviderBuilder,
    builder::Config,
    diff::{Clusters, changes},
    resolve::Known,
    scan::Scanner,
    search::sources,
    watch::{FolderWatch, Signal},
};

/// A provider whose clusters are the contexts of kubeconfig files, followed as the files change.
///
/// Clones share what they know of the files, nothing else.
///
/// # Cancellation
/// A discovery has no task of its own. Dropping it, or cancelling its token, ends its watch; a file that is
/// just being read is read to its end in the background.
#[derive(Clone)]
pub struct FileProvider {
    pub(crate) name: Arc<str>,
    pub(crate) config: Arc<Config>,
    pub(crate) known: Arc<Mutex<Known>>,
}

impl FileProvider {
    /// A builder. Without options it finds what kubectl finds: the files in `$KUBECONFIG`, or else
    /// `~/.kube/config`, or else kubeconfigs in the working directory.
    pub fn builder() -> FileProviderBuilder {
        FileProviderBuilder::new()
    }
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

    /// Starts a discovery. Must be polled within a tokio runtime that has its time driver enabled.
    fn discover(&self, stop: CancellationToken) -> Discovery {
        let running = Running {
            config: self.config.clone(),
            known: self.known.clone(),
            signal: Arc::default(),
            work: None,
            ready: VecDeque::new(),
            ended: false,
        };
        stream::unfold(running, async |mut running| {
            let item = running.next().await?;
            Some((item, running))
        })
        .take_until(stop.cancelled_owned())
        .boxed()
    }
}

struct Running {
    config: Arc<Config>,
    known: Arc<Mutex<Known>>,
    signal: Arc<Signal>,
    /// None before the first round, and while one runs.
    work: Option<Work>,
    ready: VecDeque<Change>,
    ended: bool,
}

/// What goes to a thread that may block, and back.
struct Work {
    scanner: Scanner,
    watch: FolderWatch,
    said: Clusters,
}

impl Running {
    /// The next item; the last one after an error. Dropping the future in between loses the discovery.
    async fn next(&mut self) -> Option<Result<Change, BoxError>> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Some(Ok(change));
            }
            if self.ended {
                return None;
            }
            if let Err(error) = self.advance().await {
                self.ended = true;
                return Some(Err(error));
            }
        }
    }

    /// Waits until there is something to do, and does it.
    async fn advance(&mut self) -> Result<(), BoxError> {
        let Some(mut work) = self.work.take() else {
            let (config, known, signal) = (self.config.clone(), self.known.clone(), self.signal.clone());
            let (work, changes) = spawn_blocking(move || {
                let mut work = Work::new(config, known, signal);
                let changes = work.round();
                (work, changes)
            })
            .await?;
            self.work = Some(work);
            self.ready.extend(changes);
            self.ready.push_back(Change::Synced);
            return Ok(());
        };
        let told = tokio::select! {
            () = self.signal.changed() => true,
            () = sleep(self.config.poll) => false,
        };
        let mut outdated = told;
        if !told {
            (work, outdated) = spawn_blocking(move || {
                let outdated = work.scanner.is_outdated();
                (work, outdated)
            })
            .await?;
        }
        if outdated {
            // A file that is replaced by removing and writing it is not seen as removed.
            self.signal
                .settle(self.config.debounce, self.config.debounce_at_most)
                .await;
            let changes;
            (work, changes) = spawn_blocking(move || {
                let changes = work.round();
                (work, changes)
            })
            .await?;
            self.ready.extend(changes);
        }
        self.work = Some(work);
        Ok(())
    }
}

impl Work {
    fn new(config: Arc<Config>, known: Arc<Mutex<Known>>, signal: Arc<Signal>) -> Self {
        let environment = config.environment.clone().unwrap_or_else(Environment::of_process);
        let sources = sources(&config.files, &config.dirs, &environment, |path| path.exists());
        tracing::info!(
            files = ?sources.lists, folders = ?sources.dirs, chosen_by = sources.origin,
            "looking for kubeconfigs"
        );
        let watch = FolderWatch::new(config.notifications, signal);
        Self {
            scanner: Scanner::new(config, sources, known),
            watch,
            said: Clusters::new(),
        }
    }

    /// Watches, then reads: a change while reading is heard and leads to another round.
    fn round(&mut self) -> Vec<Change> {
        /// Folders on the way to a file can be made just before the one above is watched.
        const MOST_DEPTH: usize = 64;
        for _ in 0..MOST_DEPTH {
            if !self.watch.follow(&self.scanner.watch_points()) {
                break;
            }
        }
        let now = self.scanner.scan();
        let changes = changes(&self.said, &now);
        tracing::debug!(
            clusters = now.len(),
            changes = changes.len(),
            "kubeconfigs looked at"
        );
        self.said = now;
        changes
    }
}
