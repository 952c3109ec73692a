use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::Arc,
    time::SystemTime,
};

use futures::{StreamExt, stream};
use kube::{
    Client,
    core::{ApiResource, GroupVersionKind},
    discovery::{self, ApiGroup},
};
use mcr_core::{
    Access, BoxError, Change, ClusterName, ClusterSpec, Discovery, DiscoverySettings, HubEvent, HubWatch,
    Object, ObjectKey, Provider, Scope, WatchRequest,
};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::{
    host::HostCluster,
    layout::{Choice, ClusterScoped},
};

/// The name of the host, which is the only endpoint of the scope.
pub(crate) const ENDPOINT: &str = "host";

/// A provider whose clusters are the namespaces of one cluster, the host.
///
/// # Cancellation
/// Dropping a discovery, or cancelling its token, ends its watch and closes its connection to the host.
#[derive(Clone)]
pub struct NamespaceProvider {
    pub(crate) name: Arc<str>,
    pub(crate) config: Arc<Config>,
}

/// The options of a provider, checked.
pub(crate) struct Config {
    pub(crate) access: Access,
    pub(crate) scope: Scope,
    pub(crate) cluster_scoped: ClusterScoped,
    pub(crate) labels: Option<String>,
    pub(crate) choice: Arc<Choice>,
}

impl fmt::Debug for NamespaceProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamespaceProvider")
            .field("name", &self.name)
            .field("access", &self.config.access)
            .field("labels", &self.config.labels)
            .field("choice", &self.config.choice)
            .finish()
    }
}

impl Provider for NamespaceProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn searched(&self) -> String {
        let Config { labels, choice, .. } = &*self.config;
        let labels = labels.as_ref().map(|labels| format!(" with labels {labels}"));
        let names = choice.in_words();
        format!(
            "namespaces of the host cluster{}{names}. To add a cluster, create such a namespace; if there is one, check its \
             labels and name, and whether the credentials of the host may list and watch namespaces",
            labels.unwrap_or_default(),
        )
    }

    /// Starts a discovery. Poll it within a tokio runtime with an enabled time driver.
    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let start = Step::Connect(self.clone(), settings.clone());
        stream::unfold(start, async |step| match step {
            Step::Connect(provider, settings) => Some(match Running::start(provider, settings).await {
                // There is no change yet: the stream continues at once.
                Ok(running) => (None, Step::Follow(Box::new(running))),
                Err(error) => (Some(Err(error)), Step::End),
            }),
            Step::Follow(mut running) => Some(match running.next().await {
                Ok(change) => (Some(Ok(change)), Step::Follow(running)),
                Err(error) => (Some(Err(error)), Step::End),
            }),
            Step::End => None,
        })
        .filter_map(async |item| item)
        .take_until(stop.cancelled_owned())
        .boxed()
    }
}

enum Step {
    Connect(NamespaceProvider, DiscoverySettings),
    Follow(Box<Running>),
    /// The discovery has ended with an error.
    End,
}

struct Running {
    provider: NamespaceProvider,
    watch: HubWatch<Result<Arc<Facts>, String>>,
    host: HostCluster,
    announced: HashMap<ClusterName, Arc<Facts>>,
    synced: bool,
    /// When the last logged problem began.
    failing: Option<SystemTime>,
}

/// The fields of a namespace that are read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Facts {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Metadata {
    uid: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct Status {
    #[serde(default)]
    phase: String,
}

fn facts(namespace: &Object) -> Result<Arc<Facts>, String> {
    let facts = namespace.decode().map(Arc::new);
    facts.map_err(|error| error.to_string())
}

/// The cluster-scoped kinds of a host.
async fn cluster_scoped(host: Client) -> Result<HashSet<(String, String)>, BoxError> {
    // An API server without aggregated discovery answers in the older form, which is parsed as an empty list of
    // groups.
    if let Ok(found) = kube::Discovery::new(host.clone()).run_aggregated().await
        && found.has_group(ApiGroup::CORE_GROUP)
    {
        return Ok(found.groups().flat_map(cluster_scoped_of).collect());
    }
    let mut kinds: HashSet<_> =
        cluster_scoped_of(&discovery::group(&host, ApiGroup::CORE_GROUP).await?).collect();
    for group in host.list_api_groups().await?.groups {
        match discovery::group(&host, &group.name).await {
            Ok(group) => kinds.extend(cluster_scoped_of(&group)),
            // If the API server of one group does not answer, the other groups are still used.
            Err(error) => {
                tracing::warn!(group = group.name, %error, "the kinds of an API group of the host are unknown")
            }
        }
    }
    Ok(kinds)
}

