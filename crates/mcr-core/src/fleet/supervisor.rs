//! One task per cluster name: it connects the cluster, keeps it connected, and takes it down.

use std::{
    collections::HashMap,
    sync::{Arc, MutexGuard, PoisonError, atomic::Ordering},
    time::{Duration, SystemTime},
};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use super::{
    ClusterState, FleetShared,
    probe::{self, ProbeError},
    state::{KnownIdentity, Shape, SpecChange, Target, classify, suspended},
};
use crate::{
    Access, Cluster, ClusterName, ClusterSpec, Credential, CredentialSource, Fingerprint, Refresh,
    access::{Resolved, resolve},
    backoff::Backoff,
    cluster::Facts,
    slots::Slot as WorkSlot,
    transport::{Stack, Transport, explain},
    watch::{Phase, Seen},
};

/// What a provider wants a cluster to be. A new `claim` number means that it was taken back in between, so
/// that the cluster must end even if the same name comes again at once.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    provider: Arc<str>,
    spec: Arc<ClusterSpec>,
    claim: u64,
}

/// Where a supervisor is told what to do.
#[derive(Debug)]
pub(crate) struct Slot {
    wanted: watch::Sender<Option<Wanted>>,
    claim: u64,
}

type Slots = HashMap<ClusterName, Slot>;

fn slots(fleet: &FleetShared) -> MutexGuard<'_, Slots> {
    fleet.slots.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The cluster should be there and look like this.
pub(crate) fn set(fleet: &Arc<FleetShared>, provider: Arc<str>, spec: Arc<ClusterSpec>) {
    if fleet.token().is_cancelled() {
        return;
    }
    let mut slots = slots(fleet);
    let name = spec.name.clone();
    if let Some(slot) = slots.get(&name) {
        slot.wanted.send_replace(Some(Wanted {
            provider,
            spec,
            claim: slot.claim,
        }));
        return;
    }
    let (wanted, changes) = watch::channel(Some(Wanted {
        provider,
        spec,
        claim: 0,
    }));
    slots.insert(name.clone(), Slot { wanted, claim: 0 });
    fleet.tasks.spawn(supervise(fleet.clone(), name, changes));
}

/// The cluster should not be there.
pub(crate) fn unset(fleet: &FleetShared, name: &ClusterName) {
    if let Some(slot) = slots(fleet).get_mut(name) {
        slot.claim += 1;
        slot.wanted.send_replace(None);
    }
}

async fn supervise(fleet: Arc<FleetShared>, name: ClusterName, mut changes: watch::Receiver<Option<Wanted>>) {
    loop {
        let wanted = changes.borrow_and_update().clone();
        let Some(wanted) = wanted else {
            let mut slots = slots(&fleet);
            if changes.borrow().is_none() {
                slots.remove(&name);
                return;
            }
            continue;
        };
        let end = Life::begin(&fleet, wanted, &mut changes).run().await;
        if end == End::Stopped {
            return;
        }
    }
}

/// Why an engagement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The cluster left, or came back as a new claim.
    Left,
    /// Another cluster stands where it stood.
    Replaced,
    /// The fleet stops.
    Stopped,
}

/// One engagement of one cluster.
struct Life<'a> {
    fleet: &'a Arc<FleetShared>,
    changes: &'a mut watch::Receiver<Option<Wanted>>,
    wanted: Wanted,
    cluster: Cluster,
    identity: Option<KnownIdentity>,
    link: Option<Link>,
    /// Numbers the places the cluster was found at; see [`Phase::Up`].
    endpoint: u64,
    backoff: Backoff,
    /// A description that could not take the place of the one in use, to be tried again.
    pending: Option<Instant>,
    refused: bool,
    last_probe: Instant,
    /// The place that watches were let begin at before it was known who answers there.
    tried: Option<Target>,
    /// When to find out who the cluster is, if that has been put off.
    identify_at: Option<Instant>,
}

/// What the cluster is connected by.
struct Link {
    shape: Shape,
    stack: Stack,
    credentials: Option<Arc<dyn CredentialSource>>,
    credential: Fingerprint,
    refresh_at: Option<Instant>,
    refresh_backoff: Backoff,
}

