//! What a cluster's `kube::Client` runs on.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use tower::Service;

use crate::{ResponseBody, TransportError, core::Core, guard::guard};

#[derive(Clone)]
pub(super) struct ClientService(pub(super) Arc<Core>);

impl Service<Request<Body>> for ClientService {
    type Response = Response<ResponseBody>;
    type Error = TransportError;
    type Future = BoxFuture<'static, Result<Self::Response, TransportError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let core = self.0.clone();
        Box::pin(async move {
            let response = core.send(request).await?;
            guard(response)
                .await
                .map_err(|error| error.in_cluster(&core.shared.cluster))
        })
    }
}
