//! Kubeconfig files taken apart: one small, self-contained kubeconfig per context.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    AccessError, KubeconfigAccess, Trust,
    document::{Context, Document, Named, NamedCluster, NamedContext, NamedUser},
    error::{list, quote},
};

/// A kubeconfig file and its content.
#[derive(Clone)]
#[non_exhaustive]
pub struct KubeconfigFile {
    /// Where the file is; relative paths in it start from its folder.
    pub path: PathBuf,
    /// What is in it.
    pub bytes: Arc<[u8]>,
    /// Who wrote it.
    pub trust: Trust,
}

impl KubeconfigFile {
    /// A file with its content, written by whoever runs this process.
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
    /// The context; `None` for one without a name, and where [`contexts`] says that a file can't be read as a kubeconfig at all.
    pub context: Option<Arc<str>>,
    /// Whether it is the current context of the files.
    pub current: bool,
    /// A kubeconfig that holds this context only, or what is wrong with it.
    pub access: Result<KubeconfigAccess, AccessError>,
}

/// Takes kubeconfig files apart into one small kubeconfig per context, without reading any other file.
///
/// A list of files is read as kubectl reads `$KUBECONFIG`: a context, cluster or user is what the first file
/// that defines it says, and contexts refer to clusters and users of any file of the list. Relative paths become
/// paths from the folder of the file that defines the cluster or user. Files that have nothing to do with
/// each other must be given one at a time.
///
/// Errors are per context: a broken one says so and leaves the others alone. What the contexts say is not
/// checked further; see [`check`](crate::check). For files of hundreds of contexts there is [`Kubeconfigs`].
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
        access: Err(error.clone()),
    });
    unreadable.chain(files.contexts()).collect()
}

/// Kubeconfig files to be taken apart one context at a time: what [`contexts`] makes of files of hundreds of contexts
/// takes as much memory once more as the files do.
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
///     // Made now, and gone before the next one.
///     assert_eq!(found.context.as_deref(), Some("dev"));
/// }
/// ```
pub struct Kubeconfigs<'a> {
    documents: Vec<(&'a KubeconfigFile, Document<'a>)>,
    unreadable: Vec<(&'a KubeconfigFile, AccessError)>,
}

impl<'a> Kubeconfigs<'a> {
    /// Parses files, which are taken together as [`contexts`] does.
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

    /// The files that can't be read as kubeconfigs at all, and what is wrong with them.
    pub fn unreadable(&self) -> impl Iterator<Item = (&'a Path, &AccessError)> {
        let unreadable = self.unreadable.iter();
        unreadable.map(|(file, error)| (file.path.as_path(), error))
    }

