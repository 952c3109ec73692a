//! From files to clusters. Everything here blocks.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, btree_map::Entry},
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use mcr_core::{
    AccessError, AccessPolicy, AddressPolicy, ClusterName, ContextAccess, CredentialPluginPolicy,
    Fingerprint, KubeconfigAccess, KubeconfigFile, Trust, check, contexts,
};

use crate::{
    builder::Config,
    diff::{Clusters, Desired},
    error::Fault,
    read::{Content, Listing, Stamp, content, list},
    search::Sources,
    watch::watch_points,
};

/// What is remembered of each file for the time when it can't be used. It outlives a discovery, so that one
/// that starts while a file is half-written still names that file's clusters.
pub(crate) type Known = HashMap<PathBuf, LastGood>;

#[derive(Default)]
pub(crate) struct LastGood {
    contexts: BTreeSet<Arc<str>>,
    /// Of a file in a list: what the other files of the list refer to. Without it they would find the second
    /// best definition of a cluster and connect to another one.
    file: Option<KubeconfigFile>,
}

/// Files that are read together.
type Group = Vec<PathBuf>;

/// Reads files, but only those that changed.
pub(crate) struct Scanner {
    config: Arc<Config>,
    sources: Sources,
    known: Arc<Mutex<Known>>,
    stamps: BTreeMap<PathBuf, Stamp>,
    read: HashMap<Group, Found>,
    /// What was logged, so that it is not logged again with each scan.
    missing: BTreeSet<PathBuf>,
    clashes: BTreeSet<ClusterName>,
}

/// What was found in a group of files.
struct Found {
    content: Vec<Fingerprint>,
    clusters: Vec<(ClusterName, Desired)>,
}

/// Which files there are.
struct Layout {
    groups: Vec<Group>,
    /// Folders that can't be listed.
    faults: Vec<(PathBuf, Fault)>,
    /// Folders that don't exist.
    missing: BTreeSet<PathBuf>,
}

impl Scanner {
    pub(crate) fn new(config: Arc<Config>, sources: Sources, known: Arc<Mutex<Known>>) -> Self {
        Self {
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
            // Of the files in a folder only links can lead elsewhere.
            if file.is_symlink() {
                watch_points(file, &mut points);
            }
        }
        points
    }

    /// Whether a scan could find something new. Reads nothing.
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

    /// All clusters there are now.
    pub(crate) fn scan(&mut self) -> Clusters {
        let known = self.known.clone();
        // Nothing under the lock leaves it half changed.
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut layout = self.layout();
        // Before reading, so that a change while reading makes a difference next time.
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
            let found = match before.remove(&group) {
                Some(found) if settled => found,
                found => self.read(&group, found, &mut known),
            };
            said.extend(found.clusters.iter().cloned());
            self.read.insert(group, found);
        }
        for (dir, fault) in &layout.faults {
            let of_dir = known
                .keys()
                .filter(|file| file.parent() == Some(dir) && !visited.contains(*file));
            let of_dir: Vec<PathBuf> = of_dir.cloned().collect();
            for file in &of_dir {
                said.extend(self.broken_file(
                    file,
                    &known,
                    &format_args!("folder {}: {fault}", dir.display()),
                ));
            }
            if of_dir.is_empty() {
                said.extend(self.broken(dir, None, format!("folder {}", dir.display()), fault));
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
            tracing::info!(path = %path.display(), "does not exist; its clusters are added once it does");
        }
        self.missing = missing;
    }

