//! Leader election of a manager: one replica reconciles, and the others are standbys with warm watches.

use std::{future::ready, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use kube::Client;
use mcr_core::{
    BoxError,
    internal::{inferred_kube_config, kube_client},
};
use mcr_lease::{Candidate, Election, InvalidCandidate, Leadership};
use tokio::{
    task::{JoinError, JoinSet},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{controller::ControllerHandle, error::ManagerError};

/// The leader election of a [`Manager`](crate::Manager), on a Lease of `coordination.k8s.io/v1`.
///
/// Give the program two replicas and this line, and grant it `get`, `create` and `update` on `leases`:
///
/// ```no_run
/// use mcr::{BuiltController, LeaderElection, Manager, ManagerError, Provider};
///
/// # async fn example(provider: impl Provider, controller: BuiltController) -> Result<(), ManagerError> {
/// Manager::builder()
///     .provider(provider)
///     .controller(controller)
///     .leader_election(LeaderElection::new("my-controller"))
///     .build()?
///     .run()
///     .await
/// # }
/// ```
///
/// The defaults fit a program in a Pod: the Lease is in the cluster and the namespace of the Pod. The durations are those of
/// client-go.
#[derive(Clone)]
#[must_use = "pass it to ManagerBuilder::leader_election"]
pub struct LeaderElection {
    candidate: Candidate,
    client: MakeClient,
}

/// Makes the client of the Lease when the manager runs, because it may read files and run a credential plugin. The
/// string is the address of the cluster, for the log.
pub(crate) type MakeClient =
    Arc<dyn Fn() -> BoxFuture<'static, Result<(Client, Option<String>), BoxError>> + Send + Sync>;

pub(crate) async fn default_client() -> Result<(Client, Option<String>), BoxError> {
    let config = inferred_kube_config().await?;
    let address = config.cluster_url.to_string();
    Ok((kube_client(config, None)?, Some(address)))
}

impl LeaderElection {
    /// An election on the Lease of this name. Replicas of one program use the same name.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            candidate: Candidate::new(name),
            client: Arc::new(|| default_client().boxed()),
        }
    }

    /// Sets the client of the cluster that has the Lease. Default: the cluster in which the Pod runs, or else the current
    /// context of the kubeconfig, as in `Client::try_default`.
    ///
    /// All replicas must use the same cluster. Outside of a Pod, set the client. The current context can change between
    /// the starts of two replicas, and each replica would then lead with a Lease in another cluster.
    pub fn client(self, client: Client) -> Self {
        self.client_from(Arc::new(move || ready(Ok((client.clone(), None))).boxed()))
    }

    pub(crate) fn client_from(mut self, client: MakeClient) -> Self {
        self.client = client;
        self
    }

    /// Sets the namespace of the Lease. Default: the default namespace of the client, which is that of the Pod in a cluster.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.candidate = self.candidate.namespace(namespace);
        self
    }

    /// Sets the first part of the name under which this process holds the Lease. A random part follows it. Default: the
    /// value of the environment variable `POD_NAME` or `HOSTNAME`, which is the name of the Pod.
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.candidate = self.candidate.identity(identity);
        self
    }

    /// Sets how long the other replicas wait after a renewal before one of them leads. Default 15 seconds.
    pub fn lease_duration(mut self, duration: Duration) -> Self {
        self.candidate = self.candidate.lease_duration(duration);
        self
    }

    /// Sets how long this process leads after it sent its last successful renewal. It must be shorter than the lease
    /// duration. Default 10 seconds.
    ///
    /// After this time the manager cancels the tokens of running reconciles. In the middle between this time and the
    /// end of the lease duration, it aborts the reconciles that still run.
    pub fn renew_deadline(mut self, deadline: Duration) -> Self {
        self.candidate = self.candidate.renew_deadline(deadline);
        self
    }

    /// Sets the time between renewals, and between attempts to lead. Default 2 seconds.
    pub fn retry_period(mut self, period: Duration) -> Self {
        self.candidate = self.candidate.retry_period(period);
        self
    }

    pub(crate) fn build(self) -> Result<Elected, InvalidCandidate> {
        Ok(Elected {
            election: self.candidate.build()?,
            client: self.client,
        })
    }
}

impl std::fmt::Debug for LeaderElection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LeaderElection").field(&self.candidate).finish()
    }
}

/// The election of a built manager.
pub(crate) struct Elected {
    election: Election,
    client: MakeClient,
}

impl Elected {
    pub(crate) fn leadership(&self) -> Leadership {
        self.election.leadership()
    }

    /// Starts to take part in the election.
    pub(crate) async fn start(self) -> Result<RunningElection, ManagerError> {
        let (client, cluster) = (self.client)()
            .await
            .map_err(|source| ManagerError::LeaderElectionClient { source })?;
        if let Some(cluster) = cluster {
            tracing::info!(cluster, "leader election: the Lease is in this cluster");
        }
        let (stop, mut task) = (CancellationToken::new(), JoinSet::new());
        task.spawn(self.election.run(client, stop.clone()));
        Ok(RunningElection { task, stop })
    }
}

/// Waits until the task of an election panics. Waits for ever if there is no election.
pub(crate) async fn wait_for_panic(election: &mut Option<RunningElection>) -> JoinError {
    if let Some(election) = election
        && let Some(Err(error)) = election.task.join_next().await
    {
        return error;
    }
    std::future::pending().await
}

/// The task of an election. Dropping it ends the task, but does not release the Lease.
pub(crate) struct RunningElection {
    task: JoinSet<()>,
    stop: CancellationToken,
}

impl RunningElection {
    /// Ends the election. Releases the Lease only if all reconciles that need the Lease have ended, and all tasks.
    ///
    /// Otherwise the Lease stays until it expires. So a reconcile that the manager could not abort has that time to end
    /// before another replica leads.
    pub(crate) async fn end(mut self, controllers: &[ControllerHandle], tasks_have_ended: bool) {
        let running: usize = controllers.iter().map(ControllerHandle::running_as_leader).sum();
        if running > 0 || !tasks_have_ended {
            tracing::warn!(
                running,
                "the Lease is not released, because reconciles or tasks are still running; another replica leads when it expires"
            );
            self.task.shutdown().await;
            return;
        }
        self.stop.cancel();
        // The election has a shorter time limit for the release, so this limit is only a safeguard.
        let _ = timeout(Duration::from_secs(30), self.task.join_next()).await;
    }
}
