//! The providers that a command can use, and the options that build them.

use std::{collections::BTreeMap, fmt, future::Future, path::PathBuf, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use kube::Client;
use mcr_core::{
    Access, AccessError, AccessPolicy, BoxError, Provider, ProxyEnvironment, internal::kube_client,
};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::ClusterFlags;
use crate::{contexts::Contexts, session::Session};

/// The limit for the connection to a hub.
const HUB_WITHIN: Duration = Duration::from_secs(10);

type Make =
    Arc<dyn Fn(ProviderOptions) -> BoxFuture<'static, Result<Box<dyn Provider>, BoxError>> + Send + Sync>;

/// A provider that `--provider` can choose.
#[derive(Clone)]
pub(crate) struct LinkedProvider {
    pub(crate) name: String,
    pub(crate) about: String,
    /// Whether the provider supports `--selector`.
    pub(crate) selects: bool,
    make: Make,
}

impl LinkedProvider {
    pub(crate) fn new<M, F, P>(
        name: impl Into<String>,
        about: impl Into<String>,
        selects: bool,
        make: M,
    ) -> Self
    where
        M: Fn(ProviderOptions) -> F + Send + Sync + 'static,
        F: Future<Output = Result<P, BoxError>> + Send + 'static,
        P: Provider,
    {
        Self {
            name: name.into(),
            about: about.into(),
            selects,
            make: Arc::new(move |options| {
                let made = make(options);
                async move { Ok(Box::new(made.await?) as Box<dyn Provider>) }.boxed()
            }),
        }
    }

    pub(crate) async fn make(&self, options: ProviderOptions) -> Result<Box<dyn Provider>, BoxError> {
        (self.make)(options).await
    }
}

impl fmt::Debug for LinkedProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkedProvider")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The options on the command line that are for providers. The function that builds a provider gets them.
#[derive(Debug, Clone)]
pub struct ProviderOptions(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    flags: ClusterFlags,
    options: BTreeMap<String, String>,
    hub: OnceCell<Session>,
    hub_error: Mutex<Option<String>>,
}

impl ProviderOptions {
    pub(crate) fn new(flags: ClusterFlags) -> Self {
        Self(Arc::new(Inner {
            options: flags.provider_option.iter().cloned().collect(),
            flags,
            hub: OnceCell::new(),
            hub_error: Mutex::default(),
        }))
    }

    pub(crate) fn flags(&self) -> &ClusterFlags {
        &self.0.flags
    }

    /// The kubeconfig files of `--kubeconfigs`.
    pub fn kubeconfigs(&self) -> &[PathBuf] {
        &self.0.flags.kubeconfigs
    }

    /// The namespace of `--namespace`.
    pub fn namespace(&self) -> Option<&str> {
        self.0.flags.namespace.as_deref()
    }

    /// An option of `--provider-option KEY=VALUE`.
    pub fn option(&self, key: &str) -> Option<&str> {
        self.0.options.get(key).map(String::as_str)
    }

    /// The access policy for untrusted kubeconfigs, which is also the fleet's. It allows only the plugins of
    /// `--clusterprofile-provider-file`.
    pub fn access_policy(&self) -> AccessPolicy {
        self.0.flags.fleet_policy()
    }

    /// The proxies that the environment names, if `--proxy-from-env` is set.
    ///
    /// # Errors
    /// If a variable does not contain the URL of a proxy.
    pub(crate) fn proxies(&self) -> Result<Option<Arc<ProxyEnvironment>>, AccessError> {
        let wanted = self.0.flags.proxy_from_env;
        let proxies = wanted.then(ProxyEnvironment::from_env).transpose()?;
        Ok(proxies.map(Arc::new))
    }

    /// A client of the hub. The hub is the cluster of `--hub-kubeconfig` and `--hub-context`, otherwise the cluster
    /// that kubectl would use, otherwise the cluster of the pod in which this program runs. All callers share one
    /// connection.
    ///
    /// # Errors
    /// If there is no such context, or the hub does not answer.
    pub async fn hub(&self) -> Result<Client, BoxError> {
        let session = self.0.hub.get_or_try_init(|| async {
            let flags = &self.0.flags;
            let proxies = self.proxies()?;
            let (name, access) = hub(flags, proxies.as_deref()).await?;
            Session::open(&name, access, HUB_WITHIN, proxies).await
        });
        self.note_hub_error(session.await).map(Session::client)
    }

    /// The access of the hub, for a provider that connects to it through the fleet.
    ///
    /// # Errors
    /// If there is no such context, or a variable has no proxy.
    pub async fn hub_access(&self) -> Result<Access, BoxError> {
        let proxies = self.proxies()?;
        Ok(self
            .note_hub_error(hub(&self.0.flags, proxies.as_deref()).await)?
            .1)
    }

    fn note_hub_error<T>(&self, result: anyhow::Result<T>) -> Result<T, BoxError> {
        result.map_err(|error| {
            *self.0.hub_error.lock() = Some(error.to_string());
            error.into()
        })
    }

    /// Why the hub could not be reached, if a provider needed it.
    pub(crate) fn hub_error(&self) -> Option<String> {
        self.0.hub_error.lock().clone()
    }

    /// Closes the connection to the hub, if nobody else uses it.
    pub(crate) async fn close(self) {
        if let Some(mut inner) = Arc::into_inner(self.0)
            && let Some(session) = inner.hub.take()
        {
            session.close().await;
        }
    }
}

/// Finds the chosen providers.
pub(crate) fn choose(flags: &ClusterFlags, linked: &[LinkedProvider]) -> anyhow::Result<Vec<LinkedProvider>> {
    let mut chosen = Vec::new();
    for name in flags.chosen() {
        match linked.iter().find(|linked| linked.name == name) {
            Some(linked) if flags.selector.is_some() && !linked.selects => {
                anyhow::bail!("--provider {name}: it takes all clusters, so leave --selector out")
            }
            Some(linked) => chosen.push(linked.clone()),
            None => anyhow::bail!("--provider {name}: this program was compiled without it"),
        }
    }
    Ok(chosen)
}

async fn hub(flags: &ClusterFlags, proxies: Option<&ProxyEnvironment>) -> anyhow::Result<(String, Access)> {
    let contexts = Contexts::read(flags.hub_kubeconfig.as_deref())?;
    if contexts.is_empty() && flags.hub_kubeconfig.is_none() && flags.hub_context.is_none() {
        let config = kube::Config::incluster().map_err(|error| {
            anyhow::anyhow!(
                "there is no kubeconfig and this is no pod ({error}); give the hub's with --hub-kubeconfig"
            )
        })?;
        let client = kube_client(config, proxies).map_err(|error| anyhow::anyhow!(error))?;
        return Ok(("hub".to_owned(), Access::from(client)));
    }
    let (name, access) = match &flags.hub_context {
        Some(name) => contexts.named("--hub-context", name)?,
        None => contexts.current("--hub-context")?,
    };
    Ok((name, access.into()))
}
