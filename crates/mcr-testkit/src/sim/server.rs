//! Serves simulated clusters over TLS: one cluster behind a port, or many clusters behind one port.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::body::SimBody;
use super::cluster::SimCluster;
use super::error::SimError;
use super::handle::{handle, refusal};
use super::kubeconfig;
use super::server_error::SimServerError;
use super::tls::{SimCertificate, SimTls};

/// One simulated cluster with TLS on a port of 127.0.0.1. Dropping it closes the port and all connections.
#[derive(Debug)]
pub struct SimServer {
    cluster: SimCluster,
    listening: Listening,
}

/// Many simulated clusters behind one listener and one certificate: `https://127.0.0.1:<port>/clusters/<name>`.
///
/// All clusters share one port, one certificate and one task, so a fleet can have thousands of clusters. Each
/// connection has its own task. If a test closes the port of a single cluster, serve that cluster with
/// [`SimCluster::serve`].
#[derive(Clone, Debug)]
pub struct SimFleet {
    inner: Arc<FleetInner>,
}

#[derive(Debug)]
struct FleetInner {
    clusters: Arc<Clusters>,
    listening: Listening,
}

#[derive(Debug, Default)]
struct Clusters(Mutex<HashMap<Arc<str>, SimCluster>>);

/// An open port. Dropping it closes the port and all its connections.
#[doc(hidden)]
#[derive(Debug)]
pub struct Listening {
    pub address: SocketAddr,
    tls: SimTls,
    stop: CancellationToken,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Answers the requests that arrive at a port.
#[doc(hidden)]
pub trait Answers: Send + Sync + std::fmt::Debug {
    /// Answers a request. `certificate` is the client certificate in DER, if the client has sent one.
    fn answer(&self, parts: Parts, body: Bytes, certificate: Option<&[u8]>) -> Response<SimBody>;
}

impl Answers for SimCluster {
    fn answer(&self, parts: Parts, body: Bytes, certificate: Option<&[u8]>) -> Response<SimBody> {
        handle(&self.inner, &parts, &body, certificate)
    }
}

impl Answers for Clusters {
    fn answer(&self, mut parts: Parts, body: Bytes, certificate: Option<&[u8]>) -> Response<SimBody> {
        // The cluster in the path, and the rest of the path, which is the path within that cluster.
        let named = || {
            let whole = parts.uri.path_and_query()?.as_str();
            let (name, _) = whole.strip_prefix("/clusters/")?.split_once('/')?;
            let cluster = self.0.lock().get(name)?.clone();
            let rest: Uri = whole.get("/clusters/".len() + name.len()..)?.parse().ok()?;
            Some((cluster, rest))
        };
        let Some((cluster, rest)) = named() else {
            return refusal(&SimError::no_such_resource());
        };
        parts.uri = rest;
        cluster.answer(parts, body, certificate)
    }
}

impl SimCluster {
    /// Serves the cluster over TLS on a free port of 127.0.0.1, with a new certificate authority.
    ///
    /// # Errors
    ///
    /// When there is no free port.
    pub async fn serve(&self) -> Result<SimServer, SimServerError> {
        self.serve_at(0, &SimTls::new()?).await
    }

    /// Serves the cluster with these certificates on this port of 127.0.0.1. Port 0 stands for a free port.
    ///
    /// Use this for a server that comes back at its former address, or for several servers with the same certificate
    /// authority.
    ///
    /// # Errors
    ///
    /// When the port is taken.
    pub async fn serve_at(&self, port: u16, tls: &SimTls) -> Result<SimServer, SimServerError> {
        let listening = listen(port, tls, Arc::new(self.clone())).await?;
        Ok(SimServer {
            cluster: self.clone(),
            listening,
        })
    }
}

impl SimServer {
    /// The served cluster.
    pub fn cluster(&self) -> &SimCluster {
        &self.cluster
    }

    /// The address of the server.
    pub fn address(&self) -> SocketAddr {
        self.listening.address
    }

    /// `https://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("https://{}", self.listening.address)
    }

    /// The certificate authority that clients must trust, PEM.
    pub fn ca_pem(&self) -> String {
        self.listening.tls.ca_pem()
    }

    /// The certificates of the server, to serve this cluster again or other clusters with them.
    pub fn tls(&self) -> &SimTls {
        &self.listening.tls
    }

