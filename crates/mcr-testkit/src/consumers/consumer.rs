use std::{collections::BTreeMap, future::Future, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use crate::sim::SimCluster;

/// Something that a consumer can do, and that the API does not ask of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Feature {
    /// It reads the ClusterProfiles of all namespaces: [`Setup::namespace`] is None.
    AllNamespaces,
    /// It selects ClusterProfiles by labels: [`Setup::labels`].
    Labels,
    /// It selects ClusterProfiles by their cluster manager: [`Setup::managers`].
    Managers,
    /// The condition by which a cluster is ready can be chosen: [`Setup::ready`].
    ReadyCondition,
    /// It falls back to v1alpha1, with the deprecated `credentialProviders`, on a hub that does not serve v1alpha2.
    #[serde(rename = "v1alpha1")]
    V1Alpha1,
}

/// What a consumer is started with. It can be written as JSON, for a program of its own.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Setup {
    /// The path of a kubeconfig with the address and the credentials of the hub.
    pub kubeconfig: PathBuf,
    /// The path of the provider file.
    pub provider_file: PathBuf,
    /// The plugins that the provider file names, for consumers that run only plugins which are allowed.
    pub plugins: Vec<PathBuf>,
    /// The namespace with the inventory. None: all namespaces, each an inventory.
    pub namespace: Option<String>,
    /// The label selector of ClusterProfiles. None: all.
    pub labels: Option<String>,
    /// The names of the cluster managers whose ClusterProfiles count. Empty: all.
    pub managers: Vec<String>,
    /// The condition by which a cluster is ready. None: `ControlPlaneHealthy`.
    pub ready: Option<String>,
    /// The hub, for consumers of this process. Its client opens no connection.
    #[serde(skip)]
    pub hub: SimCluster,
}

/// A cluster, as a consumer has it. It can be read from JSON, for a program of its own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Seen {
    /// Whether the consumer uses the cluster.
    pub state: State,
    /// Why it does not. None if it does.
    #[serde(default)]
    pub reason: Option<Reason>,
    /// What the consumer reports of the cluster, such as the `status.properties` of the ClusterProfile.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// A number that differs after the cluster was left and used again, with its connections and caches made anew.
    #[serde(default)]
    pub engagement: u64,
}

/// Whether a consumer uses a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum State {
    /// It is connected: a request with the credentials of the ClusterProfile has been answered.
    Ready,
    /// It is about to connect, or can't.
    Connecting,
    /// It does not connect until the ClusterProfile changes.
    Waiting,
    /// The ClusterProfile can't be used as it is.
    Broken,
}

/// Why a consumer does not use a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// The cluster manager reports that the cluster is not ready.
    NotReady,
    /// The cluster manager does not know, or has not reported yet, whether the cluster is ready.
    NotKnown,
    /// The ClusterProfile offers no access.
    NoAccess,
    /// The ClusterProfile offers access only by access providers that the provider file does not have.
    UnknownAccessProvider,
    /// Another ClusterProfile of the inventory is the same cluster.
    Duplicate,
    /// What the ClusterProfile offers can't be used.
    BadAccess,
}

/// A consumer under test. Write its methods as `async fn`.
pub trait Consumer: Sized + 'static {
    /// What it can do.
    const CAN: &'static [Feature];

    /// Starts the consumer. It may return before the consumer has read anything.
    fn start(setup: &Setup) -> impl Future<Output = Self>;

    /// The clusters that the consumer has now, by the namespaces and names of their ClusterProfiles: `fleet/a`.
    ///
    /// The suite calls it again and again until the fleet is the expected one.
    fn fleet(&mut self) -> impl Future<Output = BTreeMap<String, Seen>>;

    /// Ends the consumer, with all its tasks and processes.
    fn stop(self) -> impl Future<Output = ()>;

    /// How long a change may take. Default: a minute, for a busy machine.
    fn patience() -> Duration {
        Duration::from_secs(60)
    }
}
