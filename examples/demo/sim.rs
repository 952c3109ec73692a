//! Clusters of simulated API servers: no binaries needed, and what the controller sees is the same.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use futures::FutureExt;
use kube::Client;
use mcr_testkit::{
    control_plane::{Credentials, KubeconfigBuilder},
    faults::Upstream,
    sim::{SimAuditMark, SimCluster, SimRule, SimServer, SimTls, SimUser},
};
use serde_json::json;

use crate::backend::{ApiServer, Asked, BackDoor, Doing, NAMESPACE};

/// A simulated cluster behind TLS.
pub(crate) struct Server {
    cluster: SimCluster,
    /// Without a socket, so it also works while nothing is served.
    client: Client,
    /// None while it is stopped.
    serving: Option<SimServer>,
    port: u16,
    url: String,
    tls: SimTls,
    account: SimUser,
    tokens: AtomicU32,
    marked: SimAuditMark,
}

impl Server {
    pub(crate) async fn start(tls: &SimTls, name: &str) -> anyhow::Result<Self> {
        let cluster = SimCluster::builder().name(name).build();
        cluster
            .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}))
            .map_err(|error| anyhow!("creating the namespace {NAMESPACE}: {error}"))?;
        let serving = cluster.serve_at(0, tls).await?;
        Ok(Self {
            port: serving.address().port(),
            url: serving.url(),
            serving: Some(serving),
            tls: tls.clone(),
            // As with a real one: its watch, and the UID of kube-system to know the cluster by.
            account: SimUser::new(format!("system:serviceaccount:{NAMESPACE}:controller"))
                .rule(SimRule::new([""], ["configmaps"], ["get", "list", "watch"]))
                .rule(SimRule::new([""], ["namespaces"], ["get"])),
            tokens: AtomicU32::new(0),
            marked: SimAuditMark::default(),
            client: cluster.client(),
            cluster,
        })
    }

    fn context(&self, kubeconfig: KubeconfigBuilder, token: &str) -> KubeconfigBuilder {
        let credentials = Credentials::Token(token.to_owned());
        kubeconfig.context(self.cluster.name(), &self.url, self.tls.ca_pem(), credentials)
    }
}

impl ApiServer for Server {
    fn client(&self) -> Client {
        self.client.clone()
    }

    fn admin_context(&self, kubeconfig: KubeconfigBuilder) -> KubeconfigBuilder {
        self.context(kubeconfig, &self.cluster.admin_token())
    }

    fn kubeconfig(&self, token: &str) -> String {
        self.context(KubeconfigBuilder::new(), token).to_yaml()
    }

    fn upstream(&self) -> Upstream {
        Upstream::new(&self.url).ca_pem(self.tls.ca_pem())
    }

    fn token(&self) -> Doing<'_, String> {
        async {
            let number = self.tokens.fetch_add(1, Ordering::Relaxed);
            let token = format!("{}-controller-{number}", self.cluster.name());
            self.cluster.set_user(&token, self.account.clone());
            Ok(token)
        }
        .boxed_local()
    }

    fn mark(&mut self) -> Doing<'_, ()> {
        async {
            self.marked = self.cluster.audit().mark();
            Ok(())
        }
        .boxed_local()
    }

    fn asked(&self) -> Doing<'_, Asked> {
        async {
            let mut asked = Asked::default();
            let log = self.cluster.audit().since(self.marked);
            let ours = log.events().filter(|event| event.user == self.account.name());
            for event in ours.filter(|event| event.is_start()) {
                asked.record(&event.verb, &event.resource, &event.received);
            }
            Ok(asked)
        }
        .boxed_local()
    }

    fn stop(&mut self) -> Doing<'_, ()> {
        async {
            self.serving = None;
            Ok(())
        }
        .boxed_local()
    }

    fn start_again(&mut self) -> Doing<'_, ()> {
        async {
            let begun = Instant::now();
            loop {
                match self.cluster.serve_at(self.port, &self.tls).await {
                    Ok(serving) => {
                        self.serving = Some(serving);
                        return Ok(());
                    }
                    // The old listener closes a moment after it is asked to.
                    Err(_) if begun.elapsed() < Duration::from_secs(3) => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    Err(error) => return Err(error).context("serving again at the same port"),
                }
            }
        }
        .boxed_local()
    }

    /// The cluster itself, which goes on without its server.
    fn back_door(&self) -> Doing<'_, BackDoor> {
        async {
            Ok(BackDoor {
                client: self.client(),
                _server: None,
            })
        }
        .boxed_local()
    }
}