/// A connection that has been made and answered.
struct Connected {
    link: Link,
    identity: KnownIdentity,
    expires: Option<SystemTime>,
    namespace: Arc<str>,
    /// Requests go through it already.
    in_use: bool,
    /// It has been asked who it is.
    asked: bool,
}

/// Why a connection could not be made.
struct NotConnected {
    reason: Arc<str>,
    unauthorized: bool,
}

impl NotConnected {
    fn new(reason: impl Into<Arc<str>>) -> Self {
        Self {
            reason: reason.into(),
            unauthorized: false,
        }
    }
}

impl From<ProbeError> for NotConnected {
    fn from(error: ProbeError) -> Self {
        Self {
            reason: error.reason(),
            unauthorized: error == ProbeError::Unauthorized,
        }
    }
}

impl<'a> Life<'a> {
    fn begin(
        fleet: &'a Arc<FleetShared>,
        wanted: Wanted,
        changes: &'a mut watch::Receiver<Option<Wanted>>,
    ) -> Self {
        let name = wanted.spec.name.clone();
        let epoch = fleet.next_epoch.fetch_add(1, Ordering::Relaxed);
        let facts = Facts {
            labels: wanted.spec.labels.clone(),
            properties: wanted.spec.properties.clone(),
            identity: wanted.spec.identity.clone(),
            ..Facts::default()
        };
        let transport = Transport::new(name.clone());
        let cluster = Cluster::new(
            name.clone(),
            wanted.provider.clone(),
            epoch,
            facts,
            transport,
            fleet,
        );
        tracing::info!(cluster = %name, provider = %wanted.provider, epoch, "cluster joins the fleet");
        fleet.registry.insert(name.clone(), cluster.clone());
        fleet.publish(&name);
        Self {
            fleet,
            changes,
            wanted,
            cluster,
            identity: None,
            link: None,
            endpoint: 0,
            backoff: Backoff::new(Duration::from_millis(500), fleet.settings().reconnect_cap),
            pending: None,
            refused: false,
            last_probe: Instant::now(),
            tried: None,
            identify_at: None,
        }
    }

    async fn run(mut self) -> End {
        let end = self.live().await;
        self.drain(end).await;
        end
    }

