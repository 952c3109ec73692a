//! Code of users that panics where the fleet calls it. It costs the cluster or the provider that it belongs to, which says
//! so, is tried again, and can still be removed. What the panic says is not repeated: it may hold a secret.

mod client;
mod credentials;
mod provider;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use mcr_core::Cluster;
use mcr_testkit::waiting::eventually;

use crate::harness::SOON;

/// What every panic of this file says.
pub(super) const CANARY: &str = "canary-of-a-panic";

/// Where the code of a user panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    Nowhere,
    /// In a source of credentials.
    Fingerprint,
    Asked,
    Awaited,
    RenewEvery,
    SourceDropped,
    /// In the service of a client.
    Called,
    Answering,
    AnsweringSecrets,
    Reading,
    BodyDropped,
    /// In a provider.
    Started,
    Listened,
    Shown,
    StreamDropped,
}

/// Panics where it is told to, and counts how often it did.
#[derive(Clone, Debug)]
pub(super) struct Trap(Arc<(Mutex<At>, AtomicUsize)>);

impl Trap {
    pub(super) fn at(at: At) -> Self {
        Self(Arc::new((Mutex::new(at), AtomicUsize::new(0))))
    }

    pub(super) fn now(&self) -> At {
        *self.0.0.lock().unwrap()
    }

    pub(super) fn set(&self, at: At) {
        *self.0.0.lock().unwrap() = at;
    }

    pub(super) fn pass(&self, at: At) {
        if self.now() == at {
            self.0.1.fetch_add(1, Ordering::SeqCst);
            panic!("{CANARY} at {at:?}");
        }
    }

    pub(super) fn panics(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }

    pub(super) async fn panics_again(&self, times: usize) {
        let before = self.panics();
        let what = format!("{times} more panics after {before}");
        eventually(SOON, what, || self.panics() >= before + times).await;
    }
}

/// Waits until a cluster is unreachable for this reason, and looks that the panic is not quoted.
pub(super) async fn unreachable(cluster: &Cluster, because: &str) {
    let state = crate::common::unreachable(cluster, because).await;
    assert!(!state.to_string().contains(CANARY), "{state}");
}
