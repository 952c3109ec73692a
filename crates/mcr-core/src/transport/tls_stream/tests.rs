//! Against servers of rustls' own, over wires that cut, change and end what is sent.

use std::{collections::VecDeque, task::Waker, time::Duration};

use proptest::prelude::*;
use rcgen::generate_simple_self_signed;
use rustls::{
    ProtocolVersion, RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion, version,
};
use rustls_pki_types::PrivateKeyDer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    net::{TcpListener, TcpStream},
    runtime,
    sync::oneshot,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::access::pem;

/// A server called `a`, and who trusts it.
fn peers(version: &'static SupportedProtocolVersion) -> (ServerConfig, Arc<ClientConfig>) {
    peers_named(version, vec!["a".to_owned()])
}

fn peers_named(
    version: &'static SupportedProtocolVersion,
    names: Vec<String>,
) -> (ServerConfig, Arc<ClientConfig>) {
    let made = generate_simple_self_signed(names).unwrap();
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
    reads: usize,
    writes: usize,
}

impl<I> Cuts<I> {
    fn new(inner: I, cuts: &[usize]) -> Self {
        let cuts = cuts.to_vec();
        Self {
            inner,
            cuts,
            reads: 0,
            writes: 0,
        }
    }
}

fn cut(turn: &mut usize, cuts: &[usize], context: &Context<'_>) -> Poll<usize> {
    *turn += 1;
    if turn.is_multiple_of(2) {
        context.waker().wake_by_ref();
        return Poll::Pending;
    }
    Poll::Ready(cuts[*turn / 2 % cuts.len()])
}

impl<I: AsyncRead + Unpin> AsyncRead for Cuts<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { cuts, reads, .. } = &mut *self;
        let mut part = vec![0; ready!(cut(reads, cuts, context)).min(buffer.remaining())];
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
        let Self { cuts, writes, .. } = &mut *self;
        let len = ready!(cut(writes, cuts, context)).min(bytes.len());
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
    /// Whether it ends the connection as soon as it may.
    ends: bool,
}

impl AsyncRead for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.outgoing.is_empty() && !self.server.is_handshaking() {
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
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut rest = bytes;
        while !rest.is_empty() {
            self.server.read_tls(&mut rest)?;
            // What it thinks of an alert is of no interest.
            let _ = self.server.process_new_packets();
        }
        let may_end =
            !self.server.is_handshaking() || self.server.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        if self.ends && may_end {
            self.server.send_close_notify();
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
        ends: false,
    }
}

/// A connection after its handshake, to a server that does the rest.
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
        stream.flush().await.unwrap();
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
async fn the_end_of_the_handshake_goes_with_what_is_written_first() {
    let (server, client) = peers(&version::TLS13);
    let mut stream = TlsStream::connect(script(server, Vec::new()), client, name())
        .await
        .unwrap();
    assert!(stream.io.server.is_handshaking());
    stream.write_all(b"a request").await.unwrap();
    assert!(!stream.io.server.is_handshaking());
    let mut read = Vec::new();
    let _ = io::Read::read_to_end(&mut stream.io.server.reader(), &mut read);
    assert_eq!(read, b"a request");
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
        // A message of as much as rustls reads, byte for byte in a record of its own.
        let mut sent = 0_usize;
        let begin = [22, 3, 3, 0, 4, 11, 0, 255, 255];
        let mut bytes = theirs.write_all(&begin).await;
        while bytes.is_ok() {
            bytes = theirs.write_all(&[22, 3, 3, 0, 1, 0]).await;
            sent += 6;
        }
        sent
    });
    let failed = TlsStream::connect(ours, client, name()).await.err().unwrap();
    assert_eq!(failed.to_string(), "a TLS message that never ends");
    let sent = sent.await.unwrap();
    assert!((SPACE / 2..2 * SPACE).contains(&sent), "{sent}");
}

