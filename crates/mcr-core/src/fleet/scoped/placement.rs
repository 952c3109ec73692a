//! The placement of a cluster in a scope: its scope endpoint and its place there.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use mcr_client::{
    AnswerBody, Route, Transport,
    internal::user_code::{CatchPanic, LAYOUT},
};
use mcr_watch::internal::{Grant, SharedWatch};
use parking_lot::Mutex;

use super::endpoint::ScopeEndpoint;
use crate::{
    fleet::cluster::{ConnectionInfo, ScopePlacement},
    scope::{ScopedAccess, Upstream},
};
use mcr_access::{BoxError, ClusterName};

/// The placement of a cluster in a scope. It changes when the cluster moves.
pub(crate) struct ClusterPlacement(Mutex<(Arc<ScopeEndpoint>, ScopedAccess)>);

impl ClusterPlacement {
    pub(super) fn new(endpoint: Arc<ScopeEndpoint>, at: &ScopedAccess) -> Self {
        Self(Mutex::new((endpoint, at.clone())))
    }

    fn current(&self) -> (Arc<ScopeEndpoint>, ScopedAccess) {
        self.0.lock().clone()
    }

    pub(crate) fn endpoint(&self) -> Arc<ScopeEndpoint> {
        self.current().0
    }

    /// Changes the placement, and returns the endpoint before.
    pub(super) fn change(&self, endpoint: Arc<ScopeEndpoint>, at: &ScopedAccess) -> Arc<ScopeEndpoint> {
        std::mem::replace(&mut *self.0.lock(), (endpoint, at.clone())).0
    }
}

impl ScopePlacement for ClusterPlacement {
    fn at(&self) -> ScopedAccess {
        self.current().1
    }

    fn is_behind(&self, endpoint: *const ()) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.0.lock().0), endpoint)
    }

    fn transport(self: Arc<Self>, cluster: &ClusterName) -> Transport {
        let endpoint = self.endpoint();
        let resources = &endpoint.resources;
        // The caller that sends the first request may be outside of a runtime.
        let _entered = resources.enter_runtime();
        let transport = Transport::new(cluster.clone());
        transport.swap(resources.dialer.route_channel(self));
        transport
    }

    fn connection(&self) -> Option<ConnectionInfo> {
        let connection = self.endpoint().connection()?;
        Some(connection.connection())
    }

    fn report_work(&self) {
        if let Some(connection) = self.endpoint().connection() {
            connection.report_work();
        }
    }

    fn join(&self, watch: &Arc<SharedWatch>) -> Option<Grant> {
        watch.join_with(|| {
            let (endpoint, at) = self.current();
            let kind = watch.request().resource_name();
            let reason = at.withheld.as_ref().and_then(|kinds| kinds.get(&kind));
            // First: the endpoint may have listed the kind for others.
            let grant = watch.withhold(reason.map(String::as_str));
            endpoint.join(watch, &at.place);
            grant
        })
    }
}

impl Route for ClusterPlacement {
    fn send(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>> {
        let (endpoint, at) = self.current();
        let upstream = Upstream::new(endpoint);
        let sent = async move { at.scope.layout().send(at.place, request, upstream).await };
        // A panic of the layout must not end the task that sends the request, because other requests may depend on it.
        let sent = CatchPanic::new(LAYOUT, Box::pin(sent));
        Box::pin(async move { sent.await? })
    }
}
