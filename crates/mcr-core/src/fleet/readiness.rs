//! The checks of the program: whether a cluster is ready for what the program does there.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use mcr_access::BoxError;
use mcr_client::internal::{
    Backoff, jitter,
    user_code::{CatchPanic, READY_CHECK},
};
use mcr_watch::internal::Permit;
use tokio::{sync::Semaphore, task::JoinSet, time::timeout};

use super::{
    cluster::Cluster,
    context::FleetContext,
    events::{FleetEvent, FleetEvents},
    state::ClusterState,
};
use crate::{causes::text_of_causes, hub};

/// How many checks run at once that did not fail the last time, and how many others: those that fail, perhaps since they hang, keep
/// only each other waiting.
const AT_ONCE: usize = 32;
/// After this time a check only waits, most likely. It runs on, and another one begins: at first no check has failed, and those that
/// hang are in front of the others.
const HOLDS_ITS_PLACE: Duration = Duration::from_secs(1);
/// How often in a row a check may fail in a cluster that has passed until the cluster no longer passes.
const TOLERATED: u32 = 2;

/// Finds out whether a cluster is ready for what the program does there, such as whether it has the CRDs of another product.
///
/// The fleet runs a check in each Ready cluster, in 64 at once; a check that has run for a second makes room for another one. After
/// a failure it runs again after a pause of 1 s, which doubles up to 60 s; after a success it runs again after about
/// [five minutes](Self::every). An error, a panic and the [end of its time](Self::timeout) are failures. A cluster that has passed
/// still passes after one or two failures in a row: a late answer must not end the work in it. The outcome of a cluster that is not
/// Ready stays.
///
/// [`Cluster::passes`] returns the outcome, and [`ClusterStatus::warnings`](crate::ClusterStatus::warnings) has the reason.
///
/// ```
/// use k8s_openapi::api::apps::v1::Deployment;
/// use mcr_core::{Cluster, Fleet, ReadyCheck};
///
/// let fleet = Fleet::builder()
///     .ready_check("cert-manager", ReadyCheck::crds_established(["certificates.cert-manager.io"]))
///     .ready_check("dns", ReadyCheck::new(|cluster: Cluster| async move {
///         let dns = cluster.namespaced::<Deployment>("kube-system").get("coredns").await?;
///         let available = dns.status.and_then(|status| status.available_replicas).unwrap_or(0);
///         if available > 0 { Ok(()) } else { Err("coredns has no available replica".into()) }
///     }));
/// # let _ = fleet.build();
/// ```
#[derive(Clone)]
pub struct ReadyCheck {
    run: Arc<dyn Fn(Cluster) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>,
    limit: Duration,
    every: Duration,
}

impl ReadyCheck {
    /// A check by an async function, which returns an error while the cluster is not ready.
    ///
    /// The fleet drops the future at its next await when the time is up, or when the cluster or the fleet ends. So the function
    /// must not block its thread: it would keep the work in other clusters waiting, and no limit of time would end it. What blocks,
    /// such as `std::fs` or a long computation, belongs in `tokio::task::spawn_blocking`.
    pub fn new<Fut>(check: impl Fn(Cluster) -> Fut + Send + Sync + 'static) -> Self
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Self {
            run: Arc::new(move |cluster| Box::pin(check(cluster))),
            limit: Duration::from_secs(10),
            every: Duration::from_secs(300),
        }
    }

    /// A check that passes if the cluster serves all these kinds, as it does once their CRDs are established. A name is that of
    /// a CRD: `<plural>.<group>`.
    ///
    /// It asks the discovery of the API server, which everybody with credentials may read by default, so it needs no right to
    /// read CRDs.
    pub fn crds_established<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        let names: Arc<[String]> = names.into_iter().map(Into::into).collect();
        Self::new(move |cluster| {
            let names = names.clone();
            async move {
                for name in &*names {
                    serves(&cluster, name).await?;
                }
                Ok(())
            }
        })
    }

    /// Limits the time of one run. Default 10 seconds.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the time after which a check that has passed runs again, to notice what is removed later. Default five minutes, at
    /// least one second. The fleet shortens it at random by up to a fifth.
    #[must_use]
    pub fn every(mut self, pause: Duration) -> Self {
        self.every = pause.max(Duration::from_secs(1));
        self
    }

    async fn run(&self, cluster: &Cluster) -> Result<(), Arc<str>> {
        // All of it is code of users, also the text of the error.
        let run = async {
            (self.run)(cluster.clone())
                .await
                .map_err(|error| text_of_causes(&*error).into())
        };
        match timeout(self.limit, CatchPanic::new(READY_CHECK, Box::pin(run))).await {
            Ok(Ok(ended)) => ended,
            Ok(Err(panicked)) => Err(panicked.to_string().into()),
            Err(_) => Err(format!("it did not end within {} s", self.limit.as_secs_f32()).into()),
        }
    }
}

