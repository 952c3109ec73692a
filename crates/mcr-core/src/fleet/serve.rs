//! Supervising a cluster that answers: its health, its credentials, and changes of its spec.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::FutureExt;
use mcr_client::{
    Channel, Transport,
    internal::{
        ConnectError, EndpointCredentials, IssuedCredential,
        probe::{self, ProbeConnection},
    },
};
use mcr_watch::internal::{Health, Phase, count};
use tokio::time::{Instant, sleep_until};

use super::{
    connection::{HAD_EXPIRED, dial, resolve, resolved_spec},
    description::Description,
    drain::End,
    engagement::Engagement,
    identity::is_uid,
    resources::Resources,
    spec_change::{SpecChange, classify},
    state::ClusterState,
};
use crate::{Fingerprint, Refresh};

/// The action for which a timer runs.
#[derive(Clone, Copy)]
enum Due {
    /// Renew the credential.
    Renewal,
    /// Try again a spec that could not be followed.
    Spec,
    /// Probe the cluster if it is silent.
    Probe,
}

/// A credential that was in use for longer was a good one.
const LASTED: Duration = Duration::from_secs(60);

impl Engagement<'_> {
    /// Supervises a cluster that answers, until one event has been handled.
    pub(super) async fn serve(&mut self) -> Option<End> {
        let Some(connection) = &self.connection else {
            self.unreachable(ConnectError::new("the connection was closed"));
            return None;
        };
        let transport = self.cluster.transport().clone();
        let health = self.cluster.health().clone();
        let known_failures = health.failures.read(|failures| *failures);
        let probe_at = self.last_heard() + self.fleet.probe_after();
        let soonest = [
            (connection.refresh_at, Due::Renewal),
            (self.retry_spec_at, Due::Spec),
            (Some(probe_at), Due::Probe),
        ];
        let soonest = soonest.into_iter().filter_map(|(at, due)| Some((at?, due)));
        // One timer for all actions: each timer would take memory in the task for the whole life of the cluster.
        let (at, due) = soonest
            .min_by_key(|(at, _)| *at)
            .unwrap_or((probe_at, Due::Probe));
        // Rare actions are in boxes, because a task reserves memory for its largest future.
        tokio::select! {
            changed = self.changes.changed() => {
                if changed.is_err() {
                    return Some(End::Stopped);
                }
                if let Some(end) = self.take_change() {
                    return Some(end);
                }
                Box::pin(self.follow_spec()).await
            }
            () = transport.probe_wanted() => Box::pin(self.check()).await,
            _ = transport.unauthorized() => Box::pin(self.renew(Refresh::Unauthorized)).await,
            () = sleep_until(at) => match due {
                Due::Renewal => Box::pin(self.renew(Refresh::Expiring)).await,
                Due::Spec => Box::pin(self.follow_spec()).await,
                Due::Probe if self.last_heard().elapsed() < self.fleet.probe_after() => None,
                Due::Probe => Box::pin(self.check()).await,
            },
            () = failed_since(&health, known_failures) => Box::pin(self.check()).await,
        }
    }

    /// When the cluster answered last, or was probed.
    fn last_heard(&self) -> Instant {
        let heard = self.cluster.transport().last_heard_at();
        heard.map_or(self.last_probe, |heard| heard.max(self.last_probe))
    }

    /// Follows a provider that begins or ceases to declare the identity of a connected cluster.
    fn redeclare(&mut self, declared: Option<Arc<str>>) {
        let Some(identity) = &mut self.identity else {
            return;
        };
        if identity.declared == declared {
            return;
        }
        identity.declared = declared;
        let shown = identity.shown();
        self.cluster.change_info(|info| info.identity.clone_from(&shown));
    }

    /// Probes whether the cluster still answers, and whether it is still the same cluster. It may have been deleted and
    /// created again at the same address.
    async fn check(&mut self) -> Option<End> {
        const MIN_INTERVAL: Duration = Duration::from_millis(500);
        let next = self.last_probe + MIN_INTERVAL;
        sleep_until(next).await;
        // This probe is for all who have asked by now.
        let _ = self.cluster.transport().probe_wanted().now_or_never();
        let connection = self.connection.as_ref()?;
        let limit = self.fleet.settings().probe_timeout;
        let known = self.identity.as_ref().and_then(|known| known.uid.clone());
        let answer = match &known {
            Some(_) => probe::identify(&connection.channel, ProbeConnection::Close, limit).await,
            None => probe::alive(&connection.channel, ProbeConnection::Close, limit)
                .await
                .map(|()| None),
        };
        self.last_probe = Instant::now();
        self.cluster
            .change_info(|info| info.last_probe = Some(SystemTime::now()));
        match answer {
            Ok(Some(is)) if known.as_ref() != Some(&is) => {
                tracing::warn!(cluster = %self.cluster.name(), was = known.as_deref(), %is, "another cluster answers at the same address");
                return Some(End::Replaced);
            }
            Ok(_) => {}
            Err(error) if error.unauthorized => return self.renew(Refresh::Unauthorized).await,
            Err(error) if error.busy => {}
            Err(error) => self.unreachable(error),
        }
        None
    }

    /// Makes the connection follow the newest spec.
    async fn follow_spec(&mut self) -> Option<End> {
        self.retry_spec_at = None;
        let spec = self.desired.spec.clone();
        if spec.suspended().is_some() {
            return None;
        }
        let resolved = resolve(&self.fleet.resources, &spec).await;
        let new = match resolved.and_then(|resolved| resolved_spec(&spec, &resolved)) {
            Ok(new) => new,
            Err(error) => {
                self.keep_last_good(&error);
                self.retry_spec_at = Some(self.later());
                return None;
            }
        };
        // The connection may have ended while files were read.
        let Some(connection) = &self.connection else {
            return None;
        };
        match classify(&connection.spec, &new) {
            SpecChange::Info => {
                self.cluster.change_info(|info| info.warning = None);
                self.redeclare(spec.identity.clone());
                self.use_default_namespace();
                None
            }
            SpecChange::Identity => Some(End::Replaced),
            SpecChange::Credentials => self.swap_credentials(&spec).await,
            SpecChange::Endpoint => {
                tracing::info!(cluster = %self.cluster.name(), "the cluster has another address; connecting to it");
                // Another cluster may answer at the new address. No watch and no request may use it before its identity
                // is known.
                self.cluster.set_phase(Phase::Down);
                self.cluster
                    .transport()
                    .block(Some("the cluster is being connected at its new address".into()));
                self.set_state(ClusterState::Connecting);
                None
            }
        }
    }

    /// Tries new credentials, and swaps to them if the API server accepts them.
    async fn swap_credentials(&mut self, spec: &Arc<Description>) -> Option<End> {
        let (prefix, by_uid) = (self.prefix(), self.goes_by_uid());
        let attempt = async {
            let mut new = dial(&self.fleet.resources, spec, Refresh::First, &prefix).await?;
            let limit = self.fleet.settings().probe_timeout;
            let channel = &new.connection.channel;
            probe::try_credential(channel, limit).await?;
            // A front may choose the cluster by the credential. No request of a user may go to another one.
            if by_uid {
                let uid = probe::identify(channel, ProbeConnection::Keep, limit).await?;
                new.identity.uid = uid.filter(|uid| is_uid(uid));
            }
            Ok::<_, ConnectError>(new)
        };
        let result = tokio::select! {
            result = attempt => result,
            _ = self.changes.changed() => {
                self.retry_spec_at = Some(Instant::now());
                return self.take_change();
            }
        };
        match result {
            Ok(new) if self.is_another(&new) || self.claim(&new).is_some() => return Some(End::Replaced),
            Ok(new) => {
                tracing::info!(cluster = %self.cluster.name(), "credentials swapped");
                count(&self.fleet.counts().renewed);
                self.adopt(new);
            }
            Err(error) => {
                count(&self.fleet.counts().failed);
                self.warn(&format!(
                    "credentials refused: {}; keeping the previous ones",
                    error.reason
                ));
                self.retry_spec_at = Some(self.later());
            }
        }
        None
    }

    /// When to try again a spec that could not be followed.
    pub(super) fn later(&mut self) -> Instant {
        Instant::now() + self.backoff.pause().max(Duration::from_secs(1))
    }

    /// Shows a problem as a warning. The cluster continues with the spec and the credential in use.
    pub(super) fn keep_last_good(&self, problem: &str) {
        self.warn(&format!("{problem}; its previous settings stay in use"));
    }

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

    /// Fetches a new credential from the source in use, and swaps to it if the API server accepts it.
    async fn renew(&mut self, why: Refresh) -> Option<End> {
        let transport = self.cluster.transport().clone();
        let known = self.identity.as_ref().and_then(|known| known.uid.clone());
        let connection = self.connection.as_mut()?;
        let refused = why == Refresh::Unauthorized;
        if refused
            && connection
                .refused_until
                .is_some_and(|until| Instant::now() < until)
        {
            transport.refresh_done();
            self.check_refused(why).await;
            return None;
        }
        let renewed = match &connection.access {
            Some(access) => {
                let compare = known.is_some();
                let renewed =
                    renew_credential(&self.fleet.resources, access, connection.credential, why, compare);
                let (after, limit) = (self.fleet.probe_after(), self.fleet.settings().probe_timeout);
                // What keeps the source from answering may keep the API server from it, too.
                let silent = fell_silent(&transport, &connection.channel, after, limit);
                tokio::select! {
                    renewed = renewed => renewed.map(Some),
                    error = silent => {
                        transport.refresh_done();
                        self.unreachable(error);
                        return None;
                    }
                }
            }
            None => Ok(None),
        };
        let counts = self.fleet.counts();
        let (every, problem) = match renewed {
            Ok(Some((_, Some((_, Some(is)))))) if known.as_ref().is_some_and(|known| *known != is) => {
                tracing::warn!(cluster = %self.cluster.name(), was = known.as_deref(), %is, "another cluster answers the renewed credential");
                return Some(End::Replaced);
            }
            Ok(Some((issued, Some((channel, _))))) => {
                let now = Instant::now();
                let lasted = connection.renewed_at.is_none_or(|at| now > at + LASTED);
                // A source can issue one credential after the other that the server takes and then refuses.
                match (issued.had_expired(), lasted) {
                    (true, _) => count(&counts.failed),
                    (false, lasted) => {
                        count(&counts.renewed);
                        if lasted {
                            connection.refresh_backoff.reset();
                        }
                    }
                }
                connection.renewed_at = Some(now);
                connection.refused_until = refused.then(|| now + connection.refresh_backoff.pause());
                connection.refresh_at = issued.refresh_at(&mut connection.refresh_backoff);
                connection.credential = issued.credential.fingerprint();
                connection.channel = channel.clone();
                transport.swap(channel);
                transport.refresh_done();
                let warning: Option<Arc<str>> = issued.had_expired().then(|| HAD_EXPIRED.into());
                let keeps_warning = self.retry_spec_at.is_some();
                self.cluster.change_info(|info| {
                    info.credential_expires = issued.credential.expires_at;
                    if !keeps_warning {
                        info.warning.clone_from(&warning);
                    }
                });
                tracing::debug!(cluster = %self.cluster.name(), ?why, "credential renewed");
                return None;
            }
            // The source has no newer credential yet.
            Ok(Some((issued, None))) => {
                count(&counts.unchanged);
                (issued.every, None)
            }
            Ok(None) => (None, None),
            Err(error) => {
                count(&counts.failed);
                (None, Some(error.reason))
            }
        };
        let pause = match (every, &problem) {
            // A source with an interval, such as a file that is read every minute, rarely has a newer credential.
            (Some(every), None) => every,
            _ => connection.refresh_backoff.pause(),
        };
        connection.refresh_at = connection.access.is_some().then(|| Instant::now() + pause);
        transport.refresh_done();
        if let Some(problem) = problem {
            self.keep_last_good(&format!("its credential can't be renewed: {problem}"));
        }
        self.check_refused(why).await;
        None
    }

    /// Checks whether the API server still refuses the credential in use, if that is why it was to be renewed.
    async fn check_refused(&mut self, why: Refresh) {
        let (Refresh::Unauthorized, Some(connection)) = (why, &self.connection) else {
            return;
        };
        let limit = self.fleet.settings().probe_timeout;
        let answer = probe::alive(&connection.channel, ProbeConnection::Close, limit).await;
        self.last_probe = Instant::now();
        if let Err(error) = answer
            && !error.busy
        {
            self.unreachable(error);
        }
    }
}

