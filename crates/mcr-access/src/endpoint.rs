//! The address of an API server.

use std::{fmt, sync::Arc};

/// The address of an API server, and how to verify its certificate. Equal endpoints can share TLS configurations and
/// sessions.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Endpoint {
    /// The URL of the API server: `https://host:port/path`. Plain http is accepted.
    pub server: http::Uri,
    /// The certificate authorities that may sign the server's certificate, in PEM. `None`: those of the system.
    pub certificate_authority: Option<Arc<[u8]>>,
    /// The name that the server's certificate must have. `None`: the host of `server`.
    pub tls_server_name: Option<Arc<str>>,
    /// Whether any certificate of the server is accepted.
    pub insecure_skip_tls_verify: bool,
    /// The proxy to connect through: http, https or socks5.
    pub proxy: Option<http::Uri>,
    /// Whether connections without `proxy` are direct also if the fleet uses the proxies of the environment.
    pub direct: bool,
    /// Whether lists of a fleet may be compressed with gzip. `None`: as the fleet has it. A kubeconfig with `disable-compression: true`
    /// sets `Some(false)`.
    pub gzip_lists: Option<bool>,
}

impl Endpoint {
    /// An endpoint without a proxy. The certificate authorities of the system verify its certificate.
    pub fn new(server: http::Uri) -> Self {
        Self {
            server,
            certificate_authority: None,
            tls_server_name: None,
            insecure_skip_tls_verify: false,
            proxy: None,
            direct: false,
            gzip_lists: None,
        }
    }

    /// Sets the certificate authorities, in PEM.
    #[must_use]
    pub fn certificate_authority(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.certificate_authority = Some(Arc::from(pem.as_ref()));
        self
    }
}

// Not derived: the URL of a proxy can contain a password.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("server", &redacted_uri(&self.server))
            .field(
                "certificate_authority",
                &self.certificate_authority.as_ref().map(|pem| pem.len()),
            )
            .field("tls_server_name", &self.tls_server_name)
            .field("insecure_skip_tls_verify", &self.insecure_skip_tls_verify)
            .field("proxy", &self.proxy.as_ref().map(redacted_uri))
            .field("direct", &self.direct)
            .field("gzip_lists", &self.gzip_lists)
            .finish()
    }
}

/// Formats a URI without user name, password and query.
pub fn redacted_uri(uri: &http::Uri) -> String {
    let scheme = uri
        .scheme_str()
        .map(|scheme| format!("{scheme}://"))
        .unwrap_or_default();
    let port = uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{scheme}{}{port}{}", uri.host().unwrap_or_default(), uri.path())
}
