//! Real API servers: etcd and kube-apiserver as child processes, without Docker.
//!
//! A [`ControlPlane`] is one kube-apiserver. Several can share an [`Etcd`], each with its own key prefix. So a fleet
//! of many clusters is cheap: an etcd takes 40 MB, an API server 255 to 275 MB. All servers listen on 127.0.0.1, and
//! their files are in temporary folders.
//!
//! Handles are cheap to clone. The processes end when the last clone is dropped. If the test process itself is killed,
//! a small watchdog for each server ends the server and removes its folder, so nothing is left.
//!
//! There are no nodes: pods are stored but never run. Without
//! [`with_controller_manager`](ControlPlaneBuilder::with_controller_manager), there is no garbage collection, and a
//! deleted namespace stays `Terminating`.

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
