use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use serde_json::json;

use super::server_error::SimServerError;
use crate::pki::{Authority, LOCAL, Pair};

/// A certificate authority, a server certificate for this machine, and the TLS configuration of the server. Any number
/// of clusters can share it. Creating it takes less than a millisecond.
#[derive(Clone)]
pub struct SimTls(Arc<Inner>);

struct Inner {
    authority: Authority,
    config: Arc<rustls::ServerConfig>,
}

/// A client certificate and its key, PEM.
#[derive(Clone)]
pub struct SimCertificate {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
    pub(crate) der: Vec<u8>,
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> SimServerError {
    SimServerError::Tls(error.into())
}

impl SimTls {
    /// A new authority with a server certificate for 127.0.0.1 and localhost.
    ///
    /// # Errors
    ///
    /// If keys or certificates can't be made.
    pub fn new() -> Result<Self, SimServerError> {
        let authority = Authority::new("simulated Kubernetes").map_err(failed)?;
        let server = authority.server(&LOCAL, |_| {}).map_err(failed)?;

        let mut roots = RootCertStore::empty();
        roots.add(authority.0.der().clone()).map_err(failed)?;
        let provider = mcr_access::crypto::provider().map_err(failed)?.clone();
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(failed)?;
        let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(server.key.serialize_der()));
        let chain: Vec<CertificateDer<'static>> = vec![server.certificate.der().clone()];
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, private)
            .map_err(failed)?;
        let config = Arc::new(config);
        Ok(Self(Arc::new(Inner { authority, config })))
    }

    /// The certificate authority that clients must trust, PEM.
    pub fn ca_pem(&self) -> String {
        self.0.authority.pem()
    }

    /// A client certificate that servers with this authority accept.
    /// [`set_certificate_user`](super::SimCluster::set_certificate_user) sets its user in a cluster.
    ///
    /// # Errors
    ///
    /// If the certificate can't be made.
    pub fn client_certificate(&self, common_name: &str) -> Result<SimCertificate, SimServerError> {
        let Pair { certificate, key } = self.0.authority.client(common_name, |_| {}).map_err(failed)?;
        Ok(SimCertificate {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            der: certificate.der().to_vec(),
        })
    }

    /// A kubeconfig with a client certificate that is as long as one with RSA 2048 keys, for measurements of memory.
    ///
    /// # Errors
    ///
    /// If the certificate can't be made.
    pub fn long_kubeconfig(&self, user: &str, server: &str) -> Result<String, SimServerError> {
        // Text before a PEM block is a comment.
        let long = |pem: &str, bytes: usize| {
            let comment = "-".repeat(bytes.saturating_sub(pem.len() + 1));
            STANDARD.encode(format!("{comment}\n{pem}"))
        };
        let of_user = self.client_certificate(user)?;
        let cluster = json!({"server": server, "certificate-authority-data": long(&self.ca_pem(), 1_100)});
        let user = json!({
            "client-certificate-data": long(&of_user.certificate, 1_150), "client-key-data": long(&of_user.key, 1_680),
        });
        Ok(json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "c", "user": user}],
        })
        .to_string())
    }

    pub(crate) fn acceptor(&self) -> tokio_rustls::TlsAcceptor {
        self.0.config.clone().into()
    }
}

impl std::fmt::Debug for SimTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimTls").finish_non_exhaustive()
    }
}

/// Does not show the key.
impl std::fmt::Debug for SimCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimCertificate").finish_non_exhaustive()
    }
}
