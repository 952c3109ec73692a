//! The body of a response through a route.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use mcr_access::BoxError;

/// The body of a response that arrives through the connection of another cluster. The layout of a scope may pass it on
/// unchanged, or replace it.
///
/// ```
/// use http_body_util::Full;
/// use mcr_client::AnswerBody;
///
/// let body = AnswerBody::new(Full::new("{}".into()));
/// let response = http::Response::new(body);
/// # let _ = response;
/// ```
pub struct AnswerBody(UnsyncBoxBody<Bytes, BoxError>);

impl AnswerBody {
    /// Boxes a body. Pass on an existing `AnswerBody` as it is, since `new` would box it once more.
    pub fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Self(body.map_err(Into::into).boxed_unsync())
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.get_mut().0).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerBody").finish_non_exhaustive()
    }
}
