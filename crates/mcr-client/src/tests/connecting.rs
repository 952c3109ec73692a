//! Addresses, headers, TLS and proxies.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use futures::FutureExt;
use http::Request;
use kube::client::Body;
use mcr_access::{
    AccessPolicy, Basic, Credential, Endpoint, Impersonation, KubeconfigAccess, Refresh, Trust, check,
    internal::pem,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use super::{
    Settings, dialer, dialer_with, get, rest,
    server::{Server, respond},
    settings,
};
use crate::{Dialer, TransportError, TransportErrorKind};

async fn failure(endpoint: &Endpoint, trust: Trust) -> TransportError {
    failure_with(&dialer(), endpoint, trust).await
}

async fn failure_with(dialer: &Dialer, endpoint: &Endpoint, trust: Trust) -> TransportError {
    let channel = dialer.channel(endpoint, &Credential::anonymous(), trust).unwrap();
    channel.send(get("/version")).await.unwrap_err()
}

#[tokio::test]
async fn requests_carry_the_credential_and_the_path_of_the_server() {
    let server = Server::json("200 OK", "{}").await;
    let mut credential = Credential::token(" secret\n");
    let mut impersonation = Impersonation::default();
    impersonation.user = "jane".into();
    impersonation.uid = Some("7".into());
    impersonation.groups = vec!["a".into(), "b".into()];
    let project = vec!["x".to_owned(), "y".to_owned()];
    impersonation.extra.insert("acme.com/Project".to_owned(), project);
    credential.impersonate = Some(impersonation);
    let endpoint = Endpoint::new(server.uri("http", "/clusters/root:org/"));
    let channel = dialer().channel(&endpoint, &credential, Trust::Trusted).unwrap();
    let request = Request::get("/api/v1/pods?limit=1")
        .header("authorization", "Bearer other")
        .header("impersonate-user", "admin")
        .header("accept", "application/json");
    channel.send(request.body(Body::empty()).unwrap()).await.unwrap();
    let seen = &server.seen()[0];
    assert_eq!(seen.line(), "GET /clusters/root:org/api/v1/pods?limit=1 HTTP/1.1");
    assert_eq!(seen.header("authorization"), ["Bearer secret"]);
    assert_eq!(seen.header("impersonate-user"), ["jane"]);
    assert_eq!(seen.header("impersonate-uid"), ["7"]);
    assert_eq!(seen.header("impersonate-group"), ["a", "b"]);
    assert_eq!(seen.header("impersonate-extra-acme.com%2f%50roject"), ["x", "y"]);
    assert_eq!(
        seen.header("user-agent"),
        [concat!("mcr/", env!("CARGO_PKG_VERSION"))]
    );
    assert_eq!(seen.header("accept"), ["application/json"]);
    assert_eq!(seen.header("host"), [server.address.to_string()]);

    let mut basic = Credential::default();
    basic.basic = Some(Basic::new("me", "pw"));
    dialer()
        .channel(&endpoint, &basic, Trust::Trusted)
        .unwrap()
        .send(get("/x"))
        .await
        .unwrap();
    assert_eq!(server.seen()[1].header("authorization"), ["Basic bWU6cHc="]);
    let unfit = dialer()
        .channel(&endpoint, &Credential::token("canary\nx"), Trust::Trusted)
        .err()
        .unwrap();
    assert_eq!(
        unfit.to_string(),
        "token: holds characters that don't fit into a header; copy it again"
    );
}

#[tokio::test]
async fn failures_to_connect_say_why() {
    let refused = Endpoint::new("https://127.0.0.1:1".parse().unwrap());
    let error = failure(&refused, Trust::Trusted).await;
    assert_eq!(
        error.to_string(),
        "GET /version: can't connect: connection refused: nothing listens at this address; the API server may be down"
    );
    assert!(matches!(error.kind(), TransportErrorKind::Connect { .. }));
    let unknown = Endpoint::new("https://no-such-host.invalid".parse().unwrap());
    let within = |seconds: f32| {
        dialer_with(Settings {
            connect_timeout: Duration::from_secs_f32(seconds),
            ..settings()
        })
    };
    let text = failure_with(&within(10.0), &unknown, Trust::Trusted)
        .await
        .to_string();
    let expected = "can't connect: the host name no-such-host.invalid can't be resolved; check its spelling, the DNS, and \
                    whether the cluster still exists";
    // Without any DNS the resolver may be slow to say so.
    assert!(
        text.contains(expected) || text.contains("no connection within 10 s"),
        "{text}"
    );
    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = plain.local_addr().unwrap().port();
    let answering = tokio::spawn(async move {
        let (mut connection, _) = plain.accept().await.unwrap();
        connection
            .write_all(b"HTTP/1.0 400 Bad Request\r\n\r\nspeak plainly")
            .await
            .unwrap();
        connection
    });
    let not_tls = Endpoint::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    assert_eq!(
        failure(&not_tls, Trust::Trusted).await.to_string(),
        "GET /version: can't connect: the server does not speak TLS on this port; check the port, or write http://"
    );
    drop(answering.await);
    let hole = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hole = Endpoint::new(format!("https://{}", hole.local_addr().unwrap()).parse().unwrap());
    assert_eq!(
        failure_with(&within(0.5), &hole, Trust::Trusted)
            .await
            .to_string(),
        "GET /version: can't connect: no connection within 0.5 s; the address may be wrong, or a firewall drops packets"
    );
}

#[tokio::test]
async fn addresses_are_checked_when_names_are_resolved() {
    let server = Server::json("200 OK", "{}").await;
    let by_name: http::Uri = format!("http://localhost:{}", server.address.port())
        .parse()
        .unwrap();
    let text = failure(&Endpoint::new(by_name.clone()), Trust::Untrusted)
        .await
        .to_string();
    assert!(
        text.contains("can't connect: localhost leads to ")
            && text.contains("may not use loopback addresses"),
        "{text}"
    );
    let literal = dialer().channel(
        &Endpoint::new(server.uri("http", "")),
        &Credential::anonymous(),
        Trust::Untrusted,
    );
    assert!(
        literal
            .err()
            .unwrap()
            .to_string()
            .starts_with("server: the server is at 127.0.0.1, and untrusted access may not")
    );
    // Forms of addresses that only the resolver understands.
    for odd in ["127.1", "2130706433", "0x7f000001"] {
        let uri = format!("http://{odd}:{}", server.address.port()).parse().unwrap();
        let text = failure(&Endpoint::new(uri), Trust::Untrusted).await.to_string();
        assert!(
            text.contains("may not use loopback addresses") || text.contains("can't be resolved"),
            "{odd}: {text}"
        );
    }
    assert_eq!(server.seen().len(), 0);
    let channel = dialer()
        .channel(&Endpoint::new(by_name), &Credential::anonymous(), Trust::Trusted)
        .unwrap();
    channel.send(get("/version")).await.unwrap();
}

pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn issue(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        change(&mut params);
        (
            params.signed_by(&key, &self.0).unwrap().pem(),
            key.serialize_pem(),
        )
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }
}

