//! TLS to a server over rustls' unbuffered API: no buffer is held for a connection on which nothing is under way.
//!
//! A fleet waits on one connection for each watch. rustls' buffered API, and so tokio-rustls, keeps 4 KiB for each of them
//! to read into, never reads more than that at once, and copies what it has decrypted once more. Here all connections of a
//! thread are read into one buffer, and application data goes to whoever reads, record by record.
//!
//! rustls must be shown the same bytes again until it says that they are of no more use; and after an error it must not be
//! asked for more than its alert.

use std::{
    cell::Cell,
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, BytesMut};
use rustls::{
    ClientConfig,
    client::{ClientConnectionData, UnbufferedClientConnection},
    unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic},
};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What bounds how much is received at once. Room for the longest handshake message (64 KiB) and a record.
pub(super) const SPACE: usize = 80 << 10;

/// How much is encrypted at once: what a record holds.
const RECORD: usize = 16 << 10;

/// What a record takes beyond its content, at most (RFC 8446, section 5.2; RFC 5246, section 6.2.3).
const OVERHEAD: usize = 256;

thread_local! {
    static RECEIVING: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Lends the thread's buffer, or the beginning of it. To whoever is lent it already, another one is lent.
pub(super) fn with_space<T>(at_most: usize, with: impl FnOnce(&mut [u8]) -> T) -> T {
    let mut space = RECEIVING.try_with(Cell::take).unwrap_or_default();
    space.resize(SPACE, 0);
    let result = with(space.get_mut(..at_most.min(SPACE)).unwrap_or_default());
    // None while the thread ends.
    let _ = RECEIVING.try_with(|receiving| receiving.set(space));
    result
}

/// A connection by which content can be sent.
type Open<'a> = WriteTraffic<'a, ClientConnectionData>;

/// See the module.
pub(super) struct TlsStream<I> {
    io: I,
    tls: UnbufferedClientConnection,
    /// The beginning of what is whole only with what is still to come.
    partial: Vec<u8>,
    /// Decrypted before anybody asked for it.
    content: BytesMut,
    /// Encrypted: two records at most, and what the protocol itself has to say.
    unsent: BytesMut,
    /// Whether a writer is woken when more can be sent. Where who reads is another task, it must not take its place.
    writing: bool,
    /// Whether we have sent close_notify.
    closed: bool,
    /// Whether the server has sent close_notify.
    ended: bool,
    /// Whether anything that came was wrong.
    broken: bool,
    /// What was wrong, where content came before it.
    failed: Option<io::Error>,
}

/// How far a connection got with what has been received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Handshake,
    Open,
    Ended,
}

/// Goes on with what has been received, as far as that leads. Returns how much of it is of no more use.
fn advance(
    tls: &mut UnbufferedClientConnection,
    received: &mut [u8],
    unsent: &mut BytesMut,
    mut take: impl FnMut(&[u8]),
) -> (usize, Result<Step, rustls::Error>) {
    let mut used = 0;
    let mut ended = false;
    loop {
        let rest = received.get_mut(used..).unwrap_or_default();
        let UnbufferedStatus { mut discard, state } = tls.process_tls_records(rest);
        let step = match state {
            Ok(ConnectionState::ReadTraffic(mut records)) => loop {
                match records.next_record() {
                    Some(Ok(record)) => {
                        take(record.payload);
                        discard += record.discard;
                    }
                    Some(Err(error)) => break Err(error),
                    None => break Ok(None),
                }
            },
            Ok(ConnectionState::EncodeTlsData(data)) => {
                encode(data, unsent);
                Ok(None)
            }
            Ok(ConnectionState::TransmitTlsData(data)) => {
                // What is unsent is sent before anything else.
                data.done();
                Ok(None)
            }
            Ok(ConnectionState::BlockedHandshake) => Ok(Some(Step::Handshake)),
            Ok(ConnectionState::WriteTraffic(_)) => Ok(Some(Step::Open)),
            Ok(ConnectionState::PeerClosed) => {
                ended = true;
                Ok(None)
            }
            Ok(ConnectionState::Closed) => Ok(Some(Step::Ended)),
            Ok(_) => Err(rustls::Error::General("a state that no client is in".to_owned())),
            Err(error) => Err(error),
        };
        used += discard;
        match step {
            Ok(None) => {}
            Ok(Some(Step::Open)) if ended => return (used, Ok(Step::Ended)),
            Ok(Some(step)) => return (used, Ok(step)),
            Err(error) => return (used, Err(error)),
        }
    }
}

