//! Splitting kubeconfig files into one small kubeconfig for each context.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    document::{Context, Document, NamedContext},
    error::AccessError,
    index::{Index, find_cluster, find_user},
    kubeconfig::KubeconfigAccess,
    labels::take_labels,
    trust::Trust,
};

/// A kubeconfig file and its content.
#[derive(Clone)]
#[non_exhaustive]
pub struct KubeconfigFile {
    /// The path of the file. Relative paths in the file refer to its folder.
    pub path: PathBuf,
    /// The content of the file.
    pub bytes: Arc<[u8]>,
    /// How far the content is trusted.
    pub trust: Trust,
}

impl KubeconfigFile {
    /// A trusted file with this content. `new` does not read the file itself.
    pub fn new(path: impl Into<PathBuf>, bytes: impl AsRef<[u8]>) -> Self {
        Self {
            path: path.into(),
            bytes: Arc::from(bytes.as_ref()),
            trust: Trust::Trusted,
        }
    }

    /// Sets how far the content is trusted.
    #[must_use]
    pub fn trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }
}

impl fmt::Debug for KubeconfigFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeconfigFile")
            .field("path", &self.path)
            .field("bytes", &self.bytes.len())
            .field("trust", &self.trust)
            .finish()
    }
}

/// One context of a kubeconfig file.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ContextAccess {
    /// The file that defines the context.
    pub file: PathBuf,
    /// The name of the context. `None` for a context without a name, and for a file that is not a kubeconfig.
    pub context: Option<Arc<str>>,
    /// Whether this is the current context of the files.
    pub current: bool,
    /// The name of the cluster entry that the context refers to. `None` if the access is an error.
    pub cluster: Option<Arc<str>>,
    /// The labels in the extension [`LABELS_EXTENSION`](crate::LABELS_EXTENSION) of the context and its cluster entry.
    /// Where both set a label, the context wins. Empty if the access is an error.
    pub labels: BTreeMap<String, String>,
    /// A kubeconfig with this context only, or the error in it.
    pub access: Result<KubeconfigAccess, AccessError>,
}

/// Splits kubeconfig files into one small kubeconfig for each context. Reads no other files.
///
/// The files are merged as kubectl merges the files in `$KUBECONFIG`. If several files define the same context, cluster
/// or user, the first one wins. A context can refer to a cluster or user in any of the files. Relative paths of a
/// cluster or user are joined to the folder of the file that defines it. Call this function once for each file if the
/// files are unrelated.
///
/// An error concerns one context or one file; the others are not affected. The content of the entries is not checked
/// here, but by [`KubeconfigAccess::parse`]. For files with hundreds of contexts, [`Kubeconfigs`] needs less memory.
///
/// ```
/// use mcr_access::{KubeconfigFile, contexts};
///
/// let file = KubeconfigFile::new("/etc/fleet/a.yaml", r#"
/// contexts:
/// - {name: dev, context: {cluster: dev, user: admin}}
/// - {name: old, context: {cluster: gone, user: admin}}
/// clusters:
/// - {name: dev, cluster: {server: "https://dev:6443", certificate-authority: ca.crt}}
/// users:
/// - {name: admin, user: {token: secret}}
/// "#);
/// let found = contexts(&[file]);
/// assert_eq!(found[0].context.as_deref(), Some("dev"));
/// assert!(found[0].access.is_ok());
/// assert_eq!(
///     found[1].access.as_ref().map(|_| ()).map_err(|error| error.to_string()),
///     Err(r#"contexts[name="old"].context.cluster: cluster "gone" is not defined (there are "dev"); define it or correct the name"#.to_owned())
/// );
/// ```
pub fn contexts(files: &[KubeconfigFile]) -> Vec<ContextAccess> {
    let files = Kubeconfigs::parse(files);
    let unreadable = files.unreadable().map(|(file, error)| ContextAccess {
        file: file.to_owned(),
        context: None,
        current: false,
        cluster: None,
        labels: BTreeMap::new(),
        access: Err(error.clone()),
    });
    unreadable.chain(files.contexts()).collect()
}

/// Kubeconfig files, to be split one context at a time.
///
/// The function [`contexts`] returns all contexts at once, which needs as much memory again as the files.
///
/// ```
/// use mcr_access::{KubeconfigFile, Kubeconfigs};
///
/// let files = [
///     KubeconfigFile::new("/etc/fleet/a.yaml", r#"
/// contexts: [{name: dev, context: {cluster: dev}}]
/// clusters: [{name: dev, cluster: {server: "https://dev:6443"}}]
/// "#),
///     KubeconfigFile::new("/etc/fleet/b.yaml", "contexts: ["),
/// ];
/// let files = Kubeconfigs::parse(&files);
/// for (file, error) in files.unreadable() {
///     println!("{}: {error}", file.display());
/// }
/// for found in files.contexts() {
///     // Each iteration makes one context and drops it.
///     assert_eq!(found.context.as_deref(), Some("dev"));
/// }
/// ```
pub struct Kubeconfigs<'a> {
    documents: Vec<(&'a KubeconfigFile, Document<'a>)>,
    unreadable: Vec<(&'a KubeconfigFile, AccessError)>,
}

impl<'a> Kubeconfigs<'a> {
    /// Parses files. They are merged as in [`contexts`].
    pub fn parse(files: &'a [KubeconfigFile]) -> Self {
        let (mut documents, mut unreadable) = (Vec::new(), Vec::new());
        for file in files {
            match Document::parse(&file.bytes) {
                Ok(document) => documents.push((file, document)),
                Err(error) => unreadable.push((file, error)),
            }
        }
        Self {
            documents,
            unreadable,
        }
    }

