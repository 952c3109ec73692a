//! TLS to a server over rustls' API without buffers: nothing is held for a connection on which nothing is under way.
//!
//! A fleet waits on one connection for each watch. rustls' own stream keeps 4 KiB for each of them to read into, never
//! reads more than that at once, and copies what it has decrypted twice more. Here all connections of a thread are read
//! into one buffer, decrypted there, and the content goes to whoever reads, record by record.

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
    /// Encrypted: at most a record, and what the protocol itself has to say.
    unsent: BytesMut,
    /// Whether we have said that nothing more comes.
    closed: bool,
    /// Whether the server has said that nothing more comes.
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

/// What the server is told of an error.
fn last_words(tls: &mut UnbufferedClientConnection, received: &mut [u8], unsent: &mut BytesMut) {
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
    /// Shakes hands with the server. Dropping the future closes the connection.
    pub(super) async fn connect(
        io: I,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let mut stream = Self {
            io,
            tls: UnbufferedClientConnection::new(config, name).map_err(io::Error::other)?,
            partial: Vec::new(),
            content: BytesMut::new(),
            unsent: BytesMut::new(),
            closed: false,
            ended: false,
            broken: false,
            failed: None,
        };
        let mut early = BytesMut::new();
        let mut step = stream.catch_up()?;
        loop {
            poll_fn(|context| stream.poll_send(context)).await?;
            match step {
                Step::Handshake => {}
                Step::Open => break,
                Step::Ended => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
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
        // What can't be sent now is sent before the next that is written.
        match self.poll_send(context) {
            Poll::Ready(Err(error)) => Poll::Ready(step.and(Err(error))),
            _ => Poll::Ready(step),
        }
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
            last_words(&mut self.tls, rest, &mut self.unsent);
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
        ready!(this.poll_send(context))?;
        let content = content.get(..RECORD).unwrap_or(content);
        this.encrypt(content.len() + OVERHEAD, |open, room| open.encrypt(content, room))?;
        // It is taken over, whether or not it can be sent at once.
        match this.poll_send(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(content.len())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_send(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.closed {
            this.encrypt(OVERHEAD, |open, room| open.queue_close_notify(room))?;
            this.closed = true;
        }
        ready!(this.poll_send(context))?;
        Pin::new(&mut this.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;
    use rcgen::generate_simple_self_signed;
    use rustls::{RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion, version};
    use rustls_pki_types::PrivateKeyDer;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
        runtime,
    };
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::access::pem;

    /// A server called `a`, and who trusts it.
    fn peers(version: &'static SupportedProtocolVersion) -> (ServerConfig, Arc<ClientConfig>) {
        let made = generate_simple_self_signed(["a".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let chain = vec![made.cert.der().clone()];
        let mut roots = RootCertStore::empty();
        roots.add(chain[0].clone()).unwrap();
        let server = ServerConfig::builder_with_provider(pem::provider().clone())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let client = ClientConfig::builder_with_provider(pem::provider().clone())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        (server, client.into())
    }

    fn versions() -> impl Strategy<Value = &'static SupportedProtocolVersion> {
        prop_oneof![Just(&version::TLS13), Just(&version::TLS12)]
    }

    fn name() -> ServerName<'static> {
        "a".try_into().unwrap()
    }

    fn run<T>(test: impl Future<Output = T>) -> T {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(test)
    }

    /// Passes on no more at once than it is told, in turn, and before each time nothing.
    struct Cuts<I> {
        inner: I,
        cuts: Vec<usize>,
        turn: usize,
    }

    impl<I> Cuts<I> {
        fn next(&mut self, context: &mut Context<'_>) -> Poll<usize> {
            self.turn += 1;
            if self.turn.is_multiple_of(2) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(self.cuts[self.turn / 2 % self.cuts.len()])
        }
    }

    impl<I: AsyncRead + Unpin> AsyncRead for Cuts<I> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let mut part = vec![0; ready!(self.next(context)).min(buffer.remaining())];
            let mut part = ReadBuf::new(&mut part);
            ready!(Pin::new(&mut self.inner).poll_read(context, &mut part))?;
            buffer.put_slice(part.filled());
            Poll::Ready(Ok(()))
        }
    }

    impl<I: AsyncWrite + Unpin> AsyncWrite for Cuts<I> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let len = ready!(self.next(context)).min(bytes.len());
            Pin::new(&mut self.inner).poll_write(context, &bytes[..len])
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_flush(context)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_shutdown(context)
        }
    }

    /// A server whose bytes are handed over one answer at a time, whatever they are.
    struct Script {
        server: ServerConnection,
        /// What it says after the handshake.
        after: Vec<u8>,
        outgoing: VecDeque<u8>,
        told: bool,
    }

    impl AsyncRead for Script {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.outgoing.is_empty() && !self.server.is_handshaking() && !self.told {
                self.told = true;
                let after = std::mem::take(&mut self.after);
                self.outgoing.extend(after);
            }
            let len = self.outgoing.len().min(buffer.remaining());
            let bytes: Vec<u8> = self.outgoing.drain(..len).collect();
            buffer.put_slice(&bytes);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Script {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let mut rest = bytes;
            while !rest.is_empty() {
                self.server.read_tls(&mut rest)?;
                // What it thinks of an alert is of no interest.
                let _ = self.server.process_new_packets();
            }
            let mut outgoing = Vec::new();
            while self.server.wants_write() {
                self.server.write_tls(&mut outgoing)?;
            }
            self.outgoing.extend(outgoing);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn script(server: ServerConfig, after: Vec<u8>) -> Script {
        Script {
            server: ServerConnection::new(server.into()).unwrap(),
            after,
            outgoing: VecDeque::new(),
            told: false,
        }
    }

    /// A connection that is shaken, to a server that does the rest.
    async fn connected<Fut: Future<Output = ()> + Send + 'static>(
        version: &'static SupportedProtocolVersion,
        serve: impl FnOnce(tokio_rustls::server::TlsStream<DuplexStream>) -> Fut + Send + 'static,
    ) -> TlsStream<DuplexStream> {
        let (server, client) = peers(version);
        let (ours, theirs) = duplex(1 << 20);
        tokio::spawn(async move {
            let accepted = TlsAcceptor::from(Arc::new(server)).accept(theirs).await;
            serve(accepted.unwrap()).await;
        });
        TlsStream::connect(ours, client, name()).await.unwrap()
    }

    #[tokio::test]
    async fn nothing_is_held_while_nothing_is_under_way() {
        let stream = connected(&version::TLS13, |mut server| async move {
            server.write_all(&[7; 100_000]).await.unwrap();
            server.flush().await.unwrap();
            std::future::pending().await
        });
        let mut stream = stream.await;
        stream.write_all(b"a request").await.unwrap();
        stream.read_exact(&mut vec![0; 100_000]).await.unwrap();
        let held = [
            stream.partial.capacity(),
            stream.content.capacity(),
            stream.unsent.capacity(),
        ];
        assert_eq!(held, [0, 0, 0]);
    }

    #[tokio::test]
    async fn what_was_not_said_to_be_the_end_is_a_failure_after_what_came_before() {
        for version in [&version::TLS13, &version::TLS12] {
            let mut stream = connected(version, |mut server| async move {
                server.write_all(b"all there is").await.unwrap();
                server.flush().await.unwrap();
            })
            .await;
            let mut read = Vec::new();
            let error = stream.read_to_end(&mut read).await.unwrap_err();
            assert_eq!(read, b"all there is");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[tokio::test]
    async fn what_was_changed_on_its_way_is_refused_after_what_came_before() {
        for version in [&version::TLS13, &version::TLS12] {
            let (server, client) = peers(version);
            let mut stream = TlsStream::connect(script(server, Vec::new()), client, name())
                .await
                .unwrap();
            let server = &mut stream.io.server;
            io::Write::write_all(&mut server.writer(), b"whole").unwrap();
            let mut sent = Vec::new();
            server.write_tls(&mut sent).unwrap();
            io::Write::write_all(&mut server.writer(), b"to be changed").unwrap();
            server.write_tls(&mut sent).unwrap();
            *sent.last_mut().unwrap() ^= 1;
            stream.io.outgoing.extend(sent);

            let mut read = [0; 64];
            assert_eq!(stream.read(&mut read).await.unwrap(), 5);
            let error = stream.read(&mut read).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            let why = error.get_ref().unwrap().downcast_ref::<rustls::Error>();
            assert_eq!(why, Some(&rustls::Error::DecryptError));
            // The server was told, and nothing goes over it any more.
            let told = stream.io.server.process_new_packets().unwrap_err();
            let alert = rustls::AlertDescription::BadRecordMac;
            assert_eq!(told, rustls::Error::AlertReceived(alert));
            assert!(stream.read(&mut read).await.is_err());
            assert!(stream.write(b"more").await.is_err());
        }
    }

    #[tokio::test]
    async fn an_end_is_told_and_nothing_is_written_behind_it() {
        let mut stream = connected(&version::TLS13, |mut server| async move {
            let mut read = Vec::new();
            // With an error if it had been cut off.
            server.read_to_end(&mut read).await.unwrap();
            server.write_all(&read).await.unwrap();
            server.shutdown().await.unwrap();
        })
        .await;
        stream.write_all(b"echo").await.unwrap();
        stream.shutdown().await.unwrap();
        assert!(stream.write(b"more").await.is_err());
        let mut read = Vec::new();
        stream.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"echo");
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn what_comes_with_the_handshake_is_not_lost() {
        let (mut server, client) = peers(&version::TLS13);
        server.send_half_rtt_data = true;
        let mut script = script(server, Vec::new());
        io::Write::write_all(&mut script.server.writer(), b"early").unwrap();
        let mut stream = TlsStream::connect(script, client, name()).await.unwrap();
        let mut read = [0; 5];
        stream.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"early");
    }

    #[tokio::test]
    async fn a_handshake_without_end_is_given_up() {
        let (_, client) = peers(&version::TLS13);
        let (ours, theirs) = duplex(64);
        let (mut hello, mut theirs) = tokio::io::split(theirs);
        tokio::spawn(async move { tokio::io::copy(&mut hello, &mut tokio::io::sink()).await });
        let sent = tokio::spawn(async move {
            // A certificate of 16 MiB, byte for byte in a record of its own.
            let mut sent = 0_usize;
            let begin = [22, 3, 3, 0, 4, 11, 255, 255, 255];
            let mut bytes = theirs.write_all(&begin).await;
            while bytes.is_ok() {
                bytes = theirs.write_all(&[22, 3, 3, 0, 1, 0]).await;
                sent += 6;
            }
            sent
        });
        let failed = TlsStream::connect(ours, client, name()).await.err().unwrap();
        assert_eq!(failed.kind(), io::ErrorKind::InvalidData);
        assert!(sent.await.unwrap() <= 2 * SPACE);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn content_is_whole_wherever_it_is_cut(
            version in versions(),
            parts in prop::collection::vec(prop_oneof![1..200_usize, 1..40_000_usize], 1..4),
            mut cuts in prop::collection::vec(prop_oneof![1..9_usize, 1..2_000_usize], 0..4),
            at_once in 500..40_000_usize,
            keys in any::<bool>(),
        ) {
            // Byte by byte only it would take too long.
            cuts.push(10_000);
            let (server, client) = peers(version);
            let (ours, theirs) = duplex(at_once);
            let parts: Vec<Vec<u8>> = parts.iter().enumerate().map(|(at, len)| vec![at as u8; *len]).collect();
            let all = parts.concat();
            run(async {
                let (to_echo, len) = (parts.clone(), all.len());
                let server = tokio::spawn(async move {
                    let mut stream = TlsAcceptor::from(Arc::new(server)).accept(theirs).await.unwrap();
                    for part in to_echo {
                        stream.write_all(&part).await.unwrap();
                        if keys && version.version == rustls::ProtocolVersion::TLSv1_3 {
                            stream.get_mut().1.refresh_traffic_keys().unwrap();
                        }
                    }
                    stream.flush().await.unwrap();
                    let mut read = vec![0; len];
                    stream.read_exact(&mut read).await.unwrap();
                    stream.shutdown().await.unwrap();
                    read
                });
                let io = Cuts { inner: ours, cuts, turn: 0 };
                let mut stream = TlsStream::connect(io, client, name()).await.unwrap();
                let mut read = vec![0; len];
                stream.read_exact(&mut read).await.unwrap();
                prop_assert!(read == all);
                for part in &parts {
                    stream.write_all(part).await.unwrap();
                }
                stream.flush().await.unwrap();
                prop_assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
                prop_assert!(server.await.unwrap() == all);
                Ok(())
            })?;
        }

        #[test]
        fn nothing_that_comes_makes_it_panic(
            version in versions(),
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            record in prop_oneof![Just(0_u8), 20..25_u8],
            cuts in prop::collection::vec(1..400_usize, 1..4),
            flipped in any::<prop::sample::Index>(),
        ) {
            // A head that is right leads further in.
            let mut said = bytes.clone();
            if record > 0 {
                let len = bytes.len() as u16;
                said = [&[record, 3, 3][..], &len.to_be_bytes(), &bytes].concat();
            }
            run(async {
                let (server, client) = peers(version);
                let mut io = script(server.clone(), Vec::new());
                io.server = ServerConnection::new(server.clone().into()).unwrap();
                io.outgoing.extend(&said);
                let inner = Cuts { inner: io, cuts: cuts.clone(), turn: 0 };
                if let Ok(mut stream) = TlsStream::connect(inner, client.clone(), name()).await {
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                }
                let inner = Cuts { inner: script(server.clone(), said), cuts: cuts.clone(), turn: 0 };
                let mut stream = TlsStream::connect(inner, client.clone(), name()).await.unwrap();
                let _ = stream.read_to_end(&mut Vec::new()).await;
                let _ = stream.write_all(b"more").await;
                let _ = stream.shutdown().await;

                // A handshake of which one byte is another.
                let mut io = script(server, Vec::new());
                let mut hello = UnbufferedClientConnection::new(client.clone(), name()).unwrap();
                let mut first = BytesMut::new();
                let _ = advance(&mut hello, &mut [], &mut first, |_| ());
                let _ = Pin::new(&mut io).poll_write(&mut Context::from_waker(std::task::Waker::noop()), &first);
                let at = flipped.index(io.outgoing.len());
                io.outgoing[at] ^= 1;
                let mut unsent = BytesMut::new();
                let mut answer: Vec<u8> = io.outgoing.drain(..).collect();
                let stream = TlsStream {
                    io,
                    tls: hello,
                    partial: Vec::new(),
                    content: BytesMut::new(),
                    unsent: std::mem::take(&mut unsent),
                    closed: false,
                    ended: false,
                    broken: false,
                    failed: None,
                };
                let mut stream = stream;
                let _ = stream.go_on(&mut answer, |_| ());
                let _ = stream.read_to_end(&mut Vec::new()).await;
                let _ = stream.write_all(b"more").await;
            });
        }
    }
}
