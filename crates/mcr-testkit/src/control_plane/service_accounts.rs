use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{PolicyRule, Subject};
use serde_json::json;

use super::rbac::{Access, Grant};
use super::{ControlPlane, ControlPlaneError, Credentials};
use crate::request::{create, send};

/// Describes a [`ServiceAccountUser`] to create; see [`ControlPlane::service_account`].
#[derive(Debug)]
#[must_use = "a service account exists once create() was awaited"]
pub struct ServiceAccountBuilder {
    plane: ControlPlane,
    namespace: String,
    name: String,
    grants: Vec<Grant>,
}

impl ControlPlane {
    /// Describes a service account whose tokens a test can use.
    pub fn service_account(
        &self,
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> ServiceAccountBuilder {
        ServiceAccountBuilder {
            plane: self.clone(),
            namespace: namespace.into(),
            name: name.into(),
            grants: Vec::new(),
        }
    }
}

impl ServiceAccountBuilder {
    /// Grants rules in all namespaces and on cluster-wide resources.
    pub fn cluster_rules(mut self, rules: impl IntoIterator<Item = PolicyRule>) -> Self {
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

    /// Creates the account and its namespace if they are missing, writes the RBAC objects, and waits until they work.
    ///
    /// # Errors
    ///
    /// When the API server refuses, or the rules do not take effect within 10 s.
    pub async fn create(self) -> Result<ServiceAccountUser, ControlPlaneError> {
        let Self {
            plane,
            namespace,
            name,
            grants,
        } = self;
        let user = format!("system:serviceaccount:{namespace}:{name}");
        let client = plane.client();
        let object = |kind: &str, name: &str| json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name } });
        let made = create(&client, "/api/v1/namespaces", &object("Namespace", &namespace)).await;
        made.map_err(ControlPlaneError::api(format!("creating namespace {namespace}")))?;
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        let made = create(&client, &accounts, &object("ServiceAccount", &name)).await;
        made.map_err(ControlPlaneError::api(format!("creating {user}")))?;

        let subject = Subject {
            api_group: None,
            kind: "ServiceAccount".to_owned(),
            name: name.clone(),
            namespace: Some(namespace.clone()),
        };
        let groups = vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
        ];
        Ok(ServiceAccountUser {
            namespace: namespace.into(),
            account: name.into(),
            access: Access::with(plane, subject, user, groups, grants).await?,
        })
    }
}

/// A service account with chosen rights, for tests of tokens that expire, rotate or become invalid. Cheap to clone.
/// Keeps its control plane running.
#[derive(Clone, Debug)]
pub struct ServiceAccountUser {
    namespace: Arc<str>,
    account: Arc<str>,
    access: Arc<Access>,
}

impl ServiceAccountUser {
    /// The user name that the API server uses, as in its audit log: `system:serviceaccount:<namespace>:<name>`.
    pub fn name(&self) -> &str {
        &self.access.user
    }

    /// A new token with a chosen lifetime. Kubernetes issues no tokens for less than 10 minutes.
    ///
    /// # Errors
    ///
    /// As [`token`](Self::token).
    pub async fn token(&self) -> Result<String, ControlPlaneError> {
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "expirationSeconds": 3600, "audiences": [] },
        });
        let doing = || format!("requesting a token of {}", self.name());
        let answer = send(
            &self.access.plane.client(),
            "POST",
            &self.path("/token"),
            &request,
        )
        .await;
        let answer = answer.map_err(ControlPlaneError::api(doing()))?;
        match answer["status"]["token"].as_str() {
            Some(token) => Ok(token.to_owned()),
            None => Err(ControlPlaneError::api(doing())("the answer has no token")),
        }
    }

    /// A kubeconfig with one context, named after the control plane, that uses `token`.
    pub fn kubeconfig(&self, token: impl Into<String>) -> String {
        self.access
            .plane
            .kubeconfig_with(Credentials::Token(token.into()))
    }

    /// Replaces the rules for all namespaces, and waits until they work.
    ///
    /// # Errors
    ///
    /// When the API server refuses, or the rules do not take effect within 10 s.
    pub async fn allow(&self, rules: impl IntoIterator<Item = PolicyRule>) -> Result<(), ControlPlaneError> {
        self.access.allow((None, rules.into_iter().collect())).await
    }

    /// Removes all granted rules, and waits until requests are refused (403).
    ///
    /// # Errors
    ///
    /// When the API server refuses, or the account still has the rights after 10 s.
    pub async fn revoke(&self) -> Result<(), ControlPlaneError> {
        self.access.revoke().await
    }

    /// Deletes the account, which makes all its tokens invalid (401). A token that the API server has used recently
    /// stays in its cache, and works for up to 10 s more.
    ///
    /// # Errors
    ///
    /// When the API server refuses.
    pub async fn delete(&self) -> Result<(), ControlPlaneError> {
        let deleted = send(&self.access.plane.client(), "DELETE", &self.path(""), &json!({})).await;
        let deleted = deleted.map_err(ControlPlaneError::api(format!("deleting {}", self.name())));
        deleted.map(drop)
    }

    fn path(&self, subresource: &str) -> String {
        let Self {
            namespace, account, ..
        } = self;
        format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}{subresource}")
    }
}
