//! The client's side of a connection, as a stream of bytes that can become silent and can be reset.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::watch,
};
use tokio_util::sync::ReusableBoxFuture;

use super::certificates::Face;

/// How the proxy treats new connections. If several faults set a mode, the first mode in this order applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Mode {
    Refuse,
    BlackHole,
    Silent,
    Reset,
    #[default]
    Open,
}

/// The state of all connections of a proxy. Connections are numbered in the order of their arrival.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wire {
    pub(super) mode: Mode,
    pub(super) face: Face,
    /// Connections with a lower number stay silent for good.
    pub(super) dead_before: u64,
    /// Connections with a lower number are reset.
    pub(super) reset_before: u64,
}

impl Wire {
    fn freezes(&self, connection: u64) -> bool {
        matches!(self.mode, Mode::BlackHole | Mode::Silent) || connection < self.dead_before
    }

    pub(super) fn resets(&self, connection: u64) -> bool {
        connection < self.reset_before
    }
}

/// The most bytes that a frozen stream reads ahead. It must read, because otherwise the proxy would not notice that
/// the client has closed the connection.
const STASH: usize = 256 * 1024;

/// The client's side of a connection.
pub(super) struct FaultyStream {
    io: TcpStream,
    connection: u64,
    wire: watch::Receiver<Wire>,
    /// Wakes the connection's task when the state of the wire changes.
    changed: ReusableBoxFuture<'static, watch::Receiver<Wire>>,
    stash: BytesMut,
}

async fn changed(mut wire: watch::Receiver<Wire>) -> watch::Receiver<Wire> {
    if wire.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
    wire
}

impl FaultyStream {
    pub(super) fn new(io: TcpStream, connection: u64, wire: watch::Receiver<Wire>) -> Self {
        Self {
            io,
            connection,
            changed: ReusableBoxFuture::new(changed(wire.clone())),
            wire,
            stash: BytesMut::new(),
        }
    }

    /// Waits until the client has sent bytes and the stream is not frozen.
    pub(super) async fn wait_for_bytes(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| {
            if self.stash.is_empty() || self.is_frozen(cx) {
                ready!(self.poll_stash(cx))?;
            }
            if self.is_frozen(cx) {
                Poll::Pending
            } else {
                Poll::Ready(Ok(()))
            }
        })
        .await
    }

    /// Returns whether the stream is frozen. Registers the task to be woken when that changes.
    fn is_frozen(&mut self, cx: &mut Context<'_>) -> bool {
        while let Poll::Ready(wire) = self.changed.poll(cx) {
            self.changed.set(changed(wire));
        }
        self.wire.borrow().freezes(self.connection)
    }

    /// Reads into the stash. Ready when the stash has new bytes and the stream is not frozen.
    fn poll_stash(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let frozen = self.is_frozen(cx);
            if !frozen && !self.stash.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if self.stash.len() >= STASH {
                return Poll::Pending;
            }
            let mut space = [0; 8192];
            let mut space = ReadBuf::new(&mut space);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut space))?;
            if space.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            self.stash.extend_from_slice(space.filled());
        }
    }
}

impl AsyncRead for FaultyStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        if stream.is_frozen(cx) {
            ready!(stream.poll_stash(cx))?;
        }
        if stream.stash.is_empty() {
            return Pin::new(&mut stream.io).poll_read(cx, buf);
        }
        let count = stream.stash.len().min(buf.remaining());
        buf.put_slice(&stream.stash[..count]);
        stream.stash.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FaultyStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        if stream.is_frozen(cx) {
            return Poll::Pending;
        }
        Pin::new(&mut stream.io).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        if stream.is_frozen(cx) {
            return Poll::Pending;
        }
        Pin::new(&mut stream.io).poll_shutdown(cx)
    }
}

impl Drop for FaultyStream {
    fn drop(&mut self) {
        // With a linger time of zero, closing a socket sends a reset. If the option can't be set, closing the socket
        // sends a FIN.
        if self.wire.borrow().resets(self.connection) {
            let _ = self.io.set_zero_linger();
        }
    }
}
