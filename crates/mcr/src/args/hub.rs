//! The flags for the hub.

use std::{
    env, fmt,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::{StreamExt, stream};
use kube::{Client, Config, config::Kubeconfig};
use mcr_core::{
    Access, BoxError, Change, ClusterSpec, ContextAccess, Discovery, HUB, KubeconfigAccess, KubeconfigFile,
    Provider, ProxyEnvironment, contexts,
    internal::{kube_client, kube_config},
    layer,
};
use tokio_util::sync::CancellationToken;

use super::ArgsError;

/// The flags that say how to reach the hub.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(about = None, long_about = None, next_help_heading = "Hub")]
#[non_exhaustive]
pub struct HubArgs {
    /// The kubeconfig file of the hub [default: as kubectl, or the cluster of the Pod that this runs in]
    #[arg(long, value_name = "PATH")]
    pub hub_kubeconfig: Option<PathBuf>,
    /// The context of the hub [default: the current one]
    #[arg(long, value_name = "CONTEXT")]
    pub hub_context: Option<String>,
}

impl HubArgs {
    /// The hub: the context of `--hub-context`, or else the current context, in the file of `--hub-kubeconfig`, or else in
    /// the files that kubectl would use. Without flags and contexts it is the cluster of the Pod in which the program runs.
    ///
    /// Reads the kubeconfig and checks it, but connects to nothing. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// [`ArgsError`] if the flags lead to no usable context.
    pub fn hub(&self) -> Result<Hub, ArgsError> {
        self.hub_through(None)
    }

    /// The hub, whose client goes through these proxies, unless its kubeconfig names one.
    pub(super) fn hub_through(&self, proxies: Option<Arc<ProxyEnvironment>>) -> Result<Hub, ArgsError> {
        let (origin, paths) = self.paths();
        let mut files = Vec::new();
        for path in paths {
            match std::fs::read(&path) {
                Ok(bytes) => files.push(KubeconfigFile::new(path, bytes)),
                // As kubectl: of the files that no flag names, some may be missing.
                Err(error) if error.kind() == ErrorKind::NotFound && self.hub_kubeconfig.is_none() => {}
                Err(source) => return Err(ArgsError::Read { origin, source }),
            }
        }
        let found = contexts(&files);
        if found.is_empty() && self.hub_kubeconfig.is_none() && self.hub_context.is_none() {
            return in_cluster(origin, proxies.as_deref());
        }
        let wanted = |entry: &&ContextAccess| match &self.hub_context {
            Some(name) => entry.context.as_deref() == Some(name),
            None => entry.current,
        };
        let unreadable = || found.iter().find(|entry| entry.context.is_none());
        let Some(entry) = found.iter().find(wanted).or_else(unreadable) else {
            let known = known(&found);
            return Err(match self.hub_context.clone() {
                Some(context) => ArgsError::NoSuchContext {
                    context,
                    origin,
                    known,
                },
                None => ArgsError::NoCurrentContext { origin, known },
            });
        };
        let access = match &entry.access {
            Ok(access) => access
                .parse()
                .and_then(|parsed| parsed.check_files())
                .map(|()| access.clone()),
            Err(error) => Err(error.clone()),
        };
        match access {
            Ok(access) => Ok(Hub(Source::Kubeconfig {
                access,
                file: entry.file.clone(),
                context: entry.context.clone().unwrap_or_default(),
                only: self.hub_kubeconfig.is_some(),
                proxies,
                origin,
            })),
            Err(source) => Err(ArgsError::Kubeconfig {
                origin: match self.hub_kubeconfig {
                    Some(_) => origin,
                    // One of several files.
                    None => entry.file.display().to_string(),
                },
                source,
            }),
        }
    }

    /// The files to search, and a text for errors that says where they come from.
    fn paths(&self) -> (String, Vec<PathBuf>) {
        if let Some(path) = &self.hub_kubeconfig {
            return (format!("--hub-kubeconfig {}", path.display()), vec![path.clone()]);
        }
        match env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
            Some(list) => {
                let paths = env::split_paths(&list).filter(|path| !path.as_os_str().is_empty());
                (
                    format!("$KUBECONFIG {}", Path::new(&list).display()),
                    paths.collect(),
                )
            }
            None => {
                let home = env::home_dir().unwrap_or_default();
                let path = home.join(".kube").join("config");
                (path.display().to_string(), vec![path])
            }
        }
    }
}

