//! Certificates of servers and clients.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use futures::FutureExt;
use mcr_access::{
    Credential, Endpoint, EndpointAccess, KubeconfigAccess, Refresh, Trust, crypto, internal::pem,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio_rustls::TlsAcceptor;

use super::{
    dialer, failure, failure_with, get, reached, rest,
    server::{Server, respond},
};
use crate::tls::TlsCache;

/// Uses aws-lc-rs if `cargo xtask test` wants that. It runs each test in a process of its own.
fn choose_cryptography() {
    #[cfg(feature = "aws-lc-rs")]
    if std::env::var_os("MCR_TEST_AWS_LC_RS").is_some() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        assert!(pem::verifies_p521());
    }
}

pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(super) fn new() -> Self {
        choose_cryptography();
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

pub(super) fn acceptor(certificate: &str, key: &str, clients: Option<&Authority>) -> TlsAcceptor {
    let builder = ServerConfig::builder_with_provider(crypto::provider().unwrap().clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.0.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(
                Arc::new(roots),
                crypto::provider().unwrap().clone(),
            );
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
    let mut body = reached(&endpoint).await.into_body();
    assert_eq!(rest(&mut body).await, ("{}".to_owned(), None));

    let error = |text: &str| format!("GET /version: can't connect: {text}");
    let stranger = endpoint.clone().certificate_authority(Authority::new().pem());
    let unknown = error(
        "the server's certificate is not signed by a trusted certificate authority; check \
                        certificate-authority-data, the cluster's authority may have been replaced",
    );
    for endpoint in [stranger, Endpoint::new(server.uri("https", ""))] {
        assert_eq!(failure(&endpoint, Trust::Trusted).await.to_string(), unknown);
    }
    let mut insecure = Endpoint::new(server.uri("https", ""));
    insecure.insecure_skip_tls_verify = true;
    reached(&insecure).await;
    let mut named = endpoint.clone();
    named.tls_server_name = Some("wrong.example".into());
    let text = failure(&named, Trust::Trusted).await.to_string();
    assert!(
        text.contains(
            "the server's certificate is not for wrong.example (there are \"127.0.0.1\", \"other.example\"); correct"
        ),
        "{text}"
    );
    named.tls_server_name = Some("other.example".into());
    reached(&named).await;

    let (old, key) = authority.issue(&["127.0.0.1"], |params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    let server = tls_server(acceptor(&old, &key, None)).await;
    let expired = Endpoint::new(server.uri("https", "")).certificate_authority(authority.pem());
    assert_eq!(
        failure(&expired, Trust::Trusted).await.to_string(),
        error("the server's certificate has expired (or the clock of this machine is wrong); renew it")
    );
}

/// Presents a certificate chain that need not match its key.
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
        crypto::provider()
            .unwrap()
            .key_provider
            .load_private_key(another)
            .unwrap(),
    );
    let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
    let dialer = dialer();
    for version in versions {
        let config = ServerConfig::builder_with_provider(crypto::provider().unwrap().clone())
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
    let cache = TlsCache::default();
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

/// A client certificate is parsed once, when its kubeconfig is read. A rotated certificate is freed with its last connection.
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
        KubeconfigAccess::new(yaml, Trust::Trusted).parse().unwrap()
    };
    let link = |access: &EndpointAccess| {
        let credential = access.credentials.credential(Refresh::First).now_or_never();
        let certificate = credential.unwrap().unwrap().certificate.unwrap();
        (access.endpoint.clone(), certificate)
    };
    let cache = TlsCache::default();
    let connect = |access: &EndpointAccess| {
        let (endpoint, certificate) = link(access);
        let config = cache.config(&endpoint, Some(&certificate)).unwrap();
        let shown = config.client_auth_cert_resolver.resolve(&[], &[]).unwrap();
        (config, shown)
    };

    let first = authority.issue(&["me"], |_| ());
    let access = kubeconfig(&first);
    let (endpoint, certificate) = link(&access);
    let checked = Arc::downgrade(&certificate.identity().unwrap());
    drop(certificate);
    assert_eq!(checked.strong_count(), 1, "held once, for the first connection");
    let (config, shown) = connect(&access);
    assert!(Arc::ptr_eq(&checked.upgrade().unwrap(), &shown));

    let (next, key) = authority.issue(&["me"], |_| ());
    let renewed = kubeconfig(&(next.clone(), key));
    let (_held, newer) = connect(&renewed);
    assert!(!Arc::ptr_eq(&shown, &newer));
    let next = CertificateDer::from_pem_slice(next.as_bytes()).unwrap();
    assert_eq!(newer.cert, [next]);
    let (same, _) = link(&renewed);
    let texts = [&endpoint, &same].map(|endpoint| endpoint.certificate_authority.clone().unwrap());
    assert!(
        Arc::ptr_eq(&texts[0], &texts[1]),
        "both share the text of the certificate authority"
    );

    drop((access, config, shown));
    assert_eq!(checked.strong_count(), 0);
}

/// The certificates were made with openssl: a server's, and its authority. The line before them is in the error.
#[test]
fn a_certificate_that_can_not_be_verified_is_reported_by_its_kind() {
    let parts = include_str!("unusable_servers.pem").split("# ").skip(1);
    for (words, pem) in parts.map(|part| part.split_once('\n').unwrap()) {
        let both: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes()).flatten().collect();
        let authority = pem.rsplit_once("-----BEGIN").unwrap().1;
        let verifier = crate::tls::verifier(&format!("-----BEGIN{authority}").as_bytes().into()).unwrap();
        let name = rustls_pki_types::ServerName::try_from("a.example").unwrap();
        let verified =
            verifier.verify_server_cert(&both[0], &[], &name, &[], rustls_pki_types::UnixTime::now());
        if pem::verifies_p521() && (words.contains("P-521") || words.contains("SHA-512")) {
            verified.expect(words);
            continue;
        }
        let text = crate::explain::explain(&verified.unwrap_err());
        assert!(
            text.contains(words) && !text.contains("replaced"),
            "{words}: {text}"
        );
    }
    let refused = rustls::Error::AlertReceived(rustls::AlertDescription::HandshakeFailure);
    let kind = if pem::verifies_p521() {
        "RSA of 1024"
    } else {
        "such as ECDSA P-521"
    };
    assert!(crate::explain::explain(&refused).contains(kind));
}

