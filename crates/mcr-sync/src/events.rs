//! Reports what the sync does: events on the source, and the log.

use std::time::Duration;

use kube::{
    Resource,
    runtime::events::{Event, EventType},
};
use tokio::time::timeout;

use crate::{memory::Problem, pass::Pass, report::PAUSED, values::without_quoted_values};

/// The longest text of an event that an API server accepts, in bytes.
const MAX_NOTE: usize = 1024;

/// How long a reconcile waits for the publication of an event.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(5);

impl<S, T> Pass<'_, S, T> {
    /// Reports a problem of the source, or that the problem is over, unless that was reported before.
    pub(crate) async fn report_problem(&self, problem: &mut Option<Problem>) {
        let (sync, source, memory) = (&*self.relation.name, &self.request.key, &self.relation.memory);
        match problem {
            Some(problem) => {
                if !memory.note_problem(source, problem) {
                    return;
                }
                let Problem { reason, message, .. } = problem;
                if *reason == PAUSED {
                    tracing::info!(sync, %source, "{message}");
                } else {
                    tracing::warn!(sync, %source, reason, "{message}");
                }
                self.publish(EventType::Warning, reason, "Sync", message).await;
            }
            None if memory.note_no_problem(source) => {
                let note = "all targets are as they should be";
                tracing::info!(sync, %source, "{note} again");
                self.publish(EventType::Normal, "Synced", "Sync", note).await;
            }
            None => {}
        }
    }

    /// Publishes an event on the source, if the sync publishes events. A failure is logged and not retried, because
    /// nothing depends on events.
    pub(crate) async fn publish(&self, type_: EventType, reason: &str, action: &str, note: &str) {
        let Some(source) = self.last_known().filter(|_| self.relation.events) else {
            return;
        };
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(shortened(note).to_owned()),
            action: action.to_owned(),
            secondary: None,
        };
        let cluster = &self.request.cluster;
        let (recorder, on) = (cluster.recorder(), source.object_ref(&self.relation.source));
        let error = match timeout(PUBLISHED_WITHIN, recorder.publish(&event, &on)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => mcr::core::explain_error(&without_quoted_values(error)).to_string(),
            Err(_) => format!("no answer within {PUBLISHED_WITHIN:?}"),
        };
        let is_first = self.relation.memory.is_first_refusal(cluster.name());
        let (sync, cluster) = (&*self.relation.name, &**cluster.name());
        if is_first {
            tracing::warn!(sync, cluster, %error, "could not publish an event; give the program the right to create and patch events.events.k8s.io, or leave out `publish_events`");
        } else {
            tracing::debug!(sync, cluster, %error, "could not publish an event");
        }
    }
}

/// The beginning of a text, as much as fits into an event.
fn shortened(note: &str) -> &str {
    let mut ends = (0..=note.len().min(MAX_NOTE)).rev();
    &note[..ends.find(|end| note.is_char_boundary(*end)).unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_letters() {
        assert_eq!(shortened("short"), "short");
        let long = format!("{}é and more", "a".repeat(MAX_NOTE - 1));
        assert_eq!(shortened(&long), "a".repeat(MAX_NOTE - 1));
    }
}
