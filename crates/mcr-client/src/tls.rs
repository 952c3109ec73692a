//! TLS configurations, which clusters with equal settings share.

use std::sync::{Arc, OnceLock};

use mcr_access::{
    AccessError, ClientCertificate, Endpoint, Fingerprint,
    crypto::{self, NoCryptoProvider},
    internal::{
        WeakCache,
        pem::{self, IdentityPart},
    },
};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, SignatureScheme,
    client::{
        Resumption, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    sign::SingleCertAndKey,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};

/// How many TLS sessions are kept for one server: the default of rustls. rustls allocates 2 KiB for them at once.
const SESSIONS: usize = 8;

/// The number of servers whose sessions the common configuration keeps. Clusters without a certificate authority and without
/// a client certificate share that configuration.
const SERVERS: usize = 256;

/// The TLS configurations in use.
///
/// The references are weak, so a rotated client certificate is freed with its last connection.
#[derive(Default)]
pub(super) struct TlsCache {
    configs: WeakCache<ClientConfig>,
    /// Clusters with the same certificate authority share a verifier, even if their client certificates differ.
    verifiers: WeakCache<dyn ServerCertVerifier>,
}

impl TlsCache {
    pub(super) fn config(
        &self,
        endpoint: &Endpoint,
        certificate: Option<&ClientCertificate>,
    ) -> Result<Arc<ClientConfig>, AccessError> {
        let identity = certificate.map(ClientCertificate::fingerprint);
        let key = Fingerprint::of(&(
            &endpoint.certificate_authority,
            endpoint.insecure_skip_tls_verify,
            identity,
        ));
        self.configs
            .get_or_try_insert(key, || Ok(Arc::new(self.build(endpoint, certificate)?)))
    }

    fn build(
        &self,
        endpoint: &Endpoint,
        certificate: Option<&ClientCertificate>,
    ) -> Result<ClientConfig, AccessError> {
        let builder = ClientConfig::builder_with_provider(provider()?.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| AccessError::invalid("TLS", error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(self.verifier(endpoint)?);
        let mut config = match certificate {
            None => builder.with_no_client_auth(),
            Some(certificate) => {
                let identity = certificate.identity().map_err(|(half, problem)| {
                    let half = if half == IdentityPart::Key {
                        "the client key"
                    } else {
                        "the client certificate"
                    };
                    AccessError::invalid(half, problem)
                })?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity)))
            }
        };
        let is_shared = certificate.is_none() && endpoint.certificate_authority.is_none();
        let servers = if is_shared { SERVERS } else { 1 };
        config.resumption = Resumption::in_memory_sessions(servers * SESSIONS);
        Ok(config)
    }

    fn verifier(&self, endpoint: &Endpoint) -> Result<Arc<dyn ServerCertVerifier>, AccessError> {
        if endpoint.insecure_skip_tls_verify {
            return Ok(Arc::new(Verifier::any().map_err(missing)?));
        }
        let Some(authority) = &endpoint.certificate_authority else {
            return system();
        };
        self.verifiers
            .get_or_try_insert(Fingerprint::of(authority), || verifier(authority))
    }
}

fn provider() -> Result<&'static Arc<CryptoProvider>, AccessError> {
    crypto::provider().map_err(missing)
}

fn missing(missing: NoCryptoProvider) -> AccessError {
    AccessError::invalid("TLS", missing.to_string())
}

/// A verifier for certificate authorities in PEM.
pub fn verifier(authority: &Arc<[u8]>) -> Result<Arc<dyn ServerCertVerifier>, AccessError> {
    let problem = |problem: &str| AccessError::invalid("certificate-authority-data", problem);
    let roots = pem::authorities(authority).map_err(problem)?;
    let provider = provider()?;
    let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let inner = builder.build().map_err(|error| problem(&error.to_string()))?;
    let pem = authority.clone();
    Ok(Arc::new(Verifier {
        authorities: Some(Authorities { inner, pem }),
        signatures: provider.signature_verification_algorithms,
    }))
}

/// What to do about a certificate with a key or a signature of this kind.
pub(crate) fn unusable(kind: &str) -> String {
    let hashes = if pem::verifies_p521() {
        "SHA-256, SHA-384 or SHA-512"
    } else {
        "SHA-256 or SHA-384"
    };
    format!(
        "the certificate of the server or of its authority has a key or a signature that can't be used here ({kind}); issue it again with \
         {hashes} and {}",
        pem::supported()
    )
}

/// Why a certificate can't be verified, where the errors of rustls don't say it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unusable(String);

impl Unusable {
    /// Adds the cause to an error: the key of one of the certificates that took part.
    fn explain<'a>(
        error: rustls::Error,
        mut all: impl Iterator<Item = &'a CertificateDer<'a>>,
    ) -> rustls::Error {
        match all.find_map(|certificate| pem::unusable_rsa(certificate)) {
            Some(kind) if error == CertificateError::BadSignature.into() => Self(unusable(&kind)).into(),
            _ => error,
        }
    }
}

impl From<Unusable> for rustls::Error {
    fn from(unusable: Unusable) -> Self {
        CertificateError::Other(OtherError(Arc::new(unusable))).into()
    }
}

/// A verifier for the certificate authorities of this machine. Loaded once, because that takes milliseconds and 100 KiB.
pub fn system() -> Result<Arc<dyn ServerCertVerifier>, AccessError> {
    type Loaded = Result<Arc<rustls_platform_verifier::Verifier>, String>;
    static SYSTEM: OnceLock<Loaded> = OnceLock::new();
    let provider = provider()?;
    let loaded = SYSTEM.get_or_init(|| {
        let verifier = rustls_platform_verifier::Verifier::new(provider.clone());
        verifier.map(Arc::new).map_err(|error| error.to_string())
    });
    match loaded {
        Ok(verifier) => Ok(verifier.clone()),
        Err(error) => Err(AccessError::invalid(
            "certificate-authority-data",
            format!(
                "is missing, and this machine has no certificate authorities of its own ({error}); add it, or \
                 install ca-certificates"
            ),
        )),
    }
}

/// Verifies by authorities, and names the key at fault. Without them accepts any certificate, for `insecure-skip-tls-verify`: the server
/// must still prove that it holds the certificate's key.
#[derive(Debug)]
pub struct Verifier {
    authorities: Option<Authorities>,
    signatures: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
struct Authorities {
    inner: Arc<WebPkiServerVerifier>,
    pem: Arc<[u8]>,
}

impl Verifier {
    /// Accepts any certificate.
    pub fn any() -> Result<Self, NoCryptoProvider> {
        Ok(Self {
            authorities: None,
            signatures: crypto::provider()?.signature_verification_algorithms,
        })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(Authorities { inner, pem }) = &self.authorities else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified = inner.verify_server_cert(server, between, name, ocsp, now);
        verified.map_err(|error| {
            let roots: Vec<_> = CertificateDer::pem_slice_iter(pem).flatten().collect();
            if error == CertificateError::UnknownIssuer.into() && roots.contains(server) {
                let text = "certificate-authority-data holds the server's own certificate, which is no authority; put the authority there that \
                            has signed it";
                return Unusable(text.to_owned()).into();
            }
            Unusable::explain(error, std::iter::once(server).chain(between).chain(&roots))
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, server, signed, &self.signatures)
            .map_err(|error| Unusable::explain(error, std::iter::once(server)))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, server, signed, &self.signatures)
            .map_err(|error| Unusable::explain(error, std::iter::once(server)))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.supported_schemes()
    }
}
