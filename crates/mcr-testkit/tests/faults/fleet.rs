//! A fleet with every fault at once, each in front of a cluster of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use mcr_core::{
    Access, Change, ClusterName, ClusterSpec, Discovery, Fleet, Provider, Trust, WatchHandle, WatchRequest,
};
use mcr_testkit::{
    control_plane::ControlPlane,
    faults::{Fault, FaultProxy, Upstream},
    waiting::eventually,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Says all specs again whenever one has changed.
struct Specs(watch::Sender<Vec<ClusterSpec>>);

#[derive(Clone)]
struct Shared(Arc<Specs>);

impl Provider for Shared {
    fn name(&self) -> &str {
        "specs"
    }
    fn discover(&self, stop: CancellationToken) -> Discovery {
        let mut specs = self.0.0.subscribe();
        specs.mark_changed();
        stream::unfold(specs, async |mut specs| {
            specs.changed().await.ok()?;
            let all: Vec<_> = specs
                .borrow_and_update()
                .iter()
                .cloned()
                .map(Change::Upsert)
                .collect();
            Some((stream::iter(all), specs))
        })
        .flatten()
        .map(Ok)
        .take_until(stop.cancelled_owned())
        .boxed()
    }
}

fn spec(number: usize, proxy: &FaultProxy) -> ClusterSpec {
    let name = ClusterName::new(format!("c{number}")).unwrap();
    let access = Access::kubeconfig(proxy.kubeconfig_with_token("whatever"), Trust::Trusted);
    // All are the same API server, so who they are must be declared.
    ClusterSpec::new(name, access).identity(format!("uid-{number}"))
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(serde_json::json!({ "metadata": { "name": name, "labels": { "of": "test" } } }))
        .unwrap()
}

struct Member {
    fault: Option<Fault>,
    proxy: FaultProxy,
    cluster: mcr_core::Cluster,
    _watch: WatchHandle,
}

impl Member {
    fn names(&self) -> BTreeSet<String> {
        let store = self.cluster.store::<ConfigMap>().unwrap();
        let objects = store.list().unwrap_or_default();
        objects
            .iter()
            .filter(|map| map.labels().contains_key("of"))
            .map(|map| map.name_any())
            .collect()
    }
}

/// How long anything is waited for.
const SOON: Duration = Duration::from_secs(60);

async fn until(members: &[Member], which: impl Fn(&Member) -> bool, names: &[&str]) -> Duration {
    let start = Instant::now();
    let names: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
    loop {
        let wrong: Vec<&Member> = members
            .iter()
            .filter(|m| which(m) && m.names() != names)
            .collect();
        if wrong.is_empty() {
            return start.elapsed();
        }
        if start.elapsed() > SOON {
            for member in wrong {
                println!(
                    "{:?}: {:?}, {}, {:?}",
                    member.fault,
                    member.names(),
                    member.cluster.state(),
                    member.cluster.kinds()
                );
            }
            panic!("not all have {names:?} after {SOON:?}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_recovers_from_every_fault_and_nobody_else_notices() {
    let plane = ControlPlane::builder().name("all").start().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(plane.client(), "default");
    maps.create(&PostParams::default(), &config_map("before"))
        .await
        .unwrap();

    let faults = Fault::catalogue().into_iter().map(Some).chain([None, None, None]);
    let mut proxies = Vec::new();
    for fault in faults {
        proxies.push((
            fault,
            FaultProxy::start(Upstream::admin_of(&plane)).await.unwrap(),
        ));
    }
    let specs = || {
        proxies
            .iter()
            .enumerate()
            .map(|(number, (_, proxy))| spec(number, proxy))
            .collect::<Vec<_>>()
    };
    let provider = Shared(Arc::new(Specs(watch::Sender::new(specs()))));
    let fleet = Fleet::builder()
        .provider(provider.clone())
        .settings(|settings| {
            settings.allow_duplicates = true;
            settings.probe_after = Duration::from_millis(500);
            settings.probe_timeout = Duration::from_secs(2);
            settings.reconnect_cap = Duration::from_millis(500);
            Arc::make_mut(&mut settings.watch).retry_cap = Duration::from_millis(500);
        })
        .build();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (fleet, stop) = (fleet.clone(), stop.clone());
        async move { fleet.run(stop).await }
    });

    while fleet.clusters().len() < proxies.len() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let members: Vec<Member> = proxies
        .iter()
        .enumerate()
        .map(|(number, (fault, proxy))| {
            let cluster = fleet.get(&format!("c{number}")).unwrap();
            let watch = cluster.watch(WatchRequest::of::<ConfigMap>(), None).unwrap();
            Member {
                fault: fault.clone(),
                proxy: proxy.clone(),
                cluster,
                _watch: watch,
            }
        })
        .collect();
    until(&members, |_| true, &["before"]).await;

    for member in &members {
        if let Some(fault) = &member.fault {
            member.proxy.set(fault.clone()).await;
        }
    }
    maps.create(&PostParams::default(), &config_map("during"))
        .await
        .unwrap();
    maps.delete("before", &DeleteParams::default()).await.unwrap();
    let healthy = |member: &Member| member.fault.is_none();
    let took = until(&members, healthy, &["during"]).await;
    println!("the healthy ones saw it after {took:?}");
    // Each fault has had its effect on what looks after the clusters.
    for _ in 0..2 {
        let probes = || {
            let clusters = fleet.snapshot().clusters;
            let probe = |status: mcr_core::ClusterStatus| (status.name, status.last_probe);
            clusters.into_iter().map(probe).collect::<BTreeMap<_, _>>()
        };
        let before = probes();
        eventually(SOON, "all are asked whether they answer", || {
            let now = probes();
            now.iter().all(|(name, at)| before.get(name) != Some(at))
        })
        .await;
    }
    for member in &members {
        println!("{:?}: {}", member.fault, member.cluster.state());
        member.proxy.clear().await;
    }
    provider.0.0.send_replace(specs());
    maps.create(&PostParams::default(), &config_map("after"))
        .await
        .unwrap();
    // Three leave a trace for longer. What was left out of a watch can't be known before the next list; an object that
    // could not be read is as it was until it changes; and a dead connection whose other side's kernel still answers
    // is noticed when the watch's own time is over, after minutes.
    let truthful = |member: &Member| {
        !matches!(
            member.fault,
            Some(Fault::SkipEvents | Fault::Undecodable { .. } | Fault::HalfOpen)
        )
    };
    let took = until(&members, truthful, &["after", "during"]).await;
    println!("all have recovered after {took:?}");
    for member in &members {
        assert_eq!(member.proxy.trouble(), None);
    }
    stop.cancel();
    running.await.unwrap();
}
