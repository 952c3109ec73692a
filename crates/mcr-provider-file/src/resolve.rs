//! Converts the contents of files into entries. No I/O except logging.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use mcr_core::{AccessError, ContextAccess, KubeconfigFile, Kubeconfigs};

use crate::{
    config::Config,
    diff::Desired,
    entry::{Entry, shown},
    error::Fault,
    label::FileContext,
    read::Content,
};

/// The last good content of each file that can't be used now. The map outlives a discovery: if a discovery starts
/// while a file is half-written, it still announces the clusters of that file.
pub(crate) type LastGoodFiles = HashMap<PathBuf, LastGood>;

#[derive(Default)]
pub(crate) struct LastGood {
    contexts: BTreeSet<Arc<str>>,
    /// The content of a file in a list (`KUBECONFIG=a:b`), because contexts of other files may refer to its clusters
    /// and users. Without it, such a context would use a later definition of the same name, and connect to another
    /// cluster.
    file: Option<KubeconfigFile>,
}

impl LastGood {
    fn is_of_use(&self) -> bool {
        !self.contexts.is_empty() || self.file.is_some()
    }
}

/// Converts the contents of files into entries.
pub(crate) struct Resolver {
    config: Arc<Config>,
}

impl Resolver {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self { config }
    }

    /// Converts the contents of a group of files into entries. They are in the order in which they claim names. Calls
    /// `announce` for each entry as soon as it is known, because checking thousands of contexts takes time.
    pub(crate) fn resolve(
        &self,
        read: Vec<(&PathBuf, Content)>,
        known: &mut LastGoodFiles,
        announce: &mut dyn FnMut(&mut Entry),
    ) -> Vec<Entry> {
        let in_list = read.len() > 1;
        let order: Vec<PathBuf> = read.iter().map(|(path, _)| (*path).clone()).collect();
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
        let parsed = Kubeconfigs::parse(&files);
        let mut good: BTreeMap<&Path, LastGood> = files
            .iter()
            .map(|file| {
                let good = LastGood {
                    contexts: BTreeSet::new(),
                    file: in_list.then(|| file.clone()),
                };
                (file.path.as_path(), good)
            })
            .collect();
        for (file, error) in parsed.unreadable() {
            good.remove(file);
            let was_good = known.get(file).is_some_and(LastGood::is_of_use);
            let error = match error {
                AccessError::Empty if was_good => Fault::Empty.to_string(),
                AccessError::Empty => {
                    tracing::info!(?file, "file is empty, it adds no clusters");
                    continue;
                }
                error => error.to_string(),
            };
            faults.insert(file.to_owned(), error);
        }
        let replaced = with_last_good(&order, &files, &faults, known);
        let parsed = match &replaced {
            Some(files) => {
                drop(parsed);
                Kubeconfigs::parse(files)
            }
            None => parsed,
        };

        let mut entries = Vec::new();
        // The last good content of a faulty file is used only for references from other files. The contexts of the
        // file itself are announced as broken below.
        let found = parsed
            .contexts()
            .filter(|found| !faults.contains_key(&found.file));
        for found in found {
            if let (Some(good), Some(context)) = (good.get_mut(&*found.file), &found.context) {
                good.contexts.insert(context.clone());
            }
            let mut entry = self.entry(found);
            announce(&mut entry);
            entries.push(entry);
        }
        known.extend(good.into_iter().map(|(path, good)| (path.to_owned(), good)));
        for (file, error) in &faults {
            entries.extend(broken_file(file, known, error));
        }
        if in_list && !self.config.qualified {
            let shadowed = self.shadowed(&files, &entries);
            entries.extend(shadowed);
        }
        entries
    }

    /// The contexts that a context of an earlier file hides. Each is read from its own file alone, because in the list
    /// it would get the clusters and users of the earlier file.
    fn shadowed(&self, files: &[KubeconfigFile], entries: &[Entry]) -> Vec<Entry> {
        let shown: HashSet<_> = entries
            .iter()
            .filter_map(|entry| Some((entry.file.as_path(), entry.context.as_deref()?)))
            .collect();
        let mut shadowed = Vec::new();
        for file in files {
            let alone = Kubeconfigs::parse(std::slice::from_ref(file));
            let hidden = alone.contexts().filter(|found| {
                let context = found.context.as_deref();
                context.is_some_and(|context| !shown.contains(&(found.file.as_path(), context)))
            });
            shadowed.extend(hidden.map(|found| self.entry(found)));
        }
        shadowed
    }

    fn entry(&self, found: ContextAccess) -> Entry {
        let file = &found.file;
        // The fleet applies its own policy to the access, and notices when the files that it names appear and
        // disappear.
        let parsed = found.access.and_then(|access| access.parse());
        let (access, context) = match (parsed, found.context) {
            (Ok(access), Some(context)) => (access, context),
            (Err(error), context) => return Entry::of_error(file, context, &error),
            // This can't happen, because a usable context has a name.
            (Ok(_), None) => return Entry::of_error(file, None, &"a context has no name; name it"),
        };
        let mut labels = found.labels;
        if let Some(function) = &self.config.labels {
            let added = function.call(&FileContext {
                file,
                context: &context,
                cluster: found.cluster.as_deref().unwrap_or_default(),
                labels: &labels,
            });
            let Some(added) = added else {
                let error = "the function given to FileProviderBuilder::labels panicked for this context; \
                             make it return labels";
                return Entry::of_error(file, Some(context), &error);
            };
            labels.extend(added);
        }
        let desired = Desired::good(access, shown(file).into(), context.clone(), labels);
        Entry::new(file, Some(context), desired)
    }
}

/// Announces every context that the file last had as broken. If there is none, announces the file itself.
pub(crate) fn broken_file(file: &Path, known: &LastGoodFiles, error: &dyn fmt::Display) -> Vec<Entry> {
    match known.get(file).filter(|known| !known.contexts.is_empty()) {
        None => vec![Entry::of_error(file, None, error)],
        Some(known) => {
            let broken = |context: &Arc<str>| Entry::of_error(file, Some(context.clone()), error);
            known.contexts.iter().map(broken).collect()
        }
    }
}

/// The files in the order of the list. A faulty file is replaced by its last good content. `None` if no faulty file
/// has such content.
fn with_last_good(
    order: &[PathBuf],
    files: &[KubeconfigFile],
    faults: &BTreeMap<PathBuf, String>,
    known: &LastGoodFiles,
) -> Option<Vec<KubeconfigFile>> {
    let last_good = faults.keys().filter_map(|path| known.get(path)?.file.as_ref());
    let mut last_good = last_good.peekable();
    last_good.peek()?;
    let files: HashMap<&Path, &KubeconfigFile> = files
        .iter()
        .chain(last_good)
        .map(|file| (file.path.as_path(), file))
        .collect();
    let in_order = order.iter().filter_map(|path| files.get(path.as_path()));
    Some(in_order.copied().cloned().collect())
}