/// Over an upgraded connection they are two tasks.
#[tokio::test]
async fn who_reads_does_not_take_the_place_of_who_writes() {
    let (server, client) = peers(&version::TLS13);
    let (ours, theirs) = duplex(4096);
    let (go, gone) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let mut server = TlsAcceptor::from(Arc::new(server)).accept(theirs).await.unwrap();
        gone.await.unwrap();
        server.write_all(b"hi").await.unwrap();
        server.flush().await.unwrap();
        sleep(Duration::from_millis(100)).await;
        server.read_exact(&mut vec![0; 100_000]).await.unwrap();
        std::future::pending::<()>().await;
    });
    let stream = TlsStream::connect(ours, client, name()).await.unwrap();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let reads = tokio::spawn(async move {
        reader.read_exact(&mut [0; 2]).await.unwrap();
        // Nothing more comes.
        let _ = reader.read(&mut [0; 2]).await;
    });
    let writes = tokio::spawn(async move {
        writer.write_all(&[1; 100_000]).await.unwrap();
        writer.flush().await.unwrap();
    });
    // By then the writer waits.
    sleep(Duration::from_millis(100)).await;
    go.send(()).unwrap();
    timeout(Duration::from_secs(10), writes).await.unwrap().unwrap();
    reads.abort();
}

/// As when it refuses an upload.
#[tokio::test]
async fn what_a_server_said_before_it_closed_is_read_though_nothing_can_be_sent() {
    let (server, client) = peers(&version::TLS13);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (full, is_full) = oneshot::channel::<()>();
    let (answered, is_answered) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let mut stream = TlsAcceptor::from(Arc::new(server)).accept(tcp).await.unwrap();
        is_full.await.unwrap();
        stream.write_all(&[7; 100_000]).await.unwrap();
        stream.shutdown().await.unwrap();
        // With what it has not read, it resets the connection.
        drop(stream);
        answered.send(()).unwrap();
    });
    let tcp = TcpStream::connect(address).await.unwrap();
    let mut stream = TlsStream::connect(tcp, client, name()).await.unwrap();
    let upload = vec![1; 64 << 20];
    let sent = timeout(Duration::from_millis(300), stream.write_all(&upload)).await;
    assert!(sent.is_err(), "it was read");
    full.send(()).unwrap();
    is_answered.await.unwrap();
    let mut read = Vec::new();
    let ended = stream.read_to_end(&mut read).await;
    assert_eq!(read.len(), 100_000, "{ended:?}");
}

#[tokio::test]
async fn what_a_server_says_and_ends_right_behind_its_handshake_is_read() {
    for version in [&version::TLS12, &version::TLS13] {
        let (mut server, client) = peers(version);
        server.send_half_rtt_data = true;
        let mut script = script(server, Vec::new());
        io::Write::write_all(&mut script.server.writer(), b"HTTP/1.1 503").unwrap();
        script.ends = true;
        let mut stream = TlsStream::connect(script, client, name()).await.unwrap();
        let mut read = Vec::new();
        // In TLS 1.2 it speaks when it has heard the end of the handshake.
        stream.flush().await.unwrap();
        stream.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"HTTP/1.1 503");
    }
}

