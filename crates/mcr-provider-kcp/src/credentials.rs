//! The credentials of the workspace, for all addresses of one kcp.

use std::sync::Arc;

use mcr_core::{Access, AccessPolicy, BoxError, EndpointAccess};

use crate::url::check_workspace;

/// The address and the credentials of the workspace that has the endpoint slice or the WorkspaceType.
pub(crate) struct Credentials(EndpointAccess);

impl Credentials {
    /// Reads the kubeconfig, if the access is one. Opens no connection and runs no program. `wanted` names the object that the
    /// workspace has, for errors.
    ///
    /// # Errors
    /// If the kubeconfig can't be used, or if its address is not that of a workspace.
    pub(crate) async fn of(access: &Access, policy: &AccessPolicy, wanted: &str) -> Result<Self, BoxError> {
        let access = match access {
            Access::Endpoint(access) => (**access).clone(),
            Access::Kubeconfig(kubeconfig) => {
                let (kubeconfig, policy) = (kubeconfig.clone(), policy.clone());
                let read = move || policy.admit_with_files(&kubeconfig.parse()?);
                let admitted = tokio::task::spawn_blocking(read).await;
                admitted.map_err(|_| "reading the kubeconfig panicked, which is a fault in mcr")??
            }
            _ => return Err("the access has no credentials".into()),
        };
        check_workspace(&access.endpoint.server, wanted)?;
        Ok(Self(access))
    }

    pub(crate) fn server(&self) -> &http::Uri {
        &self.0.endpoint.server
    }

    /// The access to the workspace.
    pub(crate) fn workspace(&self) -> Access {
        self.0.clone().into()
    }

    /// The access to another address, with the same credentials and certificate authorities.
    pub(crate) fn at(&self, server: http::Uri) -> Access {
        let mut access = self.0.clone();
        Arc::make_mut(&mut access.endpoint).server = server;
        access.into()
    }
}
