//! The service cluster: an API server with the operator's CRD, and the user of the controller.

use anyhow::{Context, Result};
use k8s_openapi::{
    ByteString,
    api::{authentication::v1::TokenRequest, core::v1::ServiceAccount},
};
use kube::{Api, api::PostParams, config::Kubeconfig};
use mcr::{Access, Trust};
use mcr_testkit::faults::Upstream;
use serde_json::{Value, json};

use super::server::{Kind, MONGODB, Server, context, objects, until};

const RBAC: &str = include_str!("../service-rbac.yaml");
const CRD: &str = include_str!("../service-crd.yaml");
const ACCOUNT: &str = "database-service";
const NAMESPACE: Kind = ("", "v1", "Namespace", "namespaces");

pub(crate) struct Service {
    pub(crate) server: Server,
    /// The namespace of the databases. The cluster may have other ones for other runs.
    pub(crate) namespace: String,
    admin: Kubeconfig,
    token: String,
}

impl Service {
    /// Prepares a cluster, which the admin's kubeconfig names.
    pub(crate) async fn prepare(kubeconfig: &str, namespace: String) -> Result<Self> {
        let admin = context(&Kubeconfig::from_yaml(kubeconfig)?, None, None)?;
        let mut service = Self {
            server: Server::of(admin.clone()).await?,
            namespace,
            admin,
            token: String::new(),
        };
        let mut objects = service.rbac()?;
        objects.extend(self::objects(CRD)?);
        for object in objects {
            service.server.apply(object).await?;
        }
        until("the CRD of the operator is served", async || {
            Ok(service.server.list(MONGODB, &service.namespace).await.ok())
        })
        .await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(service.server.0.clone(), &service.namespace);
        let (params, request) = (PostParams::default(), TokenRequest::default());
        let answer = accounts.create_token_request(ACCOUNT, &params, &request).await?;
        service.token = answer
            .status
            .and_then(|status| status.token)
            .context("no token")?;
        Ok(service)
    }

    /// The manifest for this namespace.
    fn rbac(&self) -> Result<Vec<Value>> {
        let namespace = &self.namespace;
        let mut objects = objects(RBAC)?;
        for object in &mut objects {
            match object["kind"].as_str() {
                Some("Namespace") => object["metadata"]["name"] = namespace.clone().into(),
                Some("ClusterRole" | "ClusterRoleBinding") => {
                    object["metadata"]["name"] = format!("{ACCOUNT}-{namespace}").into();
                }
                _ => object["metadata"]["namespace"] = namespace.clone().into(),
            }
            if object["roleRef"]["kind"] == "ClusterRole" {
                object["roleRef"]["name"] = format!("{ACCOUNT}-{namespace}").into();
            }
            let subjects = object.get_mut("subjects").and_then(Value::as_array_mut);
            for subject in subjects.into_iter().flatten() {
                subject["namespace"] = namespace.clone().into();
            }
        }
        Ok(objects)
    }

    /// The user of the controller, as the audit log names it.
    pub(crate) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{ACCOUNT}", self.namespace)
    }

    /// The rights of the user in all namespaces.
    pub(crate) fn rules(&self) -> Result<Vec<Value>> {
        let mut objects = self.rbac()?;
        objects.retain(|object| object["kind"] == "ClusterRole");
        let role = objects.pop().context("no ClusterRole")?;
        Ok(role["rules"].as_array().cloned().unwrap_or_default())
    }

    /// A kubeconfig with the rights of the manifest.
    pub(crate) fn kubeconfig(&self) -> Result<Kubeconfig> {
        context(&self.admin, None, Some(&self.token))
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(crate) fn access(&self) -> Result<Access> {
        let kubeconfig = serde_json::to_string(&self.kubeconfig()?)?;
        Ok(Access::kubeconfig(kubeconfig, Trust::Trusted))
    }

    /// The admin's access, for the operator.
    pub(crate) fn admin(&self) -> Result<Access> {
        Ok(Access::kubeconfig(
            serde_json::to_string(&self.admin)?,
            Trust::Trusted,
        ))
    }

    /// The cluster, for a proxy in front of it.
    pub(crate) fn upstream(&self) -> Result<Upstream> {
        let cluster = self
            .admin
            .clusters
            .first()
            .and_then(|named| named.cluster.as_ref());
        let cluster = cluster.context("no cluster")?;
        let upstream = Upstream::new(cluster.server.clone().unwrap_or_default());
        let ca: ByteString = serde_json::from_value(json!(cluster.certificate_authority_data))?;
        Ok(upstream.ca_pem(String::from_utf8(ca.0)?))
    }

    /// Deletes what [`prepare`](Self::prepare) has made, apart from the CRD.
    pub(crate) async fn remove(&self) -> Result<()> {
        let group = "rbac.authorization.k8s.io";
        let name = format!("{ACCOUNT}-{}", self.namespace);
        for (kind, plural) in [
            ("ClusterRoleBinding", "clusterrolebindings"),
            ("ClusterRole", "clusterroles"),
        ] {
            self.server.delete((group, "v1", kind, plural), &name).await?;
        }
        self.server.delete(NAMESPACE, &self.namespace).await
    }
}
