//! A connection: a stream, and how to read and write it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::{buffer, error::Error};

/// The size of a read until the head of a response is complete. Content that arrives with the head is copied once more, so the
/// size is smaller than the receive buffer.
pub const HEAD_READ: usize = 8 << 10;

/// A connection without a request under way.
///
/// It holds the stream and nothing else. `Io` is a connected stream such as `TcpStream`, a TLS stream, or a box of one.
#[derive(Debug)]
pub struct Connection<Io>(Io);

impl<Io> Connection<Io> {
    /// A connection over an established stream.
    pub fn new(io: Io) -> Self {
        Self(io)
    }

    /// The stream, for another protocol or another HTTP client. No byte of it has been read ahead.
    pub fn into_inner(self) -> Io {
        self.0
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Connection<Io> {
    /// Whether an idle connection can take a request: the server has neither closed it nor sent anything unasked.
    ///
    /// Never waits. It tries to read, which finds both in the socket and in the buffer of a TLS stream.
    pub fn is_usable(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.poll_read(&mut context, HEAD_READ, |_| ()).is_pending()
    }

    pub(crate) async fn write(&mut self, request: &[u8]) -> Result<(), Error> {
        self.0.write_all(request).await.map_err(Error::Io)?;
        self.0.flush().await.map_err(Error::Io)
    }

    /// Reads at most `len` bytes and passes them to `take`. Returns their number, which is 0 at the end of the stream.
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        len: usize,
        take: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<usize>> {
        buffer::with(len, |buffer| {
            let mut buffer = ReadBuf::new(buffer);
            ready!(Pin::new(&mut self.0).poll_read(context, &mut buffer))?;
            take(buffer.filled());
            Poll::Ready(Ok(buffer.filled().len()))
        })
    }
}
