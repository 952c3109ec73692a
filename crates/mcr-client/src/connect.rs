//! Connects to servers: DNS, proxies, TCP and TLS under one time limit.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::{BoxFuture, Ready, ready};
use http::{HeaderValue, Uri, uri};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::{
    client::legacy::connect::{
        HttpConnector,
        dns::Name,
        proxy::{SocksV5, Tunnel},
    },
    rt::TokioIo,
};
use mcr_access::{AccessError, AddressPolicy, BoxError, Endpoint, internal::split_zone};
use percent_encoding::percent_decode_str;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::{
    net::TcpStream,
    time::{Instant, timeout_at},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::either::Either;
use tower::{Service, ServiceExt};

use crate::{
    headers::basic_auth,
    lookups::Lookups,
    proxies::{hint, unused_variable},
    settings::Settings,
};

type Tcp = HttpConnector<Resolver>;
/// A TCP connection to the server, or a tunnel through a proxy.
type Io = Either<TcpStream, TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>>;
/// A connection to the server, with or without TLS.
pub(super) type Stream = Either<Io, TlsStream<Io>>;

/// DNS does not resolve a host name.
#[derive(Debug, thiserror::Error)]
#[error(
    "the host name {host} can't be resolved; check its spelling, the DNS, and whether the cluster still exists"
)]
pub(crate) struct UnknownHost {
    host: String,
    #[source]
    source: io::Error,
}

/// Connecting took longer than this time limit. The variant is the stage that did not end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectTimeout {
    #[error(
        "no TCP connection within {} s; the address may be wrong, a firewall may drop packets, or the DNS or a proxy may not answer",
        .0.as_secs_f32()
    )]
    Tcp(Duration),
    #[error(
        "no TLS connection within {} s, although TCP connects; the API server is paused or hangs, or another program listens at \
         this address",
        .0.as_secs_f32()
    )]
    Tls(Duration),
}

/// Resolves names and IPv6 addresses with a zone, and drops the addresses that the policy forbids.
#[derive(Clone)]
pub(super) struct Resolver {
    addresses: AddressPolicy,
    lookups: Arc<Lookups>,
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (policy, lookups) = (self.addresses, self.lookups.clone());
        Box::pin(async move {
            let host = name.as_str();
            let unknown = |source: io::Error| UnknownHost {
                host: host.to_owned(),
                source,
            };
            let found = match split_zone(host) {
                // The system finds the number of the interface.
                (address, Some(zone)) => lookups.look_up(&format!("{address}%{zone}")).await,
                (host, None) => lookups.look_up(host).await,
            };
            let found = found.map_err(unknown)?;
            let mut forbidden = None;
            let mut allowed = Vec::new();
            for address in found {
                match policy.check(address.ip()) {
                    Ok(()) => allowed.push(address),
                    Err(error) => forbidden = Some(error.of_host(host)),
                }
            }
            match forbidden {
                Some(error) if allowed.is_empty() => Err(error.into()),
                _ if allowed.is_empty() => Err(unknown(io::ErrorKind::NotFound.into()).into()),
                _ => Ok(allowed.into_iter()),
            }
        })
    }
}

/// Connects to a server directly or through a proxy, without TLS to the server.
#[derive(Clone)]
enum ProxyConnector {
    Direct(Tcp),
    Tunnel(Tunnel<HttpsConnector<Tcp>>),
    Socks {
        tcp: Tcp,
        proxy: Uri,
        login: Option<(String, String)>,
    },
}

impl Service<Uri> for ProxyConnector {
    type Response = Io;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Io, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Direct(inner) => inner.poll_ready(context).map_err(Into::into),
            Self::Tunnel(inner) => inner.poll_ready(context).map_err(Into::into),
            Self::Socks { tcp, .. } => tcp.poll_ready(context).map_err(Into::into),
        }
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        match self {
            Self::Direct(inner) => boxed(inner.call(to)),
            Self::Tunnel(inner) => {
                let connecting = inner.call(with_port(to));
                Box::pin(async move { Ok(Either::Right(TokioIo::new(connecting.await?))) })
            }
            Self::Socks { tcp, proxy, login } => {
                // Connects here, because SocksV5 drops the cause when its own connection to the proxy fails.
                let connecting = tcp.call(proxy.clone());
                let (proxy, login) = (proxy.clone(), login.clone());
                boxed(async move {
                    let mut socks = SocksV5::new(proxy, Connected(Some(connecting.await?)));
                    if let Some((name, password)) = login {
                        socks = socks.with_auth(name, password);
                    }
                    Ok::<_, BoxError>(socks.call(with_port(to)).await?)
                })
            }
        }
    }
}

