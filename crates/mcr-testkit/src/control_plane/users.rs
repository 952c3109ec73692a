use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::rbac::v1::{PolicyRule, Subject};

use super::rbac::{Access, Grant};
use super::{ControlPlane, ControlPlaneError, Credentials, kubeconfig};

/// Describes a [`User`] to create; see [`ControlPlane::user`].
#[derive(Debug)]
#[must_use = "a user exists once create() was awaited"]
pub struct UserBuilder {
    plane: ControlPlane,
    name: String,
    groups: Vec<String>,
    grants: Vec<Grant>,
    valid_for: Option<Duration>,
}

impl ControlPlane {
    /// Describes a user with a client certificate.
    pub fn user(&self, name: impl Into<String>) -> UserBuilder {
        UserBuilder {
            plane: self.clone(),
            name: name.into(),
            groups: Vec::new(),
            grants: Vec::new(),
            valid_for: None,
        }
    }
}

impl UserBuilder {
    /// The user's groups, at most two. `system:masters` may do everything.
    pub fn groups<G: Into<String>>(mut self, groups: impl IntoIterator<Item = G>) -> Self {
        self.groups.extend(groups.into_iter().map(Into::into));
        self
    }

    /// Grants rules in all namespaces and on cluster-wide resources. A user without rules has only the rights of every
    /// authenticated user.
    pub fn rules(mut self, rules: impl IntoIterator<Item = PolicyRule>) -> Self {
        self.grants.push((None, rules.into_iter().collect()));
        self
    }

    /// Grants rules in one namespace, which must exist.
    pub fn rules_in(
        mut self,
        namespace: impl Into<String>,
        rules: impl IntoIterator<Item = PolicyRule>,
    ) -> Self {
        self.grants
            .push((Some(namespace.into()), rules.into_iter().collect()));
        self
    }

    /// Sets how long the certificate is valid. Default: longer than any test.
    pub fn valid_for(mut self, duration: Duration) -> Self {
        self.valid_for = Some(duration);
        self
    }

    /// Makes the certificate, writes the RBAC objects and waits until they work.
    ///
    /// # Errors
    ///
    /// When the API server refuses, or the rules do not take effect within 10 s.
    pub async fn create(self) -> Result<User, ControlPlaneError> {
        let credentials = self
            .plane
            .client_certificate(&self.name, &self.groups, self.valid_for)?;
        let subject = Subject {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "User".to_owned(),
            name: self.name.clone(),
            namespace: None,
        };
        let access = Access::with(self.plane, subject, self.name, self.groups, self.grants).await?;
        Ok(User { credentials, access })
    }
}

/// A user with a client certificate and chosen rights. Cheap to clone. Keeps its control plane running.
#[derive(Clone, Debug)]
pub struct User {
    credentials: Credentials,
    access: Arc<Access>,
}

impl User {
    /// The user name that the API server uses, as in its audit log.
    pub fn name(&self) -> &str {
        &self.access.user
    }

    /// The certificate and key.
    pub fn credentials(&self) -> Credentials {
        self.credentials.clone()
    }

    /// A kubeconfig with one context, named after the control plane.
    pub fn kubeconfig(&self) -> String {
        self.access.plane.kubeconfig_with(self.credentials())
    }

    /// A client with the credentials of this user.
    ///
    /// # Errors
    ///
    /// When kube can't make a client from the kubeconfig.
    pub async fn client(&self) -> Result<kube::Client, ControlPlaneError> {
        kubeconfig::client(&self.kubeconfig()).await
    }

    /// Replaces the rules for all namespaces, and waits until they work.
    ///
    /// # Errors
    ///
    /// When the API server refuses, or the rules do not take effect within 10 s.
    pub async fn allow(&self, rules: impl IntoIterator<Item = PolicyRule>) -> Result<(), ControlPlaneError> {
        self.access.allow((None, rules.into_iter().collect())).await
    }

    /// Removes all rules that this user or its builder has granted, and waits until requests are refused (403). Open
    /// watches continue, as in any Kubernetes, because rights are checked when a request starts.
    ///
    /// # Errors
    ///
    /// When the API server refuses, or the user still has the rights after 10 s.
    pub async fn revoke(&self) -> Result<(), ControlPlaneError> {
        self.access.revoke().await
    }
}
