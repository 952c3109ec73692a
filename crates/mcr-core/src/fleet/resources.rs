//! The parts of a fleet that the handle of every cluster uses.

use std::sync::{Arc, OnceLock};

use mcr_access::internal::WeakCache;
use mcr_client::{Dialer, UserAgent};
use mcr_watch::internal::{KindTables, ListBudget};
use tokio::{
    runtime::{EnterGuard, Handle},
    sync::Semaphore,
};
use tokio_util::sync::CancellationToken;

use super::{identities::Identities, observers::Observers, settings::FleetSettings};
use mcr_access::ClusterName;

/// The parts of a fleet that the handle of every cluster uses. They know nothing of clusters.
pub(crate) struct Resources {
    pub(crate) settings: FleetSettings,
    /// Limits how many clusters connect at once.
    pub(crate) connect_permits: Arc<Semaphore>,
    pub(crate) list_budget: Arc<ListBudget>,
    pub(crate) kinds: KindTables,
    pub(crate) observers: Observers,
    pub(crate) identities: Identities,
    pub(crate) dialer: Dialer,
    /// Turns to read the files that a kubeconfig names.
    pub(crate) reads: WeakCache<Semaphore, ClusterName>,
    /// Cancelled when the fleet stops. The token of each cluster is a child of it.
    pub(crate) token: CancellationToken,
    runtime: OnceLock<Handle>,
}

impl Resources {
    pub(crate) fn new(mut settings: FleetSettings) -> Self {
        if settings.allow_anonymous {
            Arc::make_mut(&mut settings.transport).allow_anonymous = true;
        }
        if settings.user_agent != UserAgent::default() {
            Arc::make_mut(&mut settings.transport).set_user_agent(settings.user_agent.clone(), None);
            Arc::make_mut(&mut settings.watch).user_agent = settings.user_agent.clone();
        }
        Self {
            connect_permits: Arc::new(Semaphore::new(settings.connects.max(1))),
            list_budget: Arc::new(ListBudget::new(&settings.watch)),
            kinds: KindTables::default(),
            observers: Observers::default(),
            identities: Identities::new(settings.allow_duplicates),
            dialer: Dialer::with_settings(&settings.access_policy, settings.transport.clone()),
            reads: WeakCache::default(),
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
