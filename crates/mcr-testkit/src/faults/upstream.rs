use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Request, Response, Uri, header};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use super::{FaultError, body::Body};

/// The API server behind a proxy, and the proxy's credentials for it.
///
/// A proxy without own credentials forwards the bearer token of the client. A proxy with own credentials replaces the
/// credentials of the client.
#[derive(Clone)]
#[must_use]
pub struct Upstream {
    url: String,
    ca_pem: Option<String>,
    /// The certificate and key of the proxy.
    own: Option<(String, String)>,
}

impl Upstream {
    /// An API server with this URL, `https` or `http`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ca_pem: None,
            own: None,
        }
    }

    /// Sets the certificate authorities of the server, PEM. Required for `https`.
    pub fn ca_pem(mut self, pem: impl Into<String>) -> Self {
        self.ca_pem = Some(pem.into());
        self
    }

    /// Sets the client certificate that the proxy uses for all clients, PEM.
    pub fn client_certificate(mut self, certificate: impl Into<String>, key: impl Into<String>) -> Self {
        self.own = Some((certificate.into(), key.into()));
        self
    }

    /// A control plane, with the credentials of its administrator. So clients need no credentials.
    #[cfg(feature = "control-plane")]
    pub fn admin_of(plane: &crate::control_plane::ControlPlane) -> Self {
        use crate::control_plane::Credentials;

        let upstream = Self::from(plane);
        match plane.admin_credentials() {
            Credentials::ClientCertificate { certificate, key } => {
                upstream.client_certificate(certificate, key)
            }
            _ => upstream,
        }
    }
}

/// A control plane. The clients' bearer tokens are forwarded.
#[cfg(feature = "control-plane")]
impl From<&crate::control_plane::ControlPlane> for Upstream {
    fn from(plane: &crate::control_plane::ControlPlane) -> Self {
        Self::new(plane.url()).ca_pem(plane.ca_pem())
    }
}

/// A simulated server. The clients' bearer tokens are forwarded.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use mcr_testkit::{faults::{Fault, FaultProxy}, sim::SimCluster};
///
/// let server = SimCluster::new().serve().await?; // keep it: the port closes when it is dropped
/// let proxy = FaultProxy::start(&server).await?;
/// let kubeconfig = proxy.kubeconfig_with_token(&server.cluster().admin_token());
/// proxy.set(Fault::BlackHole).await;
/// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[cfg(feature = "sim")]
impl From<&crate::sim::SimServer> for Upstream {
    fn from(server: &crate::sim::SimServer) -> Self {
        Self::new(server.url()).ca_pem(server.ca_pem())
    }
}

/// Does not show the credentials.
impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let credentials = if self.own.is_some() {
            "a certificate"
        } else {
            "the client's"
        };
        f.debug_struct("Upstream")
            .field("url", &self.url)
            .field("credentials", &credentials)
            .finish_non_exhaustive()
    }
}

/// Sends requests to an [`Upstream`].
pub(super) struct UpstreamClient {
    client: Client<HttpsConnector<HttpConnector>, Body>,
    base: Uri,
    own_credentials: bool,
}

impl UpstreamClient {
    pub(super) fn new(upstream: &Upstream) -> Result<Self, FaultError> {
        let bad_url = || FaultError::Url {
            url: upstream.url.clone(),
        };
        let base: Uri = upstream.url.parse().map_err(|_| bad_url())?;
        if base.authority().is_none() || !matches!(base.scheme_str(), Some("http" | "https")) {
            return Err(bad_url());
        }
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls(upstream)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            base,
            own_credentials: upstream.own.is_some(),
        })
    }

    pub(super) async fn send(
        &self,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, hyper_util::client::legacy::Error> {
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", |path_and_query| path_and_query.as_str());
        let prefix = self.base.path().trim_end_matches('/');
        let uri = Uri::builder()
            .scheme(self.base.scheme_str().unwrap_or("https"))
            .authority(self.base.authority().map_or("", |authority| authority.as_str()))
            .path_and_query(format!("{prefix}{path}"))
            .build();
        // This can't fail, because both parts are valid.
        *request.uri_mut() = uri.unwrap_or_else(|_| self.base.clone());
        let headers = request.headers_mut();
        headers.remove(header::HOST);
        headers.remove(header::CONNECTION);
        // Requests uncompressed bodies, because faults change bodies.
        headers.remove(header::ACCEPT_ENCODING);
        if self.own_credentials {
            headers.remove(header::AUTHORIZATION);
        }
        self.client.request(request).await
    }
}

fn unusable<E: fmt::Display>(what: &'static str) -> impl Fn(E) -> FaultError {
    move |error| FaultError::Upstream {
        what,
        why: error.to_string(),
    }
}

fn tls(upstream: &Upstream) -> Result<ClientConfig, FaultError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(upstream.ca_pem.as_deref().unwrap_or_default(), "CA")? {
        roots.add(certificate).map_err(unusable("CA"))?;
    }
    if roots.is_empty() && upstream.url.starts_with("https:") {
        let why = "it is missing; give it with Upstream::ca_pem".to_owned();
        return Err(FaultError::Upstream { what: "CA", why });
    }
    let provider = mcr_access::crypto::provider()
        .map_err(unusable("TLS configuration"))?
        .clone();
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable("TLS configuration"))?
        .with_root_certificates(roots);
    match &upstream.own {
        Some((certificate, key)) => {
            let what = "client certificate";
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(unusable(what))?;
            config
                .with_client_auth_cert(certificates(certificate, what)?, key)
                .map_err(unusable(what))
        }
        None => Ok(config.with_no_client_auth()),
    }
}

fn certificates(pem: &str, what: &'static str) -> Result<Vec<CertificateDer<'static>>, FaultError> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(unusable(what))
}

/// A kubeconfig of one context, as JSON, which is YAML too.
pub(super) fn kubeconfig(name: &str, server: &str, ca_pem: &str, user: &serde_json::Value) -> String {
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": name, "cluster": {
            "server": server,
            "certificate-authority-data": STANDARD.encode(ca_pem),
        } }],
        "users": [{ "name": name, "user": user }],
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
        "current-context": name,
    })
    .to_string()
}
