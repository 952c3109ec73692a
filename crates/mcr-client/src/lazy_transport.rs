//! A transport that is created on first use.
//!
//! Most clusters in scopes never send a request: users read their stores, which the watches of the scope endpoint fill.

use std::sync::{Arc, Mutex, OnceLock};

use mcr_access::internal::lock;

use crate::transport::Transport;

/// A transport that is created on first use.
#[derive(Default)]
pub struct LazyTransport {
    created: OnceLock<Transport>,
    /// Locked while the transport is created and while the barrier changes, so that the new transport gets the newest
    /// barrier.
    barrier: Mutex<Barrier>,
}

/// Whether requests are refused.
#[derive(Default)]
enum Barrier {
    #[default]
    None,
    Blocked(Arc<str>),
    Closed,
}

impl LazyTransport {
    /// The transport, which `create` makes on first use.
    pub fn get(&self, create: impl FnOnce() -> Transport) -> &Transport {
        if let Some(created) = self.created.get() {
            return created;
        }
        let barrier = lock(&self.barrier);
        self.created.get_or_init(|| {
            let transport = create();
            match &*barrier {
                Barrier::None => {}
                Barrier::Blocked(reason) => transport.block(Some(reason.clone())),
                Barrier::Closed => transport.close(),
            }
            transport
        })
    }

    /// The transport, if it exists already.
    pub fn created(&self) -> Option<&Transport> {
        self.created.get()
    }

    /// Makes requests fail at once with a reason. `None` lets them through again.
    pub fn block(&self, reason: Option<Arc<str>>) {
        let mut barrier = lock(&self.barrier);
        if let Some(created) = self.created.get() {
            created.block(reason.clone());
        }
        if !matches!(*barrier, Barrier::Closed) {
            *barrier = reason.map_or(Barrier::None, Barrier::Blocked);
        }
    }

    /// Closes the transport for good.
    pub fn close(&self) {
        let mut barrier = lock(&self.barrier);
        *barrier = Barrier::Closed;
        if let Some(created) = self.created.get() {
            created.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use kube::client::Body;
    use mcr_access::ClusterName;

    use super::*;
    use crate::TransportErrorKind;

    async fn refusal(lazy: &LazyTransport) -> TransportErrorKind {
        let transport = lazy.get(|| Transport::new(ClusterName::new("a").unwrap()));
        let request = Request::get("/version").body(Body::empty()).unwrap();
        transport.send(request).await.unwrap_err().kind().clone()
    }

    #[tokio::test]
    async fn what_was_said_before_it_was_made_holds() {
        let lazy = LazyTransport::default();
        lazy.block(Some("asleep".into()));
        let TransportErrorKind::NotConnected { reason } = refusal(&lazy).await else {
            panic!("it is not blocked")
        };
        assert_eq!(&*reason, "asleep");

        let lazy = LazyTransport::default();
        lazy.block(Some("asleep".into()));
        lazy.close();
        lazy.block(None);
        assert_eq!(refusal(&lazy).await, TransportErrorKind::Gone);
    }

    #[tokio::test]
    async fn what_is_said_after_it_was_made_holds_too() {
        let lazy = LazyTransport::default();
        let TransportErrorKind::NotConnected { reason } = refusal(&lazy).await else {
            panic!("it has no connection")
        };
        assert_ne!(&*reason, "asleep");
        lazy.block(Some("asleep".into()));
        let TransportErrorKind::NotConnected { reason } = refusal(&lazy).await else {
            panic!("it is not blocked")
        };
        assert_eq!(&*reason, "asleep");
        lazy.close();
        assert_eq!(refusal(&lazy).await, TransportErrorKind::Gone);
    }
}
