//! The flags for the manager.

use std::net::SocketAddr;

use crate::{Manager, ManagerBuilder};

/// The options of the manager.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(about = None, long_about = None, next_help_heading = "Operation")]
#[non_exhaustive]
pub struct ManagerArgs {
    /// Serve /clusters, /metrics, /healthz and /readyz there, for example at 127.0.0.1:8080
    #[arg(long, value_name = "ADDRESS")]
    pub serve: Option<SocketAddr>,
}

impl ManagerArgs {
    /// Starts to build a manager, which serves at the address of `--serve`.
    pub fn manager(&self) -> ManagerBuilder {
        match self.serve {
            Some(address) => Manager::builder().serve(address),
            None => Manager::builder(),
        }
    }
}
