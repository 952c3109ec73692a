//! The surroundings of a driver.

use std::sync::Arc;

use mcr_access::ClusterName;
use mcr_client::Transport;
use mcr_store::TemplateRegistry;
use tokio::sync::Semaphore;

use crate::{WatchSettings, counters::KindCounters, health::Health};

/// What a driver uses of its cluster and of the fleet.
#[derive(Clone)]
pub struct DriverEnv {
    /// The name of the cluster in the log.
    pub cluster: ClusterName,
    /// Sends the requests.
    pub transport: Transport,
    /// Says when the cluster is connected, and receives the outcomes of requests.
    pub health: Arc<Health>,
    /// Limits the lists at once in the whole fleet.
    pub list_permits: Arc<Semaphore>,
    /// Timeouts and sizes.
    pub settings: Arc<WatchSettings>,
    /// The counters of this kind, which all its watches share.
    pub counts: Arc<KindCounters>,
    /// The templates of this kind, which all its objects share.
    pub templates: Arc<TemplateRegistry>,
}
