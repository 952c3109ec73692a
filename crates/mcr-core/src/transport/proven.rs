//! A server's chain of certificates is not verified again for a moment.
//!
//! Fleets often have many clusters behind one front, such as a kcp, a Rancher or a Gardener, and after an outage all of
//! them connect at once. In each full handshake the server proves anew that it holds its key; that the chain leads from
//! there to the authority is what was just found out, and takes as long to see again. Of an authority that is for several
//! servers the last one is remembered: with many of them nothing is won, nor is anything lost.
//!
//! When a session is resumed, rustls asks for neither, for as long as the session's ticket lasts.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustls::{
    DigitallySignedStruct, DistinguishedName, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

/// A certificate that expires within this time is accepted until it is over.
const LASTS: Duration = Duration::from_secs(60);

type Digest = [u8; 32];

/// Asks another verifier, unless it was the last to say yes to the same server, a moment ago.
#[derive(Debug)]
pub(super) struct Proven {
    verifier: Arc<dyn ServerCertVerifier>,
    last: Mutex<Option<(Digest, UnixTime)>>,
}

impl Proven {
    pub(super) fn new(verifier: Arc<dyn ServerCertVerifier>) -> Self {
        Self {
            verifier,
            last: Mutex::default(),
        }
    }

    fn last(&self) -> MutexGuard<'_, Option<(Digest, UnixTime)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_proven(&self, digest: &Digest, now: UnixTime) -> bool {
        self.last().is_some_and(|(last, since)| {
            // A clock that was put back says nothing.
            let age = now.as_secs().checked_sub(since.as_secs());
            last == *digest && age.is_some_and(|age| age < LASTS.as_secs())
        })
    }
}

/// Of all that the chain is verified for but the time. None if there is no such hash, which does not happen.
fn digest(
    end_entity: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    server: &ServerName<'_>,
) -> Option<Digest> {
    let suite = TLS13_AES_128_GCM_SHA256.tls13()?;
    let mut hash = suite.common.hash_provider.start();
    let server = server.to_str();
    let certificates = intermediates.iter().map(|certificate| &**certificate);
    // With its length before each part, so that nothing goes over from one to the next.
    for part in [server.as_bytes(), end_entity].into_iter().chain(certificates) {
        hash.update(&part.len().to_be_bytes());
        hash.update(part);
    }
    hash.finish().as_ref().try_into().ok()
}

impl ServerCertVerifier for Proven {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // What is stapled may say that the certificate was revoked since.
        let digest = digest(end_entity, intermediates, server_name).filter(|_| ocsp_response.is_empty());
        if digest.is_some_and(|digest| self.is_proven(&digest, now)) {
            return Ok(ServerCertVerified::assertion());
        }
        let verified =
            self.verifier
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        if let Some(digest) = digest {
            *self.last() = Some((digest, now));
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.verifier.requires_raw_public_keys()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        self.verifier.root_hint_subjects()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    #[derive(Debug, Default)]
    struct Asked {
        times: AtomicUsize,
        refuses: AtomicBool,
    }

    impl ServerCertVerifier for Asked {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, rustls::Error> {
            self.times.fetch_add(1, Ordering::Relaxed);
            match self.refuses.load(Ordering::Relaxed) {
                true => Err(rustls::Error::General("refused".into())),
                false => Ok(ServerCertVerified::assertion()),
            }
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            unreachable!("no handshake")
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            unreachable!("no handshake")
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![]
        }
    }

    struct Server {
        end_entity: &'static [u8],
        intermediates: &'static [&'static [u8]],
        name: &'static str,
        stapled: &'static [u8],
        at: u64,
    }

    const SERVER: Server = Server {
        end_entity: b"leaf",
        intermediates: &[b"in", b"termediate"],
        name: "kcp.example",
        stapled: b"",
        at: 1_000,
    };

    fn is_accepted(proven: &Proven, server: &Server) -> bool {
        let intermediates: Vec<_> = server
            .intermediates
            .iter()
            .map(|der| CertificateDer::from(*der))
            .collect();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(server.at));
        let name = ServerName::try_from(server.name).unwrap();
        let end_entity = CertificateDer::from(server.end_entity);
        proven
            .verify_server_cert(&end_entity, &intermediates, &name, server.stapled, now)
            .is_ok()
    }

    /// How often the verifier is asked about the second, after it accepted the first.
    fn asked_again(second: Server) -> usize {
        let asked = Arc::new(Asked::default());
        let proven = Proven::new(asked.clone());
        assert!(is_accepted(&proven, &SERVER) && is_accepted(&proven, &second));
        asked.times.load(Ordering::Relaxed) - 1
    }

    #[test]
    fn the_same_server_is_verified_once_in_a_minute() {
        assert_eq!(asked_again(SERVER), 0);
        assert_eq!(asked_again(Server { at: 1_059, ..SERVER }), 0);
        assert_eq!(asked_again(Server { at: 1_060, ..SERVER }), 1);
        assert_eq!(
            asked_again(Server { at: 999, ..SERVER }),
            1,
            "the clock was put back"
        );
    }

    #[test]
    fn whatever_differs_is_verified() {
        let end_entity = b"lea";
        assert_eq!(asked_again(Server { end_entity, ..SERVER }), 1);
        for intermediates in [
            &[] as &[&[u8]],
            &[b"in"],
            &[b"termediate", b"in"],
            &[b"int", b"ermediate"],
            &[b"intermediate"],
        ] {
            assert_eq!(
                asked_again(Server {
                    intermediates,
                    ..SERVER
                }),
                1,
                "{intermediates:?}"
            );
        }
        let name = "kcp.example.org";
        assert_eq!(asked_again(Server { name, ..SERVER }), 1);
        let stapled = b"revoked";
        assert_eq!(asked_again(Server { stapled, ..SERVER }), 1);
    }

    #[test]
    fn what_is_refused_is_refused_again() {
        let asked = Arc::new(Asked::default());
        let proven = Proven::new(asked.clone());
        asked.refuses.store(true, Ordering::Relaxed);
        assert!(!is_accepted(&proven, &SERVER) && !is_accepted(&proven, &SERVER));
        assert_eq!(asked.times.load(Ordering::Relaxed), 2);
        asked.refuses.store(false, Ordering::Relaxed);
        assert!(is_accepted(&proven, &SERVER));
        // Another that is refused takes nothing from the one that was accepted.
        asked.refuses.store(true, Ordering::Relaxed);
        assert!(!is_accepted(
            &proven,
            &Server {
                name: "other.example",
                ..SERVER
            }
        ));
        assert!(is_accepted(&proven, &SERVER));
    }
}
