//! Access by an endpoint and a source of credentials. A kubeconfig is parsed into one.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    credential::CredentialSource, endpoint::Endpoint, exec::ExecPlugin, fingerprint::Fingerprint, namespace,
    trust::Trust,
};

/// Access to a cluster by its endpoint and a source of credentials.
///
/// [`KubeconfigAccess::parse`](crate::KubeconfigAccess::parse) makes one of a kubeconfig, with what that asks for beyond inline
/// data. [`AccessPolicy::admit`](crate::AccessPolicy::admit) judges it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EndpointAccess {
    /// The address of the API server, and how to verify its certificate. Certificate authorities that a kubeconfig names as a file
    /// are read by [`AccessPolicy::admit_with_files`](crate::AccessPolicy::admit_with_files).
    pub endpoint: Arc<Endpoint>,
    /// The source of credentials for the API server. A policy leaves one that a program has put in the place of a kubeconfig's plugin,
    /// perhaps around that plugin.
    pub credentials: Arc<dyn CredentialSource>,
    /// The namespace of requests that name none.
    pub default_namespace: Arc<str>,
    /// How far the access is trusted. An [`AccessPolicy`](crate::AccessPolicy) restricts an untrusted one.
    pub trust: Trust,
    /// `None` if a policy needs no more than the endpoint.
    pub(crate) asks: Option<Arc<Asks>>,
}

/// What a kubeconfig asks for beyond inline data, and the names of its entries for errors.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    /// The path of the cluster entry: `clusters[name="a"].cluster`.
    pub(crate) cluster: Box<str>,
    /// The path of the user entry.
    pub(crate) user: Box<str>,
    /// The file with the certificate authorities of the endpoint.
    pub(crate) authority: Option<PathBuf>,
    /// The fields of the user that name files, which its credential source reads.
    pub(crate) files: Vec<(&'static str, PathBuf)>,
    pub(crate) plugin: Option<Plugin>,
    /// Whether the credential is to act as another user.
    pub(crate) impersonates: bool,
}

/// A credential plugin as a kubeconfig asks for it.
#[derive(Debug)]
pub(crate) struct Plugin {
    pub(crate) program: ExecPlugin,
    /// False if the user has another credential. Such a plugin is judged, but never runs.
    pub(crate) runs: bool,
}

impl EndpointAccess {
    /// Access by this endpoint and this source of credentials. It is trusted, and its default namespace is `default`.
    pub fn new(endpoint: Endpoint, credentials: impl CredentialSource) -> Self {
        Self {
            endpoint: Arc::new(endpoint),
            credentials: Arc::new(credentials),
            default_namespace: namespace::default_name(),
            trust: Trust::Trusted,
            asks: None,
        }
    }

    /// Identifies the access: two with equal fingerprints lead to the same endpoint with equal credential sources, and each policy
    /// judges them alike.
    pub fn fingerprint(&self) -> Fingerprint {
        let asks = self.asks.as_ref();
        // A plugin that never runs is judged, too.
        let plugin = self
            .plugin()
            .map(|plugin| (plugin.program.fingerprint(), plugin.runs));
        Fingerprint::of(&(
            &self.endpoint,
            self.credentials.fingerprint(),
            &self.default_namespace,
            self.trust,
            self.authority_file(),
            asks.map(|asks| (&asks.files, asks.impersonates)),
            plugin,
        ))
    }

    /// Whether [`AccessPolicy::admit_with_files`](crate::AccessPolicy::admit_with_files) neither reads a file nor looks for a
    /// program, so that it does not block.
    pub fn is_inline(&self) -> bool {
        self.authority_file().is_none() && self.plugin().is_none()
    }

    pub(crate) fn authority_file(&self) -> Option<&Path> {
        self.asks.as_ref()?.authority.as_deref()
    }

    pub(crate) fn plugin(&self) -> Option<&Plugin> {
        self.asks.as_ref()?.plugin.as_ref()
    }
}
