//! Where the clusters come from: real API servers, or simulated ones where there are none.

use std::time::SystemTime;

use examples::Backend;
use futures::future::LocalBoxFuture;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use mcr_testkit::{
    control_plane::{ControlPlane, Etcd, KubeconfigBuilder},
    faults::Upstream,
    sim::SimTls,
};

use crate::{real, sim};

/// Where the demo's objects and the controller's service accounts are.
pub(crate) const NAMESPACE: &str = "demo";

pub(crate) fn servers(backend: Backend) -> &'static str {
    match backend {
        Backend::Real => "an etcd and three API servers",
        Backend::Sim => "three simulated API servers",
    }
}

/// For people, at the beginning.
pub(crate) fn text(backend: Backend) -> &'static str {
    match backend {
        Backend::Real => "Clusters: real API servers, kube-apiserver over one etcd.",
        Backend::Sim => "Clusters: simulated API servers, each behind TLS on a port of its own.",
    }
}

/// What the clusters of a run have in common.
pub(crate) enum Site {
    Real(Etcd),
    Sim(SimTls),
}

impl Site {
    /// Makes ready for clusters to be started.
    pub(crate) async fn of(backend: Backend) -> anyhow::Result<Self> {
        Ok(match backend {
            Backend::Real => Self::Real(Etcd::start().await?),
            Backend::Sim => Self::Sim(SimTls::new()?),
        })
    }

    /// Starts a cluster, with an account for the controller in it.
    pub(crate) async fn start(&self, name: &str) -> anyhow::Result<Box<dyn ApiServer>> {
        Ok(match self {
            Self::Real(etcd) => Box::new(real::Server::start(etcd, name).await?),
            Self::Sim(tls) => Box::new(sim::Server::start(tls, name).await?),
        })
    }
}

pub(crate) type Doing<'a, T> = LocalBoxFuture<'a, anyhow::Result<T>>;

/// An API server and the controller's account in its cluster.
pub(crate) trait ApiServer {
    /// A client that may do everything.
    fn client(&self) -> Client;
    /// Adds a context whose user may do everything.
    fn admin_context(&self, kubeconfig: KubeconfigBuilder) -> KubeconfigBuilder;
    /// A kubeconfig of the controller's account.
    fn kubeconfig(&self, token: &str) -> String;
    /// The server, to be put behind a proxy that passes tokens on.
    fn upstream(&self) -> Upstream;
    /// A new token of the controller's account; older ones stay valid.
    fn token(&self) -> Doing<'_, String>;
    /// Makes [`asked`](Self::asked) begin here.
    fn mark(&mut self) -> Doing<'_, ()>;
    /// What the controller's account asked for since the mark.
    fn asked(&self) -> Doing<'_, Asked>;
    /// Breaks all connections and refuses new ones.
    fn stop(&mut self) -> Doing<'_, ()>;
    /// Serves again, at the same address.
    fn start_again(&mut self) -> Doing<'_, ()>;
    /// Another way into the cluster, that the controller does not know of.
    fn back_door(&self) -> Doing<'_, BackDoor>;
}

/// What was asked of an API server.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Asked {
    /// Whether a token was tried.
    pub(crate) tried: bool,
    /// When the first watch began.
    pub(crate) watch: Option<SystemTime>,
    pub(crate) lists: usize,
}

impl Asked {
    /// Records a request and when it came, as an audit log writes it.
    pub(crate) fn record(&mut self, verb: &str, resource: &str, received: &str) {
        match (verb, resource) {
            (_, "selfsubjectreviews") => self.tried = true,
            ("list", "configmaps") => self.lists += 1,
            ("watch", "configmaps") => {
                let began = received
                    .parse::<Timestamp>()
                    .map_or_else(|_| SystemTime::now(), SystemTime::from);
                self.watch.get_or_insert(began);
            }
            _ => {}
        }
    }
}

/// A way into a cluster while its API server is stopped.
pub(crate) struct BackDoor {
    pub(crate) client: Client,
    /// Ends when this is dropped.
    pub(crate) _server: Option<ControlPlane>,
}
