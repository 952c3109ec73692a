//! From the contents of files to clusters: pure but for the log.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use mcr_core::{
    AccessError, AccessPolicy, AddressPolicy, ClusterName, ContextAccess, CredentialPluginPolicy,
    KubeconfigAccess, KubeconfigFile, Trust, check, contexts,
};

use crate::{builder::Config, diff::Desired, error::Fault, read::Content};

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

    /// Turns the contents of a group of files into clusters, and says each as soon as it is known: to check thousands
    /// takes a while.
    pub(crate) fn resolve(
        &self,
        read: Vec<(&PathBuf, Content)>,
        known: &mut Known,
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
        let mut found = contexts(&files);
        let mut good: BTreeMap<PathBuf, KubeconfigFile> = files
            .iter()
            .map(|file| (file.path.clone(), file.clone()))
            .collect();
        for (file, error) in found.iter().filter_map(unreadable) {
            good.remove(file);
            let was_good = known.get(file).is_some_and(LastGood::is_of_use);
            let error = match error {
                AccessError::Empty if was_good => Fault::Empty.to_string(),
                AccessError::Empty => {
                    tracing::info!(file = %file.display(), "file is empty, it adds no clusters");
                    continue;
                }
                error => error.to_string(),
            };
            faults.insert(file.clone(), error);
        }
        found.retain(|context| unreadable(context).is_none());
        if in_list
            && faults
                .keys()
                .any(|file| known.get(file).is_some_and(|known| known.file.is_some()))
        {
            files = with_last_good(&order, files, &faults, known);
            found = contexts(&files);
            found.retain(|context| !faults.contains_key(&context.file) && unreadable(context).is_none());
        }

        for (path, file) in good {
            let names = found.iter().filter(|context| context.file == path);
            let contexts = names.filter_map(|context| context.context.clone()).collect();
            known.insert(
                path,
                LastGood {
                    contexts,
                    file: in_list.then_some(file),
                },
            );
        }
        let mut clusters: Vec<_> = found
            .into_iter()
            .filter_map(|context| {
                let (name, mut desired) = self.cluster(context)?;
                say(&name, &mut desired);
                Some((name, desired))
            })
            .collect();
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
            // A context that can be used has a name.
            (Ok(_), None) => None,
        }
    }

    /// Everything a file is known for, broken; or the file itself, if nothing is.
    pub(crate) fn broken_file(
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
}

/// The files in the order of the list, those that can't be used now as they were when they could.
fn with_last_good(
    order: &[PathBuf],
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
    order.iter().filter_map(|path| files.remove(path)).collect()
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
