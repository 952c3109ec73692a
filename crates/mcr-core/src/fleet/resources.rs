//! The parts of a fleet that the handle of every cluster uses.

use std::sync::OnceLock;

use mcr_client::Dialer;
use tokio::runtime::{EnterGuard, Handle};
use tokio_util::sync::CancellationToken;

use super::{kinds::KindTables, observers::Observers, permits::Permits, settings::FleetSettings};

/// The parts of a fleet that the handle of every cluster uses. They know nothing of clusters.
pub(crate) struct Resources {
    pub(crate) settings: FleetSettings,
    pub(crate) permits: Permits,
    pub(crate) kinds: KindTables,
    pub(crate) observers: Observers,
    pub(crate) dialer: Dialer,
    /// Cancelled when the fleet stops. The token of each cluster is a child of it.
    pub(crate) token: CancellationToken,
    runtime: OnceLock<Handle>,
}

impl Resources {
    pub(crate) fn new(settings: FleetSettings) -> Self {
        Self {
            permits: Permits::new(&settings),
            kinds: KindTables::default(),
            observers: Observers::default(),
            dialer: Dialer::with_settings(&settings.access_policy, settings.transport.clone()),
            token: CancellationToken::new(),
            runtime: OnceLock::new(),
            settings,
        }
    }

    /// Notes the runtime of the caller as the one that the fleet runs in.
    pub(crate) fn set_runtime(&self) {
        let _ = self.runtime.set(Handle::current());
    }

    /// Enters the runtime of the fleet, for callers that may be outside of a runtime.
    pub(crate) fn enter_runtime(&self) -> Option<EnterGuard<'_>> {
        self.runtime.get().map(Handle::enter)
    }
}
