//! Where the clusters come from: real API servers, or simulated ones where there are none.

use std::time::SystemTime;

use clap::ValueEnum;
use futures::future::LocalBoxFuture;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use mcr_testkit::{
    control_plane::{Binaries, ControlPlane, ControlPlaneError, Etcd},
    faults::Upstream,
    sim::SimTls,
};
use serde::Serialize;

use crate::{real, sim};

/// Where the demo's objects and the controller's service accounts are.
pub(crate) const NAMESPACE: &str = "demo";

/// What was asked for with `--backend`.
#[derive(Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Choice {
    /// Real ones where there are binaries to run, else simulated ones
    #[default]
    Auto,
    /// An etcd and kube-apiservers
    Real,
    /// API servers simulated in this process
    Sim,
}

/// What the clusters are.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Backend {
    Real,
    Sim,
}

impl Choice {
    /// Decides by what is on this machine. `cargo xtask demo` has decided already, and got the binaries.
    pub(crate) fn decide(self) -> anyhow::Result<Backend> {
        if self == Self::Sim {
            return Ok(Backend::Sim);
        }
        match Binaries::find() {
            Ok(_) => Ok(Backend::Real),
            // A folder that was named and is wrong is something to correct, not to go around.
            Err(ControlPlaneError::AssetsMissing { .. }) if self == Self::Auto => {
                eprintln!(
                    "no kube-apiserver binaries here: running on the simulator; `cargo xtask assets` gets real ones"
                );
                Ok(Backend::Sim)
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Backend {
    pub(crate) fn servers(self) -> &'static str {
        match self {
            Self::Real => "an etcd and three API servers",
            Self::Sim => "three simulated API servers",
        }
    }

    /// For people, at the beginning.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Real => "Clusters: real API servers, kube-apiserver over one etcd.",
            Self::Sim => "Clusters: simulated API servers, each behind TLS on a port of its own.",
        }
    }

    /// Makes ready for clusters to be started.
    pub(crate) async fn site(self) -> anyhow::Result<Site> {
        Ok(match self {
            Self::Real => Site::Real(Etcd::start().await?),
            Self::Sim => Site::Sim(SimTls::new()?),
        })
    }
}

/// What the clusters of a run have in common.
pub(crate) enum Site {
    Real(Etcd),
    Sim(SimTls),
}

impl Site {
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
    /// A kubeconfig that may do everything.
    fn admin_kubeconfig(&self) -> String;
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
    /// Takes note of a request and when it came, as an audit log writes it.
    pub(crate) fn hear(&mut self, verb: &str, resource: &str, received: &str) {
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
