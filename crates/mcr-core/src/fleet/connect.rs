//! Connecting a cluster, for the first time or again.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use mcr_access::Resolved;
use mcr_client::{
    Channel, explain_error as explain,
    internal::{
        Backoff, jitter,
        user_code::{CREDENTIAL_SOURCE, CatchPanic, catch_panic},
    },
};
use mcr_watch::internal::{Outcomes, Permit, Phase};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{
    ClusterState, FleetShared,
    description::Description,
    life::{End, Life},
    probe::{self, Afterwards, ProbeError},
    state::{KnownIdentity, Place, Shape, Target, suspended},
};
use crate::{
    Cluster, Credential, CredentialSource, Endpoint, Fingerprint, Refresh, Trust, access::ResolvedAccess,
};

/// What the cluster is connected by.
pub(super) struct Link {
    pub(super) shape: Shape,
    pub(super) channel: Channel,
    /// Where the next credential comes from; none for a ready client, which has its own.
    pub(super) source: Option<Source>,
    pub(super) credential: Fingerprint,
    pub(super) refresh_at: Option<Instant>,
    pub(super) refresh_backoff: Backoff,
}

/// What it takes to connect once more with a fresh credential.
#[derive(Clone)]
pub(super) struct Source {
    endpoint: Arc<Endpoint>,
    trust: Trust,
    /// Stands before each path, for the endpoint of a scope.
    prefix: Arc<str>,
    credentials: Arc<dyn CredentialSource>,
}

/// What a source has handed out.
pub(super) struct Given {
    pub(super) credential: Credential,
    /// How often the source is to be asked again, though nothing expires.
    pub(super) every: Option<Duration>,
}

impl Source {
    pub(super) fn channel(
        &self,
        fleet: &FleetShared,
        credential: &Credential,
    ) -> Result<Channel, NotConnected> {
        fleet
            .dialer
            .channel(&self.endpoint, credential, self.trust)
            .map(|channel| channel.with_prefix(&self.prefix))
            .map_err(|error| NotConnected::new(explain(&error)))
    }

    pub(super) async fn credential(&self, fleet: &FleetShared, why: Refresh) -> Result<Given, NotConnected> {
        let limit = fleet.settings().credential_timeout;
        let source = &*self.credentials;
        let given = async {
            let credential = source.credential(why).await.map_err(|error| explain(&error))?;
            let every = source.renew_every();
            Ok::<_, String>(Given { credential, every })
        };
        timeout(limit, CatchPanic::new(CREDENTIAL_SOURCE, Box::pin(given)))
            .await
            .map_err(|_| NotConnected::new(format!("no credential within {} s", limit.as_secs())))?
            .map_err(|panicked| NotConnected::new(panicked.to_string()))?
            .map_err(NotConnected::new)
    }
}

/// A connection that has been made and answered.
pub(super) struct Connected {
    pub(super) link: Link,
    pub(super) identity: KnownIdentity,
    pub(super) expires: Option<SystemTime>,
    pub(super) namespace: Arc<str>,
    /// Requests go through it already.
    pub(super) in_use: bool,
    /// It has been asked who it is.
    pub(super) asked: bool,
}

/// Why a connection could not be made.
pub(super) struct NotConnected {
    pub(super) reason: Arc<str>,
    pub(super) unauthorized: bool,
}