fn boxed<E: Into<BoxError>>(
    connecting: impl Future<Output = Result<TokioIo<TcpStream>, E>> + Send + 'static,
) -> BoxFuture<'static, Result<Io, BoxError>> {
    Box::pin(async move {
        let tcp = connecting.await.map_err(Into::into)?;
        Ok(Either::Left(tcp.into_inner()))
    })
}

/// Supplies a connection that is already established.
struct Connected(Option<TokioIo<TcpStream>>);

impl Service<Uri> for Connected {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Ready<io::Result<TokioIo<TcpStream>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        ready(self.0.take().ok_or_else(|| io::ErrorKind::NotConnected.into()))
    }
}

/// Adds the default port, because a request to a proxy must name the port.
fn with_port(to: Uri) -> Uri {
    if to.port().is_some() {
        return to;
    }
    let port = if to.scheme() == Some(&uri::Scheme::HTTP) {
        80
    } else {
        443
    };
    let host = to.host().unwrap_or_default();
    let parts = Uri::builder()
        .scheme("https")
        .authority(format!("{host}:{port}"))
        .path_and_query("/");
    parts.build().unwrap_or(to)
}

/// No connection, and the environment has a proxy that the fleet does not use.
#[derive(Debug, thiserror::Error)]
#[error("{}", hint(.variable))]
pub(crate) struct ProxyNotUsed {
    variable: &'static str,
    source: BoxError,
}

/// Connects to one endpoint.
#[derive(Clone)]
pub(super) struct Connector {
    proxy: ProxyConnector,
    tls: Arc<ClientConfig>,
    /// The name that the server's certificate must have, if it differs from the host of the address.
    name: Option<ServerName<'static>>,
    timeout: Duration,
    /// The variable of the environment with a proxy to this server that is not used.
    unused_proxy: Option<&'static str>,
}

impl Connector {
    pub(super) fn new(
        endpoint: &Endpoint,
        proxy: Option<&Uri>,
        tls: Arc<ClientConfig>,
        proxy_tls: impl FnOnce() -> Result<Arc<ClientConfig>, AccessError>,
        addresses: AddressPolicy,
        settings: &Settings,
    ) -> Result<Self, AccessError> {
        let is_unused = proxy.is_none() && !endpoint.direct && settings.proxies.is_none();
        let proxy = match proxy {
            None => ProxyConnector::Direct(tcp(addresses, settings)),
            // The address of a proxy is not checked: the kubeconfig is trusted, or the access policy allows this proxy.
            Some(proxy) => proxy_connector(proxy, tcp(AddressPolicy::any(), settings), proxy_tls)?,
        };
        let name = endpoint.tls_server_name.as_ref().map(|name| {
            ServerName::try_from(name.to_string()).map_err(|_| {
                AccessError::invalid(
                    "tls-server-name",
                    "is neither a DNS name nor an IP address; correct it",
                )
            })
        });
        Ok(Self {
            proxy,
            tls,
            name: name.transpose()?,
            timeout: settings.connect_timeout,
            unused_proxy: is_unused.then(|| unused_variable(&endpoint.server)).flatten(),
        })
    }

    /// Whether no proxy is between.
    pub(super) fn is_direct(&self) -> bool {
        matches!(self.proxy, ProxyConnector::Direct(_))
    }

