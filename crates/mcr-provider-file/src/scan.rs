//! Scans files for clusters. All functions block.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, btree_map::Entry},
    path::PathBuf,
    sync::{Arc, Mutex},
};

use mcr_core::{ClusterName, Fingerprint, internal::lock};

use crate::{
    config::Config,
    diff::{Clusters, Desired},
    error::Fault,
    read::{Content, Listing, Stamp, content, list},
    resolve::{LastGoodFiles, Resolver},
    search::Sources,
    watch::watch_points,
};

/// Files that are read together.
type Group = Vec<PathBuf>;

/// Reads files, but only those that changed.
pub(crate) struct Scanner {
    config: Arc<Config>,
    resolver: Resolver,
    sources: Sources,
    known: Arc<Mutex<LastGoodFiles>>,
    stamps: BTreeMap<PathBuf, Stamp>,
    read: HashMap<Group, Found>,
    /// The missing files that were logged, so that a scan does not log them again.
    missing: BTreeSet<PathBuf>,
    clashes: BTreeSet<ClusterName>,
}

/// The clusters of a group of files.
struct Found {
    content: Vec<Fingerprint>,
    clusters: Vec<(ClusterName, Desired)>,
}

/// The files to read, found without reading any.
struct Layout {
    groups: Vec<Group>,
    /// Folders that can't be listed.
    faults: Vec<(PathBuf, Fault)>,
    /// Folders that don't exist.
    missing: BTreeSet<PathBuf>,
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
            clashes: BTreeSet::new(),
        }
    }

    /// The folders to watch.
    pub(crate) fn watch_points(&self) -> BTreeSet<PathBuf> {
        let mut points = BTreeSet::new();
        for source in self.sources.lists.iter().flatten().chain(&self.sources.dirs) {
            watch_points(source, &mut points);
        }
        for file in self.layout().groups.iter().flatten() {
            // The folder itself is watched already. Only a link in it can lead to another folder.
            if file.is_symlink() {
                watch_points(file, &mut points);
            }
        }
        points
    }

    /// Whether a scan could find a change. Reads metadata only.
    pub(crate) fn is_outdated(&self) -> bool {
        let now = stamps(&self.layout());
        now.len() != self.stamps.len()
            || now.iter().any(|(path, stamp)| {
                !self
                    .stamps
                    .get(path)
                    .is_some_and(|old| stamp.is_settled_since(old))
            })
    }

    /// Drops the accesses of all clusters, which have been announced.
    pub(crate) fn let_go(&mut self) {
        let clusters = self.read.values_mut().flat_map(|found| &mut found.clusters);
        clusters.for_each(|(_, desired)| desired.let_go());
    }

    /// Forgets the contents, so that the next scan reads all files.
    pub(crate) fn forget(&mut self) {
        self.stamps.clear();
        self.read.clear();
    }

    /// Reads changed files and returns all clusters. Calls `say` for most of them before the scan ends. If two
    /// clusters have the same name, it is called for the winner first.
    pub(crate) fn scan(&mut self, say: &mut dyn FnMut(&ClusterName, &mut Desired)) -> Clusters {
        let known = self.known.clone();
        // Code under this lock leaves no change half done, so a poisoned lock can be used.
        let mut known = lock(&known);
        let mut layout = self.layout();
        // Takes the stamps before the read, so that the next scan notices a change during the read.
        let stamps = stamps(&layout);
        let files = layout.groups.iter().flatten();
        let missing = files
            .filter(|file| stamps.get(*file).is_some_and(Stamp::is_missing))
            .cloned();
        let missing = missing.chain(std::mem::take(&mut layout.missing)).collect();
        self.report_missing(missing);

        let mut before = std::mem::take(&mut self.read);
        let mut visited: HashSet<PathBuf> = layout.groups.iter().flatten().cloned().collect();
        let mut said = Vec::new();
        for group in std::mem::take(&mut layout.groups) {
            let settled = group
                .iter()
                .all(|file| match (self.stamps.get(file), stamps.get(file)) {
                    (Some(old), Some(new)) => new.is_settled_since(old),
                    _ => false,
                });
            let mut found = match before.remove(&group) {
                Some(found) if settled => found,
                found => self.read(&group, found, &mut known, say),
            };
            for (name, desired) in &mut found.clusters {
                say(name, desired);
            }
            said.extend(found.clusters.iter().cloned());
            self.read.insert(group, found);
        }
        for (dir, fault) in &layout.faults {
            let of_dir = known
                .keys()
                .filter(|file| file.parent() == Some(dir) && !visited.contains(*file));
            let of_dir: Vec<PathBuf> = of_dir.cloned().collect();
            for file in &of_dir {
                said.extend(self.resolver.broken_file(
                    file,
                    &known,
                    &format_args!("folder {}: {fault}", dir.display()),
                ));
            }
            if of_dir.is_empty() {
                said.extend(
                    self.resolver
                        .broken(dir, None, format!("folder {}", dir.display()), fault),
                );
            }
            visited.extend(of_dir);
        }
        known.retain(|file, _| visited.contains(file));
        self.stamps = stamps;
        self.collect(said)
    }

    fn layout(&self) -> Layout {
        let mut seen = HashSet::new();
        let mut layout = Layout {
            groups: Vec::new(),
            faults: Vec::new(),
            missing: BTreeSet::new(),
        };
        for list in &self.sources.lists {
            let group: Group = list
                .iter()
                .filter(|file| seen.insert((*file).clone()))
                .cloned()
                .collect();
            if !group.is_empty() {
                layout.groups.push(group);
            }
        }
        let mut dirs = HashSet::new();
        for dir in self.sources.dirs.iter().filter(|dir| dirs.insert(*dir)) {
            match list(dir, &self.config.globs) {
                Listing::Files(files) => {
                    let new = files.into_iter().filter(|file| seen.insert(file.clone()));
                    layout.groups.extend(new.map(|file| vec![file]));
                }
                Listing::Missing => drop(layout.missing.insert(dir.clone())),
                Listing::Fault(fault) => layout.faults.push((dir.clone(), fault)),
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
        say: &mut dyn FnMut(&ClusterName, &mut Desired),
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
                clusters: self.resolver.resolve(read, known, say),
            },
        }
    }

    /// Collects the clusters by name. Of two clusters with the same name the first wins, as in a kubeconfig.
    fn collect(&mut self, said: Vec<(ClusterName, Desired)>) -> Clusters {
        let mut clusters = Clusters::new();
        let mut clashes = BTreeSet::new();
        for (name, desired) in said {
            match clusters.entry(name) {
                Entry::Vacant(entry) => drop(entry.insert(desired)),
                Entry::Occupied(entry) => {
                    if !self.clashes.contains(entry.key()) {
                        tracing::error!(
                            cluster = %entry.key(), kept = entry.get().place(), left_out = desired.place(),
                            "two contexts make the same cluster name, the first is kept; rename one of them or                              choose another separator"
                        );
                    }
                    clashes.insert(entry.key().clone());
                }
            }
        }
        self.clashes = clashes;
        clusters
    }
}

