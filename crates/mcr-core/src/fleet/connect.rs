//! Connecting a cluster, for the first time or again.

use std::time::{Duration, SystemTime};

use mcr_client::internal::{
    ConnectError, jitter,
    probe::{self, ProbeConnection},
};
use mcr_watch::internal::{Outcomes, Permit, Phase};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{
    cluster::Cluster,
    connection::{HAD_EXPIRED, NewConnection, dial},
    context::FleetContext,
    drain::End,
    engagement::Engagement,
    state::ClusterState,
};
use crate::Refresh;

impl Engagement<'_> {
    /// Tries to connect once. After a failure, waits until the next attempt is due.
    pub(super) async fn connect(&mut self) -> Option<End> {
        if matches!(
            self.cluster.state(),
            ClusterState::Discovered | ClusterState::Suspended { .. }
        ) {
            self.set_state(ClusterState::Connecting);
        }
        let why = if self.refused {
            Refresh::Unauthorized
        } else {
            Refresh::First
        };
        let (spec, prefix) = (self.desired.spec.clone(), self.prefix());
        let dialled = tokio::select! {
            dialled = async {
                // Reading a thousand kubeconfigs at once would take a thousand threads.
                let mut permit = Permit::acquire(&self.fleet.resources.connect_permits).await;
                // Large futures are in boxes here: thousands of clusters may wait for a permit or for their first answer, and
                // must not reserve memory for the steps before and after.
                let dial = Box::pin(dial(&self.fleet.resources, &spec, why, &prefix));
                permit.hold_at_most(PERMIT_WHILE_SILENT, dial).await
            } => dialled,
            _ = self.changes.changed() => return self.take_change(),
        };
        if let (Some((target, declared)), Ok(new)) = (&self.watched_target, &dialled)
            && self.identity.is_none()
            && *target != new.connection.spec.target
        {
            // The stores may contain objects of the earlier target. They are of the same cluster only if the provider
            // declares the same identity as then.
            if declared.is_none() || *declared != spec.identity {
                return Some(End::Replaced);
            }
            self.endpoint_number += 1;
            self.watched_target = Some((new.connection.spec.target.clone(), declared.clone()));
        }
        let cluster = self.cluster.clone();
        // Only at the first connection. Otherwise each watch of a dead cluster would dial it at each attempt.
        let first =
            (self.identity.is_none() && self.watched_target.is_none()).then_some(self.endpoint_number + 1);
        if let (Some(_), Ok(new)) = (first, &dialled) {
            self.watched_target = Some((new.connection.spec.target.clone(), spec.identity.clone()));
        }
        let attempt = async {
            let mut new = dialled?;
            if let Some(endpoint_number) = first {
                new.in_use = true;
                if begin_watches(self.fleet, &cluster, &new, endpoint_number).await {
                    return Ok(new);
                }
            }
            identify(self.fleet, new).await
        };
        let result = tokio::select! {
            // A connection that has answered is put to use first. A change of the spec is then a change of that connection.
            biased;
            result = attempt => result,
            _ = self.changes.changed() => return self.take_change(),
        };
        self.last_probe = Instant::now();
        self.cluster
            .change_info(|info| info.last_probe = Some(SystemTime::now()));
        match result {
            Ok(new) => self.connected(new),
            Err(why) => {
                let first_refusal = why.unauthorized && !self.refused;
                let pause = self.backoff.pause();
                tracing::debug!(cluster = %self.cluster.name(), reason = %why.reason, retry_in = ?pause, "not connected");
                self.unreachable(why);
                if first_refusal {
                    // The source may have a newer credential than the refused one, so one attempt follows at once.
                    return None;
                }
                let retry = Instant::now() + pause;
                tokio::select! {
                    () = sleep_until(retry) => None,
                    // A new spec may solve the problem, so it is tried at once.
                    _ = self.changes.changed() => self.take_change(),
                }
            }
        }
    }

    /// Puts the connection of a cluster that has answered to use, unless it is another cluster.
    fn connected(&mut self, new: NewConnection) -> Option<End> {
        if let Some(known) = self
            .identity
            .as_ref()
            .filter(|known| !known.is_same(&new.identity))
        {
            tracing::warn!(
                cluster = %self.cluster.name(),
                was = known.shown().as_deref(), is = new.identity.shown().as_deref(),
                "another cluster answers under this name"
            );
            return Some(End::Replaced);
        }
        let target = &new.connection.spec.target;
        if self.last_target.as_ref() != Some(target) {
            self.last_target = Some(target.clone());
            self.endpoint_number += 1;
        }
        let later = !new.identified && new.identity.declared.is_none();
        let (earliest, spread) = identify_delay(self.fleet.registry.bounded_len(), self.fleet.probe_after());
        self.identify_at = later.then(|| Instant::now() + earliest + jitter(spread));
        self.adopt(new);
        self.backoff.reset();
        self.refused = false;
        self.retry_spec_at = None;
        self.cluster.set_phase(Phase::Up {
            endpoint: self.endpoint_number,
        });
        self.set_state(ClusterState::Ready);
        None
    }

    /// Replaces the connection in use.
    pub(super) fn adopt(&mut self, new: NewConnection) {
        let (connection, mut identity) = (new.connection, new.identity);
        if let Some(known) = self.identity.take() {
            // A UID that can't be read now is the known one.
            identity.uid = identity.uid.or(known.uid);
        }
        let shown = identity.shown();
        self.identity = Some(identity);
        if self.cluster.set_default_namespace(&new.namespace) {
            self.notify();
        }
        self.cluster.change_info(|info| {
            info.identity.clone_from(&shown);
            info.credential_expires = new.expires;
            info.warning = new.had_expired.then(|| HAD_EXPIRED.into());
        });
        if !new.in_use {
            let generation = self.cluster.transport().swap(connection.channel.clone());
            tracing::debug!(cluster = %self.cluster.name(), generation, "connection in use");
        }
        self.cluster.transport().block(None);
        self.connection = Some(connection);
    }
}