fn cluster_scoped_of(group: &ApiGroup) -> impl Iterator<Item = (String, String)> {
    let kinds = group
        .versions()
        .flat_map(|version| group.versioned_resources(version));
    let kinds = kinds.filter(|(_, capabilities)| capabilities.scope == discovery::Scope::Cluster);
    kinds.map(|(kind, _)| (kind.group, kind.plural))
}

impl Running {
    async fn start(provider: NamespaceProvider, settings: DiscoverySettings) -> Result<Self, BoxError> {
        let config = &provider.config;
        let host =
            HostCluster::connect(&provider.name, config.access.clone(), settings.access_policy).await?;
        // Read before clusters exist, because watches of these kinds are refused in clusters.
        *config.cluster_scoped.lock() = cluster_scoped(host.cluster.client()).await?;
        let kind = GroupVersionKind::gvk("", "v1", "Namespace");
        let mut request = WatchRequest::resource(&ApiResource::from_gvk_with_plural(&kind, "namespaces"));
        if let Some(labels) = &config.labels {
            request = request.labels(labels);
        }
        let watch = HubWatch::projected(host.cluster.client(), request, |namespace| Some(facts(namespace)));
        let watch = watch.settings(settings.watch);
        Ok(Self {
            provider,
            watch,
            host,
            announced: HashMap::new(),
            synced: false,
            failing: None,
        })
    }

    async fn next(&mut self) -> Result<Change, BoxError> {
        loop {
            let event = tokio::select! {
                event = self.watch.next() => event,
                () = self.host.replaced() => {
                    return Err("another cluster answers in place of the host".into());
                }
            };
            match event {
                HubEvent::Applied(key, facts) => {
                    if let Some(change) = self.applied(&key, facts)? {
                        return Ok(change);
                    }
                }
                HubEvent::Deleted(key) => {
                    if let Some(change) = self.deleted(&key) {
                        return Ok(change);
                    }
                }
                HubEvent::Synced => {
                    self.synced = true;
                    return Ok(Change::Synced);
                }
                // Before the first complete list, a problem ends the discovery, so that the fleet shows it. Later, the
                // known namespaces stay valid, and a problem is only logged.
                HubEvent::Failing(problem) if !self.synced => {
                    return Err(format!("namespaces can't be watched: {}", problem.error).into());
                }
                // Every attempt reports the problem, but it is logged once.
                HubEvent::Failing(problem) if self.failing == Some(problem.since) => {}
                HubEvent::Failing(problem) => {
                    self.failing = Some(problem.since);
                    tracing::warn!(
                        provider = &*self.provider.name,
                        error = %problem.error,
                        "namespaces can't be watched at the moment; the clusters stay as they are"
                    );
                }
                _ => {}
            }
        }
    }

    fn applied(
        &mut self,
        key: &ObjectKey,
        facts: Result<Arc<Facts>, String>,
    ) -> Result<Option<Change>, BoxError> {
        if !self.provider.config.choice.selects(&key.name) {
            return Ok(None);
        }
        let name = ClusterName::new(&key.name)?;
        let facts = facts?;
        if self.announced.get(&name) == Some(&facts) {
            return Ok(None);
        }
        let access = self.provider.config.scope.place(ENDPOINT, key.name.clone());
        let mut spec = ClusterSpec::new(name.clone(), access).identity(facts.metadata.uid.clone());
        spec.labels.clone_from(&facts.metadata.labels);
        if !facts.status.phase.is_empty() {
            spec = spec.property("phase", facts.status.phase.clone());
        }
        self.announced.insert(name, facts);
        Ok(Some(Change::Upsert(spec)))
    }

    /// A namespace that is being deleted still counts as present. Its cluster is removed when the namespace is gone.
    fn deleted(&mut self, key: &ObjectKey) -> Option<Change> {
        let name = ClusterName::new(&key.name).ok()?;
        self.announced.remove(&name).map(|_| Change::Remove(name))
    }
}
