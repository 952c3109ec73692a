//! Probes the connection to an API server step by step, without credentials.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::{Request, header};
use http_body_util::Empty;
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use jiff::fmt::rfc2822;
use mcr_core::{
    AddressPolicy, Trust, crypto, explain_error,
    internal::{proxy_hint, tls, unused_proxy_variable},
};
use parking_lot::Mutex;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
    time::{Instant, timeout},
};
use tokio_rustls::TlsConnector;

use super::target::{Credential, Target, allowed, validity};
use crate::values::seconds;

/// The connection to an API server.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) address: String,
    pub(super) host: String,
    pub(super) credential: Credential,
    /// Whether clients reach the server through a proxy. The probe does not use the proxy.
    pub(super) proxied: bool,
    pub(super) insecure: bool,
    pub(super) reach: Option<Reach>,
}

/// The results of the steps of the probe. A step is `None` if an earlier step has failed. Failures are texts for
/// people.
#[derive(Debug, Clone, Default)]
pub(super) struct Reach {
    pub(super) resolved: Option<Result<Vec<IpAddr>, String>>,
    /// The error of the access policy, if it does not allow an address of the host.
    pub(super) forbidden: Option<String>,
    pub(super) connected: Option<Result<Duration, String>>,
    pub(super) handshake: Option<Result<Tls, String>>,
    pub(super) answered: Option<Result<Answer, String>>,
}

/// The certificate that the server has sent in the TLS handshake.
#[derive(Debug, Clone, Default)]
pub(super) struct Tls {
    /// `None` if the certificate was not verified: the kubeconfig forbids it, or this machine has no certificate
    /// authorities.
    pub(super) verdict: Option<Verdict>,
    pub(super) expires: Option<SystemTime>,
    pub(super) valid_from: Option<SystemTime>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Good,
    Bad { why: Bad, text: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bad {
    UnknownIssuer,
    Expired,
    NotYetValid,
    OtherName,
    Other,
}

/// The answer to a request without credentials.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) took: Duration,
    /// How many seconds the clock of the server is ahead of the local clock. Negative if it is behind.
    pub(super) ahead: Option<i64>,
}

/// Connects to a server step by step, and returns the results. Ends at a proxy.
pub(super) async fn connection(target: &Target, policy: &AddressPolicy, limit: Duration) -> Connection {
    let reach = if target.proxied {
        None
    } else {
        Some(mention_proxy(reach(target, policy, limit).await, target))
    };
    Connection {
        address: target.address.clone(),
        host: target.host.clone(),
        credential: target.credential.clone(),
        proxied: target.proxied,
        insecure: target.insecure,
        reach,
    }
}

/// If a step before the first answer has failed: adds the variable with which another program would have used a proxy.
fn mention_proxy(mut reach: Reach, target: &Target) -> Reach {
    let failed = [
        reach.resolved.as_mut().and_then(|step| step.as_mut().err()),
        reach.connected.as_mut().and_then(|step| step.as_mut().err()),
        reach.handshake.as_mut().and_then(|step| step.as_mut().err()),
    ];
    let server = target.address.parse().ok();
    let variable = server.and_then(|server| unused_proxy_variable(&server));
    for (failure, name) in failed.into_iter().flatten().zip(variable) {
        failure.push_str(&format!("; {}", proxy_hint(name)));
    }
    reach
}

/// Resolves the host, connects, makes the TLS handshake and requests the version, until one of these steps fails. Each
/// step has the same time limit.
async fn reach(target: &Target, policy: &AddressPolicy, limit: Duration) -> Reach {
    let mut reach = Reach::default();
    let _ = steps(&mut reach, target, policy, limit).await;
    reach
}

/// `None` if a step failed.
async fn steps(reach: &mut Reach, target: &Target, policy: &AddressPolicy, limit: Duration) -> Option<()> {
    let addresses = or_store_failure(&mut reach.resolved, resolve(target, limit).await)?;
    if target.host.parse::<IpAddr>().is_err() {
        reach.resolved = Some(Ok(addresses.iter().map(SocketAddr::ip).collect()));
    }
    let addresses = match target.trust {
        Trust::Untrusted => allowed(addresses, policy)
            .map_err(|forbidden| reach.forbidden = Some(forbidden))
            .ok()?,
        Trust::Trusted => addresses,
    };
    let (stream, took) = or_store_failure(&mut reach.connected, connect(&addresses, limit).await)?;
    reach.connected = Some(Ok(took));
    reach.answered = Some(if target.tls {
        let (stream, tls) = or_store_failure(&mut reach.handshake, greet(stream, target, limit).await)?;
        reach.handshake = Some(Ok(tls));
        ask(stream, target, limit).await
    } else {
        ask(stream, target, limit).await
    });
    Some(())
}

/// Stores the failure of a step. Returns the result of a successful step.
fn or_store_failure<T, S>(step: &mut Option<Result<S, String>>, result: Result<T, String>) -> Option<T> {
    result.map_err(|failure| *step = Some(Err(failure))).ok()
}

async fn resolve(target: &Target, limit: Duration) -> Result<Vec<SocketAddr>, String> {
    match timeout(limit, lookup_host((target.host.as_str(), target.port))).await {
        Ok(Ok(found)) => {
            let found: Vec<SocketAddr> = found.collect();
            if found.is_empty() {
                return Err(format!("the host name {} has no address", target.host));
            }
            Ok(found)
        }
        Ok(Err(error)) => Err(format!(
            "the host name {} can't be resolved ({error}); check its spelling, the DNS, and whether the cluster still exists",
            target.host
        )),
        Err(_) => Err(timed_out("the DNS did not answer", limit)),
    }
}

/// Connects to the first address that accepts a connection, as clients do.
async fn connect(addresses: &[SocketAddr], limit: Duration) -> Result<(TcpStream, Duration), String> {
    let begun = Instant::now();
    let mut failed = None;
    for address in addresses {
        let left = limit.saturating_sub(begun.elapsed());
        match timeout(left, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok((stream, begun.elapsed())),
            Ok(Err(error)) => failed = Some(explain_error(&error)),
            Err(_) => {
                let text = "no TCP connection; the address may be wrong, or a firewall drops packets";
                failed = Some(timed_out(text, limit));
            }
        }
    }
    Err(failed.unwrap_or_else(|| timed_out("no TCP connection", limit)))
}

fn timed_out(what: &str, limit: Duration) -> String {
    format!("{what} (waited for {})", seconds(limit))
}

/// Makes the TLS handshake. A bad certificate does not end the handshake, because no secret is sent over this
/// connection.
async fn greet(
    stream: TcpStream,
    target: &Target,
    limit: Duration,
) -> Result<(impl AsyncRead + AsyncWrite + Unpin + Send + 'static, Tls), String> {
    let name = target.server_name.as_deref().unwrap_or(&target.host);
    let name = ServerName::try_from(name.to_owned())
        .map_err(|_| format!("{name:?} is no name that a certificate could have"))?;
    let provider = crypto::provider().map_err(|missing| missing.to_string())?;
    let witness = Arc::new(Witness::new(target).map_err(|missing| missing.to_string())?);
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| explain_error(&error))?
        .dangerous()
        .with_custom_certificate_verifier(witness.clone())
        .with_no_client_auth();
    let handshake = timeout(limit, TlsConnector::from(Arc::new(config)).connect(name, stream)).await;
    let stream = match handshake {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(explain_error(&error)),
        Err(_) => {
            return Err(timed_out(
                "the TCP connection is accepted, but TLS gets no answer: the API server is paused or hangs, or another \
                 program listens on this port",
                limit,
            ));
        }
    };
    Ok((stream, witness.seen()))
}

