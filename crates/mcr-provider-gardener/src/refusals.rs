//! Tells discoveries which kubeconfigs were refused.

use mcr_core::{Fingerprint, ObjectKey};
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, error::TrySendError};

/// So many refused kubeconfigs may wait to be looked at.
const WAITING: usize = 1024;

/// A kubeconfig that the API server of a Shoot has refused, by its content.
pub(crate) type Refusal = (ObjectKey, Fingerprint);

/// The discoveries of a provider that run.
///
/// A kubeconfig outlives the discovery that has asked for it: the provider remembers it, and a fleet keeps the access that it has
/// while the credentials are the same. So a refusal is told to whichever discovery runs.
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
