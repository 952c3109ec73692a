//! Reports to discoveries which kubeconfigs were refused.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use mcr_core::{Credential, CredentialError, CredentialSource, Fingerprint, ObjectKey, Refresh};
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, error::TrySendError};

/// So many refused kubeconfigs may wait for a decision.
const WAITING: usize = 1024;

/// A kubeconfig that the API server of a Shoot has refused, by its content.
pub(crate) type Refusal = (ObjectKey, Fingerprint);

/// The discoveries of a provider that run.
///
/// A kubeconfig outlives the discovery that has asked for it: the provider remembers it, and a fleet keeps the access that it has
/// while the credentials are the same. So a refusal is reported to whichever discovery runs.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Vec<mpsc::Sender<Refusal>>>);

impl Refusals {
    /// The refusals from now on.
    pub(crate) fn listen(&self) -> mpsc::Receiver<Refusal> {
        let (refused, refusals) = mpsc::channel(WAITING);
        let mut discoveries = self.0.lock();
        discoveries.retain(|discovery| !discovery.is_closed());
        discoveries.push(refused);
        refusals
    }

    /// Never blocks.
    pub(crate) fn report(&self, refusal: &Refusal) {
        // If there is no place for it, the fleet will report the next one.
        self.0
            .lock()
            .retain(|discovery| !matches!(discovery.try_send(refusal.clone()), Err(TrySendError::Closed(_))));
    }
}

/// The credential of a kubeconfig, which reports when the API server of its Shoot has refused it. Another one comes with another
/// announcement.
pub(crate) struct ReportedRefusals {
    pub(crate) source: Arc<dyn CredentialSource>,
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) refusal: Refusal,
}

impl CredentialSource for ReportedRefusals {
    /// Also another one for another text of the kubeconfig, so that a refusal always names the one that is in use.
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