fn acceptor(certificate: &str, key: &str, clients: Option<&Authority>) -> TlsAcceptor {
    let builder = ServerConfig::builder_with_provider(pem::provider().clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.0.der().clone()).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), pem::provider().clone());
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let config = builder
        .with_single_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn tls_server(acceptor: TlsAcceptor) -> Server {
    Server::start(Some(acceptor), |_, mut stream| async move {
        respond(&mut stream, "200 OK", "application/json", "{}").await;
        Some(stream)
    })
    .await
}

#[tokio::test]
async fn servers_that_can_not_prove_who_they_are() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue(&["127.0.0.1", "other.example"], |_| ());
    let server = tls_server(acceptor(&certificate, &key, None)).await;
    let endpoint = Endpoint::new(server.uri("https", "")).certificate_authority(authority.pem());
    let channel = dialer()
        .channel(&endpoint, &Credential::anonymous(), Trust::Trusted)
        .unwrap();
    let body = channel.send(get("/version")).await.unwrap().into_body();
    assert_eq!(rest(&mut { body }).await, ("{}".to_owned(), None));

    let says = |text: &str| format!("GET /version: can't connect: {text}");
    let stranger = endpoint.clone().certificate_authority(Authority::new().pem());
    let unknown = says(
        "the server's certificate is not signed by a trusted certificate authority; check \
                        certificate-authority-data, the cluster's authority may have been replaced",
    );
    assert_eq!(failure(&stranger, Trust::Trusted).await.to_string(), unknown);
    assert_eq!(
        failure(&Endpoint::new(server.uri("https", "")), Trust::Trusted)
            .await
            .to_string(),
        unknown
    );
    let mut insecure = Endpoint::new(server.uri("https", ""));
    insecure.insecure_skip_tls_verify = true;
    let channel = dialer()
        .channel(&insecure, &Credential::anonymous(), Trust::Trusted)
        .unwrap();
    channel.send(get("/version")).await.unwrap();
    let mut named = endpoint.clone();
    named.tls_server_name = Some("wrong.example".into());
    let text = failure(&named, Trust::Trusted).await.to_string();
    assert!(
        text.contains("the server's certificate is not for wrong.example (there are ")
            && text.contains("other.example"),
        "{text}"
    );
    named.tls_server_name = Some("other.example".into());
    dialer()
        .channel(&named, &Credential::anonymous(), Trust::Trusted)
        .unwrap()
        .send(get("/version"))
        .await
        .unwrap();

    let (old, key) = authority.issue(&["127.0.0.1"], |params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    let server = tls_server(acceptor(&old, &key, None)).await;
    let expired = Endpoint::new(server.uri("https", "")).certificate_authority(authority.pem());
    assert_eq!(
        failure(&expired, Trust::Trusted).await.to_string(),
        says("the server's certificate has expired (or the clock of this machine is wrong); renew it")
    );
}

