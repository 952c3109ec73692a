//! PEM, with problems told in words: rustls' own errors show the offending lines, which may be of a key.

use std::sync::{Arc, LazyLock};

use rustls::{RootCertStore, crypto::CryptoProvider, sign::CertifiedKey};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::{Fingerprint, weak::WeakMap};

/// One provider, named everywhere: rustls panics when it has to choose between two that are compiled in.
pub fn provider() -> &'static Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));
    &PROVIDER
}

/// The half of a client identity that is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// The certificate chain.
    Certificate,
    /// The private key.
    Key,
}

/// The certificate authorities in a PEM text. Like Go, unusable ones are passed over as long as one is usable.
pub fn authorities(pem: &[u8]) -> Result<RootCertStore, &'static str> {
    let certificates = certificates(pem)?;
    let mut store = RootCertStore::empty();
    let (usable, _) = store.add_parsable_certificates(certificates);
    if usable == 0 {
        return Err("holds no certificate that can be parsed; copy the certificate authority again");
    }
    Ok(store)
}

/// The certificate authorities in what `read` reads, known to be usable. Most fleets have few of them, written into the
/// kubeconfig of each cluster, so those of one `key` are read and held once.
pub(crate) fn authority<E>(
    key: Fingerprint,
    read: impl FnOnce() -> Result<Vec<u8>, E>,
    unusable: impl FnOnce(&'static str) -> E,
) -> Result<Arc<[u8]>, E> {
    static USABLE: LazyLock<WeakMap<[u8]>> = LazyLock::new(WeakMap::default);
    USABLE.get_or(key, || {
        let pem = read()?;
        authorities(&pem).map_err(unusable)?;
        Ok(pem.into())
    })
}

/// The certificate chain and key that a client shows. That a key is sound takes a multiplication on its curve to see, so
/// what was made of a text stands for all equal ones while it is in use.
pub(crate) fn identity(chain: &[u8], key: &str) -> Result<Arc<CertifiedKey>, (Half, &'static str)> {
    static MADE: LazyLock<WeakMap<CertifiedKey>> = LazyLock::new(WeakMap::default);
    MADE.get_or(Fingerprint::of(&(chain, key)), || make(chain, key).map(Arc::new))
}

fn make(chain: &[u8], key: &str) -> Result<CertifiedKey, (Half, &'static str)> {
    let chain = certificates(chain).map_err(|problem| (Half::Certificate, problem))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| {
        let problem = if key.contains("ENCRYPTED") {
            "holds an encrypted private key; store it decrypted (openssl pkey -in KEY -out PLAIN)"
        } else {
            "holds no PEM private key; copy the key again"
        };
        (Half::Key, problem)
    })?;
    CertifiedKey::from_der(chain, key, provider()).map_err(|error| {
        use rustls::{Error, InconsistentKeys};
        match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                (Half::Key, "does not belong to the client certificate; copy both again from the same place")
            }
            Error::InvalidCertificate(error) if format!("{error:?}").contains("UnsupportedCertVersion") => (
                Half::Certificate,
                "holds an X.509 version 1 certificate, which rustls does not accept; issue it again as version 3 \
                 (with openssl x509 -req, add -extfile with any extension)",
            ),
            Error::InvalidCertificate(_) => {
                (Half::Certificate, "holds a certificate that can't be parsed; copy the certificate again")
            }
            _ => (Half::Key, "holds a private key of a kind that is not supported; use RSA, ECDSA P-256/P-384 or Ed25519"),
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