fn known(found: &[ContextAccess]) -> String {
    let names: Vec<&str> = found
        .iter()
        .filter_map(|entry| entry.context.as_deref())
        .collect();
    match names[..] {
        [] => "it has no contexts".to_owned(),
        _ => format!("it has {}", names.join(", ")).escape_debug().to_string(),
    }
}

fn in_cluster(origin: String, proxies: Option<&ProxyEnvironment>) -> Result<Hub, ArgsError> {
    match Config::incluster() {
        Ok(config) => {
            let client = kube_client(config, proxies).map_err(|source| ArgsError::Client {
                origin: "the service account of the Pod".to_owned(),
                source,
            })?;
            Ok(Hub(Source::Pod(client)))
        }
        Err(error) => Err(ArgsError::NoHub {
            origin,
            source: error.into(),
        }),
    }
}

/// The hub that the flags name. [`HubArgs::hub`] creates it.
///
/// It is a provider of one cluster with the name [`HUB`], and an [`Access`] for other providers.
#[derive(Clone)]
pub struct Hub(Source);

#[derive(Clone)]
enum Source {
    Kubeconfig {
        access: KubeconfigAccess,
        file: PathBuf,
        context: Arc<str>,
        /// Whether the context is read from this file only, not from all files that kubectl would use.
        only: bool,
        proxies: Option<Arc<ProxyEnvironment>>,
        origin: String,
    },
    /// The service account of the Pod.
    Pod(Client),
}

impl Hub {
    /// A client of the hub, for a provider that reads there, such as `mcr-provider-kubeconfig`. Must be called in a tokio
    /// runtime. It sends no request, but may run the credential plugin of the kubeconfig.
    ///
    /// # Errors
    /// [`ArgsError::Client`] if kube can't use the kubeconfig.
    pub async fn client(&self) -> Result<Client, ArgsError> {
        let (file, context, only, proxies, origin) = match &self.0 {
            Source::Pod(client) => return Ok(client.clone()),
            Source::Kubeconfig {
                file,
                context,
                only,
                proxies,
                origin,
                ..
            } => (file, context, only, proxies, origin),
        };
        let build = async || -> Result<Client, BoxError> {
            let read = if *only {
                Kubeconfig::read_from(file)
            } else {
                Kubeconfig::read()
            };
            kube_client(kube_config(read, Some(context)).await?, proxies.as_deref())
        };
        build().await.map_err(|source| ArgsError::Client {
            origin: origin.clone(),
            source,
        })
    }

    /// The provider without the hub, for a provider of kubeconfig files that may have the context of the hub too.
    ///
    /// `mcr-provider-file` gives the properties `file` and `context` to its clusters. A cluster with the file and the
    /// context of the hub is left out.
    pub fn members_of<P: Provider>(&self, provider: P) -> layer::Filter<P> {
        let hub = self.clone();
        layer::filter(provider, move |spec| {
            let is_hub = hub.is(spec);
            if is_hub {
                tracing::info!(cluster = %spec.name, "this context is the hub, so it is no member");
            }
            !is_hub
        })
    }

    fn is(&self, spec: &ClusterSpec) -> bool {
        let Source::Kubeconfig { file, context, .. } = &self.0 else {
            return false;
        };
        // Two paths can name the same file.
        let same = |path: &String| match (Path::new(path).canonicalize(), file.canonicalize()) {
            (Ok(one), Ok(other)) => one == other,
            _ => Path::new(path) == file,
        };
        spec.properties
            .get("context")
            .is_some_and(|name| **name == **context)
            && spec.properties.get("file").is_some_and(same)
    }
}

impl Provider for Hub {
    fn name(&self) -> &str {
        HUB
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        let spec = ClusterSpec::named(HUB, self.clone());
        let hub = spec.map(Change::Upsert).map_err(BoxError::from);
        stream::iter([hub, Ok(Change::Synced)])
            .chain(stream::pending())
            .take_until(stop.cancelled_owned())
            .boxed()
    }
}

/// The hub in words, for logs.
impl fmt::Display for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Kubeconfig { file, context, .. } => {
                write!(f, "context {context} of {}", file.display())
            }
            Source::Pod(_) => f.write_str("the cluster of the Pod"),
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Kubeconfig { file, context, .. } => f
                .debug_struct("Hub")
                .field("file", file)
                .field("context", context)
                .finish_non_exhaustive(),
            Source::Pod(_) => f.write_str("Hub(the cluster of the Pod)"),
        }
    }
}

impl From<Hub> for Access {
    fn from(hub: Hub) -> Self {
        match hub.0 {
            Source::Kubeconfig { access, .. } => access.into(),
            Source::Pod(client) => client.into(),
        }
    }
}