/// The alert of a fatal error.
fn alert(tls: &mut UnbufferedClientConnection, received: &mut [u8], unsent: &mut BytesMut) {
    // As long as it has anything to say, it does not look at what has been received.
    while tls.wants_write() {
        match tls.process_tls_records(received).state {
            Ok(ConnectionState::EncodeTlsData(data)) => encode(data, unsent),
            _ => return,
        }
    }
}

fn encode(mut data: EncodeTlsData<'_, ClientConnectionData>, unsent: &mut BytesMut) {
    // It says how much room it needs.
    if let Err(EncodeError::InsufficientSize(short)) = data.encode(&mut []) {
        let from = unsent.len();
        unsent.resize(from + short.required_size, 0);
        let _ = data.encode(unsent.get_mut(from..).unwrap_or_default());
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> TlsStream<I> {
    fn new(io: I, tls: UnbufferedClientConnection) -> Self {
        Self {
            io,
            tls,
            partial: Vec::new(),
            content: BytesMut::new(),
            unsent: BytesMut::new(),
            writing: false,
            closed: false,
            ended: false,
            broken: false,
            failed: None,
        }
    }

    /// Shakes hands with the server. What we say last is sent with the first content, or by a flush. Dropping the future
    /// closes the connection.
    pub(super) async fn connect(
        io: I,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let tls = UnbufferedClientConnection::new(config, name).map_err(io::Error::other)?;
        let mut stream = Self::new(io, tls);
        let mut early = BytesMut::new();
        let mut step = stream.catch_up()?;
        // A server ends only what was open; what it said before is still to be read.
        while step == Step::Handshake {
            poll_fn(|context| stream.poll_send(context)).await?;
            let mut take = |record: &[u8]| early.extend_from_slice(record);
            step = poll_fn(|context| stream.poll_receive(context, SPACE, &mut take)).await?;
        }
        stream.content = early;
        Ok(stream)
    }

    /// Receives once, at most so much.
    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        at_most: usize,
        take: impl FnMut(&[u8]),
    ) -> Poll<io::Result<Step>> {
        if self.broken {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let kept = self.partial.len();
        let step = ready!(with_space(kept.saturating_add(at_most), |space| {
            let mut buffer = ReadBuf::new(space);
            if kept >= SPACE {
                let error = io::Error::new(io::ErrorKind::InvalidData, "a TLS message that never ends");
                return Poll::Ready(Err(error));
            }
            buffer.put_slice(&self.partial);
            ready!(Pin::new(&mut self.io).poll_read(context, &mut buffer))?;
            let received = buffer.filled_mut();
            if received.len() == kept {
                // Without saying so, it may have been cut off (RFC 8446, section 6.1).
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            Poll::Ready(self.go_on(received, take))
        }));
        if step.is_err() {
            self.speak(context);
        }
        Poll::Ready(step)
    }

    /// Goes on with what has been received, and keeps what is not whole.
    fn go_on(&mut self, received: &mut [u8], take: impl FnMut(&[u8])) -> io::Result<Step> {
        if self.broken {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let (used, step) = advance(&mut self.tls, received, &mut self.unsent, take);
        let rest = received.get_mut(used..).unwrap_or_default();
        let step = step.map_err(|error| {
            self.broken = true;
            alert(&mut self.tls, rest, &mut self.unsent);
            io::Error::new(io::ErrorKind::InvalidData, error)
        });
        self.ended |= matches!(step, Ok(Step::Ended));
        // A new one each time, so that nothing is held where nothing is left.
        self.partial = rest.to_vec();
        step
    }

    /// Goes on without anything new.
    fn catch_up(&mut self) -> io::Result<Step> {
        // rustls remembers how far in it is.
        let mut partial = std::mem::take(&mut self.partial);
        let mut content = std::mem::take(&mut self.content);
        let step = self.go_on(&mut partial, |record| content.extend_from_slice(record));
        self.content = content;
        step
    }

    /// Sends what the protocol itself has to say, as far as that can be done at once: the end of a handshake, answers to key
    /// updates, alerts. If it can't be sent, what is received says why.
    fn speak(&mut self, context: &mut Context<'_>) {
        if !self.writing && !self.unsent.is_empty() {
            let _ = self.poll_send(context);
        }
    }

    /// Sends what is unsent, for a writer.
    fn poll_write_out(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = self.poll_send(context);
        self.writing = sent.is_pending();
        sent
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            match ready!(Pin::new(&mut self.io).poll_write(context, &self.unsent))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.unsent.advance(sent),
            }
        }
        if self.unsent.capacity() > 0 {
            self.unsent = BytesMut::new();
        }
        Pin::new(&mut self.io).poll_flush(context)
    }

    /// Hands over the content that has come, about as much as is said, record by record; returns how much that was, and 0
    /// at the end.
    pub(super) fn poll_content(
        &mut self,
        context: &mut Context<'_>,
        at_most: usize,
        mut take: impl FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        if !self.content.is_empty() {
            let content = std::mem::take(&mut self.content);
            take(&content);
            return Poll::Ready(Ok(content.len()));
        }
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        let mut len = 0;
        while len == 0 && !self.ended {
            self.speak(context);
            let step = ready!(self.poll_receive(context, at_most, |record| {
                len += record.len();
                take(record);
            }));
            match step {
                Err(error) if len == 0 => return Poll::Ready(Err(error)),
                // After what came before it.
                Err(error) => self.failed = Some(error),
                Ok(_) => {}
            }
        }
        Poll::Ready(Ok(len))
    }

    /// Encrypts something, behind what the protocol itself has to say. `room` is how much that takes, as a rule.
    fn encrypt(
        &mut self,
        mut room: usize,
        mut encrypt: impl FnMut(&mut Open<'_>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> io::Result<()> {
        if self.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.catch_up()?;
        let Ok(ConnectionState::WriteTraffic(mut open)) =
            self.tls.process_tls_records(&mut self.partial).state
        else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let from = self.unsent.len();
        loop {
            self.unsent.resize(from + room, 0);
            match encrypt(&mut open, self.unsent.get_mut(from..).unwrap_or_default()) {
                Err(EncryptError::InsufficientSize(short)) if short.required_size > room => {
                    room = short.required_size;
                }
                encrypted => {
                    self.unsent.truncate(from + encrypted.as_ref().unwrap_or(&0));
                    return encrypted.map(|_| ()).map_err(io::Error::other);
                }
            }
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.content.is_empty() {
            let mut content = BytesMut::new();
            ready!(this.poll_content(context, SPACE, |record| content.extend_from_slice(record)))?;
            this.content = content;
        }
        let len = this.content.len().min(buffer.remaining());
        buffer.put_slice(&this.content.split_to(len));
        if this.content.is_empty() {
            this.content = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        content: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        // The end of the handshake goes together with the first content.
        if this.unsent.len() >= RECORD {
            ready!(this.poll_write_out(context))?;
        }
        let content = content.get(..RECORD).unwrap_or(content);
        this.encrypt(content.len() + OVERHEAD, |open, room| open.encrypt(content, room))?;
        // It is taken over, whether or not it can be sent at once.
        match this.poll_write_out(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(content.len())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_write_out(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // After an error there is nothing more to be said than the alert.
        if !this.closed && !this.broken {
            this.encrypt(OVERHEAD, |open, room| open.queue_close_notify(room))?;
            this.closed = true;
        }
        ready!(this.poll_write_out(context))?;
        match ready!(Pin::new(&mut this.io).poll_shutdown(context)) {
            // By the server, meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            shut => Poll::Ready(shut),
        }
    }
}

#[cfg(test)]
mod tests;