    /// The contexts of all other files, in their order. Each is made when it is asked for.
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
            .find_map(|source| named(&source.document.current_context));
        let mut seen = HashSet::new();
        let all = self
            .documents
            .iter()
            .enumerate()
            .flat_map(|(home, (_, document))| {
                let entries = entries(&document.contexts).enumerate();
                entries.map(move |(index, entry)| (home, index, entry))
            });
        all.filter_map(move |(home, index, entry)| {
            let home = sources.get(home)?;
            let file = home.file.path.clone();
            let Some(name) = named(&entry.name) else {
                return Some(ContextAccess {
                    file,
                    context: None,
                    current: false,
                    access: Err(AccessError::invalid(
                        format!("contexts[{index}].name"),
                        "is missing; name the context",
                    )),
                });
            };
            seen.insert(name).then(|| ContextAccess {
                file,
                context: Some(name.into()),
                current: current == Some(name),
                access: home
                    .context(name)
                    .and_then(|context| extract(&sources, home, name, context)),
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

fn named(name: &Option<String>) -> Option<&str> {
    name.as_deref().filter(|name| !name.is_empty())
}

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

fn extract(
    sources: &[Source<'_>],
    home: &Source<'_>,
    name: &str,
    context: Context,
) -> Result<KubeconfigAccess, AccessError> {
    let (from, mut cluster) = find_cluster(sources.iter(), |source| &source.index, name, &context)?;
    let mut untrusted = home.file.trust == Trust::Untrusted || from.file.trust == Trust::Untrusted;
    if let Some(cluster) = &mut cluster.cluster {
        anchor(&mut cluster.certificate_authority, from.folder());
    }
    let mut users = Vec::new();
    if let Some((from, mut user)) = find_user(sources.iter(), |source| &source.index, name, &context)? {
        untrusted |= from.file.trust == Trust::Untrusted;
        if let Some(user) = &mut user.user {
            anchor(&mut user.client_certificate, from.folder());
            anchor(&mut user.client_key, from.folder());
            anchor(&mut user.token_file, from.folder());
            if let Some(exec) = &mut user.exec
                && exec
                    .command
                    .as_deref()
                    .is_some_and(|command| command.contains(std::path::MAIN_SEPARATOR))
            {
                anchor(&mut exec.command, from.folder());
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
    Ok(KubeconfigAccess::new(document.to_bytes(), trust).context(name))
}

/// Makes a path start from a folder unless it is absolute. A blank one is none.
fn anchor(path: &mut Option<String>, folder: &Path) {
    if let Some(path) = path.as_mut().filter(|path| !path.trim().is_empty()) {
        *path = folder.join(&path).to_string_lossy().into_owned();
    }
}

/// Finds the cluster of a context in the first of the documents that defines it.
pub(crate) fn find_cluster<'a, S: Copy>(
    sources: impl Iterator<Item = S> + Clone,
    index: impl Fn(&S) -> &'a Index<'a>,
    name: &str,
    context: &Context,
) -> Result<(S, NamedCluster<'a>), AccessError> {
    let field = || format!("contexts[name={}].context.cluster", quote(name));
    let Some(wanted) = context.cluster.as_deref().filter(|wanted| !wanted.is_empty()) else {
        return Err(AccessError::reference(
            field(),
            "is missing; name the cluster that the context is about",
        ));
    };
    for source in sources.clone() {
        if let Some(entry) = index(&source).clusters.unique(wanted)? {
            let entry = entry.clone();
            return Ok((source, entry));
        }
    }
    let names: Vec<&str> = sources
        .flat_map(|source| index(&source).clusters.names())
        .collect();
    Err(AccessError::reference(
        field(),
        format!(
            "cluster {} is not defined ({}); define it or correct the name",
            quote(wanted),
            list(names.into_iter())
        ),
    ))
}

/// Finds the user of a context in the first of the documents that defines it; a context need not have one.
pub(crate) fn find_user<'a, S: Copy>(
    sources: impl Iterator<Item = S> + Clone,
    index: impl Fn(&S) -> &'a Index<'a>,
    name: &str,
    context: &Context,
) -> Result<Option<(S, NamedUser<'a>)>, AccessError> {
    let Some(wanted) = context.user.as_deref().filter(|wanted| !wanted.is_empty()) else {
        return Ok(None);
    };
    for source in sources.clone() {
        if let Some(entry) = index(&source).users.unique(wanted)? {
            let entry = entry.clone();
            return Ok(Some((source, entry)));
        }
    }
    let names: Vec<&str> = sources.flat_map(|source| index(&source).users.names()).collect();
    Err(AccessError::reference(
        format!("contexts[name={}].context.user", quote(name)),
        format!(
            "user {} is not defined ({}); define it or correct the name",
            quote(wanted),
            list(names.into_iter())
        ),
    ))
}

pub(crate) fn entries<T>(list: &Option<Vec<T>>) -> std::slice::Iter<'_, T> {
    list.as_deref().unwrap_or_default().iter()
}

/// The entries of a document by name: one of thousands of contexts asks for each of its own.
pub(crate) struct Index<'a> {
    pub(crate) contexts: Section<'a, NamedContext>,
    pub(crate) clusters: Section<'a, NamedCluster<'a>>,
    pub(crate) users: Section<'a, NamedUser<'a>>,
}

impl<'a> Index<'a> {
    pub(crate) fn of(document: &'a Document<'a>) -> Self {
        Self {
            contexts: Section::of("contexts", &document.contexts),
            clusters: Section::of("clusters", &document.clusters),
            users: Section::of("users", &document.users),
        }
    }
}

pub(crate) struct Section<'a, T> {
    title: &'static str,
    all: &'a [T],
    /// None for a name that is there more than once.
    by_name: HashMap<&'a str, Option<&'a T>>,
}

impl<'a, T: Named> Section<'a, T> {
    fn of(title: &'static str, all: &'a Option<Vec<T>>) -> Self {
        let all = all.as_deref().unwrap_or_default();
        let mut by_name = HashMap::with_capacity(all.len());
        for entry in all {
            if let Some(name) = entry.name() {
                by_name
                    .entry(name)
                    .and_modify(|found| *found = None)
                    .or_insert(Some(entry));
            }
        }
        Self { title, all, by_name }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> + use<'a, T> {
        self.all.iter().filter_map(Named::name)
    }

    /// The entry of that name. Kubernetes refuses a file that defines a name twice; here it costs only what refers to it.
    pub(crate) fn unique(&self, name: &str) -> Result<Option<&'a T>, AccessError> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(Some(entry)) => Ok(Some(entry)),
            Some(None) => Err(AccessError::reference(
                format!("{}[name={}]", self.title, quote(name)),
                "is defined more than once in this file; remove or rename all but one",
            )),
        }
    }
}
