//! The service below a cluster's `kube::Client`.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use tower::Service;

use crate::{body::ResponseBody, current::CurrentChannel, error::TransportError, guard::guard};

#[derive(Clone)]
pub(super) struct ClientService(pub(super) Arc<CurrentChannel>);

impl Service<Request<Body>> for ClientService {
    type Response = Response<ResponseBody>;
    type Error = TransportError;
    type Future = BoxFuture<'static, Result<Self::Response, TransportError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let current = self.0.clone();
        Box::pin(async move {
            let response = current.send(request).await?;
            guard(response, current.state.settings.body_limit)
                .await
                .map_err(|error| error.in_cluster(&current.state.cluster))
        })
    }
}
