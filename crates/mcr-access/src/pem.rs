//! Certificates and private keys in PEM.
//!
//! A problem is a `&str` with the end of a sentence, for example `holds no PEM private key; copy the key again`. The
//! caller puts the name of the field before it. The errors of rustls are not shown, since they quote lines of a key.

use std::sync::{Arc, LazyLock};

use rustls::{RootCertStore, crypto::CryptoProvider, sign::CertifiedKey};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::{fingerprint::Fingerprint, weak_cache::WeakCache};

/// Returns the crypto provider of all TLS configurations. rustls panics if it has to choose between two that are compiled
/// in, so every configuration names this provider.
pub fn provider() -> &'static Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));
    &PROVIDER
}

/// The part of a client's identity that has a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityPart {
    /// The certificate chain.
    Certificate,
    /// The private key.
    Key,
}

/// Parses the certificate authorities in a PEM text. Like Go, skips the unusable ones, and fails only if none is usable.
pub fn authorities(pem: &[u8]) -> Result<RootCertStore, &'static str> {
    let certificates = certificates(pem)?;
    let mut store = RootCertStore::empty();
    let (usable, _) = store.add_parsable_certificates(certificates);
    if usable == 0 {
        return Err("holds no certificate that can be parsed; copy the certificate authority again");
    }
    Ok(store)
}

/// Returns the certificate authorities that `read` reads, in PEM, after a check that one is usable.
///
/// Most fleets have few authorities, and repeat them in the kubeconfig of each cluster. Callers with the same `key`
/// share one copy, and only the first one reads and checks.
pub(crate) fn shared_authorities<E>(
    key: Fingerprint,
    read: impl FnOnce() -> Result<Vec<u8>, E>,
    unusable: impl FnOnce(&'static str) -> E,
) -> Result<Arc<[u8]>, E> {
    static CACHE: LazyLock<WeakCache<[u8]>> = LazyLock::new(WeakCache::default);
    CACHE.get_or_try_insert(key, || {
        let pem = read()?;
        authorities(&pem).map_err(unusable)?;
        Ok(pem.into())
    })
}

/// Parses a certificate chain and its private key, and checks that they belong together.
///
/// The check of a key is expensive (a multiplication on its curve), so equal texts share one result while it is in use.
pub(crate) fn identity(chain: &[u8], key: &str) -> Result<Arc<CertifiedKey>, (IdentityPart, &'static str)> {
    static CACHE: LazyLock<WeakCache<CertifiedKey>> = LazyLock::new(WeakCache::default);
    CACHE.get_or_try_insert(Fingerprint::of(&(chain, key)), || {
        parse_identity(chain, key).map(Arc::new)
    })
}

fn parse_identity(chain: &[u8], key: &str) -> Result<CertifiedKey, (IdentityPart, &'static str)> {
    let chain = certificates(chain).map_err(|problem| (IdentityPart::Certificate, problem))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| {
        let problem = if key.contains("ENCRYPTED") {
            "holds an encrypted private key; store it decrypted (openssl pkey -in KEY -out PLAIN)"
        } else {
            "holds no PEM private key; copy the key again"
        };
        (IdentityPart::Key, problem)
    })?;
    CertifiedKey::from_der(chain, key, provider()).map_err(|error| {
        use rustls::{Error, InconsistentKeys};
        match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                (IdentityPart::Key, "does not belong to the client certificate; copy both again from the same place")
            }
            Error::InvalidCertificate(error) if format!("{error:?}").contains("UnsupportedCertVersion") => (
                IdentityPart::Certificate,
                "holds an X.509 version 1 certificate, which rustls does not accept; issue it again as version 3 \
                 (with openssl x509 -req, add -extfile with any extension)",
            ),
            Error::InvalidCertificate(_) => {
                (IdentityPart::Certificate, "holds a certificate that can't be parsed; copy the certificate again")
            }
            _ => (IdentityPart::Key, "holds a private key of a kind that is not supported; use RSA, ECDSA P-256/P-384 or Ed25519"),
        }
    })
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, &'static str> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => {
            Err("holds no PEM certificate (-----BEGIN CERTIFICATE-----); copy the certificate again")
        }
        Ok(found) => Ok(found),
        Err(_) => Err("holds PEM that is cut off or damaged; copy the certificate again"),
    }
}