    fn read(&self, group: &Group, before: Option<Found>, known: &mut Known) -> Found {
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
                clusters: self.resolve(read, known),
            },
        }
    }

    /// Turns the contents of a group of files into clusters.
    fn resolve(&self, read: Vec<(&PathBuf, Content)>, known: &mut Known) -> Vec<(ClusterName, Desired)> {
        let in_list = read.len() > 1;
        let mut faults = BTreeMap::<PathBuf, String>::new();
        let mut files = Vec::new();
        for (path, content) in read {
            match content {
                Content::Missing => drop(known.remove(path)),
                Content::Fault(fault) => drop(faults.insert(path.clone(), fault.to_string())),
                Content::Bytes(bytes) => {
                    files.push(KubeconfigFile::new(path, bytes).trust(self.config.trust));
                }
            }
        }
        let mut found = contexts(&files);
        for (file, error) in found.iter().filter_map(unreadable) {
            let had_contexts = known.get(file).is_some_and(|known| !known.contexts.is_empty());
            match error {
                AccessError::Empty if had_contexts => {
                    drop(faults.insert(file.clone(), Fault::Empty.to_string()))
                }
                AccessError::Empty => {
                    tracing::info!(file = %file.display(), "file is empty, it adds no clusters");
                }
                error => drop(faults.insert(file.clone(), error.to_string())),
            }
        }
        found.retain(|context| unreadable(context).is_none());
        let good: Vec<KubeconfigFile> = files
            .iter()
            .filter(|file| !faults.contains_key(&file.path))
            .cloned()
            .collect();
        if in_list
            && faults
                .keys()
                .any(|file| known.get(file).is_some_and(|known| known.file.is_some()))
        {
            files = self.with_last_good(files, &faults, known);
            found = contexts(&files);
            found.retain(|context| !faults.contains_key(&context.file));
        }

        for file in good {
            let names = found.iter().filter(|context| context.file == file.path);
            let contexts = names.filter_map(|context| context.context.clone()).collect();
            known.insert(
                file.path.clone(),
                LastGood {
                    contexts,
                    file: in_list.then_some(file),
                },
            );
        }
        let mut clusters: Vec<_> = found
            .into_iter()
            .filter_map(|context| self.cluster(context))
            .collect();
        for (file, error) in &faults {
            clusters.extend(self.broken_file(file, known, error));
        }
        clusters
    }

    /// The files in the order of the list, those that can't be used now as they were when they could.
    fn with_last_good(
        &self,
        files: Vec<KubeconfigFile>,
        faults: &BTreeMap<PathBuf, String>,
        known: &Known,
    ) -> Vec<KubeconfigFile> {
        let mut files: HashMap<PathBuf, KubeconfigFile> =
            files.into_iter().map(|file| (file.path.clone(), file)).collect();
        for path in faults.keys() {
            if let Some(file) = known.get(path).and_then(|known| known.file.clone()) {
                files.insert(path.clone(), file);
            }
        }
        self.sources
            .lists
            .iter()
            .flatten()
            .filter_map(|path| files.remove(path))
            .collect()
    }

    fn cluster(&self, found: ContextAccess) -> Option<(ClusterName, Desired)> {
        let (file, context) = (found.file, found.context);
        let object = match &context {
            Some(context) => format!("file {}, context {context:?}", file.display()),
            None => format!("file {}", file.display()),
        };
        match (found.access, context) {
            (Ok(access), Some(context)) => {
                if let Err(error) = check_inline(&access) {
                    return self.broken(&file, Some(&context), object, &error);
                }
                let name = self.name(&file, Some(&context))?;
                let file = file.display().to_string().into();
                Some((
                    name,
                    Desired::Good {
                        access,
                        file,
                        context,
                    },
                ))
            }
            (Err(error), context) => self.broken(&file, context.as_deref(), object, &error),
            // A context that can be used has a name.
            (Ok(_), None) => None,
        }
    }

    /// Everything a file is known for, broken; or the file itself, if nothing is.
    fn broken_file(
        &self,
        file: &Path,
        known: &Known,
        error: &dyn fmt::Display,
    ) -> Vec<(ClusterName, Desired)> {
        let object = format!("file {}", file.display());
        match known.get(file).filter(|known| !known.contexts.is_empty()) {
            None => self.broken(file, None, object, error).into_iter().collect(),
            Some(known) => {
                let broken = |context: &Arc<str>| {
                    self.broken(
                        file,
                        Some(context),
                        format!("{object}, context {context:?}"),
                        error,
                    )
                };
                known.contexts.iter().filter_map(broken).collect()
            }
        }
    }

    fn broken(
        &self,
        path: &Path,
        context: Option<&str>,
        object: String,
        error: &dyn fmt::Display,
    ) -> Option<(ClusterName, Desired)> {
        let name = self.name(path, context)?;
        Some((
            name,
            Desired::Broken {
                object: object.into(),
                error: error.to_string().into(),
            },
        ))
    }

    fn name(&self, path: &Path, context: Option<&str>) -> Option<ClusterName> {
        let Some(text) = path.to_str() else {
            tracing::error!(
                file = %path.display(), context,
                "left out: the path is not UTF-8, and cluster names are made of it; rename the file"
            );
            return None;
        };
        let name = match context {
            Some(context) => ClusterName::new(format!("{text}{}{context}", self.config.separator)),
            None => ClusterName::new(text),
        };
        let report = |error| {
            tracing::error!(
                %error, file = %path.display(), context,
                "left out: path and context do not make a cluster name; rename the context or the file"
            );
        };
        name.map_err(report).ok()
    }

    /// The clusters by name. Of two with one name the first stays, as in a kubeconfig.
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

/// The file and the error, if it is one of the whole file and not of one context.
fn unreadable(found: &ContextAccess) -> Option<(&PathBuf, &AccessError)> {
    match (&found.context, &found.access) {
        (None, Err(error @ (AccessError::Empty | AccessError::Syntax { .. }))) => Some((&found.file, error)),
        _ => None,
    }
}

/// Whether what stands in the kubeconfig itself is well-formed. Other files it names are not followed here, so
/// they are not looked at; and what is allowed is for the fleet's policy to say.
fn check_inline(access: &KubeconfigAccess) -> Result<(), AccessError> {
    // Files that an untrusted kubeconfig names are not read.
    let mut access = access.clone();
    access.trust = Trust::Untrusted;
    let policy = AccessPolicy::default()
        .credential_plugins(CredentialPluginPolicy::AllowAll)
        .allow_files_under("/")
        .allow_insecure_tls(true)
        .addresses(AddressPolicy::any());
    match check(&access, &policy) {
        Err(AccessError::Refused { .. } | AccessError::Read { .. }) => Ok(()),
        other => other,
    }
}
