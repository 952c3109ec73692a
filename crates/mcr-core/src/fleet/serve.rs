//! Looking after a cluster that answers: its health, its credentials, and what its provider says of it.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use mcr_client::Channel;
use mcr_watch::internal::{Health, Phase, count};
use tokio::time::{Instant, sleep_until};

use super::{
    ClusterState, FleetShared,
    connect::{Given, NotConnected, Source, dial, refresh_time, resolved, shape},
    description::Description,
    life::{End, Life},
    probe::{self, Afterwards, ProbeError},
    state::{SpecChange, classify, suspended},
};
use crate::{Fingerprint, Refresh};

/// What is to be done for a cluster at some time.
#[derive(Clone, Copy)]
enum Due {
    /// Its credential is renewed.
    Renewal,
    /// A description that could not be followed is tried again.
    Spec,
    /// It is asked who it is.
    Identity,
    /// It is asked whether it answers, if nothing was heard of it.
    Probe,
}

impl Life<'_> {
    /// Looks after a cluster that answers, until something happens.
    pub(super) async fn serve(&mut self) -> Option<End> {
        let Some(link) = &self.link else {
            self.unreachable(NotConnected::new("the connection was given up"));
            return None;
        };
        let transport = self.cluster.transport().clone();
        let line = self.cluster.health().clone();
        let known_failures = line.outcomes.read(|outcomes| outcomes.failures);
        let heard = transport
            .last_heard_at()
            .unwrap_or(self.last_probe)
            .max(self.last_probe);
        let probe_at = heard + self.fleet.probe_after();
        let soonest = [
            (link.refresh_at, Due::Renewal),
            (self.pending, Due::Spec),
            (self.identify_at, Due::Identity),
            (Some(probe_at), Due::Probe),
        ];
        let soonest = soonest.into_iter().filter_map(|(at, due)| Some((at?, due)));
        // One timer for all: each takes room in the task for as long as the cluster is there.
        let (at, due) = soonest
            .min_by_key(|(at, _)| *at)
            .unwrap_or((probe_at, Due::Probe));
        // What is done now and then is in boxes: a task has the size of the largest thing it ever does.
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
            _ = transport.unauthorized() => { Box::pin(self.renew(Refresh::Unauthorized)).await; None }
            () = sleep_until(at) => match due {
                Due::Renewal => { Box::pin(self.renew(Refresh::Expiring)).await; None }
                Due::Spec => Box::pin(self.follow_spec()).await,
                Due::Identity => { Box::pin(self.identify_now()).await; None }
                Due::Probe => {
                    let heard = transport.last_heard_at().unwrap_or(self.last_probe).max(self.last_probe);
                    if heard.elapsed() >= self.fleet.probe_after() { Box::pin(self.check()).await } else { None }
                }
            },
            () = failed_since(&line, known_failures) => Box::pin(self.check()).await,
        }
    }

    /// Finds out who the cluster is, where that was put off.
    pub(super) async fn identify_now(&mut self) {
        if self.identify_at.take().is_none() {
            return;
        }
        let Some(link) = &self.link else { return };
        let answer = probe::identify(
            &link.channel,
            Afterwards::Close,
            self.fleet.settings().probe_timeout,
        )
        .await;
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

    /// Takes note of an identity that began to be declared, or no longer is, for the cluster as it is connected.
    fn redeclare(&mut self, declared: Option<Arc<str>>) {
        let Some(identity) = &mut self.identity else {
            return;
        };
        if identity.declared == declared {
            return;
        }
        identity.declared = declared;
        let shown = identity.shown();
        if shown.is_none() {
            // Nothing is left to tell it from another cluster by.
            self.identify_at = Some(Instant::now());
        }
        self.cluster
            .change_facts(|facts| facts.identity.clone_from(&shown));
    }

    /// Asks the cluster whether it still answers, and whether it is still the same one: it may have been deleted and
    /// made anew at the same address while nobody looked.
    pub(super) async fn check(&mut self) -> Option<End> {
        const AT_MOST_EVERY: Duration = Duration::from_millis(500);
        let next = self.last_probe + AT_MOST_EVERY;
        sleep_until(next).await;
        let link = self.link.as_ref()?;
        let limit = self.fleet.settings().probe_timeout;
        let known = self.identity.as_ref().filter(|known| known.declared.is_none());
        let known = known.and_then(|known| known.uid.clone());
        let answer = match &known {
            Some(_) => probe::identify(&link.channel, Afterwards::Close, limit).await,
            None => probe::alive(&link.channel, Afterwards::Close, limit)
                .await
                .map(|()| None),
        };
        self.last_probe = Instant::now();
        self.cluster
            .change_facts(|facts| facts.last_probe = Some(SystemTime::now()));
        match answer {
            Ok(Some(is)) if known.as_ref() != Some(&is) => {
                tracing::warn!(cluster = %self.cluster.name(), was = known.as_deref(), %is, "another cluster answers at the same address");
                return Some(End::Replaced);
            }
            Ok(_) => {}
            Err(ProbeError::Unauthorized) => self.renew(Refresh::Unauthorized).await,
            Err(error) => self.unreachable(error.into()),
        }
        None
    }

    /// Makes the connection what the description now asks for.
    async fn follow_spec(&mut self) -> Option<End> {
        self.pending = None;
        let spec = self.wanted.spec.clone();
        if suspended(&spec).is_some() {
            return None;
        }
        let resolved = resolved(self.fleet, &spec).await;
        let shape = match resolved.and_then(|resolved| shape(&spec, &resolved)) {
            Ok(shape) => shape,
            Err(error) => {
                self.keep_last_good(&error);
                self.pending = Some(self.later());
                return None;
            }
        };
        // Resolving may have read files; what happened meanwhile is looked at before anything is done.
        let Some(link) = &self.link else { return None };
        match classify(&link.shape, &shape) {
            SpecChange::Facts => {
                self.cluster.change_facts(|facts| facts.warning = None);
                self.redeclare(spec.identity.clone());
                self.use_default_namespace();
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
    async fn swap_credentials(&mut self, spec: &Arc<Description>) -> Option<End> {
        let prefix = self.prefix();
        let attempt = async {
            let connected = dial(self.fleet, spec, Refresh::First, &prefix).await?;
            let limit = self.fleet.settings().probe_timeout;
            probe::try_credential(&connected.link.channel, limit).await?;
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
                count(&self.fleet.counts().renewed);
                self.adopt(connected);
            }
            Err(error) => {
                count(&self.fleet.counts().failed);
                self.keep_last_good(&format!("its new credentials are not taken: {}", error.reason));
                self.pending = Some(self.later());
            }
        }
        None
    }

    /// When to try again what could not be followed.
    fn later(&mut self) -> Instant {
        Instant::now() + self.backoff.pause().max(Duration::from_secs(1))
    }

    pub(super) fn keep_last_good(&self, problem: &str) {
        let warning: Arc<str> = format!("{problem}; the last good one goes on").into();
        let told = self.cluster.facts().warning.as_ref() == Some(&warning);
        if !told {
            tracing::warn!(cluster = %self.cluster.name(), %warning, "the cluster goes on as it was");
            self.cluster
                .change_facts(|facts| facts.warning = Some(warning.clone()));
            self.shown();
        }
    }

    /// Gets a fresh credential from the source in use, and uses it if it is taken.
    async fn renew(&mut self, why: Refresh) {
        let transport = self.cluster.transport().clone();
        let Some(link) = &mut self.link else { return };
        let renewed = match &link.source {
            Some(source) => fresh(self.fleet, source, link.credential, why).await.map(Some),
            None => Ok(None),
        };
        let counts = self.fleet.counts();
        match &renewed {
            Ok(Some((_, Some(_)))) => count(&counts.renewed),
            Ok(Some((_, None))) => count(&counts.unchanged),
            Ok(None) => {}
            Err(_) => count(&counts.failed),
        }
        let (every, problem) = match renewed {
            Ok(Some((Given { credential, every }, Some(channel)))) => {
                link.refresh_backoff.reset();
                link.refresh_at = refresh_time(&credential, every);
                link.credential = credential.fingerprint();
                link.channel = channel.clone();
                transport.swap(channel);
                transport.refresh_done();
                self.cluster
                    .change_facts(|facts| facts.credential_expires = credential.expires_at);
                tracing::debug!(cluster = %self.cluster.name(), ?why, "credential renewed");
                return;
            }
            // The source has no other one yet.
            Ok(given) => (given.and_then(|(given, _)| given.every), None),
            Err(error) => (None, Some(error.reason)),
        };
        let pause = match (every, &problem) {
            // Nothing new is the normal case for a file that is read every minute.
            (Some(every), None) => every,
            _ => link.refresh_backoff.pause(),
        };
        link.refresh_at = link.source.is_some().then(|| Instant::now() + pause);
        transport.refresh_done();
        if let Some(problem) = problem {
            self.keep_last_good(&format!("its credential can't be renewed: {problem}"));
        }
        self.check_refused(why).await;
    }

    /// A credential was refused and there is no other: the cluster can't be used until there is.
    async fn check_refused(&mut self, why: Refresh) {
        if why != Refresh::Unauthorized {
            return;
        }
        let Some(link) = &self.link else { return };
        let answer = probe::alive(
            &link.channel,
            Afterwards::Close,
            self.fleet.settings().probe_timeout,
        )
        .await;
        self.last_probe = Instant::now();
        if let Err(error) = answer {
            self.unreachable(error.into());
        }
    }
}

/// What the source hands out now, with a channel that uses it if it is another credential than the one in use and the API
/// server takes it.
async fn fresh(
    fleet: &FleetShared,
    source: &Source,
    in_use: Fingerprint,
    why: Refresh,
) -> Result<(Given, Option<Channel>), NotConnected> {
    let given = source.credential(fleet, why).await?;
    if given.credential.fingerprint() == in_use {
        return Ok((given, None));
    }
    let channel = source.channel(fleet, &given.credential)?;
    probe::try_credential(&channel, fleet.settings().probe_timeout).await?;
    Ok((given, Some(channel)))
}

fn failed_since(line: &Health, known: u64) -> impl Future<Output = ()> {
    line.outcomes
        .wait(move |outcomes| (outcomes.failures != known).then_some(()))
}
