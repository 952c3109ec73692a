//! TLS: `close_notify`, connections that close without it, unexpected data, and session resumption.

use std::{
    future::Future,
    sync::{Arc, Mutex},
};

use mcr_access::{AddressPolicy, Credential, Endpoint, Trust, crypto};
use mcr_h1::{Connection, internal::HEAD_READ};
use rustls::{HandshakeKind, ProtocolVersion, ServerConfig, SupportedProtocolVersion, version};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinSet,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::task::AbortOnDropHandle;

use super::{certificates::Authority, dialer, get, rest, server::Server, settings, until};
use crate::{channel::Channel, connect::Connector, dialer::Dialer, tls::TlsCache};

const VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];

/// The configuration of a server for 127.0.0.1 with one TLS version.
fn config(authority: &Authority, version: &'static SupportedProtocolVersion) -> ServerConfig {
    let (certificate, key) = authority.issue(&["127.0.0.1"], |_| ());
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    ServerConfig::builder_with_provider(crypto::provider().unwrap().clone())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
        .unwrap()
}

/// Starts a server that passes each connection to `serve` after the handshake. Returns its endpoint.
async fn listen<F, Fut>(config: ServerConfig, serve: F) -> (Endpoint, AbortOnDropHandle<()>)
where
    F: Fn(TlsStream<TcpStream>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let task = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let (acceptor, serve) = (acceptor.clone(), serve.clone());
            connections.spawn(async move {
                if let Ok(stream) = acceptor.accept(tcp).await {
                    serve(stream).await;
                }
            });
        }
    });
    let endpoint = Endpoint::new(format!("https://{address}").parse().unwrap());
    (endpoint, AbortOnDropHandle::new(task))
}

fn channel(endpoint: &Endpoint) -> Channel {
    channel_of(&dialer(), endpoint, &Credential::anonymous())
}

fn channel_of(dialer: &Dialer, endpoint: &Endpoint, credential: &Credential) -> Channel {
    dialer.channel(endpoint, credential, Trust::Trusted).unwrap()
}

/// Reads the head of a request.
async fn request(stream: &mut TlsStream<TcpStream>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
}

/// An attacker can close a connection, but can't send close_notify (RFC 8446, section 6.1).
#[tokio::test]
async fn an_answer_without_a_length_is_whole_only_if_the_server_reports_that_it_ends() {
    for version in VERSIONS {
        for (method, ends) in [("GET", true), ("GET", false), ("POST", true), ("POST", false)] {
            let authority = Authority::new();
            let acceptor = TlsAcceptor::from(Arc::new(config(&authority, version)));
            let server = Server::start(Some(acceptor), move |_, mut stream| async move {
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n{}").await.unwrap();
                stream.flush().await.unwrap();
                if ends {
                    stream.shutdown().await.unwrap();
                }
                None
            })
            .await;
            let endpoint = Endpoint::new(server.uri("https", "")).certificate_authority(authority.pem());
            let request = http::Request::builder().method(method).uri("/version");
            let request = request.body(kube::client::Body::empty()).unwrap();
            let answer = channel(&endpoint).send(request).await.unwrap();
            let broken = format!(
                "{method} /version: the answer broke off: the connection was closed by the server or something in between; \
                 the API server may be restarting"
            );
            assert_eq!(
                rest(&mut answer.into_body()).await,
                ("{}".to_owned(), (!ends).then_some(broken)),
                "{version:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_server_that_hangs_up_during_the_handshake_is_explained() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::new(
        format!("https://{}", listener.local_addr().unwrap())
            .parse()
            .unwrap(),
    )
    .certificate_authority(Authority::new().pem());
    let server = tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        // Reads the whole ClientHello, because closing with unread data resets the connection.
        let mut head = [0; 5];
        tcp.read_exact(&mut head).await.unwrap();
        let len = u16::from_be_bytes([head[3], head[4]]);
        tcp.read_exact(&mut vec![0; len.into()]).await.unwrap();
    });
    assert_eq!(
        channel(&endpoint)
            .send(get("/version"))
            .await
            .unwrap_err()
            .to_string(),
        "GET /version: can't connect: the connection was closed by the server or something in between; the API server may \
         be restarting"
    );
    server.await.unwrap();
}

#[derive(Debug, Clone, Copy)]
enum Then {
    /// Sends a response without a request.
    Speaks,
    /// Sends close_notify, and leaves the connection open.
    Ends,
    /// Closes the connection without close_notify.
    Closes,
}

#[tokio::test]
async fn an_idle_connection_is_of_no_use_once_the_server_speaks_or_ends_it() {
    for version in VERSIONS {
        for then in [Then::Speaks, Then::Ends, Then::Closes] {
            let authority = Authority::new();
            let go = Arc::new(Notify::new());
            let reported = go.clone();
            let (endpoint, _server) = listen(config(&authority, version), move |mut stream| {
                let reported = reported.clone();
                async move {
                    reported.notified().await;
                    match then {
                        Then::Speaks => stream.write_all(b"HTTP/1.1 408 Late\r\n\r\n").await.unwrap(),
                        Then::Ends => stream.get_mut().1.send_close_notify(),
                        Then::Closes => return,
                    }
                    stream.flush().await.unwrap();
                    std::future::pending().await
                }
            })
            .await;
            let endpoint = endpoint.certificate_authority(authority.pem());
            let tls = TlsCache::default().config(&endpoint, None).unwrap();
            let no_proxy = || unreachable!("there is no proxy");
            let connector = Connector::new(&endpoint, None, tls, no_proxy, AddressPolicy::any(), &settings());
            let stream = connector.unwrap().connect(&endpoint.server).await.unwrap();
            let mut connection = Connection::new(stream);
            assert!(connection.is_usable(), "{version:?} {then:?}");
            go.notify_one();
            until(&format!("{version:?} {then:?}"), || !connection.is_usable()).await;
        }
    }
}