/// Fetches a credential. If it differs from the one in use, tries it and returns a channel that uses it, with the UID of the
/// cluster that answers there if it is to be compared.
async fn renew_credential(
    resources: &Resources,
    access: &EndpointCredentials,
    in_use: Fingerprint,
    why: Refresh,
    compare: bool,
) -> Result<(IssuedCredential, Option<(Channel, Option<Arc<str>>)>), ConnectError> {
    let issued = access.fetch(why, resources.settings.credential_timeout).await?;
    if issued.credential.fingerprint() == in_use {
        return Ok((issued, None));
    }
    let channel = access.channel(&resources.dialer, &issued.credential)?;
    let limit = resources.settings.probe_timeout;
    probe::try_credential(&channel, limit).await?;
    let uid = match compare {
        true => probe::identify(&channel, ProbeConnection::Keep, limit).await?,
        false => None,
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
    let mut since = transport.last_heard_at().unwrap_or_else(Instant::now);
    loop {
        sleep_until(since + after).await;
        since = transport.last_heard_at().map_or(since, |heard| heard.max(since));
        if since.elapsed() < after {
            continue;
        }
        match probe::alive(channel, ProbeConnection::Close, limit).await {
            Err(error) if !error.busy && !error.unauthorized => return error,
            _ => since = Instant::now(),
        }
    }
}

/// Waits until a watch has failed since the known number of failures.
fn failed_since(health: &Health, known: u64) -> impl Future<Output = ()> {
    health
        .failures
        .wait(move |failures| (*failures != known).then_some(()))
}
