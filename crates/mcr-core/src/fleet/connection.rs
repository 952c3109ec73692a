//! Connections of clusters: resolving a spec, fetching a credential and making a connection.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use mcr_client::{
    Channel, Transport,
    internal::{
        Backoff, ConnectError, EndpointCredentials, IssuedCredential,
        user_code::{CREDENTIAL_SOURCE, catch_panic},
    },
};
use mcr_watch::internal::count;
use tokio::time::{Instant, timeout};

use super::{
    counts::Counts,
    description::{Description, PANICKED, unusable},
    identity::KnownIdentity,
    resources::Resources,
    settings::FleetSettings,
    spec_change::{ResolvedSpec, Target},
};
use crate::{access::Access, provider::DiscoverySettings, spec::ClusterSpec};
use mcr_access::{Fingerprint, Refresh};

/// The warning of a cluster whose credential had already expired when its source issued it.
pub(super) const HAD_EXPIRED: &str = "its credential had expired when it came, but the API server takes it; compare the clock of \
                                      this machine, or renew the credential at its source";

/// A credential that was in use for longer than this has worked: the back-off of renewals begins again.
const LASTED: Duration = Duration::from_secs(60);

/// The connection of a cluster.
pub(super) struct Connection {
    pub(super) spec: ResolvedSpec,
    pub(super) channel: Channel,
    /// None for a ready client, which has its own credentials.
    pub(super) access: Option<Arc<EndpointCredentials>>,
    /// The credential in use.
    pub(super) credential: Fingerprint,
    pub(super) refresh_at: Option<Instant>,
    pub(super) refresh_backoff: Backoff,
    /// When the credential was renewed last.
    pub(super) renewed_at: Option<Instant>,
    /// Until this time, the fleet fetches no other credential if the API server refuses this one.
    pub(super) refused_until: Option<Instant>,
}

impl Connection {
    /// Puts a newer credential and its channel in the place of the present ones.
    pub(super) fn renew(
        &mut self,
        issued: &IssuedCredential,
        channel: Channel,
        why: Refresh,
        counts: &Counts,
    ) {
        let now = Instant::now();
        let lasted = self.renewed_at.is_none_or(|at| now > at + LASTED);
        if issued.had_expired() {
            count(&counts.failed);
        } else {
            count(&counts.renewed);
            // A server may accept each new credential for a moment and then refuse it. Then the pause between renewals
            // must grow, so only a credential that lasted resets it.
            if lasted {
                self.refresh_backoff.reset();
            }
        }
        self.renewed_at = Some(now);
        let refused = why == Refresh::Unauthorized;
        self.refused_until = refused.then(|| now + self.refresh_backoff.pause());
        self.refresh_at = issued.refresh_at(&mut self.refresh_backoff);
        self.credential = issued.credential.fingerprint();
        self.channel = channel;
    }

    /// Keeps the credential, because a renewal has brought no newer one. If the source has failed, returns the reason.
    pub(super) fn keep_credential(&mut self, renewal: Renewal, counts: &Counts) -> Option<String> {
        let (every, problem) = match renewal {
            Renewal::TooSoon => return None,
            Renewal::Issued(issued, _) => {
                count(&counts.unchanged);
                (issued.every, None)
            }
            Renewal::Failed(error) => {
                count(&counts.failed);
                (None, Some(error.reason.to_string()))
            }
            Renewal::NoSource => (None, None),
        };
        // A source with an interval, such as a file that is read every minute, rarely has a newer credential.
        let pause = every.unwrap_or_else(|| self.refresh_backoff.pause());
        self.refresh_at = self.access.is_some().then(|| Instant::now() + pause);
        problem
    }
}

/// The result of a renewal.
#[expect(clippy::large_enum_variant, reason = "it exists for a moment")]
pub(super) enum Renewal {
    /// The source has issued a credential. If it differs from the credential in use, there is a channel that uses it.
    /// The UID is that of the cluster behind this channel, if the renewal had to compare it.
    Issued(IssuedCredential, Option<(Channel, Option<Arc<str>>)>),
    Failed(ConnectError),
    /// The API server refuses the newest credential of the source, and the pause before the next request to the source
    /// goes on.
    TooSoon,
    /// A ready client has its own credentials.
    NoSource,
}

/// A new connection, with what the fleet learns about its cluster from the spec and the credential.
pub(super) struct NewConnection {
    pub(super) connection: Connection,
    pub(super) identity: KnownIdentity,
    pub(super) expires: Option<SystemTime>,
    pub(super) had_expired: bool,
    pub(super) namespace: Arc<str>,
}

/// Makes clients for single requests to clusters, beside the connections of the fleet. The access policy of the fleet
/// applies.
///
/// A provider needs it to send a request to a cluster before it announces the cluster, or to announce what a cluster
/// reports about itself. No other provider connects to clusters.
pub struct OneOffClients(Resources);

impl OneOffClients {
    /// Clients that connect as a fleet with these settings does. An answer of more than `body_limit` bytes is an error.
    pub fn new(settings: &DiscoverySettings, body_limit: usize) -> Self {
        let mut transport = mcr_client::Settings::clone(&settings.transport);
        transport.body_limit = body_limit;
        // Nobody fetches newer credentials for these clients.
        transport.refresh_wait = Duration::ZERO;
        Self(Resources::new(FleetSettings {
            access_policy: settings.access_policy.clone(),
            transport: Arc::new(transport),
            ..FleetSettings::default()
        }))
    }

