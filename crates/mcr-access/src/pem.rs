//! Certificates and private keys in PEM.
//!
//! A problem is a text with the end of a sentence, for example `holds no PEM private key; copy the key again`. The
//! caller puts the name of the field before it. The errors of rustls are not shown, since they quote lines of a key.

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock},
};

use rustls::{RootCertStore, SignatureScheme, sign::CertifiedKey};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::{crypto, fingerprint::Fingerprint, key_kind, weak_cache::WeakCache};

/// Which part of an identity has a problem, and which.
pub type IdentityProblem = (IdentityPart, Cow<'static, str>);

/// Whether the cryptography of this program verifies ECDSA P-521 and SHA-512: that of aws-lc-rs does, that of ring does not.
pub fn verifies_p521() -> bool {
    crypto::provider().is_ok_and(|provider| {
        let schemes = provider.signature_verification_algorithms.supported_schemes();
        schemes.contains(&SignatureScheme::ECDSA_NISTP521_SHA512)
    })
}

/// The kinds of keys that can be used here. Other clients may have more.
pub fn supported() -> &'static str {
    if verifies_p521() {
        "RSA of 2048 to 8192 bits, ECDSA P-256, P-384 or P-521, or Ed25519"
    } else {
        "RSA of 2048 to 4096 bits with the exponent 65537, ECDSA P-256 or P-384, or Ed25519 (a program that is built with mcr's feature \
         aws-lc-rs, without ring, can use ECDSA P-521 too)"
    }
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
pub(crate) fn identity(chain: &[u8], key: &str) -> Result<Arc<CertifiedKey>, IdentityProblem> {
    static CACHE: LazyLock<WeakCache<CertifiedKey>> = LazyLock::new(WeakCache::default);
    CACHE.get_or_try_insert(Fingerprint::of(&(chain, key)), || {
        parse_identity(chain, key).map(Arc::new)
    })
}

fn parse_identity(chain: &[u8], key: &str) -> Result<CertifiedKey, IdentityProblem> {
    let chain = certificates(chain).map_err(|problem| (IdentityPart::Certificate, problem.into()))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| {
        let problem = if key.contains("ENCRYPTED") {
            "holds an encrypted private key; store it decrypted (openssl pkey -in KEY -out PLAIN)"
        } else {
            "holds no PEM private key; copy the key again"
        };
        (IdentityPart::Key, problem.into())
    })?;
    let kind = key_kind::of_private_key(&key);
    let provider = crypto::provider()
        .map_err(|missing| (IdentityPart::Key, format!("can't be used: {missing}").into()))?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| {
        use rustls::{Error, InconsistentKeys};
        match error {
            // aws-lc-rs reads a spelled-out curve, and the certificate has it in another form.
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) if kind.as_deref() != Some(key_kind::SPELLED_OUT) => {
                (IdentityPart::Key, "does not belong to the client certificate; copy both again from the same place".into())
            }
            Error::InvalidCertificate(error) if format!("{error:?}").contains("UnsupportedCertVersion") => (
                IdentityPart::Certificate,
                "holds an X.509 version 1 certificate, which rustls does not accept; issue it again as version 3 \
                 (with openssl x509 -req, add -extfile with any extension)".into(),
            ),
            Error::InvalidCertificate(_) => {
                (IdentityPart::Certificate, "holds a certificate that can't be parsed; copy the certificate again".into())
            }
            _ => {
                let kind = kind.as_deref().unwrap_or("an unknown kind");
                let problem = format!(
                    "holds a private key ({kind}) that can't be used here; copy it again if it may be damaged, else issue the client \
                     certificate with a key of another kind: {}",
                    supported()
                );
                (IdentityPart::Key, problem.into())
            }
        }
    })
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, &'static str> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err(match std::str::from_utf8(pem) {
            Ok(text) if text.contains("-----BEGIN CERTIFICATE-----") => {
                "holds a certificate with spaces before its lines; remove them"
            }
            Ok(text) if text.contains(" CERTIFICATE-----") => {
                "holds a certificate that does not begin with -----BEGIN CERTIFICATE-----; openssl x509 -in FILE -out PLAIN writes it so"
            }
            _ => "holds no PEM certificate (-----BEGIN CERTIFICATE-----); copy the certificate again",
        }),
        Ok(found) => Ok(found),
        Err(_) => Err("holds PEM that is cut off or damaged; copy the certificate again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys were made with openssl. The line before each names its kind.
    #[test]
    fn a_client_key_that_can_not_be_used_is_reported_by_its_kind() {
        let own = rcgen::KeyPair::generate().unwrap();
        let chain = rcgen::CertificateParams::default()
            .self_signed(&own)
            .unwrap()
            .pem();
        for part in include_str!("unusable_keys.pem").split("# ").skip(1) {
            let (kind, key) = part.split_once('\n').unwrap();
            let (half, problem) = parse_identity(chain.as_bytes(), key).unwrap_err();
            assert_eq!(half, IdentityPart::Key);
            let only_aws_lc_rs = ["P-521", "exponent 3", "8192"];
            if verifies_p521() && only_aws_lc_rs.iter().any(|part| kind.contains(part)) {
                // The key can be used, and is not that of the certificate.
                assert!(problem.starts_with("does not belong"), "{kind}: {problem}");
                continue;
            }
            let named = format!("holds a private key ({}) that can't be used here", kind.trim());
            assert!(
                problem.starts_with(&named) && problem.ends_with(supported()),
                "{kind}: {problem}"
            );
        }
        let problem = |pem: &str| authorities(pem.as_bytes()).unwrap_err();
        assert!(problem(&chain.replace(" CERT", " TRUSTED CERT")).contains("does not begin with"));
        assert!(problem(&format!("  {}", chain.replace('\n', "\n  "))).contains("spaces"));
    }
}
