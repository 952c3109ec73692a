//! Connections of clusters: resolving a spec, fetching a credential and making a connection.

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
use tokio::time::{Instant, timeout};

use super::{
    description::Description,
    identity::{KnownIdentity, Location},
    probe::ProbeError,
    resources::Resources,
    spec_change::{ResolvedSpec, Target},
};
use crate::{Credential, CredentialSource, Endpoint, Fingerprint, Refresh, Trust, access::ResolvedAccess};

/// The connection of a cluster.
pub(super) struct Connection {
    pub(super) spec: ResolvedSpec,
    pub(super) channel: Channel,
    /// None for a ready client, which has its own credentials.
    pub(super) access: Option<EndpointCredentials>,
    /// The credential in use.
    pub(super) credential: Fingerprint,
    pub(super) refresh_at: Option<Instant>,
    pub(super) refresh_backoff: Backoff,
}

/// An endpoint and the source of its credentials: enough to connect again with a new credential.
#[derive(Clone)]
pub(super) struct EndpointCredentials {
    endpoint: Arc<Endpoint>,
    trust: Trust,
    /// The prefix of all request paths. Only scope endpoints have one.
    prefix: Arc<str>,
    credentials: Arc<dyn CredentialSource>,
}

/// A credential that a source has issued.
pub(super) struct IssuedCredential {
    pub(super) credential: Credential,
    /// The interval at which the source wants to be asked again, even if nothing expires.
    pub(super) every: Option<Duration>,
}

impl EndpointCredentials {
    pub(super) fn channel(
        &self,
        resources: &Resources,
        credential: &Credential,
    ) -> Result<Channel, ConnectError> {
        resources
            .dialer
            .channel(&self.endpoint, credential, self.trust)
            .map(|channel| channel.with_prefix(&self.prefix))
            .map_err(|error| ConnectError::new(explain(&error)))
    }

    /// Fetches a credential from the source.
    pub(super) async fn credential(
        &self,
        resources: &Resources,
        why: Refresh,
    ) -> Result<IssuedCredential, ConnectError> {
        let limit = resources.settings.credential_timeout;
        let source = &*self.credentials;
        let issued = async {
            let credential = source.credential(why).await.map_err(|error| explain(&error))?;
            let every = source.renew_every();
            Ok::<_, String>(IssuedCredential { credential, every })
        };
        timeout(limit, CatchPanic::new(CREDENTIAL_SOURCE, Box::pin(issued)))
            .await
            .map_err(|_| ConnectError::new(format!("no credential within {} s", limit.as_secs())))?
            .map_err(|panicked| ConnectError::new(panicked.to_string()))?
            .map_err(ConnectError::new)
    }
}

/// A new connection, with the properties that its cluster gets from it.
pub(super) struct NewConnection {
    pub(super) connection: Connection,
    pub(super) identity: KnownIdentity,
    pub(super) expires: Option<SystemTime>,
    pub(super) namespace: Arc<str>,
    /// Whether the transport of the cluster uses it already.
    pub(super) in_use: bool,
    /// Whether the UID of `kube-system` has been requested.
    pub(super) identified: bool,
}

/// Why a connection could not be made, or can't be used any more.
pub(super) struct ConnectError {
    /// The cause and what to do about it, as text for people.
    pub(super) reason: Arc<str>,
    /// Whether the API server refused the credentials (401).
    pub(super) unauthorized: bool,
}

impl ConnectError {
    pub(super) fn new(reason: impl Into<Arc<str>>) -> Self {
        Self {
            reason: reason.into(),
            unauthorized: false,
        }
    }
}