/// A certificate verifier that records its verdict and accepts every certificate. Use it only for connections over
/// which no secret is sent.
#[derive(Debug)]
struct Witness {
    /// `None` if nothing is to be verified, or if this machine has no certificate authorities.
    verifier: Option<Arc<dyn ServerCertVerifier>>,
    signatures: tls::Verifier,
    seen: Mutex<Option<Tls>>,
}

impl Witness {
    fn new(target: &Target) -> Result<Self, crypto::NoCryptoProvider> {
        let verifier = match &target.authority {
            Some(pem) => tls::verifier(&pem.as_slice().into()).ok(),
            None if target.insecure => None,
            // As in the fleet: without an authority in the kubeconfig, the authorities of this machine count.
            None => tls::system().ok(),
        };
        Ok(Self {
            verifier,
            signatures: tls::Verifier::any()?,
            seen: Mutex::default(),
        })
    }

    fn seen(&self) -> Tls {
        self.seen.lock().take().unwrap_or_default()
    }
}

impl ServerCertVerifier for Witness {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self
            .verifier
            .as_ref()
            .map(|verifier| verifier.verify_server_cert(end_entity, intermediates, name, ocsp, now));
        let (valid_from, expires) = validity(end_entity).unzip();
        let seen = Tls {
            verdict: verified
                .map(|verified| verified.map_or_else(|error| verdict_of(&error), |_| Verdict::Good)),
            expires,
            valid_from,
        };
        *self.seen.lock() = Some(seen);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.supported_verify_schemes()
    }
}

fn verdict_of(error: &rustls::Error) -> Verdict {
    use CertificateError as Why;
    let why = match error {
        rustls::Error::InvalidCertificate(why) => match why {
            Why::UnknownIssuer | Why::BadSignature => Bad::UnknownIssuer,
            Why::Expired | Why::ExpiredContext { .. } => Bad::Expired,
            Why::NotValidYet | Why::NotValidYetContext { .. } => Bad::NotYetValid,
            Why::NotValidForName | Why::NotValidForNameContext { .. } => Bad::OtherName,
            _ => Bad::Other,
        },
        _ => Bad::Other,
    };
    Verdict::Bad {
        why,
        text: explain_error(error),
    }
}

