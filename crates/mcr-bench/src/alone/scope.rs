//! Measures clusters behind one endpoint: the memory of each beyond its objects, and the time until another one has
//! joined.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use futures::future::BoxFuture;
use http::{Request as HttpRequest, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use mcr::{
    Access, Action, BoxError, ClusterName, ClusterSelector, ClusterSpec, Controller, Fleet, Request,
    core::{AnswerBody, ObjectMetadata, Placement, Scope, ScopeLayout, Trust, Upstream},
};
use mcr_provider_clusters::{ClustersHandle, ClustersProvider};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Figures, Heap};
use crate::{proc::Usage, stats};

/// The number of clusters that join one by one, to measure the time of a join.
const ONE_BY_ONE: usize = 100;

struct Namespaces;

impl ScopeLayout for Namespaces {
    fn name(&self) -> &str {
        "namespaces"
    }

    fn place<'o>(&self, object: &ObjectMetadata<'o>) -> Option<Placement<'o>> {
        object.namespace().map(Placement::new)
    }

    fn send(
        &self,
        _: Arc<str>,
        request: HttpRequest<Body>,
        upstream: Upstream,
    ) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>> {
        Box::pin(async move { upstream.send(request).await })
    }
}

/// The namespace that is a cluster.
pub(crate) fn place(number: usize) -> String {
    format!("tenant-{number:05}")
}

async fn until(holds: impl Fn() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > Duration::from_secs(120) {
            bail!("not all clusters were reconciled within two minutes");
        }
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    Ok(())
}

/// Clusters behind one endpoint that can be made to join, and a controller over them.
struct Joins {
    scope: Scope,
    handle: ClustersHandle,
    fleet: Fleet,
    reconciled: Arc<AtomicUsize>,
    _stop: DropGuard,
}

impl Joins {
    fn start(endpoint: Access) -> Result<Self> {
        let scope = Scope::new(Namespaces);
        scope.set_endpoint("main", endpoint);
        let provider = ClustersProvider::new();
        let handle = provider.handle();
        let fleet = Fleet::builder().provider(provider).build();
        let stop = CancellationToken::new();
        let (runs, token) = (fleet.clone(), stop.clone());
        tokio::spawn(async move { runs.run(token).await });
        let reconciled = Arc::new(AtomicUsize::new(0));
        let controller = Controller::<ConfigMap>::new("scope")
            .clusters(ClusterSelector::all())
            .build(
                |_: Request<ConfigMap>, reconciled: Arc<AtomicUsize>| async move {
                    reconciled.fetch_add(1, Ordering::Relaxed);
                    Ok::<_, BoxError>(Action::done())
                },
                reconciled.clone(),
            )?;
        tokio::spawn(controller.run(fleet.clone(), stop.clone()));
        Ok(Self {
            scope,
            handle,
            fleet,
            reconciled,
            _stop: stop.drop_guard(),
        })
    }

    fn spec(&self, number: usize) -> Result<ClusterSpec> {
        let name = place(number);
        let place = self.scope.place("main", name.clone());
        Ok(ClusterSpec::new(ClusterName::new(name)?, place).identity(number.to_string()))
    }

    fn seen(&self) -> usize {
        self.reconciled.load(Ordering::Relaxed)
    }
}

/// Adds clusters with one object each, and waits until all objects are reconciled.
pub(super) async fn join(endpoint: Access, clusters: usize) -> Result<()> {
    let joins = Joins::start(endpoint)?;
    for number in 0..clusters {
        joins.handle.add(joins.spec(number)?);
    }
    until(|| joins.seen() >= clusters).await
}

pub(super) async fn measure(kubeconfig: Option<PathBuf>, clusters: usize, heap: Heap) -> Result<Figures> {
    let heap = || heap().context("this is the program without an allocator that counts");
    let kubeconfig = std::fs::read(kubeconfig.context("--kubeconfig is needed")?)?;
    let joins = Joins::start(Access::kubeconfig(kubeconfig, Trust::Trusted))?;
    let (joined, fleet) = (&joins.handle, &joins.fleet);
    let spec = |number| joins.spec(number);
    let seen = || joins.seen();

    // The first cluster loads the objects of all clusters into memory. The growth after it is the cost of clusters
    // beyond their objects.
    joined.add(spec(0)?);
    until(|| seen() == 1).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let pid = std::process::id();
    let (heap_before, before, begun) = (heap()?, Usage::of(pid)?, Instant::now());
    let most = clusters.saturating_sub(ONE_BY_ONE);
    for number in 1..most {
        joined.add(spec(number)?);
    }
    until(|| seen() >= most).await?;
    let took = begun.elapsed();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let count = most.saturating_sub(1).max(1) as f64;
    let bytes = heap()?.saturating_sub(heap_before) as f64 / count;
    let after = Usage::of(pid)?;

    let mut one_more = Vec::new();
    for number in most..clusters {
        let spec = spec(number)?;
        let begun = Instant::now();
        joined.add(spec);
        // `Fleet::get` finds a cluster once it is engaged.
        while fleet.get(&place(number)).is_err() {
            tokio::task::yield_now().await;
        }
        one_more.push(begun.elapsed().as_secs_f64() * 1e6);
        until(|| seen() > number).await?;
    }
    let mut figures = Figures::new();
    figures.insert("bytes".to_owned(), bytes);
    figures.insert(
        "rss_bytes".to_owned(),
        (after.rss_kb - before.rss_kb) * 1024.0 / count,
    );
    figures.insert("all_s".to_owned(), took.as_secs_f64());
    let cpu = after.cpu.saturating_sub(before.cpu);
    figures.insert("cpu_us".to_owned(), cpu.as_secs_f64() * 1e6 / count);
    figures.extend(stats::median(&one_more).map(|median| ("engage_us".to_owned(), median)));
    Ok(figures)
}
