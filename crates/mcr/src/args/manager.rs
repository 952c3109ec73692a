//! The flags for the manager.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use futures::FutureExt;

use super::{ArgsError, Hub, HubArgs};
use crate::{
    leader::{LeaderElection, MakeClient, default_client},
    manager::{Manager, ManagerBuilder},
    server::{ServerAccess, ServerOptions, TlsFiles},
};

/// The options of the manager.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(about = None, long_about = None, next_help_heading = "Operation")]
#[non_exhaustive]
pub struct ManagerArgs {
    /// Serve /clusters, /metrics, /healthz and /readyz there, for example at 127.0.0.1:8080
    #[arg(long, value_name = "ADDRESS")]
    pub serve: Option<SocketAddr>,
    /// Serve /clusters and /metrics to those whose bearer token the hub accepts, and to whom its RBAC grants get on the path as a nonResourceURL
    #[arg(long, requires = "serve", group = "access")]
    pub serve_authorize: bool,
    /// Serve /clusters and /metrics to those who send a bearer token of this file, which has one on each line
    #[arg(long, value_name = "PATH", requires = "serve", group = "access")]
    pub serve_token_file: Option<PathBuf>,
    /// Serve /clusters and /metrics to those who show a client certificate of the authorities in this file
    #[arg(long, value_name = "PATH", requires = "serve_tls_cert", group = "access")]
    pub serve_client_ca: Option<PathBuf>,
    /// Serve /clusters and /metrics to everybody who can connect; without one of these four, ADDRESS has to be a loopback address
    #[arg(long, requires = "serve", group = "access")]
    pub serve_open: bool,
    /// Serve over TLS with this certificate chain, which is read again when it changes
    #[arg(long, value_name = "PATH", requires = "serve", requires = "serve_tls_key")]
    pub serve_tls_cert: Option<PathBuf>,
    /// The private key of the certificate
    #[arg(long, value_name = "PATH", requires = "serve_tls_cert")]
    pub serve_tls_key: Option<PathBuf>,
    /// Accept tokens without TLS, because a service mesh or a proxy encrypts
    #[arg(long, requires = "serve", conflicts_with = "serve_tls_cert")]
    pub serve_plain_http: bool,
    /// Serve /healthz and /readyz there too, to everybody and without TLS
    #[arg(long, value_name = "ADDRESS", requires = "serve")]
    pub serve_probes: Option<SocketAddr>,
    /// Names under which the server is reached, if they are not in its certificate
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',', requires = "serve")]
    pub serve_host: Vec<String>,
    /// Reconcile only while this process holds the Lease of this name in the hub; other replicas with the same flag and
    /// the same hub are standbys
    #[arg(long, value_name = "LEASE")]
    pub leader_election: Option<String>,
}

impl ManagerArgs {
    /// Starts to build a manager, which serves at the address of `--serve`, and elects a leader with the Lease of
    /// `--leader-election`. The hub, which has the Lease and decides for `--serve-authorize`, is the cluster of the Pod, or else the
    /// current context of the kubeconfig.
    pub fn manager(&self) -> ManagerBuilder {
        self.build(Arc::new(|| default_client().boxed()))
    }

    /// As [`manager`](Self::manager), with this hub.
    pub fn manager_in(&self, hub: &HubArgs) -> ManagerBuilder {
        let hub = hub.clone();
        self.manager_of(move || hub.hub())
    }

    pub(super) fn manager_of(
        &self,
        hub: impl Fn() -> Result<Hub, ArgsError> + Send + Sync + 'static,
    ) -> ManagerBuilder {
        self.build(Arc::new(move || {
            let hub = hub();
            async move {
                let hub = hub?;
                Ok((hub.client().await?, Some(hub.to_string())))
            }
            .boxed()
        }))
    }

    /// Whether the manager uses the hub.
    pub(super) fn needs_hub(&self) -> bool {
        self.leader_election.is_some() || self.serve_authorize
    }

    fn build(&self, hub: MakeClient) -> ManagerBuilder {
        let mut manager = Manager::builder();
        if let Some(address) = self.serve {
            manager = manager.serve(self.server(address, hub.clone()));
        }
        match &self.leader_election {
            Some(lease) => manager.leader_election(LeaderElection::new(lease).client_from(hub)),
            None => manager,
        }
    }

    fn server(&self, address: SocketAddr, hub: MakeClient) -> ServerOptions {
        let mut options = ServerOptions::from(address);
        if let Some(path) = &self.serve_token_file {
            options = options.access(ServerAccess::token_file(path));
        }
        if let Some(path) = &self.serve_client_ca {
            options = options.access(ServerAccess::client_certificates(path));
        }
        if self.serve_authorize {
            options = options.access(ServerAccess::hub_from(hub));
        }
        if self.serve_open {
            options = options.access(ServerAccess::open());
        }
        if let (Some(certificate), Some(key)) = (&self.serve_tls_cert, &self.serve_tls_key) {
            options = options.tls(TlsFiles::new(certificate, key));
        }
        if self.serve_plain_http {
            options = options.plain_http();
        }
        if let Some(address) = self.serve_probes {
            options = options.probes(address);
        }
        self.serve_host.iter().fold(options, ServerOptions::host)
    }
}
