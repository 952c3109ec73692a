//! Watches folders with the notifications of the operating system. Merges notifications until none come for a while.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode, ModifyKind},
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};

/// The most components of a path that are followed, with the components of its links. A path with more components
/// counts as a loop.
const MAX_STEPS: usize = 256;

/// Signals that some file has changed. All changes between two waits count as one.
#[derive(Default)]
pub(crate) struct Signal {
    changed: Notify,
    /// A watched folder may have been removed or moved. Its watch is then lost.
    moved: AtomicBool,
}

impl Signal {
    /// Waits for a change. Returns at once if there was one since the last wait. Cancel safe.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until nothing has changed for `quiet`, or for `at_most` in total. Cancel safe.
    pub(crate) async fn until_quiet(&self, quiet: Duration, at_most: Duration) {
        let end = Instant::now() + at_most;
        loop {
            tokio::select! {
                () = self.changed.notified() => {}
                () = sleep(quiet) => return,
                () = sleep_until(end) => return,
            }
        }
    }

    fn receive(&self, event: notify::Result<Event>) {
        let Ok(event) = event else {
            // After an error, notifications may be missing.
            self.moved.store(true, Ordering::Release);
            return self.changed.notify_one();
        };
        match event.kind {
            // Ignores opens and reads. This provider opens and reads the files itself, and would trigger itself for
            // ever.
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => {}
            EventKind::Access(_) => return,
            EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)) | EventKind::Other => {
                self.moved.store(true, Ordering::Release);
            }
            _ => {}
        }
        self.changed.notify_one();
    }
}

/// Watches folders. Dropping it ends the watch and its thread.
pub(crate) struct FolderWatch {
    watcher: Option<RecommendedWatcher>,
    signal: Arc<Signal>,
    folders: BTreeMap<PathBuf, Option<Inode>>,
    refused: BTreeSet<PathBuf>,
}

impl FolderWatch {
    /// A watch without folders. If the operating system offers no notifications, logs that and watches nothing.
    pub(crate) fn new(enabled: bool, signal: Arc<Signal>) -> Self {
        let received = signal.clone();
        let watcher = enabled.then(|| notify::recommended_watcher(move |event| received.receive(event)));
        let watcher = watcher.and_then(|watcher| {
            let warn = |error| {
                tracing::warn!(
                    %error,
                    "no file notifications, changes are noticed by polling alone; on Linux raise \
                     fs.inotify.max_user_instances"
                );
            };
            watcher.map_err(warn).ok()
        });
        Self {
            watcher,
            signal,
            folders: BTreeMap::new(),
            refused: BTreeSet::new(),
        }
    }

    /// Watches only these folders. Returns whether a folder was added: a change in it just before may have been
    /// missed.
    pub(crate) fn follow(&mut self, wanted: &BTreeSet<PathBuf>) -> bool {
        let Some(watcher) = &mut self.watcher else {
            return false;
        };
        // A folder that was removed and created again may look like the old one, because inode numbers are reused. So
        // all watches are renewed.
        let renew = self.signal.moved.swap(false, Ordering::AcqRel);
        let gone: Vec<PathBuf> = self
            .folders
            .keys()
            .filter(|dir| !wanted.contains(*dir))
            .cloned()
            .collect();
        for dir in gone {
            self.folders.remove(&dir);
            // Fails if the folder is gone. Then its watch is gone too.
            let _ = watcher.unwatch(&dir);
        }
        let mut added = false;
        for dir in wanted {
            let inode = inode(dir);
            let known = self.folders.get(dir) == Some(&inode);
            if known && !renew {
                continue;
            }
            match watcher.watch(dir, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    added |= !known;
                    self.folders.insert(dir.clone(), inode);
                    self.refused.remove(dir);
                }
                Err(error) => {
                    self.folders.remove(dir);
                    if self.refused.insert(dir.clone()) {
                        tracing::warn!(
                            %error, folder = ?dir,
                            "folder can't be watched, its changes are noticed by polling alone; on Linux raise \
                             fs.inotify.max_user_watches"
                        );
                    }
                }
            }
        }
        self.refused.retain(|dir| wanted.contains(dir));
        added
    }
}

type Inode = (u64, u64);

