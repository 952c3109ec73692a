//! Who an API server sees in its audit log.

use std::sync::Arc;

use futures::{FutureExt, StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use mcr::{
    Action, Controller, Manager, ManagerError, Provider, Request, WatchRequest,
    core::{Change, Discovery, DiscoverySettings, HubWatch},
};
use mcr_testkit::control_plane::ControlPlane;
use tokio_util::sync::CancellationToken;

use crate::fleet::{OrFail, PATIENCE, spec};

/// One cluster, announced once a Secret of the hub is known.
struct InSecrets {
    hub: Client,
    kubeconfig: String,
}

impl Provider for InSecrets {
    fn name(&self) -> &str {
        "secrets"
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let request = WatchRequest::of::<Secret>().namespace("default");
        let mut watch = HubWatch::new(self.hub.clone(), request).settings(settings.watch.clone());
        let found = Change::Upsert(spec("member", &self.kubeconfig));
        async move {
            watch.next().await;
            stream::iter([Ok(found), Ok(Change::Synced)]).chain(stream::once(async move {
                stop.cancelled().await;
                drop(watch);
                Err("stopped".into())
            }))
        }
        .flatten_stream()
        .boxed()
    }
}

async fn annotates(request: Request<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
    request
        .api::<ConfigMap>()
        .list_metadata(&kube::api::ListParams::default().limit(3))
        .await?;
    Ok(Action::await_change())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_audit_log_distinguishes_two_programs_and_their_parts() {
    let plane = ControlPlane::builder().audit(true).start().await.or_fail();
    let stop = CancellationToken::new();
    let programs = [Some("policy/1.2.3"), Some("backup/4.5.6"), None];
    let running = programs.map(|program| {
        let provider = InSecrets {
            hub: plane.client(),
            kubeconfig: plane.kubeconfig(),
        };
        let controller = Controller::<ConfigMap>::new("a").build(annotates, Arc::new(()));
        let mut manager = Manager::builder().provider(provider).controller(controller);
        if let Some(program) = program {
            manager = manager.user_agent(program);
        }
        tokio::spawn(manager.build().or_fail().run_until(stop.clone()))
    });
    let library = concat!(" mcr/", env!("CARGO_PKG_VERSION"), " (");
    for program in programs {
        for (resource, verb, sender) in [
            ("secrets", "watch", ") provider"),
            ("namespaces", "get", ") fleet"),
            ("configmaps", "watch", ") controllers"),
            ("configmaps", "list", ")"),
        ] {
            let start = format!("{}{library}", program.unwrap_or_default());
            let is = async || {
                let log = plane.audit().await.or_fail();
                log.count(|event| {
                    let agent = match program {
                        Some(_) => event.user_agent.starts_with(&start),
                        None => event.user_agent.starts_with("real-") && event.user_agent.contains(library),
                    };
                    event.resource == resource
                        && event.verb == verb
                        && agent
                        && event.user_agent.ends_with(sender)
                }) > 0
            };
            let seen = async {
                while !is().await {
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            };
            let seen = tokio::time::timeout(PATIENCE, seen).await;
            let agents = async || {
                let log = plane.audit().await.or_fail();
                let of = log
                    .events()
                    .filter(|event| event.resource == resource && event.verb == verb);
                of.map(|event| event.user_agent.clone())
                    .collect::<std::collections::BTreeSet<_>>()
            };
            assert!(
                seen.is_ok(),
                "{program:?}, {resource}, {verb}: {:?}",
                agents().await
            );
        }
    }
    stop.cancel();
    for running in running {
        running.await.or_fail().or_fail();
    }
    // A fleet of its own has a User-Agent already.
    let other = Manager::single(plane.client()).user_agent("a/1").build();
    assert!(matches!(other, Err(ManagerError::TwoFleets)), "{other:?}");
    let provider = InSecrets {
        hub: plane.client(),
        kubeconfig: String::new(),
    };
    let error = Manager::builder()
        .provider(provider)
        .user_agent("a\nb")
        .build()
        .unwrap_err();
    assert!(error.to_string().contains("write NAME/VERSION"), "{error}");
}
