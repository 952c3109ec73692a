//! One engagement of one cluster: gathers events, lets [`Life::decide`] decide, and acts.

use std::{panic::AssertUnwindSafe, pin::pin, sync::Arc};

use futures::FutureExt;
use mcr_client::internal::{
    ConnectError,
    user_code::{ANNOUNCED, catch_panic},
};
use mcr_watch::internal::Health;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    cluster::{Attachment, Cluster},
    connection::{Connection, HAD_EXPIRED, NewConnection},
    context::FleetContext,
    description::{Claim, DesiredCluster},
    known::Known,
    life::{Action, End, Event, Life, State},
    scoped::ScopeEndpoint,
    silence::{Silence, spread},
    state::Published,
    under_way::{Outcome, Target, UnderWay},
};

mod outcomes;

/// One engagement of one cluster, or of one scope endpoint, which lives like a cluster.
pub(super) struct Engagement<'a> {
    fleet: &'a FleetContext,
    /// Set if this is the engagement of a scope endpoint.
    scope_endpoint: Option<Arc<ScopeEndpoint>>,
    changes: &'a mut watch::Receiver<Option<DesiredCluster>>,
    desired: DesiredCluster,
    cluster: Cluster,
    life: Life,
    /// Which cluster answers.
    known: Known,
    /// The connection in use, or the last one.
    connection: Option<Connection>,
}

/// An event, with the new connection if it is about one.
type Happened = (Event, Option<NewConnection>);

impl<'a> Engagement<'a> {
    /// Begins an engagement: the cluster is in the fleet from now on.
    pub(super) fn begin(
        fleet: &'a FleetContext,
        desired: DesiredCluster,
        changes: &'a mut watch::Receiver<Option<DesiredCluster>>,
        scope_endpoint: Option<Arc<ScopeEndpoint>>,
    ) -> Box<Self> {
        let name = desired.spec.name.clone();
        let epoch = fleet.registry.next_epoch();
        let attachment = scope_endpoint
            .as_ref()
            .map_or(Attachment::Own, |_| Attachment::Endpoint);
        let cluster = Cluster::new(&desired, epoch, &fleet.resources, attachment);
        let life = Life::new(fleet.settings().reconnect_cap, Instant::now());
        // Before anybody can take the cluster.
        cluster.publish(life.published());
        match &scope_endpoint {
            None => {
                fleet.log_join(&cluster, &desired.provider);
                fleet.registry.insert(&cluster);
                fleet.publish(&name);
            }
            Some(endpoint) => {
                tracing::debug!(endpoint = %name, "connecting a scope endpoint");
                endpoint.begin_connection(&cluster);
            }
        }
        // In a box: a future reserves memory for its arguments, and once more for the variables that they move to.
        Box::new(Self {
            fleet,
            scope_endpoint,
            changes,
            desired,
            cluster,
            life,
            known: Known::default(),
            connection: None,
        })
    }

    /// Runs the engagement until it has ended and its cluster is gone.
    ///
    /// `on_end` is called when draining begins. A scope endpoint replaces its clusters then.
    pub(super) async fn run(mut self: Box<Self>, on_end: impl FnOnce(End) + Send) -> End {
        let counted = self.fleet.registry.count_connection();
        let mut has_panicked = false;
        let end = loop {
            // Code of users may run at any step, even when a value is dropped. A panic in it must not end the supervision of
            // the cluster.
            if let Ok(end) = AssertUnwindSafe(self.live(has_panicked)).catch_unwind().await {
                break end;
            }
            has_panicked = true;
            tracing::error!(cluster = %self.cluster.name(), "the supervisor of the cluster panicked");
        };
        Box::pin(self.drain(end, on_end)).await;
        drop(counted);
        // This drops the last credential sources and clients of the cluster, which are code of users.
        let name = self.cluster.name().clone();
        if let Err(error) = catch_panic(ANNOUNCED, || drop(self)) {
            tracing::error!(cluster = %name, %error, "the cluster has left, but code of its provider panicked when it was dropped");
        }
        end
    }

