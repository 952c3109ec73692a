//! The task that takes part in the election and carries out the decisions.

use std::{fmt, pin::pin, sync::Arc, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{ApiResource, PostParams},
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    decision::{Decision, Durations, Step},
    leadership::Leadership,
    record::{self, Record},
    request::{Requests, Response},
    status::Role,
};

/// A candidate that is ready to take part in the election. [`Candidate::build`](crate::Candidate::build) makes it.
#[must_use = "an election does nothing until it is run"]
pub struct Election {
    namespace: Option<String>,
    name: String,
    decision: Decision,
    /// The Lease as it was last read or written.
    lease: Option<Box<Lease>>,
    leadership: Leadership,
}

impl Election {
    pub(crate) fn new(
        namespace: Option<String>,
        name: String,
        identity: String,
        durations: Durations,
    ) -> Self {
        let identity: Arc<str> = identity.into();
        Self {
            leadership: Leadership::new(identity.clone(), name.clone().into()),
            decision: Decision::new(identity, durations),
            namespace,
            name,
            lease: None,
        }
    }

    /// A handle that reports whether this process leads, while the election runs.
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Takes part in the election until `stop` is cancelled, then releases the Lease, so that another candidate leads
    /// at once. `client` is a client of the cluster that has the Lease. Failures are logged and shown in
    /// [`LeaseStatus::error`](crate::LeaseStatus::error), and the election continues.
    ///
    /// Cancel `stop` only after the work of the leader has ended. The release takes at most a third of the renew
    /// deadline.
    ///
    /// # Cancellation
    /// Dropping the future ends the election without a release: other candidates wait until the lease duration has
    /// passed. After the renew deadline, [`Leadership::is_held`] returns `false`.
    pub async fn run(mut self, client: Client, stop: CancellationToken) {
        let namespace = self.namespace.as_deref().unwrap_or(client.default_namespace());
        self.leadership
            .set_lease(format!("{namespace}/{}", self.name).into());
        let requests = Requests {
            api: Api::namespaced(client.clone(), namespace),
            objects: Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Lease>(&())),
            params: PostParams::default(),
            // A third, so that the holder has time for another attempt before its deadline.
            limit: self.decision.durations.renew_deadline / 3,
        };
        // The holder in the previous round, because only a new holder is logged.
        let mut logged_holder = None;
        while !stop.is_cancelled() {
            if let Step::Wait(until) = self.decision.step(clock::now()) {
                self.run_until_loss(&stop, clock::sleep_until(until)).await;
                continue;
            }
            let (step, sent) = (self.decision.step(clock::now()), clock::now());
            let (requests, name, lease) = (&requests, self.name.clone(), self.lease_to_write(step));
            let request = async move {
                match (step, lease) {
                    (Step::Create, Some(lease)) => requests.create(&lease).await,
                    (Step::Update, Some(lease)) => requests.update(lease).await,
                    _ => requests.read(&name).await,
                }
            };
            let Some(response) = self.run_until_loss(&stop, request).await else {
                break;
            };
            self.handle_response(sent, response);
            self.publish();
            let holder = self.decision.holder().map(str::to_owned);
            if logged_holder.as_ref() != Some(&holder) {
                if !self.leadership.is_held() {
                    self.log_standby();
                }
                logged_holder = Some(holder);
            }
        }
        self.release(&requests).await;
    }

    /// The Lease to write, so that this candidate becomes its holder or renews it.
    fn lease_to_write(&self, step: Step) -> Option<Lease> {
        let (identity, duration) = (&self.decision.identity, self.decision.durations.lease);
        match (step, &self.lease) {
            (Step::Create, _) => Some(record::created(&self.name, identity, duration)),
            (Step::Update, Some(lease)) => {
                let mut lease = Lease::clone(lease);
                record::hold(&mut lease, identity, duration);
                Some(lease)
            }
            _ => None,
        }
    }

    /// Waits for a future or for `stop`. Publishes the loss if the term ends meanwhile.
    async fn run_until_loss<T>(
        &mut self,
        stop: &CancellationToken,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let mut future = pin!(future);
        loop {
            let lapse = self.decision.term().held_until;
            let held = self.decision.is_held(clock::now());
            tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                result = &mut future => return Some(result),
                () = clock::sleep_until(lapse), if held => self.publish(),
            }
        }
    }

    fn handle_response(&mut self, sent: Duration, response: Response) {
        let now = clock::now();
        let mut failure = None;
        match response {
            Response::Read(lease) => {
                self.decision.read(now, lease.as_deref().map(Record::of));
                self.lease = lease;
            }
            Response::Written(lease) => {
                self.decision.written(sent, now, Record::of(&lease));
                self.lease = Some(lease);
            }
            // The next step reads the Lease.
            Response::Rejected => self.decision.rejected(now),
            Response::Failed(text) => {
                self.decision.failed(now);
                failure = Some(text);
            }
        }
        if self.leadership.set_error(failure.as_deref())
            && let Some(error) = failure
        {
            let lease = self.leadership.status().lease;
            tracing::warn!(%lease, "leader election: a request for the Lease failed: {error}");
        }
    }

    fn publish(&self) {
        let Some(role) = self.leadership.publish(&self.decision) else {
            return;
        };
        let status = self.leadership.status();
        let (lease, identity) = (&status.lease, &status.identity);
        match role {
            Role::Leader => tracing::info!(%lease, %identity, "leader election: this process leads"),
            Role::Standby => {
                // The last record that this process has read may still name this process. The next record names the
                // new holder.
                let holder = status.holder.as_deref().filter(|holder| *holder != &**identity);
                let why = match (holder, status.error.as_deref()) {
                    (Some(_), _) => "another process has taken it",
                    (None, Some(error)) => error,
                    (None, None) => {
                        "no renewal has succeeded in time, perhaps because this process or its machine was stopped"
                    }
                };
                tracing::warn!(%lease, %identity, holder, why, "leader election: this process has lost the Lease and is a standby");
            }
        }
    }

    fn log_standby(&self) {
        let status = self.leadership.status();
        let (lease, identity) = (&status.lease, &status.identity);
        match status.holder {
            Some(holder) if holder == *identity => {
                let wait = self.decision.longest().as_secs_f32();
                tracing::info!(%lease, %identity, "leader election: the Lease is new, so this process leads after {wait} s: if someone has deleted the Lease, its last holder may work until then");
            }
            Some(holder) => {
                tracing::info!(%lease, %identity, %holder, "leader election: this process is a standby")
            }
            None => tracing::info!(%lease, %identity, "leader election: this process is a candidate"),
        }
    }

    async fn release(&mut self, requests: &Requests) {
        let may_release = self.decision.may_release(clock::now());
        self.decision.lose();
        self.leadership.publish(&self.decision);
        if !may_release {
            return;
        }
        let lease = self.leadership.status().lease;
        match timeout(requests.limit, self.write_release(requests)).await {
            Ok(Ok(())) => tracing::info!(%lease, "leader election: this process has released the Lease"),
            Ok(Err(error)) => {
                tracing::warn!(%lease, "leader election: the Lease could not be released: {error}. Others take it after its duration");
            }
            Err(_) => {
                tracing::warn!(%lease, "leader election: the Lease could not be released in time. Others take it after its duration");
            }
        }
    }

    /// Writes that nobody holds the Lease. The last renewal may have succeeded although its response was lost. Then
    /// the server refuses the first attempt, and the Lease is read again.
    async fn write_release(&mut self, requests: &Requests) -> Result<(), String> {
        while let Some(mut lease) = self.lease.take() {
            if Record::of(&lease).holder.as_deref() != Some(&*self.decision.identity) {
                break;
            }
            record::release(&mut lease);
            match requests.update(*lease).await {
                Response::Failed(error) => return Err(error),
                Response::Rejected => {}
                Response::Written(_) | Response::Read(_) => return Ok(()),
            }
            match requests.read(&self.name).await {
                Response::Read(lease) => self.lease = lease,
                Response::Failed(error) => return Err(error),
                Response::Written(_) | Response::Rejected => {}
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("leadership", &self.leadership)
            .field("durations", &self.decision.durations)
            .finish_non_exhaustive()
    }
}