impl NotConnected {
    pub(super) fn new(reason: impl Into<Arc<str>>) -> Self {
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
impl Life<'_> {
    /// Tries to connect, or waits until it is time to try again.
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
        let (spec, prefix) = (self.wanted.spec.clone(), self.prefix());
        let dialled = tokio::select! {
            dialled = async {
                // Reading a thousand kubeconfigs at once would take a thousand threads.
                let mut permit = Permit::acquire(&self.fleet.connect_permits).await;
                // In a box, as all that is large here: thousands wait, for a place or for their first answer, and none of
                // them has the room for what it does before or after that.
                let dial = Box::pin(dial(self.fleet, &spec, why, &prefix));
                permit.hold_at_most(SLOT_WHILE_SILENT, dial).await
            } => dialled,
            _ = self.changes.changed() => return self.take_change(),
        };
        if let (Some((tried, who)), Ok(connected)) = (&self.tried, &dialled)
            && self.identity.is_none()
            && *tried != connected.link.shape.target
        {
            // The watches may hold objects of the place that was tried, and nobody knows whose they are, unless
            // the provider said so then as it does now.
            if who.is_none() || *who != spec.identity {
                return Some(End::Replaced);
            }
            self.endpoint += 1;
            self.tried = Some((connected.link.shape.target.clone(), who.clone()));
        }
        let cluster = self.cluster.clone();
        // Only the first time: each watch of a dead cluster would else dial it at each attempt.
        let first = (self.identity.is_none() && self.tried.is_none()).then_some(self.endpoint + 1);
        if let (Some(_), Ok(connected)) = (first, &dialled) {
            self.tried = Some((connected.link.shape.target.clone(), spec.identity.clone()));
        }
        let attempt = async {
            let mut connected = dialled?;
            if let Some(endpoint) = first {
                connected.in_use = true;
                if begin_with_the_watches(self.fleet, &cluster, &connected, endpoint).await {
                    return Ok(connected);
                }
            }
            identify(self.fleet, connected).await
        };
        let result = tokio::select! {
            // A connection that has answered is in use: what changes after that is a change of it.
            biased;
            result = attempt => result,
            _ = self.changes.changed() => return self.take_change(),
        };
        self.last_probe = Instant::now();
        self.cluster
            .change_facts(|facts| facts.last_probe = Some(SystemTime::now()));
        match result {
            Ok(connected) => self.connected(connected),
            Err(why) => {
                let first_refusal = why.unauthorized && !self.refused;
                let pause = self.backoff.pause();
                tracing::debug!(cluster = %self.cluster.name(), reason = %why.reason, retry_in = ?pause, "not connected");
                self.unreachable(why);
                if first_refusal {
                    // A source may have another credential than the one that was refused: asked for at once,
                    // once.
                    return None;
                }
                let retry = Instant::now() + pause;
                tokio::select! {
                    () = sleep_until(retry) => None,
                    // A new description may be the cure: try it at once.
                    _ = self.changes.changed() => self.take_change(),
                }
            }
        }
    }

    pub(super) fn connected(&mut self, connected: Connected) -> Option<End> {
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
        let target = &connected.link.shape.target;
        if self.at.as_ref() != Some(target) {
            self.at = Some(target.clone());
            self.endpoint += 1;
        }
        let later = !connected.asked && connected.identity.declared.is_none();
        let (earliest, spread) = asked_who(self.fleet.size(), self.fleet.probe_after());
        self.identify_at = later.then(|| Instant::now() + earliest + jitter(spread));
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
    pub(super) fn adopt(&mut self, connected: Connected) {
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
                declared: identity.declared,
                uid: identity.uid.or(known.uid),
                place: identity.place,
            },
            None => identity,
        };
        let shown = identity.shown();
        self.identity = Some(identity);
        if self.cluster.set_default_namespace(&namespace) {
            self.shown();
        }
        self.cluster.change_facts(|facts| {
            facts.identity.clone_from(&shown);
            facts.credential_expires = expires;
            facts.warning = None;
        });
        if !in_use {
            let generation = self.cluster.transport().swap(link.channel.clone());
            tracing::debug!(cluster = %self.cluster.name(), generation, "connection in use");
        }
        self.cluster.transport().block(None);
        self.link = Some(link);
    }
}