    /// Returns the files that are not kubeconfigs, with their errors.
    pub fn unreadable(&self) -> impl Iterator<Item = (&'a Path, &AccessError)> {
        let unreadable = self.unreadable.iter();
        unreadable.map(|(file, error)| (file.path.as_path(), error))
    }

    /// Returns the contexts of all other files, in order. The iterator makes each context when it reaches it.
    pub fn contexts(&self) -> impl Iterator<Item = ContextAccess> {
        let sources: Vec<Source<'_>> = self
            .documents
            .iter()
            .map(|(file, document)| Source {
                file,
                document,
                index: Index::of(document),
            })
            .collect();
        let current = sources
            .iter()
            .find_map(|source| not_empty(&source.document.current_context));
        let mut seen = HashSet::new();
        let all = self
            .documents
            .iter()
            .enumerate()
            .flat_map(|(home, (_, document))| {
                let entries = document.contexts.iter().flatten().enumerate();
                entries.map(move |(index, entry)| (home, index, entry))
            });
        all.filter_map(move |(home, index, entry)| {
            let home = sources.get(home)?;
            let file = home.file.path.clone();
            let Some(name) = not_empty(&entry.name) else {
                return Some(ContextAccess {
                    file,
                    context: None,
                    current: false,
                    cluster: None,
                    labels: BTreeMap::new(),
                    access: Err(AccessError::invalid(
                        format!("contexts[{index}].name"),
                        "is missing; name the context",
                    )),
                });
            };
            seen.insert(name).then(|| {
                let extracted = home
                    .context(name)
                    .and_then(|context| extract(&sources, home, name, context));
                let (cluster, labels, access) = match extracted {
                    Ok(found) => (found.cluster, found.labels, Ok(found.access)),
                    Err(error) => (None, BTreeMap::new(), Err(error)),
                };
                ContextAccess {
                    file,
                    context: Some(name.into()),
                    current: current == Some(name),
                    cluster,
                    labels,
                    access,
                }
            })
        })
    }
}

impl fmt::Debug for Kubeconfigs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files: Vec<_> = self.documents.iter().map(|(file, _)| &file.path).collect();
        f.debug_struct("Kubeconfigs")
            .field("files", &files)
            .field("unreadable", &self.unreadable)
            .finish()
    }
}

fn not_empty(name: &Option<String>) -> Option<&str> {
    name.as_deref().filter(|name| !name.is_empty())
}

/// A file with its parsed content.
struct Source<'a> {
    file: &'a KubeconfigFile,
    document: &'a Document<'a>,
    index: Index<'a>,
}

impl Source<'_> {
    fn context(&self, name: &str) -> Result<Context, AccessError> {
        let entry = self.index.contexts.unique(name)?;
        Ok(entry.and_then(|entry| entry.context.clone()).unwrap_or_default())
    }

    fn folder(&self) -> &Path {
        self.file.path.parent().unwrap_or(Path::new(""))
    }
}

/// One context, and what the files say about it.
struct Extracted {
    cluster: Option<Arc<str>>,
    labels: BTreeMap<String, String>,
    access: KubeconfigAccess,
}

/// Makes a kubeconfig with one context, its cluster and its user. `home` is the file that defines the context.
fn extract(
    sources: &[Source<'_>],
    home: &Source<'_>,
    name: &str,
    context: Context,
) -> Result<Extracted, AccessError> {
    let (from, mut cluster) = find_cluster(sources.iter(), |source| &source.index, name, &context)?;
    let labels = take_labels(name, &context, &mut cluster)?;
    let cluster_name = cluster.name.as_deref().map(Arc::from);
    let mut untrusted = home.file.trust == Trust::Untrusted || from.file.trust == Trust::Untrusted;
    if let Some(cluster) = &mut cluster.cluster {
        join_to_folder(&mut cluster.certificate_authority, from.folder());
    }
    let mut users = Vec::new();
    if let Some((from, mut user)) = find_user(sources.iter(), |source| &source.index, name, &context)? {
        untrusted |= from.file.trust == Trust::Untrusted;
        if let Some(user) = &mut user.user {
            join_to_folder(&mut user.client_certificate, from.folder());
            join_to_folder(&mut user.client_key, from.folder());
            join_to_folder(&mut user.token_file, from.folder());
            if let Some(exec) = &mut user.exec
                && exec
                    .command
                    .as_deref()
                    .is_some_and(|command| command.contains(std::path::MAIN_SEPARATOR))
            {
                join_to_folder(&mut exec.command, from.folder());
            }
        }
        users.push(user);
    }
    let document = Document {
        current_context: Some(name.to_owned()),
        contexts: Some(vec![NamedContext {
            name: Some(name.to_owned()),
            context: Some(context),
        }]),
        clusters: Some(vec![cluster]),
        users: Some(users),
    };
    let trust = if untrusted {
        Trust::Untrusted
    } else {
        Trust::Trusted
    };
    Ok(Extracted {
        cluster: cluster_name,
        labels,
        access: KubeconfigAccess::new(document.to_bytes(), trust).context(name),
    })
}

/// Joins a relative path to a folder. A blank path counts as a missing one.
fn join_to_folder(path: &mut Option<String>, folder: &Path) {
    if let Some(path) = path.as_mut().filter(|path| !path.trim().is_empty()) {
        *path = folder.join(&path).to_string_lossy().into_owned();
    }
}
