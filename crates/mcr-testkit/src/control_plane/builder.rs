use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use super::plane::Settings;
use super::{CertificateAuthority, ControlPlane, ControlPlaneError, Etcd};

/// Describes a [`ControlPlane`] to start.
#[derive(Debug, Default)]
#[must_use = "a control plane runs once start() was awaited"]
pub struct ControlPlaneBuilder {
    name: Option<String>,
    etcd: Option<Etcd>,
    crds: Vec<Value>,
    settings: Settings,
}

/// The number of the next control plane, for names and key prefixes that are unique in the process.
static NUMBER: AtomicUsize = AtomicUsize::new(1);

impl ControlPlane {
    /// Starts an etcd and an API server with all defaults.
    ///
    /// # Errors
    ///
    /// As [`ControlPlaneBuilder::start`].
    pub async fn start() -> Result<Self, ControlPlaneError> {
        Self::builder().start().await
    }

    /// Describes a control plane to start.
    pub fn builder() -> ControlPlaneBuilder {
        ControlPlaneBuilder::default()
    }
}

impl ControlPlaneBuilder {
    /// Sets the name of the control plane in kubeconfigs, errors and logs.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Uses this etcd, which other control planes may share. Default: the control plane starts its own.
    pub fn etcd(mut self, etcd: &Etcd) -> Self {
        self.etcd = Some(etcd.clone());
        self
    }

    /// Signs the certificates of the server and of all users with this authority. Default: two new authorities, one
    /// for the server and one for users. [`replica_of`](Self::replica_of) overrides this setting.
    pub fn authority(mut self, authority: &CertificateAuthority) -> Self {
        self.settings.authority = Some(authority.inner());
        self
    }

    /// Makes this control plane a second API server of the same cluster: it has the same data, users, tokens and CA,
    /// and another port.
    pub fn replica_of(mut self, other: &ControlPlane) -> Self {
        self.etcd = Some(other.etcd().clone());
        self.settings.identity = Some(other.identity());
        self
    }

    /// Also runs a kube-controller-manager: garbage collection, namespace deletion, default service accounts. Costs
    /// one more process and less than a second.
    pub fn with_controller_manager(mut self) -> Self {
        self.settings.controller_manager = true;
        self
    }

    /// Keeps an audit log to count requests in; see [`ControlPlane::audit`].
    pub fn audit(mut self, on: bool) -> Self {
        self.settings.audit = on;
        self
    }

    /// Installs a CRD before `start` returns. May be called several times.
    pub fn crd(mut self, crd: Value) -> Self {
        self.crds.push(crd);
        self
    }

    /// Listens on this port of 127.0.0.1. Default: a free port.
    pub fn port(mut self, port: u16) -> Self {
        self.settings.port = Some(port);
        self
    }

    /// Adds a flag of kube-apiserver, such as `--goaway-chance=0.01`. If a flag is given twice, the last one counts.
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.settings.args.push(arg.into());
        self
    }

    /// Starts the servers and waits until they are ready, at most 60 s each.
    ///
    /// Dropping the future kills the servers that it has started.
    ///
    /// # Errors
    ///
    /// If binaries are missing, if a server ends or does not become ready (with the end of its log), or if a CRD is
    /// refused.
    pub async fn start(mut self) -> Result<ControlPlane, ControlPlaneError> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = self
            .name
            .take()
            .unwrap_or_else(|| format!("control-plane-{number}"));
        let etcd = match self.etcd.take() {
            Some(etcd) => etcd,
            None => Etcd::start().await?,
        };
        let crds = std::mem::take(&mut self.crds);
        let plane = ControlPlane::start_with(self.settings, name, number, etcd).await?;
        for crd in crds {
            plane.install_crd(crd).await?;
        }
        Ok(plane)
    }
}