/// Shows a chain with whatever key it has.
#[derive(Debug)]
struct Claims(Arc<CertifiedKey>);

impl ResolvesServerCert for Claims {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

#[tokio::test]
async fn the_key_of_a_server_is_proven_in_each_full_handshake() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue(&["127.0.0.1"], |_| ());
    let honest = tls_server(acceptor(&certificate, &key, None)).await;
    let another =
        PrivateKeyDer::from_pem_slice(KeyPair::generate().unwrap().serialize_pem().as_bytes()).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let claims = CertifiedKey::new(
        chain,
        pem::provider().key_provider.load_private_key(another).unwrap(),
    );
    let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
    let dialer = dialer();
    for version in versions {
        let config = ServerConfig::builder_with_provider(pem::provider().clone())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Claims(Arc::new(claims.clone()))));
        let impostor = tls_server(TlsAcceptor::from(Arc::new(config))).await;
        let at =
            |server: &Server| Endpoint::new(server.uri("https", "")).certificate_authority(authority.pem());
        let channel = dialer
            .channel(&at(&honest), &Credential::anonymous(), Trust::Trusted)
            .unwrap();
        channel.send(get("/version")).await.unwrap();
        let text = failure_with(&dialer, &at(&impostor), Trust::Trusted)
            .await
            .to_string();
        assert!(text.contains("can't connect"), "{text}");
        assert!(impostor.seen().is_empty());
    }
}

#[tokio::test]
async fn client_certificates() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue(&["127.0.0.1"], |_| ());
    let server = tls_server(acceptor(&certificate, &key, Some(&authority))).await;
    let endpoint = Endpoint::new(server.uri("https", "")).certificate_authority(authority.pem());
    let (mine, key) = authority.issue(&["me"], |_| ());
    let credential = Credential::certificate(&mine, key.clone());
    dialer()
        .channel(&endpoint, &credential, Trust::Trusted)
        .unwrap()
        .send(get("/version"))
        .await
        .unwrap();
    let text = failure(&endpoint, Trust::Trusted).await.to_string();
    assert!(
        text.contains("the server does not accept the client certificate, or wants one"),
        "{text}"
    );

    let v1 = Credential::certificate(
        include_str!("../../tests/data/client-v1.crt"),
        include_str!("../../tests/data/client-v1.key"),
    );
    assert_eq!(
        dialer()
            .channel(&endpoint, &v1, Trust::Trusted)
            .err()
            .unwrap()
            .to_string(),
        "the client certificate: holds an X.509 version 1 certificate, which rustls does not accept; issue it again as \
         version 3 (with openssl x509 -req, add -extfile with any extension)"
    );
}

#[tokio::test]
async fn equal_tls_configurations_are_shared_and_then_freed() {
    let cache = super::super::tls::TlsCache::default();
    let authority = Authority::new();
    let (mine, key) = authority.issue(&["me"], |_| ());
    let one = Endpoint::new("https://one".parse().unwrap()).certificate_authority(authority.pem());
    let two = Endpoint::new("https://two".parse().unwrap()).certificate_authority(authority.pem());
    let certificate = Credential::certificate(&mine, key).certificate;
    let plain = cache.config(&one, None).unwrap();
    assert!(Arc::ptr_eq(&plain, &cache.config(&two, None).unwrap()));
    let with = cache.config(&one, certificate.as_ref()).unwrap();
    assert!(!Arc::ptr_eq(&plain, &with));
    assert!(Arc::ptr_eq(
        &with,
        &cache.config(&two, certificate.as_ref()).unwrap()
    ));
    let weak = Arc::downgrade(&with);
    drop(with);
    assert_eq!(weak.strong_count(), 0);
}

