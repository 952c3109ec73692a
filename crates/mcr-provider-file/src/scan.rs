//! Scans files for clusters. All functions block.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use mcr_core::{ClusterName, Fingerprint};
use parking_lot::Mutex;

use crate::{
    config::Config,
    diff::{Clusters, Desired},
    entry::{Entry, shown},
    error::Fault,
    names::Names,
    read::{Content, Listing, Stamp, content, list},
    resolve::{LastGoodFiles, Resolver, broken_file},
    search::Sources,
    watch::watch_points,
};

/// A group of files that are read together.
type Group = Vec<PathBuf>;

/// Reads files, but only those that changed.
pub(crate) struct Scanner {
    config: Arc<Config>,
    resolver: Resolver,
    sources: Sources,
    known: Arc<Mutex<LastGoodFiles>>,
    stamps: BTreeMap<PathBuf, Stamp>,
    read: HashMap<Group, Found>,
    /// The missing files that were logged already.
    missing: BTreeSet<PathBuf>,
}

/// The content of a group of files.
struct Found {
    content: Vec<Fingerprint>,
    entries: Vec<Entry>,
}

/// Which files to read. Determined without reading them.
struct Layout {
    /// In the order of the sources, because the first of several contexts with the same name keeps the name.
    parts: Vec<Part>,
    /// Folders that don't exist.
    missing: BTreeSet<PathBuf>,
}

enum Part {
    Group(Group),
    /// A folder that can't be listed.
    Fault(PathBuf, Fault),
}

impl Layout {
    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let groups = self.parts.iter().filter_map(|part| match part {
            Part::Group(group) => Some(group),
            Part::Fault(..) => None,
        });
        groups.flatten()
    }
}

impl Scanner {
    pub(crate) fn new(config: Arc<Config>, sources: Sources, known: Arc<Mutex<LastGoodFiles>>) -> Self {
        Self {
            resolver: Resolver::new(config.clone()),
            config,
            sources,
            known,
            stamps: BTreeMap::new(),
            read: HashMap::new(),
            missing: BTreeSet::new(),
        }
    }

    /// The folders to watch.
    pub(crate) fn watch_points(&self) -> BTreeSet<PathBuf> {
        let mut points = BTreeSet::new();
        for source in self.sources.lists.iter().flatten().chain(&self.sources.dirs) {
            watch_points(source, &mut points);
        }
        for file in self.layout().files() {
            // The folder itself is already watched. Only a link can lead to another folder.
            if file.is_symlink() {
                watch_points(file, &mut points);
            }
        }
        points
    }

    /// Whether a scan could find a change. Reads only metadata.
    pub(crate) fn is_outdated(&self) -> bool {
        let now = stamps(&self.layout());
        now.len() != self.stamps.len()
            || now.iter().any(|(path, stamp)| {
                !self
                    .stamps
                    .get(path)
                    .is_some_and(|old| stamp.is_unchanged_since(old))
            })
    }

    /// Drops the accesses of all clusters, because they were announced.
    pub(crate) fn drop_accesses(&mut self) {
        let entries = self.read.values_mut().flat_map(|found| &mut found.entries);
        entries.for_each(|entry| entry.desired.drop_access());
    }

    /// Forgets the contents, so that the next scan reads all files.
    pub(crate) fn forget(&mut self) {
        self.stamps.clear();
        self.read.clear();
    }

    /// Reads changed files and returns all clusters. During the scan, calls `announce` for each cluster that is
    /// named after its context.
    pub(crate) fn scan(&mut self, announce: &mut dyn FnMut(&ClusterName, &mut Desired)) -> Clusters {
        let known = self.known.clone();
        let mut known = known.lock();
        let layout = self.layout();
        // The stamps are taken before the read, so that the next scan notices a change during the read.
        let stamps = stamps(&layout);
        let missing = layout
            .files()
            .filter(|file| stamps.get(*file).is_some_and(Stamp::is_missing));
        let missing = missing.chain(&layout.missing).cloned().collect();
        self.report_missing(missing);

        let config = self.config.clone();
        let mut names = Names::new(&config);
        let mut announce = |entry: &mut Entry| {
            if let Some(name) = names.claim(entry) {
                announce(&name, &mut entry.desired);
            }
        };
        let mut before = std::mem::take(&mut self.read);
        let mut visited: HashSet<PathBuf> = layout.files().cloned().collect();
        let mut entries = Vec::new();
        for part in layout.parts {
            let group = match part {
                Part::Group(group) => group,
                Part::Fault(dir, fault) => {
                    let mut broken = broken_folder(&dir, &fault, &known, &mut visited);
                    broken.iter_mut().for_each(&mut announce);
                    entries.extend(broken);
                    continue;
                }
            };
            let unchanged = group
                .iter()
                .all(|file| match (self.stamps.get(file), stamps.get(file)) {
                    (Some(old), Some(new)) => new.is_unchanged_since(old),
                    _ => false,
                });
            let mut found = match before.remove(&group) {
                Some(found) if unchanged => found,
                found => self.read(&group, found, &mut known, &mut announce),
            };
            found.entries.iter_mut().for_each(&mut announce);
            entries.extend(found.entries.iter().cloned());
            self.read.insert(group, found);
        }
        known.retain(|file, _| visited.contains(file));
        self.stamps = stamps;
        Names::assign(&config, entries)
    }

