//! The body of an answer, as it comes in.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use mcr_access::BoxError;
use tokio::time::{Instant, Sleep};

use crate::{
    TransportError, TransportErrorKind,
    explain::explain,
    foreign::{CLIENT, Foreign, LAYOUT},
    lease::{BodyLease, Verdict},
    pool::Answer,
    request::Operation,
};

/// The body of an answer. Ends with an error when nothing comes for too long, when the cluster is gone, and, as
/// its class asks for, after the credentials were replaced.
pub struct ResponseBody {
    /// Shared with the [`Bodies`] of its channel, so that the connection can be let go of while nobody reads.
    inner: Arc<Mutex<Inner>>,
    operation: Operation,
    /// How long silence is endured, and since when it lasts.
    silence: Option<(Duration, Pin<Box<Sleep>>)>,
    life: Option<Box<BodyLease>>,
    ended: bool,
}

/// The body of an answer, whatever it was made of: what a proxy of requests passes on.
pub type AnswerBody = http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>;

enum Inner {
    Pooled(Answer),
    Client(Foreign<kube::client::Body>),
    Routed(Foreign<AnswerBody>),
    Whole(Option<Bytes>),
    /// Taken away.
    Cut,
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bodies that are being received through one channel.
#[derive(Default)]
pub(super) struct Bodies(Mutex<Open>);

#[derive(Default)]
struct Open {
    bodies: Vec<Weak<Mutex<Inner>>>,
    cut: bool,
}

impl Bodies {
    pub(super) fn add(&self, body: &ResponseBody) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.cut {
            *lock(&body.inner) = Inner::Cut;
            return;
        }
        if open.bodies.len() == open.bodies.capacity() {
            open.bodies.retain(|body| body.strong_count() > 0);
        }
        open.bodies.push(Arc::downgrade(&body.inner));
    }

    /// Lets go of all connections, those of bodies still to come included.
    pub(super) fn cut(&self) {
        let bodies = {
            let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            open.cut = true;
            std::mem::take(&mut open.bodies)
        };
        for body in bodies.iter().filter_map(Weak::upgrade) {
            *lock(&body) = Inner::Cut;
        }
    }
}

impl Inner {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self {
            Self::Pooled(body) => Pin::new(body).poll_frame(context).map_err(Broken::Error),
            Self::Client(body) => next_of(body, context),
            Self::Routed(body) => next_of(body, context),
            Self::Whole(bytes) => {
                let bytes = bytes.take().filter(|bytes| !bytes.is_empty());
                Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Cut => Poll::Ready(Some(Err(Broken::Cut))),
        }
    }

    fn poll_append(
        &mut self,
        context: &mut Context<'_>,
        whole: &mut Vec<u8>,
    ) -> Poll<Option<Result<(), Broken>>> {
        if let Self::Pooled(body) = self {
            return body.poll_append(context, whole).map_err(Broken::Error);
        }
        let frame = ready!(self.poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| whole.extend_from_slice(frame.data_ref().map_or(&[], |data| data)))
        }))
    }
}

/// The next frame of a body that is a user's.
fn next_of<B>(body: &mut Foreign<B>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    match body.with(|body| Pin::new(body).poll_frame(context)) {
        Ok(polled) => polled.map_err(|error| Broken::Error(error.into())),
        Err(panicked) => Poll::Ready(Some(Err(Broken::Error(panicked.into())))),
    }
}

/// Why the next frame can't be had.
enum Broken {
    Cut,
    Error(BoxError),
}

impl ResponseBody {
    pub(super) fn pooled(body: Answer, operation: Operation, silence: Option<Duration>) -> Self {
        Self::new(Inner::Pooled(body), operation, silence)
    }

    pub(super) fn client(body: kube::client::Body, operation: Operation, silence: Option<Duration>) -> Self {
        Self::new(Inner::Client(Foreign::new(CLIENT, body)), operation, silence)
    }

    pub(super) fn routed(body: AnswerBody, operation: Operation, silence: Option<Duration>) -> Self {
        Self::new(Inner::Routed(Foreign::new(LAYOUT, body)), operation, silence)
    }

    pub(super) fn whole(bytes: Bytes, operation: Operation) -> Self {
        Self::new(Inner::Whole(Some(bytes)), operation, None)
    }

    fn new(inner: Inner, operation: Operation, silence: Option<Duration>) -> Self {
        let silence = silence.map(|limit| (limit, Box::pin(tokio::time::sleep(limit))));
        Self {
            inner: Arc::new(Mutex::new(inner)),
            operation,
            silence,
            life: None,
            ended: false,
        }
    }

    /// Ties the body to the cluster's connection.
    pub(super) fn attach(mut self, life: BodyLease) -> Self {
        self.life = Some(Box::new(life));
        self
    }

    pub(super) fn operation(&self) -> &Operation {
        &self.operation
    }

    fn error(&self, kind: TransportErrorKind) -> TransportError {
        let error = TransportError::new(self.operation.text.clone(), kind);
        match &self.life {
            Some(life) => error.in_cluster(life.cluster()),
            None => error,
        }
    }

