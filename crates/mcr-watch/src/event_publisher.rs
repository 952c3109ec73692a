//! Kubernetes events on the Secrets whose kubeconfig can't be used.

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    env,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use mcr_client::{explain_error, internal::Backoff};
use mcr_store::ObjectKey;
use tokio::time::{sleep, timeout};

use crate::notice::{Ledger, Notice, NoticeKind};

const BROKEN: &str = "KubeconfigBroken";
const WELL: &str = "KubeconfigUsable";
const ACTION: &str = "ReadKubeconfig";
/// The longest text of an event that the API takes.
const LONGEST_NOTE: usize = 1024;
/// The longest name of an instance that the API takes.
const LONGEST_INSTANCE: usize = 128;
/// The limit of events that wait, so that a slow hub does not get ever more of them.
const WAITING: usize = 1024;
const DEADLINE: Duration = Duration::from_secs(10);
const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(16);

/// Writes Kubernetes events on Secrets, one after the other, while it is polled.
pub struct EventPublisher {
    client: Client,
    /// A qualified name, as the API wants it.
    controller: &'static str,
    ledger: Arc<Ledger>,
    waiting: VecDeque<Notice>,
    under_way: Option<BoxFuture<'static, Sent>>,
    /// The recorder of each Secret's last problem. One made for each problem, since a recorder goes on with an
    /// event of the same reason without looking at its text.
    recorders: HashMap<ObjectKey, (Arc<str>, Recorder)>,
    warned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    Yes,
    Forbidden,
    Failed,
}

impl EventPublisher {
    /// Writes with this client in the name of this controller: a DNS name, a slash and a word.
    pub fn new(client: Client, controller: &'static str, ledger: Arc<Ledger>) -> Self {
        Self {
            client,
            controller,
            ledger,
            waiting: VecDeque::new(),
            under_way: None,
            recorders: HashMap::new(),
            warned: false,
        }
    }

    /// Queues an event for the notice if it is news. A newer notice of the same Secret replaces one that still waits.
    pub fn take(&mut self, notice: Notice) {
        let news = self.ledger.is_news(&notice);
        if notice.kind == NoticeKind::Gone {
            self.waiting.retain(|waiting| waiting.key != notice.key);
            self.recorders.remove(&notice.key);
        }
        if !news {
            return;
        }
        self.waiting.retain(|waiting| waiting.key != notice.key);
        if self.waiting.len() >= WAITING {
            tracing::debug!(secret = %notice.key, "too many events wait to be written; this one is left out");
            return;
        }
        self.waiting.push_back(notice);
    }

    /// Writes the events that wait. Never ends; cancel safe.
    pub async fn run(&mut self) -> Infallible {
        loop {
            if self.under_way.is_none() {
                match self.waiting.pop_front() {
                    Some(notice) => self.under_way = Some(self.publish(notice)),
                    None => std::future::pending().await,
                }
            }
            if let Some(under_way) = &mut self.under_way {
                let sent = under_way.await;
                self.under_way = None;
                if sent == Sent::Forbidden && !self.warned {
                    self.warned = true;
                    tracing::warn!(
                        "events on Secrets can't be written: forbidden. What is wrong with a Secret is in this log and \
                         in the fleet's state only. Grant create and patch on events in the group events.k8s.io, or turn \
                         them off with `events(false)`"
                    );
                }
            }
        }
    }

    fn publish(&mut self, notice: Notice) -> BoxFuture<'static, Sent> {
        let client = self.client.clone();
        let known = self.recorders.remove(&notice.key);
        let (type_, reason, note) = match &notice.kind {
            NoticeKind::Broken(problem) => (EventType::Warning, BROKEN, problem.clone()),
            _ => (EventType::Normal, WELL, "the kubeconfig can be used again".into()),
        };
        let fits = |of: &Arc<str>| *of == note || type_ == EventType::Normal;
        let (of, recorder) = known
            .filter(|(of, _)| fits(of))
            .unwrap_or_else(|| (note.clone(), Recorder::new(client, reporter(self.controller))));
        self.recorders.insert(notice.key.clone(), (of, recorder.clone()));
        let event = Event {
            type_,
            reason: reason.into(),
            note: Some(cut(&note, LONGEST_NOTE).to_owned()),
            action: ACTION.into(),
            secondary: None,
        };
        let reference = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Secret".into()),
            namespace: notice.key.namespace.as_deref().map(Into::into),
            name: Some(notice.key.name.as_ref().into()),
            uid: Some(notice.uid.as_ref().into()).filter(|uid: &String| !uid.is_empty()),
            ..ObjectReference::default()
        };
        send(recorder, event, reference, notice.key).boxed()
    }
}

/// Best effort: what can't be written within a few attempts is in the log and in the fleet's state.
async fn send(recorder: Recorder, event: Event, reference: ObjectReference, key: ObjectKey) -> Sent {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    for attempt in 1..=ATTEMPTS {
        let why = match timeout(DEADLINE, recorder.publish(&event, &reference)).await {
            Ok(Ok(())) => return Sent::Yes,
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => return Sent::Forbidden,
            // A name that is too long, a namespace that is gone: it will be the same next time.
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 400..=499) && status.code != 429 => {
                tracing::debug!(secret = %key, code = status.code, "an event on a Secret was refused");
                return Sent::Failed;
            }
            Ok(Err(error)) => explain_error(&error),
            Err(_) => format!("no answer within {} s", DEADLINE.as_secs()),
        };
        tracing::debug!(secret = %key, attempt, why, "an event on a Secret could not be written");
        sleep(backoff.pause()).await;
    }
    Sent::Failed
}

fn reporter(controller: &str) -> Reporter {
    let pod = ["CONTROLLER_POD_NAME", "POD_NAME", "HOSTNAME"]
        .into_iter()
        .find_map(|variable| env::var(variable).ok().filter(|value| !value.is_empty()));
    Reporter {
        controller: controller.into(),
        instance: pod.map(|pod| cut(&pod, LONGEST_INSTANCE).to_owned()),
    }
}

/// At most so many bytes of a text.
fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("abc", 10), "abc");
        assert_eq!(cut("a…b", 3), "a");
        assert_eq!(cut("a…b", 4), "a…");
    }
}
