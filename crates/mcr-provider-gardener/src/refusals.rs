//! Reports refused kubeconfigs to the running discoveries.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use mcr_core::{Credential, CredentialError, CredentialSource, Fingerprint, ObjectKey, Refresh};
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, error::TrySendError};

/// The most refusals that wait for a discovery.
const WAITING: usize = 1024;

/// The refusal of a kubeconfig by the API server of a Shoot: the Shoot, and the fingerprint of the kubeconfig.
pub(crate) type Refusal = (ObjectKey, Fingerprint);

/// The running discoveries of a provider.
///
/// A kubeconfig outlives the discovery that has requested it: the provider remembers it, and a fleet keeps its access
/// while the credentials are the same. So a refusal is reported to all discoveries that run now.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Vec<mpsc::Sender<Refusal>>>);

impl Refusals {
    /// Receives the refusals from now on.
    pub(crate) fn listen(&self) -> mpsc::Receiver<Refusal> {
        let (refused, refusals) = mpsc::channel(WAITING);
        let mut discoveries = self.0.lock();
        discoveries.retain(|discovery| !discovery.is_closed());
        discoveries.push(refused);
        refusals
    }

    /// Reports a refusal. Never blocks.
    pub(crate) fn report(&self, refusal: &Refusal) {
        // If the queue is full, the refusal is lost, but the fleet will report the next one.
        self.0
            .lock()
            .retain(|discovery| !matches!(discovery.try_send(refusal.clone()), Err(TrySendError::Closed(_))));
    }
}

/// The credential of a kubeconfig. Reports when the API server of its Shoot has refused it. A new credential comes
/// with a new announcement.
pub(crate) struct ReportedRefusals {
    pub(crate) source: Arc<dyn CredentialSource>,
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) refusal: Refusal,
}

impl CredentialSource for ReportedRefusals {
    /// Includes the text of the kubeconfig, so that a refusal always refers to the kubeconfig in use.
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&(self.source.fingerprint(), self.refusal.1))
    }

    fn credential(&self, why: Refresh) -> BoxFuture<'_, Result<Credential, CredentialError>> {
        if why == Refresh::Unauthorized {
            self.refusals.report(&self.refusal);
        }
        self.source.credential(why)
    }

    fn renew_every(&self) -> Option<Duration> {
        self.source.renew_every()
    }

    fn known(&self) -> Option<&Credential> {
        self.source.known()
    }
}