    /// The rest of it in one piece. `expected` is how many bytes that may be: one that grows is copied twice and more.
    /// Cancellation drops what was read.
    pub async fn in_one_piece(mut self, expected: usize) -> Result<Bytes, TransportError> {
        let first = match self.frame().await {
            Some(frame) => frame?.into_data().unwrap_or_default(),
            None => Bytes::new(),
        };
        if self.is_end_stream() {
            return Ok(first);
        }
        // Room is made when something is there: thousands may wait.
        let mut whole = Vec::with_capacity(expected.max(first.len()));
        whole.extend_from_slice(&first);
        drop(first);
        while let Some(more) = poll_fn(|context| self.poll_append(context, &mut whole)).await {
            more?;
        }
        Ok(whole.into())
    }

    fn poll_append(
        &mut self,
        context: &mut Context<'_>,
        whole: &mut Vec<u8>,
    ) -> Poll<Option<Result<(), TransportError>>> {
        let before = whole.len();
        let read = ready!(self.poll_with(context, |inner, context| inner.poll_append(context, whole)));
        Poll::Ready(read.map(|read| {
            read.map(|_| {
                if let Some(life) = &mut self.life {
                    life.noted(whole.get(before..).unwrap_or_default());
                }
            })
        }))
    }

    fn end<T>(&mut self, with: Option<TransportError>) -> Option<Result<T, TransportError>> {
        self.ended = true;
        // Lets go of the connection now, however long the body itself is kept.
        *lock(&self.inner) = Inner::Cut;
        self.silence = None;
        with.map(Err)
    }

    /// The next that is read, and what is to become of the body after it.
    fn poll_with<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(&mut Inner, &mut Context<'_>) -> Poll<Option<Result<T, Broken>>>,
    ) -> Poll<Option<Result<(T, Verdict), TransportError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let verdict = self
            .life
            .as_mut()
            .map_or(Verdict::GoOn, |life| life.check(context));
        match verdict {
            Verdict::GoOn | Verdict::EndAtLine => {}
            Verdict::Gone => {
                let error = self.error(TransportErrorKind::Gone);
                return Poll::Ready(self.end(Some(error)));
            }
            Verdict::Retired => {
                let error = self.error(TransportErrorKind::Retired);
                return Poll::Ready(self.end(Some(error)));
            }
        }
        let next = poll(&mut lock(&self.inner), context);
        if next.is_pending() {
            if verdict == Verdict::EndAtLine && self.life.as_ref().is_some_and(|life| life.is_at_line_start())
            {
                return Poll::Ready(self.end(None));
            }
            if let Some((limit, sleep)) = &mut self.silence {
                ready!(sleep.as_mut().poll(context));
                let after = *limit;
                let error = self.error(TransportErrorKind::Timeout { after });
                return Poll::Ready(self.end(Some(error)));
            }
            return Poll::Pending;
        }
        Poll::Ready(match ready!(next) {
            None => self.end(None),
            Some(Ok(read)) => {
                if let Some((limit, sleep)) = &mut self.silence {
                    sleep.as_mut().reset(Instant::now() + *limit);
                }
                Some(Ok((read, verdict)))
            }
            Some(Err(Broken::Cut)) => {
                let error = self.error(TransportErrorKind::Retired);
                self.end(Some(error))
            }
            Some(Err(Broken::Error(error))) => {
                // kube's client is the user's; what it reports may already be one of ours.
                let kind = TransportErrorKind::Interrupted {
                    explanation: explain(error.as_ref()),
                };
                let error = self.error(kind).with_source(error);
                self.end(Some(error))
            }
        })
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        let (frame, verdict) = match ready!(self.poll_with(context, Inner::poll_frame)) {
            Some(Ok(next)) => next,
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => return Poll::Ready(None),
        };
        let Some(life) = self.life.as_mut() else {
            return Poll::Ready(Some(Ok(frame)));
        };
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => return Poll::Ready(Some(Ok(frame))),
        };
        let (data, end) = life.data(data, verdict == Verdict::EndAtLine);
        if end {
            self.end::<()>(None);
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
            || match &*lock(&self.inner) {
                Inner::Cut => false,
                Inner::Pooled(body) => body.is_end_stream(),
                Inner::Client(body) => body.look(Body::is_end_stream).unwrap_or_default(),
                Inner::Routed(body) => body.look(Body::is_end_stream).unwrap_or_default(),
                Inner::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            }
    }

    fn size_hint(&self) -> SizeHint {
        match &*lock(&self.inner) {
            Inner::Cut => SizeHint::default(),
            Inner::Pooled(body) => body.size_hint(),
            Inner::Client(body) => body.look(Body::size_hint).unwrap_or_default(),
            Inner::Routed(body) => body.look(Body::size_hint).unwrap_or_default(),
            Inner::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
        }
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseBody")
            .field("operation", &self.operation)
            .finish_non_exhaustive()
    }
}
