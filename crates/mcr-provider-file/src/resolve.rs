//! Turns the contents of files into clusters. No I/O except the log.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use mcr_core::{
    AccessError, AccessPolicy, AddressPolicy, ClusterName, ContextAccess, CredentialPluginPolicy,
    KubeconfigAccess, KubeconfigFile, Kubeconfigs, Trust, check,
};

use crate::{config::Config, diff::Desired, error::Fault, read::Content};

/// The last good content of each file, for the time in which the file can't be used. The map outlives a
/// discovery: a discovery that starts while a file is half-written still announces the clusters of that
/// file.
pub(crate) type LastGoodFiles = HashMap<PathBuf, LastGood>;

#[derive(Default)]
pub(crate) struct LastGood {
    contexts: BTreeSet<Arc<str>>,
    /// For a file in a list (`KUBECONFIG=a:b`): its content, because contexts of the other files may refer
    /// to its clusters and users. Without it such a context would use a later definition of the same name,
    /// and connect to another cluster.
    file: Option<KubeconfigFile>,
}

impl LastGood {
    fn is_of_use(&self) -> bool {
        !self.contexts.is_empty() || self.file.is_some()
    }
}

/// Turns the contents of files into clusters.
pub(crate) struct Resolver {
    config: Arc<Config>,
}

impl Resolver {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self { config }
    }

    /// Turns the contents of a group of files into clusters. Calls `say` for each as soon as it is known, because
    /// checking thousands of contexts takes a while.
    pub(crate) fn resolve(
        &self,
        read: Vec<(&PathBuf, Content)>,
        known: &mut LastGoodFiles,
        say: &mut dyn FnMut(&ClusterName, &mut Desired),
    ) -> Vec<(ClusterName, Desired)> {
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
        let instead = with_last_good(&order, &files, &faults, known);
        let parsed = match &instead {
            Some(files) => {
                drop(parsed);
                Kubeconfigs::parse(files)
            }
            None => parsed,
        };

        let mut clusters = Vec::new();
        // The last good content of a faulty file is there for references from other files only. Its own contexts are
        // announced as broken below.
        let found = parsed
            .contexts()
            .filter(|found| !faults.contains_key(&found.file));
        for found in found {
            if let (Some(good), Some(context)) = (good.get_mut(&*found.file), &found.context) {
                good.contexts.insert(context.clone());
            }
            if let Some((name, mut desired)) = self.cluster(found) {
                say(&name, &mut desired);
                clusters.push((name, desired));
            }
        }
        known.extend(good.into_iter().map(|(path, good)| (path.to_owned(), good)));
        for (file, error) in &faults {
            clusters.extend(self.broken_file(file, known, error));
        }
        clusters
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
                Some((name, Desired::good(access, file, context)))
            }
            (Err(error), context) => self.broken(&file, context.as_deref(), object, &error),
            // Can't happen: a usable context has a name.
            (Ok(_), None) => None,
        }
    }

    /// Announces as broken every context that the file had when it was last good. If there is none, announces one
    /// broken cluster with the name of the file.
    pub(crate) fn broken_file(
        &self,
        file: &Path,
        known: &LastGoodFiles,
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

    pub(crate) fn broken(
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
                file = ?path, context,
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
                %error, file = ?path, context,
                "left out: path and context do not make a cluster name; rename the context or the file"
            );
        };
        name.map_err(report).ok()
    }
}

/// The files in the order of the list. A file that can't be used now has its last good content. `None` if no faulty
/// file has one.
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

/// Checks the fields of the kubeconfig itself. Does not read the files that it names, because this provider
/// does not watch them. Allows everything, because the fleet applies its own policy.
fn check_inline(access: &KubeconfigAccess) -> Result<(), AccessError> {
    // `check` does not read the files that an untrusted kubeconfig names.
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
