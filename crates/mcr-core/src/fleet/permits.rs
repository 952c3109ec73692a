//! The permits of a fleet: how much work it does at once.

use std::sync::Arc;

use mcr_watch::internal::Permit;
use tokio::sync::Semaphore;

use super::settings::FleetSettings;

/// The permits of a fleet.
pub(crate) struct Permits {
    connects: Arc<Semaphore>,
    lists: Arc<Semaphore>,
}

impl Permits {
    pub(crate) fn new(settings: &FleetSettings) -> Self {
        Self {
            connects: Arc::new(Semaphore::new(settings.connects.max(1))),
            lists: Arc::new(Semaphore::new(settings.lists.max(1))),
        }
    }

    /// Waits for a permit to connect a cluster.
    pub(crate) async fn connect(&self) -> Permit {
        Permit::acquire(&self.connects).await
    }

    /// The permits for lists, which the drivers of watches take.
    pub(crate) fn lists(&self) -> Arc<Semaphore> {
        self.lists.clone()
    }
}
