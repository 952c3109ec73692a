//! The body of an answer, as it comes in.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use super::{
    error::{TransportError, TransportErrorKind},
    explain::explain,
    request::Operation,
    retire::{Life, Verdict},
};
use crate::BoxError;

/// The body of an answer. Ends with an error when nothing comes for too long, when the cluster is gone, and, as
/// its class asks for, after the credentials were replaced.
pub(crate) struct ResponseBody {
    inner: Inner,
    operation: Operation,
    /// How long silence is endured, and since when it lasts.
    silence: Option<(Duration, Pin<Box<Sleep>>)>,
    life: Option<Box<Life>>,
    ended: bool,
}

enum Inner {
    Wire(Incoming),
    Client(kube::client::Body),
    Whole(Option<Bytes>),
}

impl ResponseBody {
    pub(super) fn wire(body: Incoming, operation: Operation, silence: Option<Duration>) -> Self {
        Self::new(Inner::Wire(body), operation, silence)
    }

    pub(super) fn client(body: kube::client::Body, operation: Operation, silence: Option<Duration>) -> Self {
        Self::new(Inner::Client(body), operation, silence)
    }

    pub(super) fn whole(bytes: Bytes, operation: Operation) -> Self {
        Self::new(Inner::Whole(Some(bytes)), operation, None)
    }

    fn new(inner: Inner, operation: Operation, silence: Option<Duration>) -> Self {
        let silence = silence.map(|limit| (limit, Box::pin(tokio::time::sleep(limit))));
        Self {
            inner,
            operation,
            silence,
            life: None,
            ended: false,
        }
    }

    /// Ties the body to the cluster's connection.
    pub(super) fn attach(mut self, life: Life) -> Self {
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

    fn poll_inner(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.inner {
            Inner::Wire(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
            Inner::Client(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
            Inner::Whole(bytes) => Poll::Ready(
                bytes
                    .take()
                    .filter(|bytes| !bytes.is_empty())
                    .map(|bytes| Ok(Frame::data(bytes))),
            ),
        }
    }

    fn end(&mut self, with: Option<TransportError>) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        self.ended = true;
        // Lets go of the connection now, however long the body itself is kept.
        self.inner = Inner::Whole(None);
        self.silence = None;
        Poll::Ready(with.map(Err))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
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
                return self.end(Some(error));
            }
            Verdict::Retired => {
                let error = self.error(TransportErrorKind::Retired);
                return self.end(Some(error));
            }
        }
        let next = self.poll_inner(context);
        if next.is_pending() {
            if verdict == Verdict::EndAtLine && self.life.as_ref().is_some_and(|life| life.is_at_line_start())
            {
                return self.end(None);
            }
            if let Some((limit, sleep)) = &mut self.silence {
                ready!(sleep.as_mut().poll(context));
                let after = *limit;
                let error = self.error(TransportErrorKind::Timeout { after });
                return self.end(Some(error));
            }
            return Poll::Pending;
        }
        match ready!(next) {
            None => self.end(None),
            Some(Ok(frame)) => {
                if let Some((limit, sleep)) = &mut self.silence {
                    sleep.as_mut().reset(Instant::now() + *limit);
                }
                let Some(life) = self.life.as_mut() else {
                    return Poll::Ready(Some(Ok(frame)));
                };
                match frame.into_data() {
                    Ok(data) => {
                        let (data, end) = life.data(data, verdict == Verdict::EndAtLine);
                        if end {
                            let _ = self.end(None);
                        }
                        Poll::Ready(Some(Ok(Frame::data(data))))
                    }
                    Err(frame) => Poll::Ready(Some(Ok(frame))),
                }
            }
            Some(Err(error)) => {
                // kube's client is the user's; what it reports may already be one of ours.
                let kind = TransportErrorKind::Interrupted {
                    explanation: explain(error.as_ref()),
                };
                let error = self.error(kind).with_source(error);
                self.end(Some(error))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended
            || match &self.inner {
                Inner::Wire(body) => body.is_end_stream(),
                Inner::Client(body) => body.is_end_stream(),
                Inner::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Wire(body) => body.size_hint(),
            Inner::Client(body) => body.size_hint(),
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
