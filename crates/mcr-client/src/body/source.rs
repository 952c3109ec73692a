//! The origins of response bodies.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use mcr_access::BoxError;

use crate::{
    answer_body::AnswerBody,
    error::TransportError,
    frame::append_data,
    pool::PooledBody,
    user_code::{CLIENT, CatchPanic, LAYOUT, TRANSPORT_LAYER},
};

/// Where the bytes of a response body come from.
pub(crate) enum BodySource {
    Pooled(PooledBody),
    Client(CatchPanic<kube::client::Body>),
    Routed(CatchPanic<AnswerBody>),
    Layered(CatchPanic<AnswerBody>),
    /// The response guard has read the body already.
    Buffered(Option<Bytes>),
    /// The transport has closed the connection.
    Closed,
}

/// Why a body ended early.
pub(crate) enum ReadError {
    /// The transport has closed the connection.
    Closed,
    Failed(BoxError),
    /// The body below a layer has explained it already.
    Reported(Box<TransportError>),
}

impl ReadError {
    fn of_layer(self) -> Self {
        match self {
            Self::Failed(error) => error
                .downcast::<TransportError>()
                .map_or_else(Self::Failed, Self::Reported),
            other => other,
        }
    }
}

impl BodySource {
    pub(super) fn client(body: kube::client::Body) -> Self {
        Self::Client(CatchPanic::new(CLIENT, body))
    }

    pub(super) fn layered(body: AnswerBody) -> Self {
        Self::Layered(CatchPanic::new(TRANSPORT_LAYER, body))
    }

    pub(super) fn routed(body: AnswerBody) -> Self {
        Self::Routed(CatchPanic::new(LAYOUT, body))
    }

    /// Appends the next part of the body to `bytes`. `None` is the end of the body.
    pub(super) fn poll_append(
        &mut self,
        context: &mut Context<'_>,
        bytes: &mut Vec<u8>,
    ) -> Poll<Option<Result<(), ReadError>>> {
        match self {
            Self::Pooled(body) => body.poll_append(context, bytes).map_err(ReadError::Failed),
            other => append_data(Pin::new(other).poll_frame(context), bytes),
        }
    }
}

impl Body for BodySource {
    type Data = Bytes;
    type Error = ReadError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReadError>>> {
        match self.get_mut() {
            Self::Pooled(body) => Pin::new(body).poll_frame(context).map_err(ReadError::Failed),
            Self::Client(body) => poll_user_body(body, context),
            Self::Routed(body) => poll_user_body(body, context),
            Self::Layered(body) => poll_user_body(body, context).map_err(ReadError::of_layer),
            Self::Buffered(bytes) => {
                let bytes = bytes.take().filter(|bytes| !bytes.is_empty());
                Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Closed => Poll::Ready(Some(Err(ReadError::Closed))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Pooled(body) => body.is_end_stream(),
            Self::Client(body) => body.inspect(Body::is_end_stream).unwrap_or_default(),
            Self::Routed(body) | Self::Layered(body) => body.inspect(Body::is_end_stream).unwrap_or_default(),
            Self::Buffered(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Closed => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Pooled(body) => body.size_hint(),
            Self::Client(body) => body.inspect(Body::size_hint).unwrap_or_default(),
            Self::Routed(body) | Self::Layered(body) => body.inspect(Body::size_hint).unwrap_or_default(),
            Self::Buffered(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Closed => SizeHint::default(),
        }
    }
}

fn poll_user_body<B>(
    body: &mut CatchPanic<B>,
    context: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, ReadError>>>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    match body.with(|body| Pin::new(body).poll_frame(context)) {
        Ok(polled) => polled.map_err(|error| ReadError::Failed(error.into())),
        Err(panicked) => Poll::Ready(Some(Err(ReadError::Failed(panicked.into())))),
    }
}
