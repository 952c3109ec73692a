//! The placement of a cluster in a scope: its scope endpoint and its place there.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use mcr_access::internal::lock;
use mcr_client::{
    AnswerBody, Route, Transport,
    internal::user_code::{CatchPanic, LAYOUT},
};
use mcr_watch::internal::SharedWatch;

use super::endpoint::ScopeEndpoint;
use crate::{
    BoxError, ClusterName, ScopeLayout, Upstream,
    fleet::cluster::{ConnectionInfo, ScopePlacement},
};

/// The placement of a cluster in a scope. It changes when the cluster moves.
pub(crate) struct ClusterPlacement(Mutex<(Arc<ScopeEndpoint>, Arc<str>)>);

impl ClusterPlacement {
    pub(super) fn new(endpoint: Arc<ScopeEndpoint>, place: Arc<str>) -> Self {
        Self(Mutex::new((endpoint, place)))
    }

    fn current(&self) -> (Arc<ScopeEndpoint>, Arc<str>) {
        lock(&self.0).clone()
    }

    pub(crate) fn endpoint(&self) -> Arc<ScopeEndpoint> {
        self.current().0
    }

    /// Changes the placement, and returns the endpoint before.
    pub(super) fn change(&self, endpoint: Arc<ScopeEndpoint>, place: Arc<str>) -> Arc<ScopeEndpoint> {
        std::mem::replace(&mut *lock(&self.0), (endpoint, place)).0
    }

    pub(super) fn is_behind(&self, endpoint: &ScopeEndpoint) -> bool {
        self.endpoint_id() == endpoint.id
    }
}

impl ScopePlacement for ClusterPlacement {
    fn scope(&self) -> Arc<str> {
        self.endpoint().scope.name().into()
    }

    fn endpoint_id(&self) -> u64 {
        lock(&self.0).0.id
    }

    fn layout(&self) -> Arc<dyn ScopeLayout> {
        self.endpoint().scope.layout().clone()
    }

    fn default_namespace(&self) -> String {
        let (endpoint, place) = self.current();
        endpoint.scope.layout().default_namespace(&place).into_owned()
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

    fn join(&self, watch: &Arc<SharedWatch>) {
        watch.join_with(|| {
            let (endpoint, place) = self.current();
            endpoint.join(watch, &place);
        });
    }
}

impl Route for ClusterPlacement {
    fn send(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>> {
        let (endpoint, place) = self.current();
        let layout = endpoint.scope.layout().clone();
        let sent = async move { layout.send(place, request, Upstream::new(endpoint)).await };
        // A panic of the layout must not end the task that sends the request, because other requests may depend on it.
        let sent = CatchPanic::new(LAYOUT, Box::pin(sent));
        Box::pin(async move { sent.await? })
    }
}
