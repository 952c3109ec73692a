//! The surroundings of a driver.

use std::sync::Arc;

use mcr_access::ClusterName;
use mcr_client::Transport;
use mcr_store::TemplateRegistry;

use crate::{budget::ListBudget, counters::KindCounters, health::Health, settings::WatchSettings};

/// What a driver uses of its cluster and of the fleet.
#[derive(Clone)]
pub struct DriverEnv {
    /// The name of the cluster in the log.
    pub cluster: ClusterName,
    /// Sends the requests.
    pub transport: Transport,
    /// Has the link of the cluster, and counts the requests that failed.
    pub health: Arc<Health>,
    /// Limits the memory that the lists of the whole fleet take at once.
    pub list_budget: Arc<ListBudget>,
    /// Timeouts and sizes.
    pub settings: Arc<WatchSettings>,
    /// The counters of this kind, which all its watches share.
    pub counts: Arc<KindCounters>,
    /// The templates of this kind, which all its objects share.
    pub templates: Arc<TemplateRegistry>,
}
