//! The TLS of a server.

use std::sync::Arc;

use mcr_access::{
    crypto::{self, NoCryptoProvider},
    internal::pem,
};
use rustls::{
    ServerConfig,
    client::verify_server_name,
    server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier},
    sign::{CertifiedKey, SingleCertAndKey},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};

/// The certificate of a server, ready to serve.
pub struct ServerTls {
    config: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
}

/// A file of a server's TLS, and its problem as the end of a sentence. The errors of rustls are not shown, since they quote
/// lines of a key.
#[derive(Debug, PartialEq, Eq)]
pub enum ServerTlsProblem {
    /// The certificate chain.
    Certificate(&'static str),
    /// The private key.
    Key(&'static str),
    /// The authorities of client certificates.
    ClientAuthorities(&'static str),
    /// The program has no cryptography for TLS.
    NoCrypto(NoCryptoProvider),
}

impl ServerTls {
    /// Reads a certificate chain and its key in PEM, and the authorities that sign client certificates. With authorities, a client may
    /// show a certificate; one that they have not signed ends the handshake.
    ///
    /// No session is resumed, so each connection proves the certificates of both sides.
    ///
    /// # Errors
    /// The file that can't be used.
    pub fn new(chain: &[u8], key: &[u8], authorities: Option<&[u8]>) -> Result<Self, ServerTlsProblem> {
        use ServerTlsProblem::{Certificate, ClientAuthorities, Key, NoCrypto};
        let provider = crypto::provider().map_err(NoCrypto)?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
        let chain = chain.map_err(|_| Certificate("holds PEM that is cut off or damaged"))?;
        let Some(certificate) = chain.first().cloned() else {
            return Err(Certificate(
                "holds no PEM certificate (-----BEGIN CERTIFICATE-----)",
            ));
        };
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| Key("holds no PEM private key that is not encrypted"))?;
        let certified = CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => Key("does not belong to the certificate"),
            rustls::Error::InvalidCertificate(_) => Certificate("holds a certificate that can't be parsed"),
            _ => Key("holds a private key of a kind that can't be used here"),
        })?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|_| Key("can't be used with the versions of TLS of this program"))?;
        let builder = match authorities {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let roots = pem::authorities(pem).map_err(ClientAuthorities)?;
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                    .allow_unauthenticated()
                    .build()
                    .map_err(|_| ClientAuthorities("holds no usable certificate authority"))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self {
            config: Arc::new(config),
            certificate,
        })
    }

    /// The configuration of a new connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// Whether the certificate is valid for this name.
    pub fn is_for(&self, name: &str) -> bool {
        let (Ok(name), Ok(certificate)) = (
            ServerName::try_from(name),
            ParsedCertificate::try_from(&self.certificate),
        ) else {
            return false;
        };
        verify_server_name(&certificate, &name).is_ok()
    }
}
