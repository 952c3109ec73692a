//! Real API servers: etcd and kube-apiserver as child processes, without Docker.
//!
//! A [`ControlPlane`] is one kube-apiserver. Several may share an [`Etcd`], each under its own key
//! prefix, which makes a fleet of many clusters cheap: an etcd costs 40 MB, an API server 255 to
//! 275 MB. Everything listens on 127.0.0.1, everything is in a temporary folder.
//!
//! Handles are cheap to clone; the processes end when the last clone is dropped. If the test process
//! itself is killed, a small watchdog per server ends them and removes their folder, so an aborted
//! run leaves nothing behind.
//!
//! There are no nodes: pods are stored but never run. Without
//! [`with_controller_manager`](ControlPlaneBuilder::with_controller_manager) nothing is garbage
//! collected and a deleted namespace stays `Terminating`.

mod api_server;
mod audit;
mod authority;
mod binaries;
mod builder;
mod controller_manager;
mod crd;
mod error;
mod etcd;
mod http_probe;
mod kubeconfig;
mod pki;
mod plane;
mod port;
mod process;
mod program;
mod rbac;
mod service_accounts;
mod users;

pub use crate::audit::{AuditEvent, AuditLog, AuditMark};
pub use authority::CertificateAuthority;
pub use binaries::Binaries;
pub use builder::ControlPlaneBuilder;
pub use error::ControlPlaneError;
pub use etcd::Etcd;
pub use kubeconfig::{Credentials, KubeconfigBuilder};
pub use plane::ControlPlane;
pub use program::Program;
pub use rbac::policy_rule;
pub use service_accounts::{ServiceAccountBuilder, ServiceAccountUser};
pub use users::{User, UserBuilder};
