//! The transport of a cluster that may never send anything.
//!
//! Most clusters in scopes are only read from, through their endpoint's watches: what it takes to send requests is made
//! when the first one is sent.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use mcr_client::Transport;

/// See the module.
#[derive(Default)]
pub(super) struct LateTransport {
    made: OnceLock<Transport>,
    /// Held while the transport is made and while this changes, so that neither misses the other.
    barrier: Mutex<Barrier>,
}

/// What stands in the way of requests.
#[derive(Default)]
enum Barrier {
    #[default]
    None,
    Blocked(Arc<str>),
    Closed,
}

impl LateTransport {
    fn barrier(&self) -> MutexGuard<'_, Barrier> {
        self.barrier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The transport, made at this moment if it is the first one in which it is needed.
    pub(super) fn get(&self, make: impl FnOnce() -> Transport) -> &Transport {
        if let Some(made) = self.made.get() {
            return made;
        }
        let barrier = self.barrier();
        self.made.get_or_init(|| {
            let transport = make();
            match &*barrier {
                Barrier::None => {}
                Barrier::Blocked(reason) => transport.block(Some(reason.clone())),
                Barrier::Closed => transport.close(),
            }
            transport
        })
    }

    /// The transport, if it has been needed yet.
    pub(super) fn made(&self) -> Option<&Transport> {
        self.made.get()
    }

    /// Makes requests fail at once with this reason, or lets them through again.
    pub(super) fn block(&self, reason: Option<Arc<str>>) {
        let mut barrier = self.barrier();
        if let Some(made) = self.made.get() {
            made.block(reason.clone());
        }
        if !matches!(*barrier, Barrier::Closed) {
            *barrier = reason.map_or(Barrier::None, Barrier::Blocked);
        }
    }

    /// Ends everything for good.
    pub(super) fn close(&self) {
        let mut barrier = self.barrier();
        *barrier = Barrier::Closed;
        if let Some(made) = self.made.get() {
            made.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use kube::client::Body;

    use super::*;
    use crate::{ClusterName, TransportErrorKind};

    async fn refusal(late: &LateTransport) -> TransportErrorKind {
        let transport = late.get(|| Transport::new(ClusterName::new("a").unwrap()));
        let request = Request::get("/version").body(Body::empty()).unwrap();
        transport.send(request).await.unwrap_err().kind().clone()
    }

    #[tokio::test]
    async fn what_was_said_before_it_was_made_holds() {
        let late = LateTransport::default();
        late.block(Some("asleep".into()));
        let TransportErrorKind::NotConnected { reason } = refusal(&late).await else {
            panic!("it is not blocked")
        };
        assert_eq!(&*reason, "asleep");

        let late = LateTransport::default();
        late.block(Some("asleep".into()));
        late.close();
        late.block(None);
        assert_eq!(refusal(&late).await, TransportErrorKind::Gone);
    }

    #[tokio::test]
    async fn what_is_said_after_it_was_made_holds_too() {
        let late = LateTransport::default();
        let TransportErrorKind::NotConnected { reason } = refusal(&late).await else {
            panic!("it has no connection")
        };
        assert_ne!(&*reason, "asleep");
        late.block(Some("asleep".into()));
        let TransportErrorKind::NotConnected { reason } = refusal(&late).await else {
            panic!("it is not blocked")
        };
        assert_eq!(&*reason, "asleep");
        late.close();
        assert_eq!(refusal(&late).await, TransportErrorKind::Gone);
    }
}
