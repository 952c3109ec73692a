//! Explains errors: the cause, and what to do about it.
//!
//! The text of an error of hyper or kube often stops at "client error (Connect)". The cause is at the end of its chain of
//! sources.

use std::{error::Error, io};

use kube::client::AuthError;
use mcr_access::{ForbiddenAddress, internal::pem, reason};
use rustls::OtherError;

use crate::{
    connect::{ConnectTimeout, ProxyNotUsed, UnknownHost},
    error::TransportError,
    tls::{Unusable, unusable},
};

/// The task that sends the requests of a `kube::Client` has ended.
const CLIENT_ENDED: &str = "the client given for the cluster has ended, most likely since one of its services panicked; announce the \
     cluster with a new client";

/// The text of such an error quotes what a credential plugin wrote, and its input.
const NO_LOGIN: &str = "the credentials of its kubeconfig can't be loaded; try them with kubectl auth whoami";

/// The connection closed before the end of the response.
const CUT_OFF: &str =
    "the connection was closed in the middle of an answer; the API server may be restarting";

/// The server does not speak HTTP.
const NOT_HTTP: &str =
    "the server sent something that is not HTTP; check the port, and whether the address needs https://";

/// The head of the response is longer than [`mcr_h1::MAX_HEAD`].
const HEAD_TOO_LONG: &str = "the head of the answer is longer than 64 KiB; something before the API server adds headers or cookies to its \
     answers, which it should not do for API clients";

/// Explains an error: its cause, and what to do about it if that is known.
///
/// The text of a `kube::Error` often stops at "client error (Connect)", since the cause is at the end of its chain of sources.
/// This function walks the chain. The text of an error that it does not know it returns as a [`reason`]: one
/// line of at most 300 characters.
///
/// ```
/// use std::io;
/// let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
/// assert!(mcr_client::explain_error(&refused).contains("connection refused"));
/// ```
pub fn explain(error: &(dyn Error + 'static)) -> String {
    let mut root = None;
    let mut next = Some(error);
    let mut http = None;
    let mut network = None;
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<TransportError>() {
            return error.kind().to_string();
        }
        if let (true, Some(source)) = (error.is::<ProxyNotUsed>(), error.source()) {
            return format!("{}; {error}", explain(source));
        }
        if error.is::<ForbiddenAddress>() || error.is::<UnknownHost>() || error.is::<ConnectTimeout>() {
            return error.to_string();
        }
        if error.is::<tower::buffer::error::Closed>() {
            return CLIENT_ENDED.to_owned();
        }
        if error.is::<AuthError>() {
            return NO_LOGIN.to_owned();
        }
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return explain_tls(error);
        }
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            http = http.or_else(|| explain_hyper(error));
        }
        if let Some(error) = error.downcast_ref::<mcr_h1::Error>() {
            http = http.or_else(|| explain_h1(error));
        }
        root = Some(error);
        next = match error.downcast_ref::<io::Error>() {
            // `io::Error::source` skips the error that it wraps.
            Some(io) => {
                network = explain_io(io).or(network);
                io.get_ref().map(|inner| inner as &(dyn Error + 'static))
            }
            None => error.source(),
        };
    }
    let known = network.or(http).map(str::to_owned);
    known
        .or_else(|| root.map(|root| reason(&root.to_string())))
        .unwrap_or_default()
}

fn explain_hyper(error: &hyper::Error) -> Option<&'static str> {
    if error.is_incomplete_message() {
        Some(CUT_OFF)
    } else if error.is_parse() && error.to_string().contains("too large") {
        // hyper has `is_parse_too_large` for servers only.
        Some(HEAD_TOO_LONG)
    } else if error.is_parse() {
        Some(NOT_HTTP)
    } else if error.is_canceled() || error.is_closed() {
        Some("the connection was closed")
    } else {
        None
    }
}

fn explain_h1(error: &mcr_h1::Error) -> Option<&'static str> {
    match error {
        mcr_h1::Error::Truncated => Some(CUT_OFF),
        mcr_h1::Error::HeadTooLong => Some(HEAD_TOO_LONG),
        mcr_h1::Error::Malformed(_) => Some(NOT_HTTP),
        _ => None,
    }
}

