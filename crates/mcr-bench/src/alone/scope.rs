//! Measures clusters behind one endpoint: the memory of each beyond its objects, and the time until another one has
//! joined.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use mcr::{
    Access, BoxError, ClusterName, ClusterSpec, Fleet,
    core::{AnswerBody, ObjectMetadata, Placement, Scope, ScopeLayout, Trust, Upstream},
};
use mcr_provider_clusters::{ClustersHandle, ClustersProvider};

use super::{Figures, Heap, Runs, allocated, fleets::Seen};
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
        request: Request<Body>,
        upstream: Upstream,
    ) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>> {
        Box::pin(async move { upstream.send(request).await })
    }
}

/// The namespace that is a cluster.
pub(crate) fn place(number: usize) -> String {
    format!("tenant-{number:05}")
}

/// Clusters behind one endpoint that can be made to join, and a controller over them.
struct Joins {
    scope: Scope,
    handle: ClustersHandle,
    runs: Runs,
    seen: Arc<Seen>,
}

impl Joins {
    fn start(endpoint: Access) -> Result<Self> {
        let scope = Scope::new(Namespaces);
        scope.set_endpoint("main", endpoint);
        let provider = ClustersProvider::new();
        let handle = provider.handle();
        let runs = Runs::start(Fleet::builder().provider(provider).build());
        let seen = runs.count()?;
        Ok(Self {
            scope,
            handle,
            runs,
            seen,
        })
    }

    fn add(&self, number: usize) -> Result<()> {
        let name = place(number);
        let place = self.scope.place("main", name.clone());
        let spec = ClusterSpec::new(ClusterName::new(name)?, place);
        self.handle.add(spec.identity(number.to_string()));
        Ok(())
    }
}

/// Adds clusters with one object each, and waits until all objects are reconciled.
pub(super) async fn join(endpoint: Access, clusters: usize) -> Result<()> {
    let joins = Joins::start(endpoint)?;
    for number in 0..clusters {
        joins.add(number)?;
    }
    joins.seen.at_least(clusters).await
}

pub(super) async fn measure(kubeconfig: Option<PathBuf>, clusters: usize, heap: Heap) -> Result<Figures> {
    const PAUSE: Duration = Duration::from_millis(500);
    let kubeconfig = std::fs::read(kubeconfig.context("--kubeconfig is needed")?)?;
    let joins = Joins::start(Access::kubeconfig(kubeconfig, Trust::Trusted))?;

    // The first cluster loads the objects of all clusters into memory. The growth after it is the cost of clusters
    // beyond their objects.
    joins.add(0)?;
    joins.seen.at_least(1).await?;
    tokio::time::sleep(PAUSE).await;
    let pid = std::process::id();
    let (heap_before, before, begun) = (allocated(heap)?, Usage::of(pid)?, Instant::now());
    let most = clusters.saturating_sub(ONE_BY_ONE);
    for number in 1..most {
        joins.add(number)?;
    }
    joins.seen.at_least(most).await?;
    let took = begun.elapsed();
    tokio::time::sleep(PAUSE).await;
    let count = most.saturating_sub(1).max(1) as f64;
    let bytes = allocated(heap)?.saturating_sub(heap_before) as f64 / count;
    let after = Usage::of(pid)?;

    let mut one_more = Vec::new();
    for number in most..clusters {
        let begun = Instant::now();
        joins.add(number)?;
        // `Fleet::get` finds a cluster once it is engaged.
        while joins.runs.fleet.get(&place(number)).is_err() {
            tokio::task::yield_now().await;
        }
        one_more.push(begun.elapsed().as_secs_f64() * 1e6);
        joins.seen.at_least(number + 1).await?;
    }
    let cpu = after.cpu.saturating_sub(before.cpu);
    let resident = (after.rss_kb - before.rss_kb) * 1024.0;
    let mut figures = Figures::from([
        ("bytes".to_owned(), bytes),
        ("rss_bytes".to_owned(), resident / count),
        ("all_s".to_owned(), took.as_secs_f64()),
        ("cpu_us".to_owned(), cpu.as_secs_f64() * 1e6 / count),
    ]);
    figures.extend(stats::median(&one_more).map(|median| ("engage_us".to_owned(), median)));
    Ok(figures)
}
