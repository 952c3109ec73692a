//! TLS: certificates that are replaced, and client certificates.
#![allow(clippy::unwrap_used)] // Clippy takes only functions marked as tests for tests.

use std::{fs, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use mcr::{
    core::{crypto::provider, internal::tls::verifier},
    server::{ServerAccess, ServerOptions, TlsFiles},
};
use mcr_testkit::{control_plane::CertificateAuthority, log::Log};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
};
use tracing::Level;

use crate::harness::{PATIENCE, ask_over, serve_options};

/// Connects as a client that trusts an authority, and shows a certificate.
async fn connect(
    address: SocketAddr,
    authority: &CertificateAuthority,
    client: Option<(String, String)>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let builder = ClientConfig::builder_with_provider(provider().unwrap().clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(
            verifier(&authority.certificate_pem().into_bytes().into()).unwrap(),
        );
    let config = match client {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
                .map(Result::unwrap)
                .collect();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Files for TLS that are read again all the time.
fn files(folder: &Path) -> TlsFiles {
    TlsFiles::new(folder.join("tls.crt"), folder.join("tls.key")).check_every(Duration::from_millis(20))
}

fn write(folder: &Path, authority: &CertificateAuthority) {
    let (certificate, key) = authority.server().unwrap();
    place(&folder.join("tls.crt"), &certificate);
    place(&folder.join("tls.key"), &key);
}

/// Replaces a file at once: nobody reads the half of it.
fn place(path: &Path, content: &str) {
    let new = path.with_extension("new");
    fs::write(&new, content).unwrap();
    fs::rename(new, path).unwrap();
}

async fn until_served_by(address: SocketAddr, authority: &CertificateAuthority) -> TlsStream<TcpStream> {
    let begun = Instant::now();
    loop {
        match connect(address, authority, None).await {
            Ok(stream) => return stream,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "never: {error}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

const HOST: &str = "host: localhost\r\n";

#[tokio::test]
async fn a_certificate_that_is_replaced_is_served_to_new_connections_and_a_broken_one_is_not() {
    let log = Log::of_this_thread(Level::INFO);
    let folder = tempfile::tempdir().unwrap();
    let [first, second, third] =
        ["first", "second", "third"].map(|name| CertificateAuthority::new(name).unwrap());
    write(folder.path(), &first);
    let served = serve_options(|options| options.tls(files(folder.path())));
    let mut living = until_served_by(served.address, &first).await;
    let stream = until_served_by(served.address, &first).await;
    assert_eq!(ask_over(stream, "GET", "/clusters", HOST).await.status, 200);

    write(folder.path(), &second);
    let stream = until_served_by(served.address, &second).await;
    assert_eq!(ask_over(stream, "GET", "/healthz", HOST).await.status, 200);
    assert!(connect(served.address, &first, None).await.is_err());
    // A connection that was there goes on.
    living
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut head = [0; 12];
    living.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");

    // The certificate of one key and the key of another; then no PEM.
    let (certificate, _) = third.server().unwrap();
    place(&folder.path().join("tls.crt"), &certificate);
    for (problem, spoil) in [
        ("does not belong to the certificate", None),
        ("holds no PEM certificate", Some("tls.crt")),
    ] {
        if let Some(file) = spoil {
            place(&folder.path().join(file), "nothing");
        }
        let begun = Instant::now();
        while log.lines_with(problem).is_empty() {
            assert!(begun.elapsed() < PATIENCE, "never {problem}: {}", log.text());
            sleep(Duration::from_millis(20)).await;
        }
        let stream = connect(served.address, &second, None).await.unwrap();
        assert_eq!(ask_over(stream, "GET", "/clusters", HOST).await.status, 200);
    }
    sleep(Duration::from_millis(200)).await;
    assert_eq!(
        log.lines_with("holds no PEM certificate").len(),
        1,
        "once: {}",
        log.text()
    );
    assert!(!log.text().contains("PRIVATE KEY"));
    write(folder.path(), &third);
    until_served_by(served.address, &third).await;
    served.end().await;
}

#[tokio::test]
async fn a_client_certificate_of_the_authority_is_needed_but_for_probes() {
    let log = Log::of_this_thread(Level::INFO);
    let folder = tempfile::tempdir().unwrap();
    let [server, clients, strangers] =
        ["server", "clients", "strangers"].map(|name| CertificateAuthority::new(name).unwrap());
    write(folder.path(), &server);
    let authorities = folder.path().join("ca.crt");
    fs::write(&authorities, clients.certificate_pem()).unwrap();
    let serve = |options: ServerOptions| {
        options
            .tls(files(folder.path()))
            .access(ServerAccess::client_certificates(&authorities))
    };
    let served = serve_options(serve);
    let asked = async |client: Option<(String, String)>, path: &str| {
        let stream = connect(served.address, &server, client).await.unwrap();
        ask_over(stream, "GET", path, HOST).await.status
    };
    assert_eq!(asked(None, "/clusters").await, 401);
    assert_eq!(asked(None, "/metrics").await, 401);
    assert_eq!(asked(None, "/healthz").await, 200);
    let mine = clients.client("prometheus").unwrap();
    assert_eq!(asked(Some(mine.clone()), "/clusters").await, 200);

    // Of another authority: the server ends the handshake, or the connection with its first answer.
    let stranger = strangers.client("prometheus").unwrap();
    if let Ok(mut stream) = connect(served.address, &server, Some(stranger)).await {
        let _ = stream
            .write_all(b"GET /clusters HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    }

    let until = async |status: u16| {
        let begun = Instant::now();
        while asked(Some(mine.clone()), "/clusters").await != status {
            assert!(begun.elapsed() < PATIENCE, "never {status}: {}", log.text());
            sleep(Duration::from_millis(20)).await;
        }
    };
    // The file can't be used, or not be read: who was taken out of it is not known.
    for spoilt in [Some("nothing"), None] {
        match spoilt {
            Some(content) => place(&authorities, content),
            None => fs::remove_file(&authorities).unwrap(),
        }
        until(503).await;
        assert_eq!(asked(None, "/clusters").await, 503);
        assert_eq!(asked(None, "/healthz").await, 200);
        place(&authorities, &clients.certificate_pem());
        until(200).await;
    }
    let path = authorities.display().to_string();
    let warned = log.lines_with("the authorities of client certificates can't be replaced");
    assert!(warned.len() == 2 && warned[0].contains(&path), "{warned:?}");
    // A certificate of the server that can't be used changes nothing for clients.
    place(&folder.path().join("tls.crt"), "nothing");
    let reported = async {
        while log.lines_with("holds no PEM certificate (").is_empty() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, reported).await.unwrap();
    assert_eq!(asked(Some(mine.clone()), "/clusters").await, 200);
    write(folder.path(), &server);

    // The authorities are replaced: certificates of the old ones are refused from then on.
    place(&authorities, &strangers.certificate_pem());
    let begun = Instant::now();
    loop {
        let refused = match connect(served.address, &server, Some(mine.clone())).await {
            Err(_) => true,
            Ok(mut stream) => {
                let _ = stream
                    .write_all(b"GET /clusters HTTP/1.1\r\nhost: localhost\r\n\r\n")
                    .await;
                stream.read_u8().await.is_err()
            }
        };
        if refused {
            break;
        }
        assert!(begun.elapsed() < PATIENCE);
        sleep(Duration::from_millis(20)).await;
    }
    served.end().await;
}

/// The authority of the testkit signs for `localhost` and `kubernetes.default.svc`.
#[tokio::test]
async fn names_in_the_certificate_are_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let authority = CertificateAuthority::new("a").unwrap();
    write(folder.path(), &authority);
    let served = serve_options(|options| options.tls(files(folder.path())));
    for (host, status) in [
        ("kubernetes.default.svc:8443", 200),
        ("metrics.fleet.svc", 403),
        ("", 403),
    ] {
        let stream = until_served_by(served.address, &authority).await;
        let answer = ask_over(stream, "GET", "/clusters", &format!("host: {host}\r\n")).await;
        assert_eq!(answer.status, status, "{host}");
    }
    // A handshake that does not begin ends with the server.
    let _silent = TcpStream::connect(served.address).await.unwrap();
    served.end().await;
}
