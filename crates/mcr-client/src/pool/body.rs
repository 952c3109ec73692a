//! The body of a response over a pooled connection.

use std::{
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use mcr_access::BoxError;

use super::{
    hyper_connection::HyperConnection,
    idle::{IdleConnection, IdleConnections},
};
use crate::{connect::Stream, frame::append_data};

pub(super) type H1Content = mcr_h1::Content<Box<Stream>>;

/// The body of a response over a pooled connection.
///
/// The connection returns to the pool with the last part of the body. It closes when the body is dropped before its end.
pub(crate) enum PooledBody {
    H1 {
        content: H1Content,
        idle: Weak<IdleConnections>,
    },
    Hyper {
        body: Incoming,
        /// None if the connection can't return, or has returned.
        connection: Option<(HyperConnection, Weak<IdleConnections>)>,
    },
}

impl PooledBody {
    pub(super) fn h1(content: H1Content, idle: &Arc<IdleConnections>) -> Self {
        let mut body = Self::H1 {
            content,
            idle: Arc::downgrade(idle),
        };
        body.return_connection();
        body
    }

    /// Returns the connection to the pool if the body has arrived to its end.
    fn return_connection(&mut self) {
        match self {
            Self::H1 { content, idle } => {
                if let Some(connection) = content.take_connection()
                    && let Some(idle) = idle.upgrade()
                {
                    idle.put(IdleConnection::H1(connection));
                }
            }
            Self::Hyper { connection, .. } => {
                if let Some((connection, idle)) = connection.take()
                    && let Some(idle) = idle.upgrade()
                {
                    idle.put(IdleConnection::Hyper(connection));
                }
            }
        }
    }

    /// Appends the next part of the body to `bytes`. `None` is the end of the body.
    pub(crate) fn poll_append(
        &mut self,
        context: &mut Context<'_>,
        bytes: &mut Vec<u8>,
    ) -> Poll<Option<Result<(), BoxError>>> {
        if let Self::H1 { content, .. } = self {
            let read = ready!(content.poll_append(context, bytes));
            self.return_connection();
            return Poll::Ready(read.map(|read| read.map_err(Into::into)));
        }
        append_data(Pin::new(self).poll_frame(context), bytes)
    }
}

impl Body for PooledBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let (body, connection) = match &mut *self {
            Self::H1 { content, .. } => {
                let frame = ready!(Pin::new(content).poll_frame(context));
                self.return_connection();
                return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
            }
            Self::Hyper { body, connection } => (body, connection),
        };
        let frame = ready!(Pin::new(&mut *body).poll_frame(context));
        if matches!(frame, Some(Err(_))) {
            *connection = None;
        } else if frame.is_none() || body.is_end_stream() {
            self.return_connection();
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::H1 { content, .. } => content.is_end_stream(),
            Self::Hyper { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::H1 { content, .. } => content.size_hint(),
            Self::Hyper { body, .. } => body.size_hint(),
        }
    }
}

impl Drop for PooledBody {
    fn drop(&mut self) {
        // Nobody reads an empty body, so its connection returns here.
        if self.is_end_stream() {
            self.return_connection();
        }
    }
}