    /// Lives until the engagement ends.
    async fn live(&mut self, has_panicked: bool) -> End {
        let stop = match &self.scope_endpoint {
            None => self.fleet.token().clone(),
            Some(endpoint) => endpoint.stop.clone(),
        };
        let mut removed = pin!(removed(self.changes.clone(), self.desired.claim));
        let suspended = self.desired.spec.suspended();
        let first = if has_panicked {
            Event::Panicked { suspended }
        } else {
            Event::Announced { suspended }
        };
        // Read before each decision: a hub that takes the place meanwhile counts a failure.
        let mut known_failures = self.failures();
        let mut under_way = self.follow(first, None);
        loop {
            if let State::Draining(end) = self.life.state {
                return end;
            }
            let idle = under_way.is_none();
            let serves = idle && self.life.state == State::Ready;
            let follows_spec = under_way
                .as_ref()
                .is_none_or(|under_way| under_way.ends_with_spec);
            let (transport, health) = (self.cluster.transport().clone(), self.cluster.health().clone());
            let timer = self.timer().filter(|_| idle);
            let happened = tokio::select! {
                biased;
                () = stop.cancelled() => Some(Ok(Event::Ended(End::Stopped))),
                // What is under way may wait for a silent server or for an exec plugin. That is of no use for a removed cluster.
                () = &mut removed => Some(Ok(Event::Ended(End::Left))),
                // A connection that has answered is put to use first. A change of the spec is then a change of that connection.
                outcome = outcome(&mut under_way), if !idle => Some(Err(outcome)),
                changed = self.changes.changed(), if follows_spec => Some(Ok(match changed {
                    // Otherwise a spec that changes all the time would hide that the cluster is silent.
                    Ok(()) if self.life.state == State::Ready && self.probe_at() <= Instant::now() => {
                        self.changes.mark_changed();
                        Event::Doubted
                    }
                    Ok(()) => self.take_change(),
                    Err(_) => Event::Ended(End::Stopped),
                })),
                () = transport.unauthorized(), if serves => Some(Ok(Event::Refused)),
                // One timer for all: each timer would take memory in the task for the whole life of the cluster. Before what may ask for a
                // probe again and again, because renewals must not wait for that.
                () = sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => self.due().map(Ok),
                () = transport.probe_wanted(), if serves => self.due().map(Ok),
                () = failed_since(&health, known_failures), if serves => Some(Ok(Event::Doubted)),
            };
            known_failures = self.failures();
            let (event, new) = match happened {
                Some(Ok(event)) => (event, None),
                Some(Err(outcome)) => self.judge(outcome),
                None => continue,
            };
            under_way = self.follow(event, new);
        }
    }

    fn failures(&self) -> u64 {
        self.cluster.health().failures.read(|failures| *failures)
    }

    /// When to act next although nothing happens.
    fn timer(&self) -> Option<Instant> {
        let ready = self.life.state == State::Ready;
        let times = [
            self.life.retry_at,
            self.refresh_at().filter(|_| ready),
            ready.then(|| self.probe_at()),
        ];
        times.into_iter().flatten().min()
    }

    /// What is due, when the timer has come. A cluster may have answered meanwhile.
    fn due(&self) -> Option<Event> {
        let now = Instant::now();
        let has_come = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if has_come(self.refresh_at().filter(|_| self.life.state == State::Ready)) {
            Some(Event::Expiring)
        } else if has_come(self.life.retry_at) {
            Some(Event::Due)
        } else {
            (self.probe_at() <= now).then_some(Event::Doubted)
        }
    }

    fn refresh_at(&self) -> Option<Instant> {
        self.connection.as_ref()?.refresh_at
    }

    /// When the cluster is probed, if nothing happens until then.
    fn probe_at(&self) -> Instant {
        let (transport, probed) = (self.cluster.transport(), self.life.last_probe);
        let received = transport.last_received_at();
        let is_direct = |connection: &Connection| connection.channel.is_direct();
        let silence = Silence {
            spread: spread(self.cluster.name()),
            answered: received.map_or(probed, |received| received.max(probed)),
            probed,
            doubts: transport.doubts(),
            is_watched: transport.has_watch() && self.connection.as_ref().is_some_and(is_direct),
        };
        silence.probe_at(self.fleet.settings().probe_after, self.fleet.probe_after())
    }