#[tokio::test]
async fn a_connection_that_failed_says_so_again_and_can_be_shut() {
    let mut stream = connected(&version::TLS13, |mut server| async move {
        let wrong = [&[23, 3, 3, 0, 32][..], &[7; 32]].concat();
        server.get_mut().0.write_all(&wrong).await.unwrap();
        std::future::pending().await
    })
    .await;
    let error = stream.read(&mut [0; 8]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let again = timeout(Duration::from_secs(10), stream.read(&mut [0; 8])).await;
    assert!(again.unwrap().is_err());
    stream.shutdown().await.unwrap();
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
                    if keys && version.version == ProtocolVersion::TLSv1_3 {
                        stream.get_mut().1.refresh_traffic_keys().unwrap();
                    }
                }
                stream.flush().await.unwrap();
                let mut read = vec![0; len];
                stream.read_exact(&mut read).await.unwrap();
                stream.shutdown().await.unwrap();
                read
            });
            let io = Cuts::new(ours, &cuts);
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
            io.outgoing.extend(&said);
            let inner = Cuts::new(io, &cuts);
            if let Ok(mut stream) = TlsStream::connect(inner, client.clone(), name()).await {
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
            let inner = Cuts::new(script(server.clone(), said), &cuts);
            let mut stream = TlsStream::connect(inner, client.clone(), name()).await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
            let _ = stream.write_all(b"more").await;
            let _ = stream.shutdown().await;

            // A handshake of which one byte is another.
            let mut io = script(server, Vec::new());
            let mut hello = UnbufferedClientConnection::new(client.clone(), name()).unwrap();
            let mut first = BytesMut::new();
            let _ = advance(&mut hello, &mut [], &mut first, |_| ());
            let _ = Pin::new(&mut io).poll_write(&mut Context::from_waker(Waker::noop()), &first);
            let at = flipped.index(io.outgoing.len());
            io.outgoing[at] ^= 1;
            let mut answer: Vec<u8> = io.outgoing.drain(..).collect();
            let mut stream = TlsStream::new(io, hello);
            let _ = stream.go_on(&mut answer, |_| ());
            let _ = stream.read_to_end(&mut Vec::new()).await;
            let _ = stream.write_all(b"more").await;
        });
    }

    #[test]
    fn handshakes_are_read_in_whatever_records_they_come(
        version in versions(),
        fragment in prop_oneof![Just(32_usize), 33..80_usize, 80..2000_usize],
        names in prop_oneof![Just(1_usize), 1..300_usize],
        mut cuts in prop::collection::vec(prop_oneof![1..9_usize, 1..2_000_usize], 0..4),
        looks in 0..20_usize,
        tickets in 0..9_usize,
        parts in prop::collection::vec(prop_oneof![1..200_usize, 1..40_000_usize], 1..4),
    ) {
        cuts.push(3_000);
        let names = (0..names).map(|number| format!("name-{number}.example")).chain(["a".to_owned()]);
        let (mut server, client) = peers_named(version, names.collect());
        server.max_fragment_size = Some(fragment);
        server.send_tls13_tickets = tickets;
        server.send_half_rtt_data = true;
        let (ours, theirs) = duplex(5000);
        run(async {
            let server = tokio::spawn(async move {
                let mut stream = TlsAcceptor::from(Arc::new(server)).accept(theirs).await.unwrap();
                let mut all = Vec::new();
                let mut piece = vec![0; 3000];
                loop {
                    let len = stream.read(&mut piece).await.unwrap();
                    if len == 0 {
                        break;
                    }
                    all.extend_from_slice(&piece[..len]);
                    if all.len().is_multiple_of(7) {
                        let _ = stream.get_mut().1.refresh_traffic_keys();
                    }
                    stream.flush().await.unwrap();
                }
                stream.write_all(&all).await.unwrap();
                stream.shutdown().await.unwrap();
            });
            let mut stream = TlsStream::connect(Cuts::new(ours, &cuts), client, name()).await.unwrap();
            let mut context = Context::from_waker(Waker::noop());
            let mut all = Vec::new();
            for (at, len) in parts.iter().enumerate() {
                for _ in 0..looks {
                    tokio::task::yield_now().await;
                    let look = stream.poll_content(&mut context, 100, |_| ());
                    prop_assert!(look.is_pending(), "{look:?}");
                }
                let part = vec![at as u8; *len];
                stream.write_all(&part).await.unwrap();
                stream.flush().await.unwrap();
                all.extend(part);
            }
            stream.shutdown().await.unwrap();
            let mut read = Vec::new();
            stream.read_to_end(&mut read).await.unwrap();
            prop_assert!(read == all);
            server.await.unwrap();
            Ok(())
        })?;
    }
}