impl fmt::Debug for ReadyCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadyCheck")
    }
}

async fn serves(cluster: &Cluster, crd: &str) -> Result<(), BoxError> {
    let Some((plural, group)) = crd.split_once('.') else {
        return Err(format!("{crd:?} is no name of a CRD: write <plural>.<group>").into());
    };
    let served = hub::serves(&cluster.client(), group, plural).await?;
    let missing = || format!("the cluster does not serve {crd}: its CRD is missing, or not established");
    if served { Ok(()) } else { Err(missing().into()) }
}

/// A check and its name.
pub(super) type NamedCheck = (Arc<str>, ReadyCheck);

/// Runs the checks until the fleet stops.
pub(super) async fn run(context: Arc<FleetContext>, checks: Arc<[NamedCheck]>) {
    let mut events = FleetEvents::new(context.clone());
    let permits = [(); 2].map(|()| Arc::new(Semaphore::new(AT_ONCE)));
    let mut running = JoinSet::new();
    loop {
        let event = tokio::select! {
            () = context.token().cancelled() => break,
            Some(_) = running.join_next() => continue,
            event = events.next() => event,
        };
        let FleetEvent::Engaged(cluster) = event else {
            continue;
        };
        let why: Arc<str> = "it has not ended yet".into();
        let names = checks.iter().map(|(name, _)| name.clone());
        let pending: Arc<[_]> = names.map(|name| (name, Some(why.clone()))).collect();
        cluster.change_info(|info| info.checks.clone_from(&pending));
        for at in 0..checks.len() {
            let (context, checks, permits) = (context.clone(), checks.clone(), permits.clone());
            let cluster = cluster.clone();
            running.spawn(async move {
                let run = repeat(&context, &cluster, &checks, at, &permits);
                cluster.token().run_until_cancelled(run).await;
            });
        }
    }
    running.shutdown().await;
}

/// Runs the check of this number again and again, while the cluster is Ready.
async fn repeat(
    context: &FleetContext,
    cluster: &Cluster,
    checks: &[NamedCheck],
    at: usize,
    permits: &[Arc<Semaphore>; 2],
) {
    let Some((name, check)) = checks.get(at) else {
        return;
    };
    let mut pauses = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
    let (mut passes, mut failures) = (false, 0);
    loop {
        cluster.wait_for(ClusterState::is_ready).await;
        let ended = {
            let mut permit = Permit::acquire(&permits[usize::from(failures > 0)]).await;
            permit.hold_at_most(HOLDS_ITS_PLACE, check.run(cluster)).await
        };
        if ended.is_err() && !cluster.state().is_ready() {
            continue;
        }
        let passed = passes;
        failures = if ended.is_ok() { 0 } else { failures + 1 };
        passes = ended.is_ok() || (passed && failures <= TOLERATED);
        let why = ended.err().filter(|_| !passes);
        cluster.change_info(|info| {
            let others = info.checks.iter().cloned().enumerate();
            let all = others.map(|(of, (name, known))| (name, if of == at { why.clone() } else { known }));
            info.checks = all.collect();
        });
        if passes != passed || (failures == 1 && !passes) {
            let (cluster, display_name) = (cluster.name(), cluster.property(crate::spec::DISPLAY_NAME));
            match &why {
                None => tracing::info!(%cluster, display_name, check = %name, "the cluster passes a check"),
                Some(why) if passed => {
                    tracing::warn!(%cluster, display_name, check = %name, error = %why, "the cluster no longer passes a check");
                }
                // This may be usual, such as in a cluster without the CRDs of a product.
                Some(why) => {
                    tracing::info!(%cluster, display_name, check = %name, error = %why, "the cluster does not pass a check yet");
                }
            }
        }
        if passes != passed {
            // As after a change of labels, controllers evaluate their selectors.
            context.publish(cluster.name());
        }
        let pause = if failures > 0 {
            pauses.pause()
        } else {
            pauses.reset();
            check.every - jitter(check.every / 5)
        };
        // A cluster that was away is checked at once when it is back.
        let away = cluster.wait_for(|state| !state.is_ready());
        let _ = timeout(pause, away).await;
    }
}