    /// Takes the newest announcement of the provider.
    fn take_change(&mut self) -> Event {
        let desired = self.changes.borrow_and_update().clone();
        let Some(desired) = desired.filter(|desired| desired.claim == self.desired.claim) else {
            return Event::Ended(End::Left);
        };
        if self.known.identity.is_none() {
            // The new description may be of another cluster.
            self.known.give_up(self.fleet, &self.cluster);
        }
        let (old, new) = (&self.desired.spec, desired.spec.clone());
        let identity_changed = matches!((&old.identity, &new.identity), (Some(old), Some(new)) if old != new);
        let info_changed = old.labels != new.labels || old.properties != new.properties;
        self.desired = desired;
        self.cluster.change_info(|info| info.spec.clone_from(&new));
        // A cluster that moves into a scope has no connection of its own any more.
        if identity_changed || (self.scope_endpoint.is_none() && new.scoped().is_some()) {
            return Event::Ended(End::Replaced);
        }
        if info_changed {
            self.notify();
        }
        Event::Announced {
            suspended: new.suspended(),
        }
    }
}

/// Following a decision.
impl<'a> Engagement<'a> {
    /// Decides about an event and acts. Returns what is under way then.
    fn follow(&mut self, event: Event, new: Option<NewConnection>) -> Option<UnderWay<'a>> {
        let event = match event {
            Event::Ended(end) => Event::Ended(end),
            // The hub has taken the place of this cluster, which is another name of it.
            _ if self.cluster.transport().is_closed() => Event::Ended(End::Replaced),
            // Without a connection there is nothing to probe or to renew.
            Event::Doubted | Event::Refused | Event::Expiring if self.connection.is_none() => {
                Event::FellSilent(ConnectError::new("the connection was closed"))
            }
            event => event,
        };
        let actions = self.life.decide(event, Instant::now());
        if let State::Draining(_) = self.life.state {
            return None;
        }
        if let (Some(Action::Adopt), Some(new)) = (actions.first(), new) {
            self.adopt(new);
        }
        self.publish();
        let mut under_way = None;
        for action in actions {
            match action {
                Action::Adopt => {}
                Action::ShowSpec => self.show_spec(),
                Action::Disconnect => self.connection = None,
                Action::Release => self.known.release(self.fleet, &self.cluster),
                Action::Warn(warning) => self.warn(&warning),
                action => under_way = self.start(action),
            }
        }
        under_way
    }

    fn start(&self, action: Action) -> Option<UnderWay<'a>> {
        let (fleet, spec) = (self.fleet, self.desired.spec.clone());
        let channel = self
            .connection
            .as_ref()
            .map(|connection| connection.channel.clone());
        let transport = self.cluster.transport().clone();
        let compares = self.known.uid().is_some();
        Some(match action {
            Action::Connect(why) => UnderWay::connect(self.target(), why),
            Action::TryPrevious(why) => {
                let previous = self
                    .connection
                    .as_ref()
                    .map(|connection| (connection, self.known.uid()));
                UnderWay::try_previous(fleet, spec, previous, why)
            }
            Action::AwaitTurn => {
                let uid = self.known.claimed.clone()?;
                UnderWay::await_turn(fleet, uid, self.cluster.name().clone())
            }
            Action::Probe(not_before) => UnderWay::probe(fleet, transport, channel?, compares, not_before),
            Action::ProbeCredential => UnderWay::probe_credential(fleet, channel?),
            Action::Renew(why) => UnderWay::renew(fleet, transport, self.connection.as_ref()?, why, compares),
            Action::Resolve => UnderWay::resolve(fleet, transport, channel?, spec),
            Action::TryCredentials => UnderWay::try_credentials(self.target(), transport, channel?),
            _ => return None,
        })
    }

    fn target(&self) -> Target<'a> {
        let endpoint = self.scope_endpoint.as_ref();
        let prefix = endpoint.map(|endpoint| endpoint.scope.watch_prefix());
        // What a scope endpoint with a declared identity shows as `kube-system` may belong to any of its places.
        let alone = endpoint.is_some() || self.fleet.settings().declared_identity_suffices;
        Target {
            fleet: self.fleet,
            spec: self.desired.spec.clone(),
            prefix: prefix.unwrap_or_default().to_owned(),
            by_uid: !alone || self.desired.spec.identity.is_none(),
        }
    }

    /// Publishes the state. Logs the change and notifies subscribers.
    fn publish(&self) {
        // A cluster keeps the default namespace of the spec by which it is connected.
        if self.life.state != State::Ready
            && let Some(namespace) = &self.desired.spec.default_namespace
            && self.cluster.set_default_namespace(namespace)
        {
            self.notify();
        }
        let published = self.life.published();
        let state = published.state.clone();
        let Some(before) = self.cluster.publish(published) else {
            return;
        };
        self.fleet.log_state(&self.cluster, &before, &state);
        self.notify();
    }

    /// Notifies subscribers of the fleet, or the clusters of the scope endpoint, of a change.
    fn notify(&self) {
        match &self.scope_endpoint {
            None => self.fleet.publish(self.cluster.name()),
            Some(endpoint) => endpoint.update_clusters(),
        }
    }

    /// Shows a problem as a warning. The cluster continues with the spec and the credential in use.
    fn warn(&self, warning: &str) {
        let warning: Arc<str> = warning.into();
        let known = self.cluster.info().warning.as_ref() == Some(&warning);
        if !known {
            tracing::warn!(cluster = %self.cluster.name(), %warning, "the cluster continues as before");
            self.cluster
                .change_info(|info| info.warning = Some(warning.clone()));
            self.notify();
        }
    }

    /// Shows a spec that differs in nothing else from the one in use. A provider may begin or cease to declare an identity.
    fn show_spec(&mut self) {
        self.cluster.change_info(|info| info.warning = None);
        let spec = self.desired.spec.clone();
        if let Some(known) = &mut self.known.identity
            && known.declared != spec.identity
        {
            known.declared.clone_from(&spec.identity);
            let shown = known.shown();
            self.cluster.change_info(|info| info.identity.clone_from(&shown));
        }
        if let Some(namespace) = &spec.default_namespace
            && self.cluster.set_default_namespace(namespace)
        {
            self.notify();
        }
    }

    /// Uses a new connection.
    fn adopt(&mut self, new: NewConnection) {
        let (connection, mut identity) = (new.connection, new.identity);
        if let Some(known) = self.known.identity.take() {
            // A UID that can't be read now is the known one.
            identity.uid = identity.uid.or(known.uid);
        }
        let shown = identity.shown();
        self.known.identity = Some(identity);
        if self.cluster.set_default_namespace(&new.namespace) {
            self.notify();
        }
        self.cluster.change_info(|info| {
            info.identity.clone_from(&shown);
            info.same_as = None;
            info.credential_expires = new.expires;
            info.warning = new.had_expired.then(|| HAD_EXPIRED.into());
        });
        self.cluster.transport().swap(connection.channel.clone());
        tracing::debug!(cluster = %self.cluster.name(), "connection in use");
        self.connection = Some(connection);
    }

    /// Ends the engagement: the cluster accepts no new work, running work gets its grace period, then nothing of the
    /// cluster is left.
    async fn drain(&self, end: End, on_end: impl FnOnce(End)) {
        let (fleet, cluster) = (self.fleet, &self.cluster);
        match &self.scope_endpoint {
            None => {
                fleet.begin_drain(cluster, end);
                on_end(end);
                fleet.wait_for_tasks(cluster).await;
                fleet.end_drain(cluster);
                // Not earlier: work of this name may have been running until now.
                if let Some(uid) = &self.known.claimed {
                    fleet.resources.identities.release(uid, cluster.name());
                }
            }
            Some(endpoint) => {
                tracing::debug!(endpoint = %cluster.name(), reason = ?end, "disconnecting a scope endpoint");
                cluster.publish(Published::draining(end == End::Replaced));
                cluster.close();
                endpoint.end_connection();
                on_end(end);
                fleet.wait_for_tasks(cluster).await;
                cluster.publish(Published::gone());
            }
        }
    }
}

/// Waits for what is under way.
async fn outcome(under_way: &mut Option<UnderWay<'_>>) -> Outcome {
    match under_way {
        Some(under_way) => under_way.outcome.as_mut().await,
        None => std::future::pending().await,
    }
}

/// Waits until the provider has removed the cluster. It may have announced the cluster again since.
async fn removed(mut desired: watch::Receiver<Option<DesiredCluster>>, claim: Claim) {
    let other =
        |desired: &Option<DesiredCluster>| desired.as_ref().is_none_or(|desired| desired.claim != claim);
    if desired.wait_for(other).await.is_err() {
        // The sender is gone because the fleet ends. The engagement learns that from its stop token.
        std::future::pending::<()>().await;
    }
}

/// Waits until a watch has failed since the known number of failures.
fn failed_since(health: &Health, known: u64) -> impl Future<Output = ()> {
    health
        .failures
        .wait(move |failures| (*failures != known).then_some(()))
}

#[cfg(test)]
mod tests;