#[cfg(unix)]
fn inode(dir: &Path) -> Option<Inode> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(dir)
        .ok()
        .map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn inode(_: &Path) -> Option<Inode> {
    None
}

/// Adds the folders in which a change can change the content of `path`: its parent, or `path` itself if it is a
/// folder; the parent of every link in the path; and, if `path` does not exist, the nearest existing ancestor.
///
/// For example, a mounted Secret is a chain of links, and the middle link is replaced: `a.yaml` → `..data/a.yaml`,
/// `..data` → `..2024_06_01`.
pub(crate) fn watch_points(path: &Path, points: &mut BTreeSet<PathBuf>) {
    let mut steps = 0;
    walk(path, points, &mut steps);
}

fn walk(path: &Path, points: &mut BTreeSet<PathBuf>, steps: &mut usize) {
    let mut prefix = PathBuf::new();
    for component in path.components() {
        *steps += 1;
        if *steps > MAX_STEPS {
            return;
        }
        prefix.push(component);
        if matches!(component, Component::Prefix(_)) {
            continue;
        }
        match fs::symlink_metadata(&prefix) {
            Ok(metadata) if metadata.is_symlink() => {
                let parent = parent(&prefix);
                add(&parent, points);
                if let Ok(target) = fs::read_link(&prefix) {
                    walk(&parent.join(target), points, steps);
                }
            }
            Ok(_) => {}
            Err(_) => return add(&parent(&prefix), points),
        }
    }
    if path.is_dir() {
        add(path, points);
    } else {
        add(&parent(path), points);
    }
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) => PathBuf::from("."),
        None => path.to_owned(),
    }
}

/// Adds the folder by its real path. After a link was replaced, the real path differs, so the new target is watched
/// too.
fn add(dir: &Path, points: &mut BTreeSet<PathBuf>) {
    if let Ok(real) = fs::canonicalize(dir) {
        points.insert(real);
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn points(path: &Path) -> BTreeSet<PathBuf> {
        let mut points = BTreeSet::new();
        watch_points(path, &mut points);
        points
    }

    #[test]
    fn every_link_on_the_way_is_watched() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        for name in ["mount", "mount/..1", "elsewhere"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        fs::write(root.join("mount/..1/a.yaml"), "").unwrap();
        symlink("..1", root.join("mount/..data")).unwrap();
        symlink("..data/a.yaml", root.join("mount/a.yaml")).unwrap();
        symlink("../mount/a.yaml", root.join("elsewhere/b.yaml")).unwrap();
        let wanted = ["elsewhere", "mount", "mount/..1"].map(|dir| root.join(dir));
        assert_eq!(points(&root.join("elsewhere/b.yaml")), wanted.into());
    }

    #[test]
    fn links_in_circles_end() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        symlink("b", root.join("a")).unwrap();
        symlink("a", root.join("b")).unwrap();
        assert_eq!(points(&root.join("a")), [root].into());
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_put_together_until_it_is_quiet_but_not_for_ever() {
        let signal = Arc::new(Signal::default());
        let (quiet, at_most) = (Duration::from_millis(100), Duration::from_secs(1));
        let start = Instant::now();
        signal.until_quiet(quiet, at_most).await;
        assert_eq!(start.elapsed(), quiet);

        let noise = signal.clone();
        let noise = tokio::spawn(async move {
            loop {
                noise.changed.notify_one();
                sleep(Duration::from_millis(10)).await;
            }
        });
        let start = Instant::now();
        signal.until_quiet(quiet, at_most).await;
        assert_eq!(start.elapsed(), at_most);
        noise.abort();
    }

    #[test]
    fn reading_is_not_a_change() {
        let signal = Signal::default();
        let received = |kind| {
            signal.receive(Ok(Event::new(kind)));
            futures::FutureExt::now_or_never(signal.changed()).is_some()
        };
        assert!(!received(EventKind::Access(AccessKind::Open(AccessMode::Any))));
        assert!(!received(EventKind::Access(AccessKind::Close(AccessMode::Read))));
        assert!(received(EventKind::Access(AccessKind::Close(AccessMode::Write))));
        assert!(received(EventKind::Create(notify::event::CreateKind::File)));
        assert!(received(EventKind::Other), "events were lost");
        signal.receive(Err(notify::Error::generic("x")));
        assert!(futures::FutureExt::now_or_never(signal.changed()).is_some());
    }
}