fn explain_io(error: &io::Error) -> Option<&'static str> {
    use io::ErrorKind as Kind;
    // EMFILE (24) and ENFILE (23) have no ErrorKind.
    #[cfg(unix)]
    match error.raw_os_error() {
        Some(24) => {
            return Some(
                "this process has too many open files and sockets; raise its limit (ulimit -n, LimitNOFILE=, or the \
                 container's nofile): every watch needs one",
            );
        }
        Some(23) => return Some("this machine has too many open files and sockets; raise fs.file-max"),
        _ => {}
    }
    Some(match error.kind() {
        Kind::ConnectionRefused => {
            "connection refused: nothing listens at this address; the API server may be down"
        }
        Kind::TimedOut => {
            "the connection timed out: the other side does not answer (down, or a firewall drops packets)"
        }
        Kind::HostUnreachable | Kind::NetworkUnreachable => {
            "there is no route to the server; check the network, VPN or peering"
        }
        Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe | Kind::UnexpectedEof => {
            "the connection was closed by the server or something in between; the API server may be restarting"
        }
        _ => return None,
    })
}

fn explain_tls(error: &rustls::Error) -> String {
    use rustls::{AlertDescription as Alert, CertificateError as Bad, Error as Tls};
    let text = match error {
        Tls::InvalidCertificate(bad) => match bad {
            Bad::UnknownIssuer | Bad::BadSignature => {
                "the server's certificate is not signed by a trusted certificate authority; check \
                 certificate-authority-data, the cluster's authority may have been replaced"
            }
            Bad::Expired | Bad::ExpiredContext { .. } => {
                "the server's certificate has expired (or the clock of this machine is wrong); renew it"
            }
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                "the server's certificate is not valid yet; check the clocks of the server and of this machine"
            }
            Bad::NotValidForName => {
                "the server's certificate is for another name; correct the address or set tls-server-name"
            }
            Bad::NotValidForNameContext { expected, presented } => {
                let names = presented.iter().map(|name| plain_name(name));
                return format!(
                    "the server's certificate is not for {} ({}); correct the address or set tls-server-name",
                    expected.to_str(),
                    mcr_access::internal::list_names(names),
                );
            }
            Bad::Revoked => "the server's certificate is revoked; issue a new one",
            bad if format!("{bad:?}").contains("UnsupportedCertVersion") => {
                "the server's certificate is X.509 version 1, which rustls does not accept; issue it again as version 3"
            }
            Bad::UnsupportedSignatureAlgorithmContext {
                signature_algorithm_id: id,
                ..
            }
            | Bad::UnsupportedSignatureAlgorithmForPublicKeyContext {
                public_key_algorithm_id: id,
                ..
            } => return unusable(pem::algorithm(id)),
            Bad::Other(OtherError(other)) if other.is::<Unusable>() => return other.to_string(),
            bad if format!("{bad:?}").contains("CaUsedAsEndEntity") => {
                "the server's certificate is that of a certificate authority (CA:TRUE), which rustls does not accept from a server; issue one \
                 with CA:FALSE"
            }
            bad => return format!("the server's certificate can't be accepted: {bad}"),
        },
        Tls::AlertReceived(Alert::HandshakeFailure) => {
            let kind = if pem::verifies_p521() {
                "such as RSA of 1024 bits"
            } else {
                "such as ECDSA P-521"
            };
            return format!(
                "the server refused the TLS connection (HandshakeFailure), most likely because it has only old ciphers, or because {}",
                unusable(kind)
            );
        }
        Tls::AlertReceived(Alert::CertificateExpired) => {
            "the server says that the client certificate has expired; renew it"
        }
        Tls::AlertReceived(
            Alert::BadCertificate | Alert::UnknownCA | Alert::CertificateRequired | Alert::CertificateUnknown,
        ) => "the server does not accept the client certificate, or wants one; check the user's credentials",
        Tls::AlertReceived(alert) => return format!("the server refused the TLS connection ({alert:?})"),
        Tls::InvalidMessage(_) => {
            "the server does not speak TLS on this port; check the port, or write http://"
        }
        error => return format!("TLS: {error}"),
    };
    text.to_owned()
}

/// The name in a certificate. rustls gives it as `DnsName("eu-1")` or `IpAddress(10.0.0.1)`.
fn plain_name(presented: &str) -> &str {
    let inside = presented
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    inside.unwrap_or(presented).trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct Opaque(#[source] io::Error);

    #[test]
    fn the_cause_is_named_not_the_wrapping() {
        let refused = Opaque(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert!(explain(&refused).starts_with("connection refused: "));
        let unknown = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let wrapped = Opaque(io::Error::other(io::Error::new(
            io::ErrorKind::InvalidData,
            unknown,
        )));
        assert!(explain(&wrapped).starts_with("the server's certificate is not signed by"));
        let descriptors = Opaque(io::Error::from_raw_os_error(24));
        assert!(explain(&descriptors).contains("ulimit -n"));
        assert_eq!(explain(&io::Error::other("something else")), "something else");
    }
}