fn stamps(layout: &Layout) -> BTreeMap<PathBuf, Stamp> {
    let files = layout.groups.iter().flatten();
    let dirs = layout.faults.iter().map(|(dir, _)| dir);
    files
        .chain(dirs)
        .map(|path| (path.clone(), Stamp::of(path)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{Environment, FileProvider, search::sources};

    fn kubeconfig(context: &str) -> String {
        format!(
            "contexts: [{{name: {context}, context: {{cluster: k}}}}, {{name: lost, context: {{cluster: gone}}}}]\n\
             clusters: [{{name: k, cluster: {{server: 'https://{context}:6443'}}}}]\n"
        )
    }

    #[test]
    fn what_is_found_is_said_before_the_rest_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let [first, last] = ["a", "b"].map(|name| dir.path().join(name));
        fs::write(&first, kubeconfig("early")).unwrap();
        fs::write(&last, kubeconfig("old")).unwrap();
        let provider = FileProvider::builder().files([&first, &last]).build().unwrap();
        let sources = sources(&provider.config.files, &[], &Environment::empty(), |_| true);
        let mut scanner = Scanner::new(provider.config.clone(), sources, Arc::default());

        let mut said = Clusters::new();
        let now = scanner.scan(&mut |name, desired| {
            if said.is_empty() {
                fs::write(&last, kubeconfig("new")).unwrap();
            }
            said.insert(name.clone(), desired.clone());
        });
        let context = |name: &ClusterName| name.as_str().rsplit('+').next().map(str::to_owned);
        let contexts: Vec<_> = now.keys().filter_map(context).collect();
        assert_eq!(contexts, ["early", "lost", "lost", "new"]);
        assert!(said == now);

        said.clear();
        let again = scanner.scan(&mut |name, desired| drop(said.insert(name.clone(), desired.clone())));
        assert!(said == again && again == now, "also what did not change");
    }
}
