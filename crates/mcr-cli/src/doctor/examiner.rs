//! The requests and connections that `mcr doctor` makes on behalf of providers.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use kube::Client;
use mcr_core::{
    Access, AddressPolicy, ProxyEnvironment, Trust,
    doctor::{Doctor, Examiner, Finding, Right, Selected},
};
use serde_json::Value;

use super::{
    ask, diagnosis,
    probe::{self, Connection},
    target::{self, Target},
};

/// The [`Examiner`] of the command. Its settings come from the flags.
#[derive(Debug)]
pub(super) struct CommandExaminer {
    /// The limit of a request, and of each step of a connection.
    pub(super) limit: Duration,
    /// The addresses that untrusted kubeconfigs may name.
    pub(super) addresses: AddressPolicy,
    /// The proxies that the fleet uses.
    pub(super) proxies: Option<Arc<ProxyEnvironment>>,
}

impl CommandExaminer {
    /// Connects to a target step by step.
    pub(super) async fn connection(&self, target: &Target) -> Connection {
        let mut target = target.clone();
        let server = target.address.parse().ok();
        let proxy = |server| self.proxies.as_ref()?.proxy_to(&server).cloned();
        target.proxied |= server.and_then(proxy).is_some();
        let target = &target;
        match target.trust {
            Trust::Trusted => probe::connection(target, &AddressPolicy::any(), self.limit).await,
            Trust::Untrusted => probe::connection(target, &self.addresses, self.limit).await,
        }
    }
}

impl Examiner for CommandExaminer {
    fn limit(&self) -> Duration {
        self.limit
    }

    fn list<'a>(
        &'a self,
        client: &'a Client,
        kind: [&'a str; 3],
        selected: Selected<'a>,
    ) -> BoxFuture<'a, Result<Vec<Value>, String>> {
        Box::pin(ask::list(client, kind, selected, self.limit))
    }

    fn user<'a>(&'a self, client: &'a Client) -> BoxFuture<'a, String> {
        Box::pin(async {
            ask::user(client, self.limit)
                .await
                .unwrap_or_else(|| "USER".to_owned())
        })
    }

    fn right<'a>(
        &'a self,
        client: &'a Client,
        asked: Right<'a>,
        namespace: Option<&'a str>,
        place: &'a str,
    ) -> BoxFuture<'a, Finding> {
        Box::pin(async move {
            let denied = ask::denied(client, asked, namespace, self.limit);
            let (user, denied) = futures::join!(self.user(client), denied);
            ask::of_right(asked, &user, denied, namespace, place)
        })
    }

    fn address<'a>(
        &'a self,
        doctor: &'a dyn Doctor,
        access: &'a Access,
        error: Option<&'a str>,
    ) -> BoxFuture<'a, Vec<Finding>> {
        Box::pin(async move {
            let Some(target) = target::of(access) else {
                return Vec::new();
            };
            let connection = self.connection(&target).await;
            diagnosis::address(doctor, connection, error)
        })
    }
}
