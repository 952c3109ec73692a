//! What a supervisor has under way: attempts to connect, probes and renewals. One at a time, and in a box that exists only while
//! it runs: a task would reserve the memory of the largest one all the time.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use mcr_client::{
    Channel, Transport,
    internal::{
        ConnectError, EndpointCredentials, IssuedCredential,
        probe::{self, ProbeConnection},
    },
};
use mcr_watch::internal::Permit;
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    connection::{Connection, NewConnection, Renewal, dial, resolve, resolved_spec},
    context::FleetContext,
    description::Description,
    identity::is_uid,
    resources::Resources,
    spec_change::{ResolvedSpec, classify, may_fall_back},
};
use mcr_access::{ClusterName, Fingerprint, Refresh};

/// What is under way.
pub(super) struct UnderWay<'a> {
    pub(super) outcome: BoxFuture<'a, Outcome>,
    /// Whether a change of the spec ends it, because it would be of no use for the new one.
    pub(super) ends_with_spec: bool,
}

/// What it has come to.
pub(super) enum Outcome {
    Attempt(Result<NewConnection, ConnectError>),
    /// Whether the connection that was in use works as before; and why the attempt before failed.
    Fallback(bool, ConnectError),
    Turn,
    /// With the UID, if it was to be compared.
    Probed(Result<Option<Arc<str>>, ConnectError>),
    ProbedCredential(Result<(), ConnectError>),
    Renewed(Refresh, Renewal),
    Resolved(Result<ResolvedSpec, String>),
    Swap(Result<NewConnection, ConnectError>),
    /// The API server in use does not answer, and the rest was given up.
    Silent(ConnectError),
}

/// A spec, and how to connect by it.
pub(super) struct Target<'a> {
    pub(super) fleet: &'a FleetContext,
    pub(super) spec: Arc<Description>,
    /// The prefix of all request paths.
    pub(super) prefix: String,
    /// Whether the UID of `kube-system` says which cluster answers.
    pub(super) by_uid: bool,
}

impl<'a> UnderWay<'a> {
    fn new(ends_with_spec: bool, outcome: impl Future<Output = Outcome> + Send + 'a) -> Self {
        Self {
            outcome: outcome.boxed(),
            ends_with_spec,
        }
    }

    pub(super) fn connect(target: Target<'a>, why: Refresh) -> Self {
        Self::new(true, async move { Outcome::Attempt(connect(&target, why).await) })
    }

    /// The previous connection is of use if it [may serve again](may_fall_back), and the same cluster answers there.
    pub(super) fn try_previous(
        fleet: &'a FleetContext,
        spec: Arc<Description>,
        previous: Option<(&Connection, Option<&Arc<str>>)>,
        why: ConnectError,
    ) -> Self {
        let previous = previous.map(|(connection, known)| {
            (
                connection.spec.clone(),
                connection.channel.clone(),
                known.cloned(),
            )
        });
        Self::new(false, async move {
            let Some((in_use, channel, known)) = previous else {
                return Outcome::Fallback(false, why);
            };
            let change = resolve_spec(fleet, &spec)
                .await
                .map(|new| classify(&in_use, &new));
            let answers = may_fall_back(change, why.no_credential) && {
                let limit = fleet.settings().probe_timeout;
                let answer = probe::identify(&channel, ProbeConnection::Close, limit).await;
                answer.is_ok_and(|uid| known.is_none() || known == uid)
            };
            Outcome::Fallback(answers, why)
        })
    }

    pub(super) fn await_turn(fleet: &'a FleetContext, uid: Arc<str>, name: ClusterName) -> Self {
        Self::new(true, async move {
            tokio::select! {
                () = fleet.resources.identities.engaged(&uid, &name) => {}
                // Another cluster may answer by now.
                () = sleep(fleet.probe_after()) => {}
            }
            Outcome::Turn
        })
    }

    pub(super) fn probe(
        fleet: &'a FleetContext,
        transport: Transport,
        channel: Channel,
        compares: bool,
        not_before: Instant,
    ) -> Self {
        Self::new(false, async move {
            sleep_until(not_before).await;
            // This probe is for all who have asked by now.
            transport.begin_probe();
            let _ = transport.probe_wanted().now_or_never();
            let limit = fleet.settings().probe_timeout;
            Outcome::Probed(if compares {
                probe::identify(&channel, ProbeConnection::Close, limit).await
            } else {
                probe::alive(&channel, ProbeConnection::Close, limit)
                    .await
                    .map(|()| None)
            })
        })
    }

    pub(super) fn probe_credential(fleet: &'a FleetContext, channel: Channel) -> Self {
        Self::new(false, async move {
            let limit = fleet.settings().probe_timeout;
            Outcome::ProbedCredential(probe::alive(&channel, ProbeConnection::Close, limit).await)
        })
    }

    pub(super) fn renew(
        fleet: &'a FleetContext,
        transport: Transport,
        connection: &Connection,
        why: Refresh,
        compares: bool,
    ) -> Self {
        let refused_until = connection.refused_until.filter(|_| why == Refresh::Unauthorized);
        let too_soon = refused_until.is_some_and(|until| Instant::now() < until);
        let (access, channel) = (connection.access.clone(), connection.channel.clone());
        let in_use = connection.credential;
        let renewal = async move {
            let Some(access) = access.filter(|_| !too_soon) else {
                return if too_soon {
                    Renewal::TooSoon
                } else {
                    Renewal::NoSource
                };
            };
            match renew(&fleet.resources, &access, in_use, why, compares).await {
                Ok((issued, channel)) => Renewal::Issued(issued, channel),
                Err(error) => Renewal::Failed(error),
            }
        };
        let renewed = renewal.map(move |renewal| Outcome::Renewed(why, renewal));
        Self::unless_silent(false, fleet, transport, channel, renewed)
    }

