//! Clusters of real API servers.

use futures::FutureExt;
use kube::Client;
use mcr_testkit::{
    control_plane::{AuditMark, ControlPlane, Etcd, KubeconfigBuilder, ServiceAccountUser, policy_rule},
    faults::Upstream,
};

use crate::backend::{ApiServer, Asked, BackDoor, Doing, NAMESPACE};

/// A kube-apiserver.
pub(crate) struct Server {
    plane: ControlPlane,
    account: ServiceAccountUser,
    marked: AuditMark,
}

impl Server {
    pub(crate) async fn start(etcd: &Etcd, name: &str) -> anyhow::Result<Self> {
        let plane = ControlPlane::builder()
            .name(name)
            .etcd(etcd)
            .audit(true)
            .start()
            .await?;
        // All that the controller needs: its watch, and the UID of kube-system to know the cluster by.
        let rules = [
            policy_rule([""], ["configmaps"], ["get", "list", "watch"]),
            policy_rule([""], ["namespaces"], ["get"]),
        ];
        let account = plane
            .service_account(NAMESPACE, "controller")
            .cluster_rules(rules)
            .create()
            .await?;
        Ok(Self {
            plane,
            account,
            marked: AuditMark::default(),
        })
    }
}

impl ApiServer for Server {
    fn client(&self) -> Client {
        self.plane.client()
    }

    fn admin_context(&self, kubeconfig: KubeconfigBuilder) -> KubeconfigBuilder {
        let plane = &self.plane;
        kubeconfig.context(
            plane.name(),
            plane.url(),
            plane.ca_pem(),
            plane.admin_credentials(),
        )
    }

    fn kubeconfig(&self, token: &str) -> String {
        self.account.kubeconfig(token)
    }

    fn upstream(&self) -> Upstream {
        (&self.plane).into()
    }

    fn token(&self) -> Doing<'_, String> {
        async { Ok(self.account.token().await?) }.boxed_local()
    }

    fn mark(&mut self) -> Doing<'_, ()> {
        async {
            self.marked = self.plane.audit().await?.mark();
            Ok(())
        }
        .boxed_local()
    }

    fn asked(&self) -> Doing<'_, Asked> {
        async {
            let mut asked = Asked::default();
            let log = self.plane.audit_since(self.marked).await?;
            let ours = log.events().filter(|event| event.user == self.account.name());
            for event in ours.filter(|event| event.is_start()) {
                asked.record(&event.verb, &event.resource, &event.received);
            }
            Ok(asked)
        }
        .boxed_local()
    }

    fn stop(&mut self) -> Doing<'_, ()> {
        async { Ok(self.plane.stop().await?) }.boxed_local()
    }

    fn start_again(&mut self) -> Doing<'_, ()> {
        async { Ok(self.plane.restart().await?) }.boxed_local()
    }

    /// A second API server of the same cluster.
    fn back_door(&self) -> Doing<'_, BackDoor> {
        async {
            let name = format!("{}-2", self.plane.name());
            let replica = ControlPlane::builder()
                .name(name)
                .replica_of(&self.plane)
                .start()
                .await?;
            Ok(BackDoor {
                client: replica.client(),
                _server: Some(replica),
            })
        }
        .boxed_local()
    }
}