    async fn live(&mut self) -> End {
        let stop = self.fleet.token().clone();
        let mut taken_back = std::pin::pin!(taken_back(self.changes.clone(), self.wanted.claim));
        loop {
            let step = async {
                if suspended(&self.wanted.spec).is_some() {
                    self.suspend();
                    self.change().await
                } else if self.cluster.state().is_ready() {
                    self.serve().await
                } else {
                    self.connect().await
                }
            };
            let end = tokio::select! {
                end = step => end,
                () = stop.cancelled() => Some(End::Stopped),
                // Whatever is being waited for, a probe of a silent server or an exec plugin, is in vain now.
                () = &mut taken_back => Some(End::Left),
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    fn set_state(&self, state: ClusterState) {
        let before = self.cluster.state();
        if !self.cluster.set_state(state.clone()) {
            return;
        }
        let name = self.cluster.name();
        if before.same_kind(&state) {
            tracing::debug!(cluster = %name, %state, "still so, for another reason");
        } else {
            match &state {
                ClusterState::Unreachable { reason } => {
                    tracing::warn!(cluster = %name, from = before.as_str(), %reason, "cluster is unreachable");
                }
                _ => tracing::info!(cluster = %name, from = before.as_str(), %state, "cluster state"),
            }
        }
        self.fleet.publish(name);
    }

    fn suspend(&mut self) {
        let Some(reason) = suspended(&self.wanted.spec) else {
            return;
        };
        self.cluster.set_phase(Phase::Down);
        self.cluster
            .transport()
            .block(Some(format!("the cluster is suspended: {reason}").into()));
        self.link = None;
        self.set_state(ClusterState::Suspended { reason });
    }

    fn unreachable(&mut self, why: NotConnected) {
        self.refused = why.unauthorized;
        self.cluster.set_phase(Phase::Down);
        self.cluster.transport().block(Some(why.reason.clone()));
        self.set_state(ClusterState::Unreachable { reason: why.reason });
    }

    /// Waits for what the provider says next.
    async fn change(&mut self) -> Option<End> {
        if self.changes.changed().await.is_err() {
            return Some(End::Stopped);
        }
        self.take_change()
    }

    /// Takes what the provider says now. What it means for the connection is decided by the caller.
    fn take_change(&mut self) -> Option<End> {
        let wanted = self.changes.borrow_and_update().clone();
        let Some(wanted) = wanted.filter(|wanted| wanted.claim == self.wanted.claim) else {
            return Some(End::Left);
        };
        let identity_changed = matches!(
            (&self.wanted.spec.identity, &wanted.spec.identity),
            (Some(old), Some(new)) if old != new
        );
        let facts_changed = self.wanted.spec.labels != wanted.spec.labels
            || self.wanted.spec.properties != wanted.spec.properties;
        self.wanted = wanted;
        if identity_changed {
            return Some(End::Replaced);
        }
        if facts_changed {
            let spec = self.wanted.spec.clone();
            self.cluster.change_facts(|facts| {
                facts.labels.clone_from(&spec.labels);
                facts.properties.clone_from(&spec.properties);
            });
            self.fleet.publish(self.cluster.name());
        }
        None
    }

    /// Tries to connect, or waits until it is time to try again.
    async fn connect(&mut self) -> Option<End> {
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
        let spec = self.wanted.spec.clone();
        let dialled = tokio::select! {
            dialled = dial(self.fleet, &spec, why) => dialled,
            _ = self.changes.changed() => return self.take_change(),
        };
        if let (Some(tried), Ok(connected)) = (&self.tried, &dialled) {
            // The watches may hold objects of the place that was tried, and nobody knows whose they are.
            if self.identity.is_none() && *tried != connected.link.shape.target {
                return Some(End::Replaced);
            }
        }
        let cluster = self.cluster.clone();
        // Only the first time: each watch of a dead cluster would else dial it at each attempt.
        let first = (self.identity.is_none() && self.tried.is_none()).then_some(self.endpoint + 1);
        if let (Some(_), Ok(connected)) = (first, &dialled) {
            self.tried = Some(connected.link.shape.target.clone());
        }
        let attempt = async {
            let mut connected = dialled?;
            if let Some(endpoint) = first {
                connected.in_use = true;
                if begin_with_the_watches(&cluster, &connected, endpoint).await {
                    return Ok(connected);
                }
            }
            identify(self.fleet, connected).await
        };
        let result = tokio::select! {
            result = attempt => result,
            _ = self.changes.changed() => return self.take_change(),
        };
        self.last_probe = Instant::now();
        self.cluster
            .change_facts(|facts| facts.last_probe = Some(SystemTime::now()));
        match result {
            Ok(connected) => self.connected(connected),
            Err(why) => {
                let pause = self.backoff.next();
                tracing::debug!(cluster = %self.cluster.name(), reason = %why.reason, retry_in = ?pause, "not connected");
                self.unreachable(why);
                let retry = Instant::now() + pause;
                tokio::select! {
                    () = sleep_until(retry) => None,
                    // A new description may be the cure: try it at once.
                    _ = self.changes.changed() => self.take_change(),
                }
            }
        }
    }

    fn connected(&mut self, connected: Connected) -> Option<End> {
        if let Some(known) = self
            .identity
            .as_ref()
            .filter(|known| !known.is_same(&connected.identity))
        {
            tracing::warn!(
                cluster = %self.cluster.name(),
                was = known.shown().as_deref(), is = connected.identity.shown().as_deref(),
                "another cluster answers under this name"
            );
            return Some(End::Replaced);
        }
        let moved = self
            .link
            .as_ref()
            .is_none_or(|link| link.shape.target != connected.link.shape.target);
        if moved {
            self.endpoint += 1;
        }
        let later = !connected.asked && connected.identity.declared.is_none();
        // Soon, since until then another address can't be told from another cluster; but thousands of
        // clusters that joined together must not all be asked in the same second.
        let spread = Duration::from_millis(5) * self.fleet.registry.len().min(10_000) as u32;
        self.identify_at = later.then(|| Instant::now() + spread + self.backoff.spread(spread));
        self.adopt(connected);
        self.backoff.reset();
        self.refused = false;
        self.pending = None;
        self.cluster.set_phase(Phase::Up {
            endpoint: self.endpoint,
        });
        self.set_state(ClusterState::Ready);
        None
    }

    /// Puts a connection to use in place of the one before.
    fn adopt(&mut self, connected: Connected) {
        let Connected {
            link,
            identity,
            expires,
            namespace,
            in_use,
            asked: _,
        } = connected;
        let identity = match self.identity.take() {
            // What can't be read right now has not changed.
            Some(known) => KnownIdentity {
                declared: identity.declared.or(known.declared),
                uid: identity.uid.or(known.uid),
                place: identity.place,
            },
            None => identity,
        };
        let shown = identity.shown();
        self.identity = Some(identity);
        self.cluster.set_default_namespace(namespace);
        self.cluster.change_facts(|facts| {
            facts.identity.clone_from(&shown);
            facts.credential_expires = expires;
            facts.warning = None;
        });
        if !in_use {
            let generation = self.cluster.transport().swap(link.stack.clone());
            tracing::debug!(cluster = %self.cluster.name(), generation, "connection in use");
        }
        self.cluster.transport().block(None);
        self.link = Some(link);
    }

    /// Looks after a cluster that answers, until something happens.
    async fn serve(&mut self) -> Option<End> {
        let Some(link) = &self.link else {
            self.unreachable(NotConnected::new("the connection was given up"));
            return None;
        };
        let settings = self.fleet.settings();
        let transport = self.cluster.transport().clone();
        let mut failures = self.cluster.health().subscribe();
        let known_failures = failures.borrow_and_update().failures;
        let refresh_at = link.refresh_at;
        let (pending, identify_at) = (self.pending, self.identify_at);
        let heard = transport
            .last_heard_at()
            .unwrap_or(self.last_probe)
            .max(self.last_probe);
        let probe_at = heard + settings.probe_after;
        tokio::select! {
            changed = self.changes.changed() => {
                if changed.is_err() {
                    return Some(End::Stopped);
                }
                if let Some(end) = self.take_change() {
                    return Some(end);
                }
                self.follow_spec().await
            }
            () = at(refresh_at) => { self.renew(Refresh::Expiring).await; None }
            _ = transport.unauthorized() => { self.renew(Refresh::Unauthorized).await; None }
            () = at(pending) => self.follow_spec().await,
            () = at(identify_at) => { self.identify_now().await; None }
            () = sleep_until(probe_at) => {
                let heard = transport.last_heard_at().unwrap_or(self.last_probe).max(self.last_probe);
                if heard.elapsed() >= settings.probe_after { self.check().await }
                None
            }
            () = failed_since(&mut failures, known_failures) => { self.check().await; None }
        }
    }

    /// Finds out who the cluster is, where that was put off.
    async fn identify_now(&mut self) {
        if self.identify_at.take().is_none() {
            return;
        }
        let Some(link) = &self.link else { return };
        let answer = probe::identify(&link.stack, self.fleet.settings().probe_timeout).await;
        self.last_probe = Instant::now();
        match (answer, &mut self.identity) {
            (Ok(uid), Some(identity)) => {
                identity.uid = uid;
                let shown = identity.shown();
                self.cluster
                    .change_facts(|facts| facts.identity.clone_from(&shown));
            }
            (Ok(_), None) => {}
            (Err(error), _) => self.unreachable(error.into()),
        }
    }

    /// Asks the cluster whether it still answers.
    async fn check(&mut self) {
        const AT_MOST_EVERY: Duration = Duration::from_millis(500);
        let next = self.last_probe + AT_MOST_EVERY;
        sleep_until(next).await;
        let Some(link) = &self.link else { return };
        let answer = probe::alive(&link.stack, self.fleet.settings().probe_timeout).await;
        self.last_probe = Instant::now();
        self.cluster
            .change_facts(|facts| facts.last_probe = Some(SystemTime::now()));
        match answer {
            Ok(()) => {}
            Err(ProbeError::Unauthorized) => self.renew(Refresh::Unauthorized).await,
            Err(error) => self.unreachable(error.into()),
        }
    }

    /// Makes the connection what the description now asks for.
    async fn follow_spec(&mut self) -> Option<End> {
        self.pending = None;
        let spec = self.wanted.spec.clone();
        if suspended(&spec).is_some() {
            return None;
        }
        let shape = match resolved(self.fleet, &spec).await {
            Ok(resolved) => shape(&spec, &resolved),
            Err(error) => {
                self.keep_last_good(&error);
                return None;
            }
        };
        // Resolving may have read files; what happened meanwhile is looked at before anything is done.
        let Some(link) = &self.link else { return None };
        match classify(&link.shape, &shape) {
            SpecChange::Facts => {
                self.cluster.change_facts(|facts| facts.warning = None);
                None
            }
            SpecChange::Identity => Some(End::Replaced),
            SpecChange::Credentials => self.swap_credentials(&spec).await,
            SpecChange::Endpoint => {
                tracing::info!(cluster = %self.cluster.name(), "the cluster has another address; connecting to it");
                self.identify_now().await;
                // Nothing may act on what could be another cluster before it is known which one it is.
                self.cluster.set_phase(Phase::Down);
                self.cluster
                    .transport()
                    .block(Some("the cluster is being connected at its new address".into()));
                self.set_state(ClusterState::Connecting);
                None
            }
        }
    }

    /// Tries new credentials and, if they are taken, uses them from now on.
    async fn swap_credentials(&mut self, spec: &Arc<ClusterSpec>) -> Option<End> {
        let attempt = async {
            let connected = dial(self.fleet, spec, Refresh::First).await?;
            let limit = self.fleet.settings().probe_timeout;
            probe::try_credential(&connected.link.stack, limit).await?;
            Ok::<_, NotConnected>(connected)
        };
        let result = tokio::select! {
            result = attempt => result,
            _ = self.changes.changed() => {
                self.pending = Some(Instant::now());
                return self.take_change();
            }
        };
        match result {
            Ok(connected) => {
                tracing::info!(cluster = %self.cluster.name(), "credentials swapped");
                self.adopt(connected);
            }
            Err(error) => {
                self.keep_last_good(&format!("its new credentials are not taken: {}", error.reason));
                self.pending = Some(Instant::now() + self.backoff.next().max(Duration::from_secs(1)));
            }
        }
        None
    }

    fn keep_last_good(&self, problem: &str) {
        let warning: Arc<str> = format!("{problem}; the last good one goes on").into();
        let told = self.cluster.facts().warning.as_ref() == Some(&warning);
        if !told {
            tracing::warn!(cluster = %self.cluster.name(), %warning, "the cluster goes on as it was");
            self.cluster
                .change_facts(|facts| facts.warning = Some(warning.clone()));
            self.fleet.publish(self.cluster.name());
        }
    }

    /// Gets a fresh credential from the source in use.
    async fn renew(&mut self, why: Refresh) {
        let transport = self.cluster.transport().clone();
        let spec = self.wanted.spec.clone();
        let Some(link) = &mut self.link else { return };
        let Some(source) = link.credentials.clone() else {
            transport.refresh_done();
            return self.check_refused(why).await;
        };
        let limit = self.fleet.settings().credential_timeout;
        let fresh = timeout(limit, source.credential(why)).await;
        let problem = match fresh {
            Ok(Ok(fresh)) if fresh.fingerprint() == link.credential => {
                link.refresh_at = refresh_time(&fresh, source.renew_every(), &mut link.refresh_backoff, true);
                transport.refresh_done();
                return self.check_refused(why).await;
            }
            Ok(Ok(_)) => {
                // The source keeps what it handed out, so dialling anew asks it without another round.
                match dial(self.fleet, &spec, Refresh::First).await {
                    Ok(connected) => match probe::try_credential(
                        &connected.link.stack,
                        self.fleet.settings().probe_timeout,
                    )
                    .await
                    {
                        Ok(()) => {
                            tracing::debug!(cluster = %self.cluster.name(), ?why, "credential renewed");
                            self.adopt(connected);
                            self.cluster.transport().refresh_done();
                            return;
                        }
                        Err(error) => error.reason(),
                    },
                    Err(error) => error.reason,
                }
            }
            Ok(Err(error)) => explain(&error).into(),
            Err(_) => format!("no credential within {} s", limit.as_secs()).into(),
        };
        if let Some(link) = &mut self.link {
            link.refresh_at = Some(Instant::now() + link.refresh_backoff.next());
        }
        transport.refresh_done();
        self.keep_last_good(&format!("its credential can't be renewed: {problem}"));
        self.check_refused(why).await;
    }

    /// A credential was refused and there is no other: the cluster can't be used until there is.
    async fn check_refused(&mut self, why: Refresh) {
        if why != Refresh::Unauthorized {
            return;
        }
        let Some(link) = &self.link else { return };
        let answer = probe::alive(&link.stack, self.fleet.settings().probe_timeout).await;
        self.last_probe = Instant::now();
        if let Err(error) = answer {
            self.unreachable(error.into());
        }
    }

    /// Ends the engagement: no new work, running work gets its grace, then nothing is left.
    async fn drain(self, end: End) {
        let (fleet, cluster) = (self.fleet, &self.cluster);
        let (name, epoch) = (cluster.name().clone(), cluster.epoch());
        cluster.set_phase(Phase::Down);
        cluster.set_state(ClusterState::Draining);
        fleet.draining.insert((name.clone(), epoch), cluster.clone());
        fleet
            .registry
            .remove_if(&name, |_, engaged| engaged.is_same(cluster));
        tracing::info!(cluster = %name, epoch, reason = ?end, "cluster leaves the fleet");
        fleet.publish(&name);
        if end == End::Replaced {
            // The place may be another cluster's already: not one more request may go there.
            cluster.transport().close();
        }
        cluster.close();
        // Whoever runs work for the cluster aborts it after the grace; a little more is given before that is
        // called a fault.
        let limit = fleet.settings().drain_grace + Duration::from_secs(5);
        if timeout(limit, cluster.tasks().wait()).await.is_err() {
            tracing::error!(cluster = %name, epoch, tasks = cluster.tasks().len(), "work for the cluster is still running {} s after it left", limit.as_secs());
        }
        cluster.transport().close();
        fleet.draining.remove(&(name.clone(), epoch));
        cluster.set_state(ClusterState::Gone);
        tracing::info!(cluster = %name, epoch, "cluster is gone");
        fleet.publish(&name);
    }
}

async fn failed_since(seen: &mut watch::Receiver<Seen>, known: u64) {
    if seen.wait_for(|seen| seen.failures != known).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits until the cluster is no longer wanted, or only as a new one.
async fn taken_back(mut wanted: watch::Receiver<Option<Wanted>>, claim: u64) {
    let other = |wanted: &Option<Wanted>| wanted.as_ref().is_none_or(|wanted| wanted.claim != claim);
    if wanted.wait_for(other).await.is_err() {
        // The supervisor's own end; it is told otherwise.
        std::future::pending::<()>().await;
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Lets the watches begin before the cluster has been asked who it is, and says whether it answered them.
///
/// At the first connection there is nothing to compare with, so the question can wait: a fleet that joins is
/// listed in nearly the time that its lists take. Where nobody watches, or no answer comes, the cluster is
/// asked after all, which tells why.
async fn begin_with_the_watches(cluster: &Cluster, connected: &Connected, endpoint: u64) -> bool {
    const WATCHES_TO_COME: Duration = Duration::from_millis(50);
    const ANSWER_TO_COME: Duration = Duration::from_millis(500);
    let mut health = cluster.health().subscribe();
    let before = *health.borrow_and_update();
    cluster.transport().swap(connected.link.stack.clone());
    cluster.transport().block(None);
    cluster.set_phase(Phase::Up { endpoint });
    let mut news = timeout(WATCHES_TO_COME, health.changed()).await.is_ok();
    if !news && !cluster.kinds().is_empty() {
        news = timeout(ANSWER_TO_COME, health.changed()).await.is_ok();
    }
    let answers = health.borrow().answers;
    news && answers > before.answers
}

/// Asks the cluster who it is.
async fn identify(fleet: &FleetShared, mut connected: Connected) -> Result<Connected, NotConnected> {
    const SLOT_WHILE_WAITING: Duration = Duration::from_secs(2);
    let mut slot = WorkSlot::take(&fleet.connect_slots).await;
    let identify = probe::identify(&connected.link.stack, IDENTIFY_WITHIN);
    connected.identity.uid = slot.hold(SLOT_WHILE_WAITING, identify).await?;
    connected.asked = true;
    Ok(connected)
}

/// Longer than a connection may take to be made, so that the reason told is that of the connection.
const IDENTIFY_WITHIN: Duration = Duration::from_secs(12);

/// Makes a connection without asking anything over it.
async fn dial(fleet: &FleetShared, spec: &ClusterSpec, why: Refresh) -> Result<Connected, NotConnected> {
    let settings = fleet.settings();
    let resolved = resolved(fleet, spec).await.map_err(NotConnected::new)?;
    let shape = shape(spec, &resolved);
    let refresh_backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));
    match resolved {
        Resolved::Client(client) => Ok(Connected {
            namespace: client.default_namespace().into(),
            link: Link {
                shape,
                stack: fleet.dialer.client_stack(client),
                credentials: None,
                credential: Fingerprint::of(&()),
                refresh_at: None,
                refresh_backoff,
            },
            identity: KnownIdentity {
                declared: spec.identity.clone(),
                ..KnownIdentity::default()
            },
            expires: None,
            in_use: false,
            asked: false,
        }),
        Resolved::Link {
            endpoint,
            credentials,
            default_namespace,
            trust,
        } => {
            let limit = settings.credential_timeout;
            let credential = timeout(limit, credentials.credential(why))
                .await
                .map_err(|_| NotConnected::new(format!("no credential within {} s", limit.as_secs())))?
                .map_err(|error| NotConnected::new(explain(&error)))?;
            let stack = fleet
                .dialer
                .stack(&endpoint, &credential, trust)
                .map_err(|error| NotConnected::new(explain(&error)))?;
            let place = Some((endpoint.server.clone(), endpoint.certificate_authority.clone()));
            let mut refresh_backoff = refresh_backoff;
            Ok(Connected {
                expires: credential.expires_at,
                link: Link {
                    shape,
                    stack,
                    credential: credential.fingerprint(),
                    refresh_at: refresh_time(
                        &credential,
                        credentials.renew_every(),
                        &mut refresh_backoff,
                        false,
                    ),
                    credentials: Some(credentials),
                    refresh_backoff,
                },
                identity: KnownIdentity {
                    declared: spec.identity.clone(),
                    uid: None,
                    place,
                },
                namespace: default_namespace,
                in_use: false,
                asked: false,
            })
        }
    }
}

/// Finds out what a description asks for: off the executor, since a kubeconfig may name files.
async fn resolved(fleet: &FleetShared, spec: &ClusterSpec) -> Result<Resolved, String> {
    let (access, policy) = (spec.access.clone(), fleet.settings().access_policy.clone());
    match tokio::task::spawn_blocking(move || resolve(&access, &policy)).await {
        Ok(Ok(resolved)) => Ok(resolved),
        Ok(Err(error)) => Err(format!("its description can't be used: {error}")),
        Err(error) => Err(format!("its description could not be looked at: {error}")),
    }
}

fn shape(spec: &ClusterSpec, resolved: &Resolved) -> Shape {
    let (target, credentials) = match (resolved, &spec.access) {
        (
            Resolved::Link {
                endpoint,
                credentials,
                ..
            },
            _,
        ) => (Target::Endpoint(endpoint.clone()), credentials.fingerprint()),
        (Resolved::Client(_), Access::Client(ready)) => (Target::Client(ready.id()), Fingerprint::of(&())),
        (Resolved::Client(_), _) => (Target::Client(u64::MAX), Fingerprint::of(&())),
    };
    Shape {
        identity: spec.identity.clone(),
        target,
        credentials,
        suspended: suspended(spec),
    }
}

/// When to ask for the next credential: in good time before this one expires.
///
/// `unchanged` is a source that hands out the same credential again although it is about to expire; it is not
/// asked in a loop.
fn refresh_time(
    credential: &Credential,
    every: Option<Duration>,
    backoff: &mut Backoff,
    unchanged: bool,
) -> Option<Instant> {
    let before_expiry = credential.expires_at.map(|expires| {
        let left = expires.duration_since(SystemTime::now()).unwrap_or_default();
        // A fifth of the life that is left, but not more than five minutes before the end; spread, so that
        // clusters that joined together do not all ask together.
        let margin = (left / 5).min(Duration::from_secs(300));
        let spread = backoff.spread(margin / 4);
        let least = if unchanged {
            backoff.next()
        } else {
            Duration::from_secs(1)
        };
        left.saturating_sub(margin).saturating_sub(spread).max(least)
    });
    let wait = match (before_expiry, every) {
        (Some(expiry), Some(every)) => expiry.min(every),
        (expiry, every) => expiry.or(every)?,
    };
    Some(Instant::now() + wait)
}
