//! Credential plugins that are servers: one POST over a unix socket or TLS.

use std::{convert::Infallible, error::Error, future::pending, path::PathBuf, sync::Arc};

use bytes::Bytes;
use http::{
    Request, StatusCode, Uri,
    header::{ACCEPT, CONNECTION, CONTENT_TYPE, HOST},
};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use mcr_access::{
    AccessError, AddressPolicy, BoxError, Endpoint, PluginService, internal::MAX_PLUGIN_ANSWER,
};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{connect::Connector, explain::explain, settings::Settings, tls::TlsCache};

/// Why there can be no service at an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PluginAddressError {
    /// The address is of another form. It is not quoted, because it can hold a password.
    #[error(
        "the address of a credential service is neither https://host:port/path, without a login, nor unix:///path/of/a/socket; correct it"
    )]
    Address,
    /// The certificate authority can't be used, or the program has no cryptography for TLS.
    #[error("the credential service can't be reached over TLS: {0}")]
    Tls(AccessError),
}

enum Place {
    Unix(PathBuf),
    Https(Box<Connector>, Uri),
}

/// A [`PluginService`] at this address: `unix:///path/of/a/socket`, or `https://host:port/path`.
///
/// It gets the document of `KUBERNETES_EXEC_INFO` by POST, on a connection of its own, and answers with status 200 and an
/// `ExecCredential`. No redirect is followed, and no proxy is used. Its certificate must be signed by `authority`, in PEM; by default
/// by an authority of this machine. Anybody who may connect to it can ask it for credentials: it has to know its callers by itself.
///
/// # Errors
/// [`PluginAddressError`] if the address or the authority can't be used. Nothing is sent yet.
///
/// ```no_run
/// use mcr_access::{AccessPolicy, AllowedPlugin, CredentialPluginPolicy};
///
/// let login = mcr_client::plugin_at("unix:///run/login.sock", None)?;
/// // A kubeconfig with the command `login` and provideClusterInfo gets its credential there.
/// let allowed = AllowedPlugin::new("login").service(login).cluster_info(true);
/// let policy = AccessPolicy::default().credential_plugins(CredentialPluginPolicy::allowlist([allowed]));
/// # Ok::<(), mcr_client::PluginAddressError>(())
/// ```
pub fn plugin_at(address: &str, authority: Option<&[u8]>) -> Result<PluginService, PluginAddressError> {
    let place = Arc::new(Place::new(address, authority)?);
    Ok(PluginService::new(move |info| {
        let place = place.clone();
        async move { place.post(info).await }
    }))
}

impl Place {
    fn new(address: &str, authority: Option<&[u8]>) -> Result<Self, PluginAddressError> {
        if let Some(path) = address.strip_prefix("unix://").filter(|_| cfg!(unix)) {
            let is_path = path.starts_with('/') && !path.ends_with('/') && !path.contains('\0');
            return is_path
                .then(|| Self::Unix(path.into()))
                .ok_or(PluginAddressError::Address);
        }
        let server: Uri = address.parse().map_err(|_| PluginAddressError::Address)?;
        let authority_of = server.authority().map_or("", |authority| authority.as_str());
        if server.scheme_str() != Some("https") || authority_of.contains('@') || server.host() == Some("") {
            return Err(PluginAddressError::Address);
        }
        let mut endpoint = Endpoint::new(server.clone());
        endpoint.certificate_authority = authority.map(Arc::from);
        // No error advises to use a proxy of the environment.
        endpoint.direct = true;
        let tls = TlsCache::default();
        let config = tls.config(&endpoint, None).map_err(PluginAddressError::Tls)?;
        let of_proxy = || tls.config(&endpoint, None);
        let settings = Settings::default();
        let connector = Connector::new(&endpoint, None, config, of_proxy, AddressPolicy::any(), &settings);
        let connector = connector.map_err(PluginAddressError::Tls)?;
        Ok(Self::Https(Box::new(connector), server))
    }

    async fn post(&self, info: String) -> Result<Vec<u8>, BoxError> {
        match self {
            #[cfg(unix)]
            Self::Unix(path) => {
                let stream = tokio::net::UnixStream::connect(path).await;
                exchange(stream.map_err(|error| in_words(&error))?, "localhost", "/", info).await
            }
            #[cfg(not(unix))]
            Self::Unix(_) => Err("this system has no unix sockets".into()),
            Self::Https(connector, server) => {
                let stream = connector
                    .connect(server)
                    .await
                    .map_err(|error| in_words(&*error))?;
                let host = server.authority().map_or("", |authority| authority.as_str());
                let path = server.path_and_query().map_or("/", |path| path.as_str());
                exchange(stream, host, path, info).await
            }
        }
    }
}

/// Sends the document and receives the answer. Dropping the future closes the connection.
async fn exchange(
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    host: &str,
    path: &str,
    info: String,
) -> Result<Vec<u8>, BoxError> {
    let request = Request::post(path)
        .header(HOST, host)
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, "application/json")
        .header(CONNECTION, "close")
        .body(Full::new(Bytes::from(info)))?;
    let handshake = http1::handshake(TokioIo::new(io)).await;
    let (mut sender, connection) = handshake.map_err(|error| in_words(&error))?;
    let answer = async {
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| in_words(&error))?;
        if response.status() != StatusCode::OK {
            let status = response.status().as_u16();
            return Err(format!("the service answered with status {status}; check its log").into());
        }
        let mut body = Limited::new(response.into_body(), MAX_PLUGIN_ANSWER);
        let mut bytes = Vec::new();
        // Not collected: a frame of one byte takes fifty.
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    return "the service answered with more than 1 MiB; it does not seem to be a credential plugin".into();
                }
                in_words(&*error)
            })?;
            bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
        Ok(bytes)
    };
    // The end of the connection is no end of the answer, which may still be read.
    let connection = async {
        _ = connection.await;
        pending::<Infallible>().await
    };
    tokio::select! {
        answer = answer => answer,
        never = connection => match never {},
    }
}

fn in_words(error: &(dyn Error + 'static)) -> BoxError {
    format!("no answer of the service: {}", explain(error)).into()
}