    pub(super) fn resolve(
        fleet: &'a FleetContext,
        transport: Transport,
        channel: Channel,
        spec: Arc<Description>,
    ) -> Self {
        let resolved = async move { Outcome::Resolved(resolve_spec(fleet, &spec).await) };
        Self::unless_silent(false, fleet, transport, channel, resolved)
    }

    pub(super) fn try_credentials(target: Target<'a>, transport: Transport, channel: Channel) -> Self {
        let fleet = target.fleet;
        let tried = async move { Outcome::Swap(try_credentials(&target).await) };
        Self::unless_silent(true, fleet, transport, channel, tried)
    }

    /// What keeps a source or a file system from answering may keep the API server from it, too.
    fn unless_silent(
        ends_with_spec: bool,
        fleet: &'a FleetContext,
        transport: Transport,
        channel: Channel,
        work: impl Future<Output = Outcome> + Send + 'a,
    ) -> Self {
        Self::new(ends_with_spec, async move {
            let (after, limit) = (fleet.probe_after(), fleet.settings().probe_timeout);
            tokio::select! {
                outcome = work => outcome,
                error = fell_silent(&transport, &channel, after, limit) => Outcome::Silent(error),
            }
        })
    }
}

async fn resolve_spec(fleet: &FleetContext, spec: &Description) -> Result<ResolvedSpec, String> {
    let resolved = resolve(&fleet.resources, spec).await?;
    resolved_spec(spec, &resolved)
}

async fn connect(target: &Target<'_>, why: Refresh) -> Result<NewConnection, ConnectError> {
    let resources = &target.fleet.resources;
    let mut new = {
        // Reading a thousand kubeconfigs at once would take a thousand threads.
        let mut permit = Permit::acquire(&resources.connect_permits).await;
        // Large futures are in boxes here: thousands of clusters may wait for a permit or for their first answer, and must not
        // reserve memory for the steps before and after.
        let dial = Box::pin(dial(resources, &target.spec, why, &target.prefix));
        permit.hold_at_most(PERMIT_WHILE_SILENT, dial).await?
    };
    let mut permit = Permit::acquire(&resources.connect_permits).await;
    // Longer than the time limit of the connection, so that an error of the connection is the reason that is shown.
    let limit = resources.settings.transport.connect_timeout + TIME_TO_IDENTIFY;
    let channel = &new.connection.channel;
    let identify = Box::pin(probe::identify(channel, ProbeConnection::Keep, limit));
    let uid = permit.hold_at_most(PERMIT_WHILE_SILENT, identify).await?;
    new.identity.uid = uid.filter(|uid| target.by_uid && is_uid(uid));
    Ok(new)
}

async fn try_credentials(target: &Target<'_>) -> Result<NewConnection, ConnectError> {
    let resources = &target.fleet.resources;
    let mut new = dial(resources, &target.spec, Refresh::First, &target.prefix).await?;
    let limit = resources.settings.probe_timeout;
    let channel = &new.connection.channel;
    probe::try_credential(channel, limit).await?;
    // A front may choose the cluster by the credential. No request of a user may go to another one.
    if target.by_uid {
        let uid = probe::identify(channel, ProbeConnection::Keep, limit).await?;
        new.identity.uid = uid.filter(|uid| is_uid(uid));
    }
    Ok(new)
}

/// Fetches a credential. If it differs from the one in use, tries it.
async fn renew(
    resources: &Resources,
    access: &EndpointCredentials,
    in_use: Fingerprint,
    why: Refresh,
    compares: bool,
) -> Result<(IssuedCredential, Option<(Channel, Option<Arc<str>>)>), ConnectError> {
    let issued = access.fetch(why, resources.settings.credential_timeout).await?;
    if issued.credential.fingerprint() == in_use {
        return Ok((issued, None));
    }
    let channel = access.channel(&resources.dialer, &issued.credential)?;
    let limit = resources.settings.probe_timeout;
    probe::try_credential(&channel, limit).await?;
    let uid = if compares {
        probe::identify(&channel, ProbeConnection::Keep, limit).await?
    } else {
        None
    };
    Ok((issued, Some((channel, uid))))
}

/// Resolves when the API server has sent nothing for some time and does not answer a probe.
async fn fell_silent(
    transport: &Transport,
    channel: &Channel,
    after: Duration,
    limit: Duration,
) -> ConnectError {
    // Most sources answer at once, and most clusters have been silent for a while.
    sleep(Duration::from_secs(1)).await;
    let mut since = transport.last_received_at().unwrap_or_else(Instant::now);
    loop {
        sleep_until(since + after).await;
        since = transport
            .last_received_at()
            .map_or(since, |received| received.max(since));
        if since.elapsed() < after {
            continue;
        }
        match probe::alive(channel, ProbeConnection::Close, limit).await {
            Err(error) if !error.busy && !error.unauthorized => return error,
            _ => since = Instant::now(),
        }
    }
}

/// How long a silent cluster keeps its permit. Hundreds of silent clusters may be before a healthy one in the queue for
/// permits: with a second for each of them, it would wait for minutes.
const PERMIT_WHILE_SILENT: Duration = Duration::from_millis(250);

/// How long a cluster may take to answer the request for its UID, once there is a connection.
const TIME_TO_IDENTIFY: Duration = Duration::from_secs(2);
