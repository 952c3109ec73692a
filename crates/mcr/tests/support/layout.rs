//! A layout whose clusters are the namespaces behind an endpoint.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use mcr::{
    BoxError,
    core::{AnswerBody, ObjectMetadata, Placement, ScopeLayout, Upstream},
};

/// Each namespace is a cluster. Has whether deletions are certain.
pub(crate) struct Namespaces(pub(crate) fn() -> bool);

impl ScopeLayout for Namespaces {
    fn name(&self) -> &str {
        "namespaces"
    }

    fn deletions_are_certain(&self) -> bool {
        (self.0)()
    }

    fn place<'o>(&self, object: &ObjectMetadata<'o>) -> Option<Placement<'o>> {
        object.namespace().map(Placement::new)
    }

    fn send(
        &self,
        _: Arc<str>,
        request: Request<Body>,
        upstream: Upstream,
    ) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>> {
        Box::pin(async move { upstream.send(request).await })
    }
}