/// Sends `GET /version` without credentials. Every answer, even a refusal, has the server's time in its `Date` header.
async fn ask(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    target: &Target,
    limit: Duration,
) -> Result<Answer, String> {
    let begun = Instant::now();
    let asked = async {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::get(format!("{}/version", target.path))
            .header(header::HOST, format!("{}:{}", target.host, target.port))
            .header(header::USER_AGENT, "mcr")
            .body(Empty::<Bytes>::new());
        let Ok(request) = request else { return Ok(None) };
        // The connection is dropped with the request.
        let response = tokio::select! {
            response = sender.send_request(request) => response?,
            ended = connection => {
                ended?;
                return Ok(None);
            }
        };
        Ok::<_, hyper::Error>(Some(response))
    };
    match timeout(limit, asked).await {
        Ok(Ok(Some(response))) => {
            let took = begun.elapsed();
            let date = response
                .headers()
                .get(header::DATE)
                .and_then(|date| date.to_str().ok());
            Ok(Answer {
                took,
                ahead: date.and_then(|date| ahead(date, SystemTime::now(), took)),
            })
        }
        Ok(Ok(None)) => Err("the connection was closed without an answer".to_owned()),
        Ok(Err(error)) => Err(explain_error(&error)),
        Err(_) => Err(timed_out(
            "the connection is made, but GET /version gets no answer: the API server is overloaded or hangs",
            limit,
        )),
    }
}

/// How many seconds the server's clock is ahead of `now`, the time at which the answer arrived. `took` is the duration
/// of the request. HTTP dates are in whole seconds.
fn ahead(date: &str, now: SystemTime, took: Duration) -> Option<i64> {
    // HTTP dates end in `GMT`. RFC 2822 has that only as an obsolete zone, so it is replaced by `+0000`, which means
    // the same.
    let server = rfc2822::DateTimeParser::new()
        .parse_timestamp(date.replace("GMT", "+0000"))
        .ok()?;
    let now = jiff::Timestamp::try_from(now.checked_sub(took / 2)?).ok()?;
    Some(server.as_second() - now.as_second())
}

#[cfg(test)]
mod tests {
    use mcr_core::Access;
    use tokio::{io::AsyncReadExt, net::TcpListener};
    use tokio_rustls::TlsAcceptor;

    use super::{super::target, *};

    /// Long enough for a connection on a machine with other work.
    const LIMIT: Duration = Duration::from_secs(2);

    fn target(address: SocketAddr) -> Target {
        let yaml = format!(
            "current-context: x\ncontexts: [{{name: x, context: {{cluster: c}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'https://{address}'}}}}]\n"
        );
        target::of(&Access::kubeconfig(yaml, Trust::Trusted)).unwrap()
    }

    async fn listen() -> (TcpListener, Target) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = target(listener.local_addr().unwrap());
        (listener, target)
    }

    #[tokio::test]
    async fn a_paused_server_is_distinguished_from_a_firewall_by_the_stage_that_gets_no_answer() {
        let policy = AddressPolicy::any();
        let text = |failure: String| {
            assert!(failure.ends_with("(waited for 2 s)"), "{failure}");
            failure
        };
        // The kernel accepts connections for a process that is paused.
        let (_paused, target) = listen().await;
        let reached = reach(&target, &policy, LIMIT).await;
        assert!(matches!(reached.connected, Some(Ok(_))), "{reached:?}");
        let paused = text(reached.handshake.unwrap().unwrap_err());
        assert!(
            paused.contains("TLS gets no answer") && paused.contains("paused"),
            "{paused}"
        );

        // A server that is handshake with TLS and then sends nothing.
        let (listener, target) = listen().await;
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = certified.signing_key.serialize_der().try_into().unwrap();
        let config = rustls::ServerConfig::builder_with_provider(crypto::provider().unwrap().clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .unwrap();
        let serving = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.unwrap();
            let mut some = [0; 1024];
            while let Ok(1..) = stream.read(&mut some).await {}
        });
        let reached = reach(&target, &policy, LIMIT).await;
        let silent = text(reached.answered.unwrap().unwrap_err());
        assert!(silent.contains("GET /version gets no answer"), "{silent}");
        // The kubeconfig has no authority, so this machine's verify the certificate, as they do for the fleet.
        let Some(Ok(tls)) = reached.handshake else {
            panic!("it was handshake")
        };
        assert!(
            matches!(
                tls.verdict,
                Some(Verdict::Bad {
                    why: Bad::UnknownIssuer,
                    ..
                })
            ),
            "{tls:?}"
        );
        serving.await.unwrap();
    }

    #[test]
    fn a_clock_is_compared_with_the_middle_of_the_question() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_100);
        let date = "Sun, 09 Sep 2001 01:46:40 GMT"; // 1_000_000_000
        assert_eq!(ahead(date, now, Duration::ZERO), Some(-100));
        assert_eq!(ahead(date, now, Duration::from_secs(20)), Some(-90));
        assert_eq!(ahead("yesterday", now, Duration::ZERO), None);
    }
}