    /// Connects to a server: `https://host:port`, or `http`. Dropping the future cancels the attempt.
    pub(super) async fn connect(&self, to: &Uri) -> Result<Stream, BoxError> {
        let name = match to.scheme_str() {
            Some("http") => None,
            Some("https") => Some(self.name.clone().map_or_else(|| server_name(to), Ok)?),
            _ => return Err("the address of a server starts with http:// or https://".into()),
        };
        let deadline = Instant::now() + self.timeout;
        let io = timeout_at(deadline, self.proxy.clone().oneshot(to.clone()))
            .await
            .unwrap_or_else(|_| Err(ConnectTimeout::Tcp(self.timeout).into()));
        let io = io.map_err(|source| match self.unused_proxy {
            Some(variable) => ProxyNotUsed { variable, source }.into(),
            None => source,
        })?;
        let Some(name) = name else {
            return Ok(Either::Left(io));
        };
        let tls = timeout_at(deadline, TlsConnector::from(self.tls.clone()).connect(name, io))
            .await
            .map_err(|_| ConnectTimeout::Tls(self.timeout))??;
        Ok(Either::Right(tls))
    }
}

/// The name in the certificate of a server: its host, without the zone of an IPv6 address.
fn server_name(server: &Uri) -> Result<ServerName<'static>, BoxError> {
    let (host, _) = split_zone(server.host().unwrap_or_default());
    Ok(ServerName::try_from(host)?.to_owned())
}

fn tcp(addresses: AddressPolicy, settings: &Settings) -> Tcp {
    let mut tcp = HttpConnector::new_with_resolver(Resolver {
        addresses,
        lookups: Lookups::shared(),
    });
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    // Shorter than the limit of the whole connection. With equal limits it would be chance which error a user sees.
    tcp.set_connect_timeout(Some(settings.connect_timeout.mul_f64(0.9)));
    // A dead network ends a connection after 18 s. With a probe of 8 s, its cluster is Unreachable within 30 s.
    tcp.set_keepalive(Some(Duration::from_secs(10)));
    tcp.set_keepalive_interval(Some(Duration::from_secs(4)));
    tcp.set_keepalive_retries(Some(2));
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    tcp.set_tcp_user_timeout(Some(Duration::from_secs(17)));
    tcp
}

fn proxy_connector(
    proxy: &Uri,
    tcp: Tcp,
    tls: impl FnOnce() -> Result<Arc<ClientConfig>, AccessError>,
) -> Result<ProxyConnector, AccessError> {
    let user = proxy
        .authority()
        .and_then(|authority| authority.as_str().rsplit_once('@'))
        .map(|(user, _)| user);
    let address: Uri = mcr_access::internal::redacted_uri(proxy)
        .parse()
        .map_err(|_| AccessError::invalid("proxy-url", "is not an address; correct it"))?;
    if matches!(proxy.scheme_str(), Some("socks5" | "socks5h")) {
        let login = user.map(|user| user.split_once(':').unwrap_or((user, "")));
        let login = login.map(|(name, password)| (decoded(name), decoded(password)));
        return Ok(ProxyConnector::Socks {
            tcp,
            proxy: address,
            login,
        });
    }
    let mut tunnel = Tunnel::new(address, HttpsConnector::from((tcp, tls()?)));
    if let Some(user) = user {
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        let value = basic_auth(&decoded(name), &decoded(password));
        let value = HeaderValue::try_from(value).map_err(|_| {
            AccessError::invalid(
                "proxy-url",
                "holds a login that does not fit into a header; correct it",
            )
        })?;
        tunnel = tunnel.with_auth(value);
    }
    Ok(ProxyConnector::Tunnel(tunnel))
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_ipv6_zone_is_dialled_and_is_no_part_of_the_name_in_the_certificate() {
        for (server, scope) in [
            ("https://[fe80::1%251]:6443", 1),
            ("https://[fe80::1%1]:6443", 1),
            ("https://[fe80::1%2525]", 25),
            ("https://[fe80::1%25]", 25),
        ] {
            let server: Uri = server.parse().unwrap();
            assert_eq!(
                server_name(&server).unwrap(),
                ServerName::try_from("fe80::1").unwrap()
            );
            let host = server.host().unwrap().trim_matches(['[', ']']);
            let look_up = |addresses| {
                let lookups = Lookups::shared();
                Resolver { addresses, lookups }.call(host.parse().unwrap())
            };
            let found = look_up(AddressPolicy::any()).await.unwrap().next();
            assert!(
                matches!(found, Some(SocketAddr::V6(v6)) if v6.scope_id() == scope),
                "{server}"
            );
            assert!(look_up(AddressPolicy::default()).await.is_err(), "{server}");
        }
    }
}