    /// A kubeconfig of the user who may do everything, with one context named after the cluster.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_with_token(&self.cluster.admin_token())
    }

    /// As [`kubeconfig`](Self::kubeconfig), with the token of another user.
    pub fn kubeconfig_with_token(&self, token: &str) -> String {
        kubeconfig::with_token(self.cluster.name(), &self.url(), &self.ca_pem(), token)
    }

    /// As [`kubeconfig`](Self::kubeconfig), with a client certificate.
    pub fn kubeconfig_with_certificate(&self, certificate: &SimCertificate) -> String {
        kubeconfig::with_certificate(self.cluster.name(), &self.url(), &self.ca_pem(), certificate)
    }
}

impl SimFleet {
    /// Serves these clusters, each under its name. No two may have the same name.
    ///
    /// # Errors
    ///
    /// When there is no free port.
    pub async fn serve(clusters: impl IntoIterator<Item = SimCluster>) -> Result<Self, SimServerError> {
        let named = clusters
            .into_iter()
            .map(|cluster| (cluster.inner.name.clone(), cluster));
        let clusters = Arc::new(Clusters(Mutex::new(named.collect())));
        let listening = listen(0, &SimTls::new()?, clusters.clone()).await?;
        let inner = FleetInner { clusters, listening };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Adds a cluster, or replaces the cluster of the same name.
    pub fn add(&self, cluster: SimCluster) {
        self.inner
            .clusters
            .0
            .lock()
            .insert(cluster.inner.name.clone(), cluster);
    }

    /// Stops serving a cluster: its paths answer 404, and its watches end.
    pub fn remove(&self, name: &str) -> Option<SimCluster> {
        let removed = self.inner.clusters.0.lock().remove(name)?;
        removed.end_watches();
        Some(removed)
    }

    /// A cluster by name.
    pub fn get(&self, name: &str) -> Option<SimCluster> {
        self.inner.clusters.0.lock().get(name).cloned()
    }

    /// `https://127.0.0.1:<port>/clusters/<name>`, even if there is no such cluster.
    pub fn url(&self, name: &str) -> String {
        format!("https://{}/clusters/{name}", self.inner.listening.address)
    }

    /// The certificate authority that clients must trust, PEM.
    pub fn ca_pem(&self) -> String {
        self.inner.listening.tls.ca_pem()
    }

    /// A kubeconfig of the user who may do everything in a cluster, if it is served.
    pub fn kubeconfig(&self, name: &str) -> Option<String> {
        let token = self.get(name)?.admin_token();
        Some(kubeconfig::with_token(
            name,
            &self.url(name),
            &self.ca_pem(),
            &token,
        ))
    }
}

/// Opens a port of 127.0.0.1; 0 for a free one.
#[doc(hidden)]
pub async fn listen(port: u16, tls: &SimTls, answers: Arc<dyn Answers>) -> Result<Listening, SimServerError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let failed = |source| SimServerError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let stop = CancellationToken::new();
    tokio::spawn(accept(listener, tls.clone(), answers, stop.clone()));
    Ok(Listening {
        address,
        tls: tls.clone(),
        stop,
    })
}

async fn accept(listener: TcpListener, tls: SimTls, answers: Arc<dyn Answers>, stop: CancellationToken) {
    let acceptor = tls.acceptor();
    loop {
        let arrived = tokio::select! {
            () = stop.cancelled() => return,
            arrived = listener.accept() => arrived,
        };
        let Ok((stream, _)) = arrived else {
            // The process probably has no free file descriptor. One may become free during the pause.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            continue;
        };
        let connection = connection(stream, acceptor.clone(), answers.clone());
        let stop = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = connection => {}
            }
        });
    }
}

async fn connection(stream: TcpStream, acceptor: tokio_rustls::TlsAcceptor, answers: Arc<dyn Answers>) {
    // Otherwise a small answer could wait until the client has acknowledged the previous answer.
    let _ = stream.set_nodelay(true);
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let certificates = stream.get_ref().1.peer_certificates();
    let certificate: Option<Arc<[u8]>> = certificates
        .and_then(<[_]>::first)
        .map(|certificate| certificate.as_ref().into());
    let service = service_fn(move |request: Request<Incoming>| {
        let (answers, certificate) = (answers.clone(), certificate.clone());
        async move {
            let (parts, body) = request.into_parts();
            Ok::<_, Infallible>(match body.collect().await {
                Ok(body) => answers.answer(parts, body.to_bytes(), certificate.as_deref()),
                Err(_) => refusal(&SimError::body_ended()),
            })
        }
    });
    // The only error is that the client has closed the connection.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
