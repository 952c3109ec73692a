//! The discovery of a provider: events go in, one decision is made, changes and tasks come out.

use std::{collections::VecDeque, future::pending};

use futures::{
    FutureExt, Stream, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream, FuturesUnordered, SelectAll},
};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::provider::{Change, Discovery};
use mcr_access::BoxError;
use mcr_watch::internal::{EventPublisher, Notice};

/// So many events are decided upon at once at most, so that the first of thousands of clusters are announced early.
const BATCH: usize = 32;

/// The decisions of a provider. They do no I/O: what is to be done is returned as [`Outcome::tasks`].
pub trait Decide: Send + 'static {
    /// What happens: an event of a watch, or the result of a task.
    type Event: Send + 'static;

    /// Whether [`decide`](Self::decide) blocks, for example because it parses kubeconfigs. It is then called on a thread for that.
    const BLOCKS: bool = false;

    /// Decides what follows from these events, which have happened in this order; from none, if it is [due](Self::due).
    fn decide(&mut self, events: Vec<Self::Event>, now: Instant) -> Outcome<Self::Event>;

    /// When to decide again, if nothing happens before. Default: never.
    fn due(&self) -> Option<Instant> {
        None
    }
}

/// What follows from events.
pub struct Outcome<E> {
    /// The changes to announce.
    pub changes: Vec<Change>,
    /// The notices for Kubernetes events on objects.
    pub notices: Vec<Notice>,
    /// The tasks to run, with the event that each ends with. They are polled with the discovery, and dropped with it.
    pub tasks: Vec<BoxFuture<'static, E>>,
    /// Ends the discovery after these changes. The fleet starts another one after a pause.
    pub error: Option<BoxError>,
}

impl<E> Default for Outcome<E> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<E> From<Vec<Change>> for Outcome<E> {
    fn from(changes: Vec<Change>) -> Self {
        Self {
            changes,
            notices: Vec::new(),
            tasks: Vec::new(),
            error: None,
        }
    }
}

/// A running discovery: sources of events, decisions and tasks.
pub struct Running<D: Decide> {
    /// None after the error, which is the last item.
    decide: Option<D>,
    sources: SelectAll<BoxStream<'static, D::Event>>,
    tasks: FuturesUnordered<BoxFuture<'static, D::Event>>,
    publisher: Option<EventPublisher>,
    ready: VecDeque<Change>,
    error: Option<BoxError>,
}

impl<D: Decide> Running<D> {
    /// A discovery with these decisions, without any source yet.
    pub fn new(decide: D) -> Self {
        Self {
            decide: Some(decide),
            sources: SelectAll::new(),
            tasks: FuturesUnordered::new(),
            publisher: None,
            ready: VecDeque::new(),
            error: None,
        }
    }

    /// Adds a source of events, such as a [watch](super::Hub::watch). The discovery ends with its last source.
    #[must_use]
    pub fn source(mut self, events: impl Stream<Item = D::Event> + Send + 'static) -> Self {
        self.sources.push(events.boxed());
        self
    }

    /// Adds several sources of events.
    #[must_use]
    pub fn sources(mut self, sources: impl IntoIterator<Item = BoxStream<'static, D::Event>>) -> Self {
        self.sources.extend(sources);
        self
    }

    /// Writes the notices as Kubernetes events.
    #[must_use]
    pub fn publisher(mut self, publisher: Option<EventPublisher>) -> Self {
        self.publisher = publisher;
        self
    }

    async fn next(&mut self) -> Option<Result<Change, BoxError>> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Some(Ok(change));
            }
            if let Some(error) = self.error.take() {
                return Some(Err(error));
            }
            let events = self.events().await?;
            let mut decide = self.decide.take()?;
            let decided = move || {
                let outcome = decide.decide(events, Instant::now());
                (decide, outcome)
            };
            let outcome = if D::BLOCKS {
                // After a panic the fleet starts another discovery.
                spawn_blocking(decided).await.map_err(Into::into)
            } else {
                Ok(decided())
            };
            match outcome {
                Ok((decide, outcome)) => {
                    self.decide = Some(decide).filter(|_| outcome.error.is_none());
                    self.ready.extend(outcome.changes);
                    self.tasks.extend(outcome.tasks);
                    self.error = outcome.error;
                    if let Some(publisher) = &mut self.publisher {
                        outcome
                            .notices
                            .into_iter()
                            .for_each(|notice| publisher.take(notice));
                    }
                }
                Err(error) => self.error = Some(error),
            }
        }
    }

    /// Waits until something happens, and takes what has happened by then. None if nothing can happen any more. Cancel safe.
    async fn events(&mut self) -> Option<Vec<D::Event>> {
        let due = self.decide.as_ref()?.due();
        let due = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => pending().await,
            }
        };
        let publish = async {
            match &mut self.publisher {
                Some(publisher) => publisher.run().await,
                None => pending().await,
            }
        };
        let first = tokio::select! {
            event = self.sources.next() => event?,
            Some(event) = self.tasks.next(), if !self.tasks.is_empty() => event,
            () = due => return Some(Vec::new()),
            never = publish => match never {},
        };
        let mut events = vec![first];
        while events.len() < BATCH
            && let Some(Some(event)) = self.sources.next().now_or_never()
        {
            events.push(event);
        }
        Some(events)
    }
}

/// The [`Discovery`] of a provider, which begins with `start` when it is first polled, and ends with `stop`.
///
/// An error of `start` ends it. Dropping the discovery drops its sources and tasks; a decision that blocks at that moment finishes
/// in the background.
pub fn discovery<D: Decide>(
    stop: CancellationToken,
    start: impl Future<Output = Result<Running<D>, BoxError>> + Send + 'static,
) -> Discovery {
    stream::once(start)
        .flat_map(|started| match started {
            Ok(running) => stream::unfold(running, async |mut running| {
                Some((running.next().await?, running))
            })
            .boxed(),
            Err(error) => stream::once(async { Err(error) }).boxed(),
        })
        .take_until(stop.cancelled_owned())
        .boxed()
}