    fn layout(&self) -> Layout {
        let mut seen = HashSet::new();
        let mut layout = Layout {
            parts: Vec::new(),
            missing: BTreeSet::new(),
        };
        for list in &self.sources.lists {
            let group: Group = list
                .iter()
                .filter(|file| seen.insert((*file).clone()))
                .cloned()
                .collect();
            if !group.is_empty() {
                layout.parts.push(Part::Group(group));
            }
        }
        let mut dirs = HashSet::new();
        for dir in self.sources.dirs.iter().filter(|dir| dirs.insert(*dir)) {
            match list(dir, &self.config.globs) {
                Listing::Files(files) => {
                    let new = files.into_iter().filter(|file| seen.insert(file.clone()));
                    layout.parts.extend(new.map(|file| Part::Group(vec![file])));
                }
                Listing::Missing => drop(layout.missing.insert(dir.clone())),
                Listing::Fault(fault) => layout.parts.push(Part::Fault(dir.clone(), fault)),
            }
        }
        layout
    }

    fn report_missing(&mut self, missing: BTreeSet<PathBuf>) {
        for path in missing.difference(&self.missing) {
            tracing::info!(?path, "does not exist; its clusters are added once it does");
        }
        self.missing = missing;
    }

    fn read(
        &self,
        group: &Group,
        before: Option<Found>,
        known: &mut LastGoodFiles,
        announce: &mut dyn FnMut(&mut Entry),
    ) -> Found {
        let read: Vec<(&PathBuf, Content)> = group.iter().map(|file| (file, content(file))).collect();
        let print = |(_, content): &(_, Content)| match content {
            Content::Missing => Fingerprint::of(&()),
            Content::Bytes(bytes) => Fingerprint::of(bytes),
            Content::Fault(fault) => Fingerprint::of(&fault.to_string()),
        };
        let content = read.iter().map(print).collect();
        match before {
            Some(found) if found.content == content => found,
            _ => Found {
                content,
                entries: self.resolver.resolve(read, known, announce),
            },
        }
    }
}

/// Announces the known contexts of all files in a folder as broken. If there are none, announces the folder itself.
fn broken_folder(
    dir: &Path,
    fault: &Fault,
    known: &LastGoodFiles,
    visited: &mut HashSet<PathBuf>,
) -> Vec<Entry> {
    let of_dir = known
        .keys()
        .filter(|file| file.parent() == Some(dir) && !visited.contains(*file));
    // Sorted as in a listing, so that each context keeps its name.
    let of_dir: BTreeSet<PathBuf> = of_dir.cloned().collect();
    if of_dir.is_empty() {
        let desired = Desired::broken(format!("folder {}", shown(dir)), fault);
        return vec![Entry::new(dir, None, desired)];
    }
    let error = format!("folder {}: {fault}", shown(dir));
    let broken = of_dir
        .iter()
        .flat_map(|file| broken_file(file, known, &error))
        .collect();
    visited.extend(of_dir);
    broken
}

fn stamps(layout: &Layout) -> BTreeMap<PathBuf, Stamp> {
    let dirs = layout.parts.iter().filter_map(|part| match part {
        Part::Fault(dir, _) => Some(dir),
        Part::Group(_) => None,
    });
    layout
        .files()
        .chain(dirs)
        .map(|path| (path.clone(), Stamp::of(path)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        provider::FileProvider,
        search::{Environment, sources},
    };

    fn kubeconfig(context: &str) -> String {
        format!(
            "contexts: [{{name: {context}, context: {{cluster: k}}}}, {{name: lost, context: {{cluster: gone}}}}]\n\
             clusters: [{{name: k, cluster: {{server: 'https://{context}:6443'}}}}]\n"
        )
    }

    #[test]
    fn what_is_found_is_announced_before_the_rest_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let [first, last] = ["a", "b"].map(|name| dir.path().join(name));
        fs::write(&first, kubeconfig("early")).unwrap();
        fs::write(&last, kubeconfig("old")).unwrap();
        let provider = FileProvider::builder()
            .files([&first, &last])
            .qualified_names()
            .build()
            .unwrap();
        let sources = sources(&provider.config.files, &[], &Environment::empty(), |_| true);
        let mut scanner = Scanner::new(provider.config.clone(), sources, Arc::default());

        let mut announced = Clusters::new();
        let now = scanner.scan(&mut |name, desired| {
            if announced.is_empty() {
                fs::write(&last, kubeconfig("new")).unwrap();
            }
            announced.insert(name.clone(), desired.clone());
        });
        let context = |name: &ClusterName| name.as_str().rsplit('+').next().map(str::to_owned);
        let contexts: Vec<_> = now.keys().filter_map(context).collect();
        assert_eq!(contexts, ["early", "lost", "lost", "new"]);
        assert!(announced == now);

        announced.clear();
        let again = scanner.scan(&mut |name, desired| drop(announced.insert(name.clone(), desired.clone())));
        assert!(announced == again && again == now, "also what did not change");
    }
}