impl From<ProbeError> for ConnectError {
    fn from(error: ProbeError) -> Self {
        Self {
            reason: error.reason(),
            unauthorized: error == ProbeError::Unauthorized,
        }
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
    let refresh_backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));
    match resolved {
        ResolvedAccess::Client(ready) => Ok(NewConnection {
            namespace: ready.client().default_namespace().into(),
            identity: KnownIdentity {
                declared: spec.identity.clone(),
                uid: None,
                location: match &resolved_spec.target {
                    Target::Client(number) => Some(Location::Client(*number)),
                    Target::Endpoint(_) => None,
                },
            },
            connection: Connection {
                spec: resolved_spec,
                channel: resources
                    .dialer
                    .client_channel(ready.client().clone())
                    .with_prefix(prefix),
                access: None,
                credential: Fingerprint::of(&()),
                refresh_at: None,
                refresh_backoff,
            },
            expires: None,
            in_use: false,
            identified: false,
        }),
        ResolvedAccess::Endpoint(Resolved {
            endpoint,
            credentials,
            default_namespace,
            trust,
            ..
        }) => {
            let location = Location::Server(endpoint.clone());
            let access = EndpointCredentials {
                endpoint,
                trust,
                prefix: prefix.into(),
                credentials,
            };
            let IssuedCredential { credential, every } = access.credential(resources, why).await?;
            let channel = access.channel(resources, &credential)?;
            Ok(NewConnection {
                expires: credential.expires_at,
                connection: Connection {
                    spec: resolved_spec,
                    channel,
                    credential: credential.fingerprint(),
                    refresh_at: refresh_time(&credential, every),
                    access: Some(access),
                    refresh_backoff,
                },
                identity: KnownIdentity {
                    declared: spec.identity.clone(),
                    uid: None,
                    location: Some(location),
                },
                namespace: default_namespace,
                in_use: false,
                identified: false,
            })
        }
    }
}

/// Resolves the access of a spec. Does so off the executor if it has to read files that a kubeconfig names.
pub(super) async fn resolve(resources: &Resources, spec: &Description) -> Result<ResolvedAccess, String> {
    let policy = &resources.settings.access_policy;
    if let Some(resolved) = spec.access.resolved(policy) {
        return Ok(resolved);
    }
    let (access, policy) = (spec.access.clone(), policy.clone());
    match tokio::task::spawn_blocking(move || access.resolve(&policy)).await {
        Ok(Ok(resolved)) => Ok(resolved),
        Ok(Err(error)) => Err(format!("its description can't be used: {error}")),
        // The error quotes the message of the panic, which may quote a kubeconfig.
        Err(_) => {
            Err("its description could not be read: reading it panicked, which is a fault in mcr".to_owned())
        }
    }
}

/// The parts of a spec that decide what a change costs.
///
/// # Errors
/// If its credential source panics.
pub(super) fn resolved_spec(spec: &Description, resolved: &ResolvedAccess) -> Result<ResolvedSpec, String> {
    let (target, credentials) = match resolved {
        ResolvedAccess::Endpoint(resolved) => {
            let fingerprint = catch_panic(CREDENTIAL_SOURCE, || resolved.credentials.fingerprint());
            let fingerprint = fingerprint.map_err(|panicked| panicked.to_string())?;
            (Target::Endpoint(resolved.endpoint.clone()), fingerprint)
        }
        ResolvedAccess::Client(ready) => (Target::Client(ready.id()), Fingerprint::of(&())),
    };
    Ok(ResolvedSpec {
        identity: spec.identity.clone(),
        target,
        credentials,
    })
}

/// When to fetch the next credential: some time before this one expires, and at the interval of its source.
pub(super) fn refresh_time(credential: &Credential, renew_every: Option<Duration>) -> Option<Instant> {
    let before_expiry = credential.expires_at.map(|expires| {
        let left = expires.duration_since(SystemTime::now()).unwrap_or_default();
        // After four fifths of the remaining life, but at most five minutes before the end. Spread, so that clusters that
        // joined together don't renew together.
        let margin = (left / 5).min(Duration::from_secs(300));
        let spread = jitter(margin / 4);
        left.saturating_sub(margin)
            .saturating_sub(spread)
            .max(Duration::from_secs(1))
    });
    let wait = match (before_expiry, renew_every) {
        (Some(expiry), Some(every)) => expiry.min(every),
        (expiry, every) => expiry.or(every)?,
    };
    Some(Instant::now() + wait)
}
