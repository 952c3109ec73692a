//! The service cluster, as its operator sees it.

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use mcr_core::ObjectKey;
use mcr_testkit::waiting::OrFail;
use serde_json::json;

use crate::{kcp::Consumer, operator::deployment_name, until};

pub(crate) struct Service {
    /// Its name in a fleet, as the child `service` of `multi`.
    pub(crate) cluster: String,
    pub(crate) namespace: String,
    deployments: Api<Deployment>,
}

impl Service {
    /// The service cluster with this name in kind.
    pub(crate) fn new(kind: &str, namespace: &str, client: Client) -> Self {
        Self {
            cluster: format!("service#{kind}"),
            namespace: namespace.to_owned(),
            deployments: Api::namespaced(client, namespace),
        }
    }

    /// Waits until the Deployment of a consumer's database has as many replicas.
    pub(crate) async fn runs(&self, consumer: &Consumer, database: &str, replicas: i32) -> Deployment {
        self.run_by(consumer, database, replicas, |_| true).await
    }

    /// As [`runs`](Self::runs), for a Deployment that is another one, or a later state.
    pub(crate) async fn run_by(
        &self,
        consumer: &Consumer,
        database: &str,
        replicas: i32,
        wanted: impl Fn(&Deployment) -> bool,
    ) -> Deployment {
        let name = name(consumer, database);
        until(format!("{name} has {replicas} replicas"), async || {
            let deployment = self.deployments.get_opt(&name).await.or_fail()?;
            let so = deployment.spec.as_ref()?.replicas == Some(replicas) && wanted(&deployment);
            so.then_some(deployment)
        })
        .await
    }

    /// Waits until there are the Deployments of these databases, and no others.
    pub(crate) async fn has(&self, databases: &[(&Consumer, &str)]) {
        let mut wanted: Vec<String> = databases
            .iter()
            .map(|(consumer, database)| name(consumer, database))
            .collect();
        wanted.sort();
        until(format!("the service cluster has {wanted:?}"), async || {
            let listed = self.deployments.list(&ListParams::default()).await.or_fail();
            let names = listed
                .into_iter()
                .filter_map(|deployment| deployment.metadata.name);
            let mut names = names.collect::<Vec<_>>();
            names.sort();
            (names == wanted).then_some(())
        })
        .await;
    }

    /// Changes the replicas of a Deployment behind the operator's back.
    pub(crate) async fn scale(&self, consumer: &Consumer, database: &str, replicas: i32) -> Deployment {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let name = name(consumer, database);
        self.deployments
            .patch(&name, &PatchParams::default(), &patch)
            .await
            .or_fail()
    }

    /// Deletes a Deployment behind the operator's back.
    pub(crate) async fn delete(&self, consumer: &Consumer, database: &str) {
        let name = name(consumer, database);
        let params = DeleteParams::background();
        self.deployments.delete(&name, &params).await.or_fail();
    }
}

fn name(consumer: &Consumer, database: &str) -> String {
    deployment_name(&consumer.id, &ObjectKey::namespaced("default", database))
}