/// Lets the watches begin before the cluster has been asked who it is, and says whether it answered them.
///
/// At the first connection there is nothing to compare with, so the question can wait: a fleet that joins is
/// listed in nearly the time that its lists take. Where nobody watches, or no answer comes, the cluster is
/// asked after all, which tells why.
async fn begin_with_the_watches(
    fleet: &FleetShared,
    cluster: &Cluster,
    connected: &Connected,
    endpoint: u64,
) -> bool {
    const WATCHES_TO_COME: Duration = Duration::from_millis(50);
    // Thousands that join at once stand in line for their lists; asking as well would be one more connection for each.
    let answer_to_come = Duration::from_secs(2) + Duration::from_millis(2) * fleet.size();
    let outcomes = &cluster.health().outcomes;
    let before = outcomes.read(Outcomes::clone);
    let news = || outcomes.wait(move |now| (*now != before).then_some(now.answers > before.answers));
    cluster.transport().swap(connected.link.channel.clone());
    cluster.transport().block(None);
    cluster.set_phase(Phase::Up { endpoint });
    // Of thousands that join at once, those who follow the fleet look at one after the other.
    let told = async {
        while fleet.subscribers.are_behind(cluster.name()) {
            sleep(WATCHES_TO_COME).await;
        }
        sleep(WATCHES_TO_COME).await;
    };
    tokio::select! {
        answered = news() => return answered,
        _ = timeout(answer_to_come, told) => {}
    }
    !cluster.kinds().is_empty() && timeout(answer_to_come, news()).await.unwrap_or(false)
}

/// When a cluster of a fleet of so many is asked who it is, where that can wait: the earliest time, and over how long such
/// questions are spread.
///
/// Soon, since until then another address can't be told from another cluster; but not while those that joined together are
/// listed, and not all at once: each costs both sides a TLS handshake, and hundreds a second hold up the events of all. The
/// silent are probed so long after they were heard, so this spreads their probes as well.
fn asked_who(clusters: u32, probe_after: Duration) -> (Duration, Duration) {
    let earliest = Duration::from_millis(5) * clusters;
    let spread = Duration::from_millis(40) * clusters;
    (earliest, spread.min(probe_after))
}

/// Asks the cluster who it is.
async fn identify(fleet: &FleetShared, mut connected: Connected) -> Result<Connected, NotConnected> {
    let mut permit = Permit::acquire(&fleet.connect_permits).await;
    // Longer than a connection may take to be made, so that the reason told is that of the connection.
    let limit = fleet.settings().transport.connect_timeout + TO_IDENTIFY;
    let identify = Box::pin(probe::identify(&connected.link.channel, Afterwards::Keep, limit));
    connected.identity.uid = permit.hold_at_most(SLOT_WHILE_SILENT, identify).await?;
    connected.asked = true;
    Ok(connected)
}

/// Hundreds of silent clusters may stand in line before one that is well: a second for each would keep it out for
/// minutes.
const SLOT_WHILE_SILENT: Duration = Duration::from_millis(250);

/// How long a cluster may take to say who it is, once there is a connection.
const TO_IDENTIFY: Duration = Duration::from_secs(2);

/// Makes a connection without asking anything over it.
pub(super) async fn dial(
    fleet: &FleetShared,
    spec: &Description,
    why: Refresh,
    prefix: &str,
) -> Result<Connected, NotConnected> {
    let resolved = resolved(fleet, spec).await.map_err(NotConnected::new)?;
    let shape = shape(spec, &resolved).map_err(NotConnected::new)?;
    let refresh_backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));
    match resolved {
        ResolvedAccess::Client(ready) => Ok(Connected {
            namespace: ready.client().default_namespace().into(),
            identity: KnownIdentity {
                declared: spec.identity.clone(),
                uid: None,
                place: match &shape.target {
                    Target::Client(number) => Some(Place::Client(*number)),
                    Target::Endpoint(_) => None,
                },
            },
            link: Link {
                shape,
                channel: fleet
                    .dialer
                    .client_channel(ready.client().clone())
                    .with_prefix(prefix),
                source: None,
                credential: Fingerprint::of(&()),
                refresh_at: None,
                refresh_backoff,
            },
            expires: None,
            in_use: false,
            asked: false,
        }),
        ResolvedAccess::Endpoint(Resolved {
            endpoint,
            credentials,
            default_namespace,
            trust,
            ..
        }) => {
            let place = Place::Server(endpoint.clone());
            let source = Source {
                endpoint,
                trust,
                prefix: prefix.into(),
                credentials,
            };
            let Given { credential, every } = source.credential(fleet, why).await?;
            let channel = source.channel(fleet, &credential)?;
            Ok(Connected {
                expires: credential.expires_at,
                link: Link {
                    shape,
                    channel,
                    credential: credential.fingerprint(),
                    refresh_at: refresh_time(&credential, every),
                    source: Some(source),
                    refresh_backoff,
                },
                identity: KnownIdentity {
                    declared: spec.identity.clone(),
                    uid: None,
                    place: Some(place),
                },
                namespace: default_namespace,
                in_use: false,
                asked: false,
            })
        }
    }
}

