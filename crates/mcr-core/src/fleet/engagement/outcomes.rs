//! What the outcome of an action means: an event.

use std::{sync::Arc, time::SystemTime};

use mcr_client::internal::ConnectError;
use mcr_watch::internal::count;

use super::{Engagement, Happened};
use crate::fleet::{
    connection::{HAD_EXPIRED, NewConnection, Renewal},
    life::Event,
    spec_change::{SpecChange, classify},
    under_way::Outcome,
};
use mcr_access::{ClusterName, Refresh};

impl Engagement<'_> {
    pub(super) fn judge(&mut self, outcome: Outcome) -> Happened {
        let probed = matches!(outcome, Outcome::Attempt(_) | Outcome::Probed(_));
        if probed {
            let now = SystemTime::now();
            self.cluster.change_info(|info| info.last_probe = Some(now));
        }
        let event = match outcome {
            Outcome::Attempt(Ok(new)) => return self.judge_attempt(new),
            Outcome::Attempt(Err(why)) => {
                tracing::debug!(cluster = %self.cluster.name(), reason = %why.reason, "not connected");
                Event::NotConnected(why)
            }
            Outcome::Fallback(answers, why) => {
                let previous = answers.then(|| self.previous()).flatten();
                let answers = previous.is_some();
                return (Event::Fallback { answers, why }, previous);
            }
            Outcome::Turn => Event::Due,
            Outcome::Probed(answer) => {
                let known = self.known.uid().map(|uid| &**uid);
                match answer {
                    Ok(Some(is)) if known != Some(&is) => {
                        tracing::warn!(cluster = %self.cluster.name(), was = known, %is, "another cluster answers at the same address");
                        Event::AnotherAnswers
                    }
                    answer => Event::Probed {
                        renewed: false,
                        answer: answer.map(drop),
                    },
                }
            }
            Outcome::ProbedCredential(answer) => Event::Probed {
                renewed: true,
                answer,
            },
            Outcome::Renewed(why, renewal) => self.renewed(why, renewal),
            Outcome::Resolved(Err(problem)) => Event::Resolved(Err(problem)),
            Outcome::Resolved(Ok(new)) => match &self.connection {
                Some(connection) => {
                    let change = classify(&connection.spec, &new);
                    if change == SpecChange::Endpoint {
                        tracing::info!(cluster = %self.cluster.name(), "the cluster has another address; connecting to it");
                    }
                    Event::Resolved(Ok(change))
                }
                None => Event::FellSilent(ConnectError::new("the connection was closed")),
            },
            Outcome::Swap(Ok(new)) => {
                if self.known.is_another(&self.cluster, &new) || self.claim(&new).is_some() {
                    Event::AnotherAnswers
                } else {
                    tracing::info!(cluster = %self.cluster.name(), "credentials swapped");
                    count(&self.fleet.counts().renewed);
                    return (Event::Swapped, Some(new));
                }
            }
            Outcome::Swap(Err(why)) => {
                count(&self.fleet.counts().failed);
                Event::NotSwapped(why)
            }
            Outcome::Silent(why) => {
                self.cluster.transport().refresh_done();
                Event::FellSilent(why)
            }
        };
        (event, None)
    }

    fn judge_attempt(&mut self, new: NewConnection) -> Happened {
        if self.known.is_another(&self.cluster, &new) || self.cluster.transport().is_closed() {
            return (Event::AnotherAnswers, None);
        }
        let Some((uid, engaged)) = self.claim(&new) else {
            let known = self.known.identity.as_ref().map(|known| &known.target);
            let moved = known != Some(&new.connection.spec.target);
            return (Event::Connected { moved }, Some(new));
        };
        if self.known.identity.is_some() {
            // It was engaged, before it could be known that it is the same one.
            return (Event::AnotherAnswers, None);
        }
        let reason: Arc<str> = format!(
            "it is the same cluster as {engaged} (both have the kube-system UID {uid}), so it is not engaged beside it. It joins \
             when {engaged} leaves; remove one of the two, or let the fleet allow duplicates"
        )
        .into();
        let name = self.cluster.name();
        if self.cluster.state().reason() != Some(&reason) {
            tracing::warn!(cluster = %name, same_as = %engaged, %uid, "the cluster is another name of one in the fleet, and is not engaged beside it");
        }
        self.cluster
            .change_info(|info| info.same_as = Some(engaged.clone()));
        (Event::Taken { reason }, None)
    }

    /// The connection that was in use, to be used again.
    fn previous(&mut self) -> Option<NewConnection> {
        let info = self.cluster.info();
        let (connection, identity) = (self.connection.take()?, self.known.identity.clone()?);
        Some(NewConnection {
            connection,
            identity,
            expires: info.credential_expires,
            had_expired: false,
            namespace: info.default_namespace.clone(),
        })
    }

    fn renewed(&mut self, why: Refresh, renewal: Renewal) -> Event {
        let transport = self.cluster.transport();
        let known = self.known.uid();
        if let Renewal::Issued(issued, _) = &renewal {
            let warning: Option<Arc<str>> = issued.had_expired().then(|| HAD_EXPIRED.into());
            // A spec that could not replace the one in use is still the problem.
            let keeps_warning = self.life.retry_at.is_some();
            self.cluster.change_info(|info| {
                info.credential_expires = issued.credential.expires_at;
                if !keeps_warning {
                    info.warning.clone_from(&warning);
                }
            });
        }
        let event = match (renewal, &mut self.connection) {
            (_, None) => Event::FellSilent(ConnectError::new("the connection was closed")),
            (Renewal::Issued(_, Some((_, Some(is)))), _) if known.is_some_and(|known| *known != is) => {
                tracing::warn!(cluster = %self.cluster.name(), was = known.map(|uid| &**uid), %is, "another cluster answers the renewed credential");
                return Event::AnotherAnswers;
            }
            (Renewal::Issued(issued, Some((channel, _))), Some(connection)) => {
                connection.renew(&issued, channel.clone(), why, self.fleet.counts());
                transport.swap(channel);
                tracing::debug!(cluster = %self.cluster.name(), ?why, "credential renewed");
                Event::Renewed
            }
            (renewal, Some(connection)) => {
                let problem = connection.keep_credential(renewal, self.fleet.counts());
                Event::NotRenewed { why, problem }
            }
        };
        transport.refresh_done();
        event
    }

    /// Claims the UID of the cluster that has answered. The clusters behind a scope endpoint are parts of one server, and other
    /// clusters than that server.
    fn claim(&mut self, new: &NewConnection) -> Option<(Arc<str>, ClusterName)> {
        if self.scope_endpoint.is_some() {
            return None;
        }
        let spec = &self.desired.spec;
        self.known.claim(self.fleet, &self.cluster, spec, new)
    }
}
