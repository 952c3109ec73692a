//! Where an API server is.

use std::{fmt, sync::Arc};

/// Where an API server is and how it proves who it is. Two equal endpoints can share connections' TLS state.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Endpoint {
    /// `https://host:port/path`; plain http is accepted.
    pub server: http::Uri,
    /// The certificate authorities that sign the server's certificate, PEM; without it the system's.
    pub certificate_authority: Option<Arc<[u8]>>,
    /// The name the server's certificate must carry, if it is not the host of `server`.
    pub tls_server_name: Option<Arc<str>>,
    /// Accept any server certificate.
    pub insecure_skip_tls_verify: bool,
    /// An http, https or socks5 proxy.
    pub proxy: Option<http::Uri>,
}

impl Endpoint {
    /// An endpoint whose certificate is checked against the system's certificate authorities.
    pub fn new(server: http::Uri) -> Self {
        Self {
            server,
            certificate_authority: None,
            tls_server_name: None,
            insecure_skip_tls_verify: false,
            proxy: None,
        }
    }

    /// Sets the certificate authorities, PEM.
    #[must_use]
    pub fn certificate_authority(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.certificate_authority = Some(Arc::from(pem.as_ref()));
        self
    }
}

// An address of a proxy can hold a password.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("server", &plain(&self.server))
            .field(
                "certificate_authority",
                &self.certificate_authority.as_ref().map(|pem| pem.len()),
            )
            .field("tls_server_name", &self.tls_server_name)
            .field("insecure_skip_tls_verify", &self.insecure_skip_tls_verify)
            .field("proxy", &self.proxy.as_ref().map(plain))
            .finish()
    }
}

/// An address without user name, password and query.
pub fn plain(uri: &http::Uri) -> String {
    let scheme = uri
        .scheme_str()
        .map(|scheme| format!("{scheme}://"))
        .unwrap_or_default();
    let port = uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{scheme}{}{port}{}", uri.host().unwrap_or_default(), uri.path())
}