/// Lets the watches begin before the identity of the cluster is read. Returns whether the cluster has answered a watch.
///
/// At the first connection there is no identity to compare with, so reading it can wait. A fleet that joins is then listed
/// in little more than the time that its lists take. If the cluster has no watches, or does not answer them, the caller
/// reads the identity, and gets the reason why the cluster does not answer.
async fn begin_watches(
    fleet: &FleetContext,
    cluster: &Cluster,
    new: &NewConnection,
    endpoint_number: u64,
) -> bool {
    const TIME_TO_ADD_WATCHES: Duration = Duration::from_millis(50);
    // Thousands of clusters that join at once wait for list permits. Reading their identities as well would take one more
    // connection for each.
    let time_to_answer = Duration::from_secs(2) + Duration::from_millis(2) * fleet.registry.bounded_len();
    let seen = &cluster.health().outcomes;
    let before = seen.read(Outcomes::clone);
    let news = || seen.wait(move |seen| (*seen != before).then_some(seen.answers > before.answers));
    cluster.transport().swap(new.connection.channel.clone());
    cluster.transport().block(None);
    cluster.set_phase(Phase::Up {
        endpoint: endpoint_number,
    });
    // Subscribers add watches when they see the cluster. If thousands of clusters join at once, that takes some time.
    let seen_by_subscribers = async {
        while fleet.resources.observers.is_pending(cluster.name()) {
            sleep(TIME_TO_ADD_WATCHES).await;
        }
        sleep(TIME_TO_ADD_WATCHES).await;
    };
    tokio::select! {
        answered = news() => return answered,
        _ = timeout(time_to_answer, seen_by_subscribers) => {}
    }
    !cluster.kinds().is_empty() && timeout(time_to_answer, news()).await.unwrap_or(false)
}

/// When a postponed identity is read, in a fleet of so many clusters: the earliest time, and the time over which the reads
/// are spread.
///
/// - Soon, because until then the fleet can't distinguish a new address of the cluster from another cluster.
/// - Not while the clusters that joined together are listed, and not all at once: each read costs both sides a TLS
///   handshake, and hundreds of them in a second delay the events of all clusters.
///
/// The time of the next probe counts from this read, so this spreads the probes of silent clusters, too.
fn identify_delay(clusters: u32, probe_after: Duration) -> (Duration, Duration) {
    let earliest = Duration::from_millis(5) * clusters;
    let spread = Duration::from_millis(40) * clusters;
    (earliest, spread.min(probe_after))
}

/// Reads the UID of the `kube-system` namespace.
async fn identify(fleet: &FleetContext, mut new: NewConnection) -> Result<NewConnection, ConnectError> {
    let mut permit = Permit::acquire(&fleet.resources.connect_permits).await;
    // Longer than the time limit of the connection, so that an error of the connection is the reason that is shown.
    let limit = fleet.settings().transport.connect_timeout + TIME_TO_IDENTIFY;
    let identify = Box::pin(probe::identify(
        &new.connection.channel,
        ProbeConnection::Keep,
        limit,
    ));
    new.identity.uid = permit.hold_at_most(PERMIT_WHILE_SILENT, identify).await?;
    new.identified = true;
    Ok(new)
}

/// How long a silent cluster keeps its permit. Hundreds of silent clusters may be before a healthy one in the queue for
/// permits: with a second for each of them, it would wait for minutes.
const PERMIT_WHILE_SILENT: Duration = Duration::from_millis(250);

/// How long a cluster may take to answer the request for its UID, once there is a connection.
const TIME_TO_IDENTIFY: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::FleetSettings;

    #[test]
    fn few_are_asked_who_they_are_at_once_and_many_in_calm() {
        let settings = FleetSettings::default();
        for (clusters, at_latest, a_second) in [(4, 0.2, 25.0), (500, 23.0, 25.0), (10_000, 150.0, 100.0)] {
            let probe_after = settings.probe_after_among(clusters as usize);
            let (earliest, spread) = identify_delay(clusters, probe_after);
            assert!((earliest + spread).as_secs_f64() <= at_latest, "{clusters}");
            assert!(
                f64::from(clusters) / spread.as_secs_f64() <= a_second + 0.1,
                "{clusters}"
            );
        }
    }
}