/// Finds out what a description asks for: off the executor, since a kubeconfig may name files.
pub(super) async fn resolved(fleet: &FleetShared, spec: &Description) -> Result<ResolvedAccess, String> {
    if let Some(resolved) = spec.access.resolved(&fleet.settings().access_policy) {
        return Ok(resolved);
    }
    let (access, policy) = (spec.access.clone(), fleet.settings().access_policy.clone());
    match tokio::task::spawn_blocking(move || access.resolve(&policy)).await {
        Ok(Ok(resolved)) => Ok(resolved),
        Ok(Err(error)) => Err(format!("its description can't be used: {error}")),
        // The text of the error has that of the panic in it, which may quote a kubeconfig.
        Err(_) => Err(
            "its description could not be looked at: reading it panicked, which is a fault in mcr".to_owned(),
        ),
    }
}

/// What a description comes down to.
///
/// # Errors
/// If the source of its credentials can't be told from others.
pub(super) fn shape(spec: &Description, resolved: &ResolvedAccess) -> Result<Shape, String> {
    let (target, credentials) = match resolved {
        ResolvedAccess::Endpoint(resolved) => {
            let fingerprint = catch_panic(CREDENTIAL_SOURCE, || resolved.credentials.fingerprint());
            let fingerprint = fingerprint.map_err(|panicked| panicked.to_string())?;
            (Target::Endpoint(resolved.endpoint.clone()), fingerprint)
        }
        ResolvedAccess::Client(ready) => (Target::Client(ready.id()), Fingerprint::of(&())),
    };
    Ok(Shape {
        identity: spec.identity.clone(),
        target,
        credentials,
        suspended: suspended(spec),
    })
}

/// When to ask for the next credential: in good time before this one expires.
pub(super) fn refresh_time(credential: &Credential, every: Option<Duration>) -> Option<Instant> {
    let before_expiry = credential.expires_at.map(|expires| {
        let left = expires.duration_since(SystemTime::now()).unwrap_or_default();
        // A fifth of the life that is left, but not more than five minutes before the end; spread, so that
        // clusters that joined together do not all ask together.
        let margin = (left / 5).min(Duration::from_secs(300));
        let spread = jitter(margin / 4);
        left.saturating_sub(margin)
            .saturating_sub(spread)
            .max(Duration::from_secs(1))
    });
    let wait = match (before_expiry, every) {
        (Some(expiry), Some(every)) => expiry.min(every),
        (expiry, every) => expiry.or(every)?,
    };
    Some(Instant::now() + wait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FleetSettings;

    #[test]
    fn few_are_asked_who_they_are_at_once_and_many_in_calm() {
        let settings = FleetSettings::default();
        for (clusters, at_latest, a_second) in [(4, 0.2, 25.0), (500, 23.0, 25.0), (10_000, 150.0, 100.0)] {
            let probe_after = settings.probe_after_among(clusters as usize);
            let (earliest, spread) = asked_who(clusters, probe_after);
            assert!((earliest + spread).as_secs_f64() <= at_latest, "{clusters}");
            assert!(
                f64::from(clusters) / spread.as_secs_f64() <= a_second + 0.1,
                "{clusters}"
            );
        }
    }
}
