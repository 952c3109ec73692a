//! The content of a response.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{buffer, connection::Connection, error::Error, framing::Framing};

/// The content of a response: an [`http_body::Body`], or appended to a `Vec` by [`poll_append`](Self::poll_append).
///
/// After its end, [`take_connection`](Self::take_connection) returns the connection for the next request. Dropping the content
/// before its end closes the connection. Trailers are read and dropped.
#[derive(Debug)]
pub struct Content<Io> {
    /// None after the connection failed or was taken.
    connection: Option<Connection<Io>>,
    framing: Framing,
    /// Whether the connection can be used again after the content.
    keep_alive: bool,
    /// Content that arrived together with the head.
    first: Bytes,
    /// The error to return after the last piece.
    error: Option<Error>,
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Content<Io> {
    /// `received` is what arrived after the head.
    pub(crate) fn new(
        connection: Connection<Io>,
        mut framing: Framing,
        keep_alive: bool,
        received: &[u8],
    ) -> Self {
        let mut first = Vec::with_capacity(received.len());
        let used = framing.read(received, &mut first);
        let mut content = Self {
            connection: used.is_ok().then_some(connection),
            framing,
            keep_alive: keep_alive && used == Ok(received.len()),
            first: first.into(),
            error: used.err().map(Error::from),
        };
        content.close_if_spent();
        content
    }

    /// Closes the connection at the end of the content if no other request can use it.
    fn close_if_spent(&mut self) {
        if self.framing.is_done() && !self.keep_alive {
            self.connection = None;
        }
    }

    /// The connection, if all content has arrived and the server keeps the connection open. Otherwise `None`.
    ///
    /// All content may have arrived before the last piece was read from this value.
    pub fn take_connection(&mut self) -> Option<Connection<Io>> {
        let complete = self.framing.is_done();
        self.connection.take_if(|_| complete)
    }

    /// Waits for content and appends it to `content`, without another buffer. `None` is the end. A piece has the size in which
    /// it arrives, at most 64 KiB.
    ///
    /// # Errors
    ///
    /// If the rest can't arrive. The connection is then closed, and the next call returns `None`.
    pub fn poll_append(
        &mut self,
        context: &mut Context<'_>,
        content: &mut Vec<u8>,
    ) -> Poll<Option<Result<(), Error>>> {
        let before = content.len();
        content.extend_from_slice(&std::mem::take(&mut self.first));
        while content.len() == before && self.is_reading() {
            ready!(self.poll_read(context, content));
        }
        Poll::Ready(if content.len() == before {
            self.error.take().map(Err)
        } else {
            Some(Ok(()))
        })
    }

    fn is_reading(&self) -> bool {
        self.connection.is_some() && !self.framing.is_done()
    }

    /// Reads once and appends the content that arrived, if any.
    fn poll_read(&mut self, context: &mut Context<'_>, content: &mut Vec<u8>) -> Poll<()> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(());
        };
        let mut used = Ok(0);
        let read = ready!(connection.poll_read(context, buffer::SIZE, |bytes| {
            used = self.framing.read(bytes, content);
        }));
        let error = match (read, used) {
            (Err(error), _) => Some(Error::Io(error)),
            (_, Err(malformed)) => Some(malformed.into()),
            (Ok(0), _) if self.framing == Framing::UntilClosed => None,
            (Ok(0), _) => Some(Error::Truncated),
            (Ok(read), Ok(used)) => {
                self.keep_alive &= used == read;
                self.close_if_spent();
                return Poll::Ready(());
            }
        };
        self.error = error;
        self.connection = None;
        Poll::Ready(())
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Body for Content<Io> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if !self.first.is_empty() {
            let first = std::mem::take(&mut self.first);
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let mut content = Vec::new();
        let read = ready!(self.poll_append(context, &mut content));
        Poll::Ready(read.map(|read| read.map(|()| Frame::data(content.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_empty() && !self.is_reading() && self.error.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.framing.remaining() {
            Some(remaining) => SizeHint::with_exact(remaining + self.first.len() as u64),
            None => SizeHint::default(),
        }
    }
}