/// The certificates were made with openssl: an authority, a server and a client with keys on P-521, signed with SHA-512.
#[tokio::test]
async fn p521_and_sha512_can_be_used_with_aws_lc_rs_and_are_named_with_ring() {
    choose_cryptography();
    let part = |name: &str| {
        let parts = include_str!("p521.pem").split("# ");
        let mut parts = parts.filter_map(|part| part.split_once('\n'));
        parts.find(|(title, _)| *title == name).unwrap().1
    };
    if !pem::verifies_p521() {
        let authority = part("authority").as_bytes().into();
        let server = CertificateDer::from_pem_slice(part("server").as_bytes()).unwrap();
        let verified = crate::tls::verifier(&authority).unwrap().verify_server_cert(
            &server,
            &[],
            &"127.0.0.1".try_into().unwrap(),
            &[],
            rustls_pki_types::UnixTime::now(),
        );
        let client = Credential::certificate(part("client"), part("client key"));
        let endpoint = Endpoint::new("https://127.0.0.1:1".parse().unwrap());
        let refused = dialer()
            .channel(&endpoint, &client, Trust::Trusted)
            .err()
            .unwrap();
        for text in [
            crate::explain::explain(&verified.unwrap_err()),
            refused.to_string(),
        ] {
            assert!(
                text.contains("(ECDSA P-521)") || text.contains("(ECDSA with SHA-512)"),
                "{text}"
            );
            assert!(text.contains("with mcr's feature aws-lc-rs"), "{text}");
        }
        return;
    }
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(part("authority").as_bytes()).unwrap())
        .unwrap();
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let provider = crypto::provider().unwrap();
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots.clone()), provider.clone());
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_client_cert_verifier(clients.build().unwrap())
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(part("server").as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(part("server key").as_bytes()).unwrap(),
            )
            .unwrap();
        let server = tls_server(TlsAcceptor::from(Arc::new(config))).await;
        let endpoint = Endpoint::new(server.uri("https", "")).certificate_authority(part("authority"));
        for key in ["client key", "client key in SEC1"] {
            let credential = Credential::certificate(part("client"), part(key));
            let channel = dialer().channel(&endpoint, &credential, Trust::Trusted).unwrap();
            let mut body = channel.send(get("/version")).await.unwrap().into_body();
            assert_eq!(
                rest(&mut body).await,
                ("{}".to_owned(), None),
                "{version:?} {key}"
            );
        }
        let other = endpoint.certificate_authority(Authority::new().pem());
        let text = failure(&other, Trust::Trusted).await.to_string();
        assert!(text.contains("not signed by a trusted"), "{version:?}: {text}");
    }
}
