//! Connecting a cluster, for the first time or again.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use mcr_client::internal::{
    ConnectError,
    probe::{self, ProbeConnection},
};
use mcr_watch::internal::{Permit, Phase};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    connection::{HAD_EXPIRED, NewConnection, dial, resolve, resolved_spec},
    context::FleetContext,
    description::Description,
    drain::End,
    engagement::Engagement,
    identities::Claim,
    identity::is_uid,
    spec_change::{SpecChange, classify},
    state::ClusterState,
};
use crate::{Access, ClusterName, Refresh, Trust};

impl Engagement<'_> {
    /// Tries to connect once. After a failure, waits until the next attempt is due.
    pub(super) async fn connect(&mut self) -> Option<End> {
        let waits = self.identity.is_none() && self.claimed.is_some();
        let state = self.cluster.state();
        if matches!(state, ClusterState::Discovered | ClusterState::Suspended { .. }) && !waits {
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
        let by_uid = self.goes_by_uid();
        let attempt = async {
            let mut new = identify(self.fleet, dialled?).await?;
            new.identity.uid = new.identity.uid.filter(|uid| by_uid && is_uid(uid));
            Ok::<_, ConnectError>(new)
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
            Ok(new) if self.is_another(&new) || self.is_displaced() => Some(End::Replaced),
            Ok(new) => match self.claim(&new) {
                Some((uid, engaged)) => self.wait_beside(&uid, &engaged).await,
                None => {
                    self.connected(new);
                    None
                }
            },
            Err(why) => {
                if waits && let Some(uid) = &self.claimed {
                    // Others don't wait behind a cluster that can't be reached. It is still known as the one with this UID.
                    self.fleet.resources.identities.release(uid, self.cluster.name());
                }
                if self.works_as_before(&spec, &why).await {
                    return None;
                }
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

    /// Goes on with the connection that was in use, if none comes about by the newest spec because that can't be resolved or
    /// has another credential, and the same cluster answers there.
    async fn works_as_before(&mut self, spec: &Arc<Description>, why: &ConnectError) -> bool {
        // The hub has its place by now, and its clients are closed.
        if self.is_displaced() {
            return false;
        }
        let Some(connection) = self.connection.take() else {
            return false;
        };
        let new = resolve(&self.fleet.resources, spec).await;
        let new = new.and_then(|resolved| resolved_spec(spec, &resolved));
        let is_to_be_tried = match &new {
            Ok(new) => matches!(classify(&connection.spec, new), SpecChange::Credentials),
            Err(_) => true,
        };
        let limit = self.fleet.settings().probe_timeout;
        let known = self.identity.clone();
        let answers = is_to_be_tried && {
            let answer = probe::identify(&connection.channel, ProbeConnection::Close, limit).await;
            answer.is_ok_and(|uid| {
                known
                    .as_ref()
                    .is_some_and(|known| known.uid.is_none() || known.uid == uid)
            })
        };
        let (true, Some(identity)) = (answers, known) else {
            self.connection = Some(connection);
            return false;
        };
        let info = self.cluster.info();
        self.connected(NewConnection {
            connection,
            identity,
            expires: info.credential_expires,
            had_expired: false,
            namespace: info.default_namespace.clone(),
        });
        self.keep_last_good(&why.reason);
        self.retry_spec_at = Some(self.later());
        true
    }

    /// Whether the UID of `kube-system` says which cluster answers. What a scope endpoint with a declared identity shows under that
    /// name may belong to any of its places.
    pub(super) fn goes_by_uid(&self) -> bool {
        let alone = self.scope_endpoint.is_some() || self.fleet.settings().declared_identity_suffices;
        !alone || self.desired.spec.identity.is_none()
    }

    /// Whether another cluster than the known one answers by a new connection.
    pub(super) fn is_another(&self, new: &NewConnection) -> bool {
        let another = self
            .identity
            .as_ref()
            .filter(|known| !known.is_same(&new.identity));
        if let Some(known) = another {
            let (was, is) = (known.uid.as_deref(), new.identity.uid.as_deref());
            tracing::warn!(cluster = %self.cluster.name(), was, is, "another cluster answers under this name, or its UID may not be read any more");
        }
        another.is_some()
    }

    /// Claims the UID of a cluster that has answered. Returns it with the cluster beside which this one is not engaged.
    pub(super) fn claim(&mut self, new: &NewConnection) -> Option<(Arc<str>, ClusterName)> {
        // One that waits is known by its UID, also if that may not be read any more.
        let known = self.claimed.clone().filter(|_| self.identity.is_none());
        // The clusters behind a scope endpoint are parts of one server, and other clusters than that server.
        let uid = new
            .identity
            .uid
            .clone()
            .or(known)
            .filter(|_| self.scope_endpoint.is_none())?;
        if self.claimed.as_ref() != Some(&uid) {
            self.release();
        }
        self.claimed = Some(uid.clone());
        let is_trusted = match &self.desired.spec.access {
            Ok(Access::Endpoint(access)) => access.trust == Trust::Trusted,
            Ok(_) => true,
            Err(_) => false,
        };
        let identities = &self.fleet.resources.identities;
        match identities.claim(&uid, self.cluster.name(), is_trusted) {
            Claim::Engage => None,
            Claim::Wait(engaged) => Some((uid, engaged)),
            Claim::Displace(displaced) => {
                if let Some(displaced) = self.fleet.registry.get(&displaced) {
                    // Before the hub is Ready. Its supervisor notices that it has to end.
                    displaced.close_transport();
                    displaced.health().failed();
                }
                None
            }
        }
    }

    /// Gives up the claim of a UID.
    pub(super) fn release(&mut self) {
        if let Some(uid) = self.claimed.take() {
            self.fleet.resources.identities.release(&uid, self.cluster.name());
            self.cluster.change_info(|info| info.same_as = None);
        }
    }

    /// Whether the hub has taken the place of this cluster, which is another name of it.
    pub(super) fn is_displaced(&self) -> bool {
        let identities = &self.fleet.resources.identities;
        let claimed = self.claimed.as_ref().filter(|_| self.identity.is_some());
        claimed.is_some_and(|uid| !identities.is_engaged(uid, self.cluster.name()))
    }

    /// Waits, as Suspended, until the cluster may be engaged. Ends at times, because another one may answer by now.
    async fn wait_beside(&mut self, uid: &Arc<str>, engaged: &ClusterName) -> Option<End> {
        if self.identity.is_some() {
            // It was engaged, before it could be known that it is the same one.
            return Some(End::Replaced);
        }
        let name = self.cluster.name().clone();
        let reason: Arc<str> = format!(
            "it is the same cluster as {engaged} (both have the kube-system UID {uid}), so it is not engaged beside it. It joins \
             when {engaged} leaves; remove one of the two, or let the fleet allow duplicates"
        )
        .into();
        self.cluster.block(Some(reason.clone()));
        self.cluster
            .change_info(|info| info.same_as = Some(engaged.clone()));
        if self.cluster.set_state(ClusterState::Suspended { reason }) {
            tracing::warn!(cluster = %name, same_as = %engaged, %uid, "the cluster is another name of one in the fleet, and is not engaged beside it");
            self.notify();
        }
        let changed = tokio::select! {
            () = self.fleet.resources.identities.engaged(uid, &name) => false,
            () = sleep(self.fleet.probe_after()) => false,
            _ = self.changes.changed() => true,
        };
        if changed { self.take_change() } else { None }
    }

    /// Puts the connection of a cluster that has answered to use.
    fn connected(&mut self, new: NewConnection) {
        let target = &new.connection.spec.target;
        if self.last_target.as_ref() != Some(target) {
            self.last_target = Some(target.clone());
            self.endpoint_number += 1;
        }
        self.adopt(new);
        self.backoff.reset();
        self.refused = false;
        self.retry_spec_at = None;
        self.cluster.set_phase(Phase::Up {
            endpoint: self.endpoint_number,
        });
        self.set_state(ClusterState::Ready);
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
            info.same_as = None;
            info.credential_expires = new.expires;
            info.warning = new.had_expired.then(|| HAD_EXPIRED.into());
        });
        let generation = self.cluster.transport().swap(connection.channel.clone());
        tracing::debug!(cluster = %self.cluster.name(), generation, "connection in use");
        self.cluster.transport().block(None);
        self.connection = Some(connection);
    }
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
    Ok(new)
}

/// How long a silent cluster keeps its permit. Hundreds of silent clusters may be before a healthy one in the queue for
/// permits: with a second for each of them, it would wait for minutes.
const PERMIT_WHILE_SILENT: Duration = Duration::from_millis(250);

/// How long a cluster may take to answer the request for its UID, once there is a connection.
const TIME_TO_IDENTIFY: Duration = Duration::from_secs(2);