/// The bytes are in the buffer of rustls, where a read of the socket does not find them.
#[tokio::test]
async fn what_was_decrypted_behind_an_answer_spoils_its_connection() {
    for version in VERSIONS {
        for behind in ["", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno"] {
            // The response has exactly the size of one read. The bytes after it arrive in the same TLS record.
            let head = |len: usize| format!("HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n\r\n");
            let len = HEAD_READ - head(HEAD_READ).len();
            let all = format!("{}{}", head(len), "x".repeat(len));
            assert_eq!(all.len(), HEAD_READ);
            let all = all + behind;
            let authority = Authority::new();
            let acceptor = TlsAcceptor::from(Arc::new(config(&authority, version)));
            let server = Server::start(Some(acceptor), move |_, mut stream| {
                let all = all.clone();
                async move {
                    stream.write_all(all.as_bytes()).await.unwrap();
                    stream.flush().await.unwrap();
                    Some(stream)
                }
            })
            .await;
            let endpoint = Endpoint::new(server.uri("https", "")).certificate_authority(authority.pem());
            let channel = channel(&endpoint);
            for asked in 1..=3 {
                let answer = channel.send(get("/version")).await.unwrap();
                assert_eq!(rest(&mut answer.into_body()).await, ("x".repeat(len), None));
                let connections = if behind.is_empty() { 1 } else { asked };
                assert_eq!(server.accepted(), connections, "{version:?} {behind:?}");
            }
        }
    }
}

#[tokio::test]
async fn an_answer_of_many_records_is_whole_though_keys_change_meanwhile() {
    const PARTS: u8 = 26;
    const PART: usize = 5_000;
    for version in VERSIONS {
        let authority = Authority::new();
        let (endpoint, _server) = listen(config(&authority, version), move |mut stream| async move {
            request(&mut stream).await;
            let len = usize::from(PARTS) * PART;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            for part in 0..PARTS {
                stream.write_all(&[b'a' + part; PART]).await.unwrap();
                if version.version == ProtocolVersion::TLSv1_3 {
                    stream.get_mut().1.refresh_traffic_keys().unwrap();
                }
            }
            stream.flush().await.unwrap();
            std::future::pending().await
        })
        .await;
        let endpoint = endpoint.certificate_authority(authority.pem());
        let answer = channel(&endpoint).send(get("/version")).await.unwrap();
        let all: String = (0..PARTS)
            .map(|part| char::from(b'a' + part).to_string().repeat(PART))
            .collect();
        assert!(rest(&mut answer.into_body()).await == (all, None), "{version:?}");
    }
}

type Handshakes = Arc<Mutex<Vec<HandshakeKind>>>;

/// A server that records the kind of each handshake, and closes each connection after one response.
async fn recording(config: ServerConfig) -> (Endpoint, Handshakes, AbortOnDropHandle<()>) {
    let handshakes = Handshakes::default();
    let noted = handshakes.clone();
    let (endpoint, server) = listen(config, move |mut stream| {
        let kind = stream.get_ref().1.handshake_kind().unwrap();
        noted.lock().unwrap().push(kind);
        async move {
            request(&mut stream).await;
            let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
            stream.write_all(answer).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    })
    .await;
    (endpoint, handshakes, server)
}

async fn ask(channel: &Channel) {
    let answer = channel.send(get("/version")).await.unwrap();
    assert_eq!(rest(&mut answer.into_body()).await, ("{}".to_owned(), None));
}

#[tokio::test]
async fn the_next_connection_resumes_the_session_of_the_last() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue(&["me"], |_| ());
    for version in VERSIONS {
        for credential in [
            Credential::token("mine"),
            Credential::certificate(&certificate, key.clone()),
        ] {
            let (endpoint, handshakes, _server) = recording(config(&authority, version)).await;
            let endpoint = endpoint.certificate_authority(authority.pem());
            let channel = channel_of(&dialer(), &endpoint, &credential);
            for _ in 0..3 {
                ask(&channel).await;
            }
            let expected = [
                HandshakeKind::Full,
                HandshakeKind::Resumed,
                HandshakeKind::Resumed,
            ];
            assert_eq!(*handshakes.lock().unwrap(), expected, "{version:?}");
        }
    }
}

#[tokio::test]
async fn clusters_that_share_a_tls_configuration_resume_a_session_each() {
    let authority = Authority::new();
    let (endpoint, handshakes, _server) = recording(config(&authority, &version::TLS13)).await;
    let dialer = dialer();
    let channels = ["one.example", "two.example"].map(|name| {
        let mut endpoint = endpoint.clone();
        endpoint.insecure_skip_tls_verify = true;
        endpoint.tls_server_name = Some(name.into());
        channel_of(&dialer, &endpoint, &Credential::token("mine"))
    });
    for channel in channels.iter().chain(&channels) {
        ask(channel).await;
    }
    let (full, resumed) = (HandshakeKind::Full, HandshakeKind::Resumed);
    assert_eq!(*handshakes.lock().unwrap(), [full, full, resumed, resumed]);
}