    /// Fetches a credential and makes a client with it. The client sends nothing by itself. Dropping it closes its
    /// connections.
    ///
    /// # Errors
    /// The reason why the access is unusable: the policy refuses it, it gives no credential, or it is a place in a
    /// scope.
    pub async fn client(&self, spec: ClusterSpec) -> Result<kube::Client, Arc<str>> {
        let transport = Transport::with_settings(spec.name.clone(), self.0.settings.transport.clone());
        let new = dial(&self.0, &Description::parse(spec).await, Refresh::First, "").await;
        let new = new.map_err(|error| error.reason)?;
        transport.swap(new.connection.channel);
        Ok(transport.client(&new.namespace))
    }
}

/// Makes a connection without sending a request.
pub(super) async fn dial(
    resources: &Resources,
    spec: &Description,
    why: Refresh,
    prefix: &str,
) -> Result<NewConnection, ConnectError> {
    let resolved = resolve(resources, spec).await.map_err(ConnectError::new)?;
    let resolved_spec = resolved_spec(spec, &resolved).map_err(ConnectError::new)?;
    let (channel, credentials, namespace) = match resolved {
        Access::Client(ready) => {
            let namespace = ready.client.default_namespace().into();
            let channel = resources.dialer.client_channel(ready.client);
            (channel.with_prefix(prefix), None, namespace)
        }
        Access::Endpoint(access) => {
            let namespace = access.default_namespace.clone();
            let access = EndpointCredentials::new(*access, prefix);
            let issued = access.fetch(why, resources.settings.credential_timeout).await?;
            let channel = access.channel(&resources.dialer, &issued.credential)?;
            (channel, Some((access, issued)), namespace)
        }
        Access::Kubeconfig(_) | Access::Scoped(_) => return Err(ConnectError::new(NO_CONNECTION)),
    };
    let issued = credentials.as_ref().map(|(_, issued)| issued);
    let mut refresh_backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));
    let fingerprint = |issued: &IssuedCredential| issued.credential.fingerprint();
    Ok(NewConnection {
        identity: KnownIdentity {
            declared: spec.identity.clone(),
            uid: None,
            target: resolved_spec.target.clone(),
            credentials: resolved_spec.credentials,
        },
        expires: issued.and_then(|issued| issued.credential.expires_at),
        had_expired: issued.is_some_and(IssuedCredential::had_expired),
        namespace,
        connection: Connection {
            spec: resolved_spec,
            channel,
            credential: issued.map_or_else(|| Fingerprint::of(&()), fingerprint),
            refresh_at: issued.and_then(|issued| issued.refresh_at(&mut refresh_backoff)),
            access: credentials.map(|(access, _)| Arc::new(access)),
            refresh_backoff,
            renewed_at: None,
            refused_until: None,
        },
    })
}

const NO_CONNECTION: &str = "its description can't be used: access: is a place in a scope, which has no connection of its own; give a \
                             kubeconfig, an address or a client";

/// The access of a spec as the policy of the fleet admits it now.
///
/// The policy may have to read files that a kubeconfig names, or to find a program. A blocking thread does that.
pub(super) async fn resolve(resources: &Resources, spec: &Description) -> Result<Access, String> {
    let policy = &resources.settings.access_policy;
    let access = match &spec.access {
        Ok(Access::Endpoint(access)) => access,
        Ok(Access::Client(client)) => return Ok(Access::Client(client.clone())),
        Ok(Access::Kubeconfig(_) | Access::Scoped(_)) => return Err(NO_CONNECTION.to_owned()),
        Err(problem) => return Err(problem.to_string()),
    };
    let admitted = if access.is_inline() {
        policy.admit(access)
    } else {
        let (access, policy) = (access.clone(), policy.clone());
        let admit = async {
            let turn = resources.reads.turn(spec.name.clone()).await;
            tokio::task::spawn_blocking(move || (policy.admit_with_files(&access), turn).0).await
        };
        let limit = resources.settings.credential_timeout;
        match timeout(limit, admit).await {
            Ok(Ok(admitted)) => admitted,
            Ok(Err(_)) => return Err(PANICKED.to_owned()),
            Err(_) => {
                return Err(format!(
                    "the files that its kubeconfig names were not read within {} s; check the file system that they are on",
                    limit.as_secs()
                ));
            }
        }
    };
    match admitted {
        Ok(admitted) => Ok(admitted.into()),
        Err(error) => Err(unusable(&error)),
    }
}

/// The parts of a spec that decide whether a change of the spec costs no list, one list of each kind, or a new cluster.
///
/// # Errors
/// If its credential source panics.
pub(super) fn resolved_spec(spec: &Description, resolved: &Access) -> Result<ResolvedSpec, String> {
    let (target, credentials) = match resolved {
        Access::Endpoint(access) => {
            let fingerprint = catch_panic(CREDENTIAL_SOURCE, || access.credentials.fingerprint());
            let fingerprint = fingerprint.map_err(|panicked| panicked.to_string())?;
            (Target::Endpoint(access.endpoint.clone()), fingerprint)
        }
        Access::Client(ready) => (Target::Client(ready.id), Fingerprint::of(&())),
        Access::Kubeconfig(_) | Access::Scoped(_) => return Err(NO_CONNECTION.to_owned()),
    };
    Ok(ResolvedSpec {
        identity: spec.identity.clone(),
        target,
        credentials,
    })
}