/// What takes time is done when a kubeconfig is read, and once; a replaced certificate goes with its last connection.
#[test]
fn a_client_certificate_that_was_checked_is_the_one_that_is_connected_with() {
    let authority = Authority::new();
    let kubeconfig = |(chain, key): &(String, String)| {
        let text = |pem: &str| STANDARD.encode(pem);
        let yaml = format!(
            "{{current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}], \
             clusters: [{{name: k, cluster: {{server: 'https://h', certificate-authority-data: {}}}}}], \
             users: [{{name: u, user: {{client-certificate-data: {}, client-key-data: {}}}}}]}}",
            text(&authority.pem()),
            text(chain),
            text(key)
        );
        KubeconfigAccess::new(yaml, Trust::Trusted)
    };
    let policy = AccessPolicy::default();
    let link = |access: &KubeconfigAccess| {
        let resolved = access.resolved(&policy).unwrap();
        let credential = resolved
            .credentials
            .credential(Refresh::First)
            .now_or_never()
            .unwrap();
        (resolved.endpoint, credential.unwrap().certificate.unwrap())
    };
    let cache = super::super::tls::TlsCache::default();
    let connect = |access: &KubeconfigAccess| {
        let (endpoint, certificate) = link(access);
        let config = cache.config(&endpoint, Some(&certificate)).unwrap();
        let shown = config.client_auth_cert_resolver.resolve(&[], &[]).unwrap();
        (config, shown)
    };

    let first = authority.issue(&["me"], |_| ());
    let access = kubeconfig(&first);
    assert!(access.resolved(&policy).is_none());
    check(&access, &policy).unwrap();
    let (endpoint, certificate) = link(&access);
    let checked = Arc::downgrade(&certificate.identity().unwrap());
    drop(certificate);
    assert_eq!(checked.strong_count(), 1, "held for the one who connects, once");
    let (config, shown) = connect(&access);
    assert!(Arc::ptr_eq(&checked.upgrade().unwrap(), &shown));

    let (next, key) = authority.issue(&["me"], |_| ());
    let renewed = kubeconfig(&(next.clone(), key));
    check(&renewed, &policy).unwrap();
    let (_held, newer) = connect(&renewed);
    assert!(!Arc::ptr_eq(&shown, &newer));
    let next = CertificateDer::from_pem_slice(next.as_bytes()).unwrap();
    assert_eq!(newer.cert, [next]);
    let (same, _) = link(&renewed);
    let texts = [&endpoint, &same].map(|endpoint| endpoint.certificate_authority.clone().unwrap());
    assert!(Arc::ptr_eq(&texts[0], &texts[1]), "of one authority");

    drop((access, config, shown));
    assert_eq!(checked.strong_count(), 0);
}

#[tokio::test]
async fn http_proxies() {
    let proxy = Server::start(None, |seen, mut stream| async move {
        let body = if seen.line().starts_with("CONNECT ") {
            ""
        } else {
            "through"
        };
        respond(&mut stream, "200 OK", "text/plain", body).await;
        Some(stream)
    })
    .await;
    let mut endpoint = Endpoint::new("http://api.example/base".parse().unwrap());
    endpoint.proxy = Some(format!("http://me:p%40w@{}", proxy.address).parse().unwrap());
    let channel = dialer()
        .channel(&endpoint, &Credential::anonymous(), Trust::Untrusted)
        .unwrap();
    let mut body = channel.send(get("/version")).await.unwrap().into_body();
    assert_eq!(rest(&mut body).await, ("through".to_owned(), None));
    let seen = proxy.seen();
    assert_eq!(seen[0].line(), "CONNECT api.example:80 HTTP/1.1");
    assert_eq!(seen[0].header("proxy-authorization"), ["Basic bWU6cEB3"]);
    assert_eq!(seen[1].line(), "GET /base/version HTTP/1.1");
    assert!(!format!("{endpoint:?}").contains("p%40w"));

    for scheme in ["http", "https", "socks5"] {
        endpoint.proxy = Some(format!("{scheme}://127.0.0.1:1").parse().unwrap());
        let text = failure(&endpoint, Trust::Trusted).await.to_string();
        assert!(
            text.contains("can't connect: connection refused"),
            "{scheme}: {text}"
        );
    }
}

#[tokio::test]
async fn socks_proxies() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let proxy = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut hello = [0; 3];
        connection.read_exact(&mut hello).await.unwrap();
        connection.write_all(&[5, 0]).await.unwrap();
        let mut wanted = [0; 4 + 1 + 11 + 2];
        connection.read_exact(&mut wanted).await.unwrap();
        connection
            .write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])
            .await
            .unwrap();
        let mut request = [0; 16];
        connection.read_exact(&mut request).await.unwrap();
        connection
            .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
            .await
            .unwrap();
        (wanted, request)
    });
    let mut endpoint = Endpoint::new("http://api.example".parse().unwrap());
    endpoint.proxy = Some(format!("socks5://{address}").parse().unwrap());
    let channel = dialer()
        .channel(&endpoint, &Credential::anonymous(), Trust::Trusted)
        .unwrap();
    assert_eq!(channel.send(get("/version")).await.unwrap().status(), 204);
    let (wanted, request) = proxy.await.unwrap();
    assert_eq!(&wanted, b"\x05\x01\x00\x03\x0bapi.example\x00\x50");
    assert!(request.starts_with(b"GET /version"));
}
