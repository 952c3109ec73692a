//! The body of a response, as its reader sees it.

mod running;
mod source;
mod tracker;

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

pub(crate) use self::{running::RunningBodies, source::BodySource, tracker::BodyTracker};
use self::{source::ReadError, tracker::Action};
use crate::{
    answer_body::AnswerBody,
    error::{TransportError, TransportErrorKind},
    explain::explain,
    pool::PooledBody,
    request::RequestInfo,
};

/// The body of a response from a cluster.
///
/// It fails when no bytes arrive within the read timeout, and when the cluster leaves the fleet. The answer to a read or a write
/// fails when the cluster becomes Unreachable. After a rotation of credentials, a watch ends at the end of a line; other bodies
/// get time to finish, and then fail.
pub struct ResponseBody {
    /// Shared with the [`RunningBodies`] of the channel, which close the connection even if no task reads this body.
    source: Arc<Mutex<BodySource>>,
    request: RequestInfo,
    /// The read timeout, and the timer that ends when it has passed without a byte.
    read_timeout: Option<(Duration, Pin<Box<Sleep>>)>,
    tracker: Option<Box<BodyTracker>>,
    ended: bool,
}

impl ResponseBody {
    pub(super) fn pooled(body: PooledBody, request: RequestInfo, read_timeout: Option<Duration>) -> Self {
        Self::new(BodySource::Pooled(body), request, read_timeout)
    }

    pub(super) fn client(
        body: kube::client::Body,
        request: RequestInfo,
        read_timeout: Option<Duration>,
    ) -> Self {
        Self::new(BodySource::client(body), request, read_timeout)
    }

    pub(super) fn routed(body: AnswerBody, request: RequestInfo, read_timeout: Option<Duration>) -> Self {
        Self::new(BodySource::routed(body), request, read_timeout)
    }

    /// A body that has passed the layer of the program. The body below the layer has the read timeout.
    pub(super) fn layered(body: AnswerBody, request: RequestInfo) -> Self {
        Self::new(BodySource::layered(body), request, None)
    }

    /// A body that has been read already.
    pub(super) fn buffered(bytes: Bytes, request: RequestInfo) -> Self {
        Self::new(BodySource::Buffered(Some(bytes)), request, None)
    }

    fn new(source: BodySource, request: RequestInfo, read_timeout: Option<Duration>) -> Self {
        let read_timeout = read_timeout.map(|limit| (limit, Box::pin(tokio::time::sleep(limit))));
        Self {
            source: Arc::new(Mutex::new(source)),
            request,
            read_timeout,
            tracker: None,
            ended: false,
        }
    }

    /// Lets `tracker` decide when the body ends.
    pub(super) fn track(mut self, tracker: BodyTracker) -> Self {
        self.tracker = Some(Box::new(tracker));
        self
    }

    pub(super) fn source(&self) -> &Arc<Mutex<BodySource>> {
        &self.source
    }

    pub(super) fn request(&self) -> &RequestInfo {
        &self.request
    }

    fn error(&self, kind: TransportErrorKind) -> TransportError {
        let error = TransportError::new(self.request.operation.clone(), kind);
        match &self.tracker {
            Some(tracker) => error.in_cluster(&tracker.state().cluster),
            None => error,
        }
    }

    /// Appends the next part of the body to `buffer`: until `buffer` holds `until` bytes or more, or until the body ends. Returns
    /// whether the body has ended.
    ///
    /// It reads whole pieces, as they arrive, so `buffer` may hold up to 64 KiB more than `until`. It allocates nothing before bytes
    /// arrive. Meant for bodies that end by themselves, such as lists. A watch is read by frames: they end with a line when the
    /// credentials are rotated, which parts don't.
    ///
    /// Cancel safe: the bytes that were appended stay in `buffer`, and the next call continues behind them.
    ///
    /// # Errors
    ///
    /// If the body fails before its end. The bytes that arrived before are in `buffer`. After an error, the body counts as ended.
    ///
    /// ```
    /// # use mcr_client::{ResponseBody, TransportError};
    /// async fn length(mut body: ResponseBody) -> Result<usize, TransportError> {
    ///     let (mut length, mut part) = (0, Vec::new());
    ///     loop {
    ///         let ended = body.read_part(&mut part, 1 << 20).await?;
    ///         length += part.len();
    ///         part.clear();
    ///         if ended {
    ///             return Ok(length);
    ///         }
    ///     }
    /// }
    /// ```
    pub async fn read_part(&mut self, buffer: &mut Vec<u8>, until: usize) -> Result<bool, TransportError> {
        loop {
            if self.is_end_stream() {
                return Ok(true);
            }
            if buffer.len() >= until {
                return Ok(false);
            }
            match poll_fn(|context| self.poll_append(context, buffer)).await {
                Some(appended) => appended?,
                None => return Ok(true),
            }
        }
    }

    fn poll_append(
        &mut self,
        context: &mut Context<'_>,
        bytes: &mut Vec<u8>,
    ) -> Poll<Option<Result<(), TransportError>>> {
        let before = bytes.len();
        let read = ready!(self.poll_source(context, |source, context| source.poll_append(context, bytes)));
        Poll::Ready(read.map(|read| {
            read.map(|_| {
                if let Some(tracker) = &mut self.tracker {
                    tracker.record(bytes.get(before..).unwrap_or_default());
                }
            })
        }))
    }

    /// Ends the body, with an error if there is one.
    fn end<T>(&mut self, error: Option<TransportError>) -> Option<Result<T, TransportError>> {
        self.ended = true;
        // Closes the connection now, even if the reader keeps the body.
        *self.source.lock() = BodySource::Closed;
        self.read_timeout = None;
        error.map(Err)
    }

    /// Reads from the source with `poll`. Returns the result and the tracker's decision, or the end of the body.
    fn poll_source<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(&mut BodySource, &mut Context<'_>) -> Poll<Option<Result<T, ReadError>>>,
    ) -> Poll<Option<Result<(T, Action), TransportError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let action = self
            .tracker
            .as_mut()
            .map_or(Action::Continue, |tracker| tracker.poll_action(context));
        match action {
            Action::Continue | Action::EndAtLine => {}
            Action::FailEnded => {
                let ended = self.tracker.as_ref().map(|tracker| tracker.state().ended());
                let error = self.error(ended.unwrap_or(TransportErrorKind::Gone));
                return Poll::Ready(self.end(Some(error)));
            }
            Action::FailRotated => {
                let error = self.error(TransportErrorKind::CredentialsRotated);
                return Poll::Ready(self.end(Some(error)));
            }
        }
        let next = poll(&mut self.source.lock(), context);
        if next.is_pending() {
            let is_between_lines = self
                .tracker
                .as_ref()
                .is_some_and(|tracker| tracker.is_at_line_start());
            if action == Action::EndAtLine && is_between_lines {
                return Poll::Ready(self.end(None));
            }
            if let Some((limit, sleep)) = &mut self.read_timeout {
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
                if let Some((limit, sleep)) = &mut self.read_timeout {
                    sleep.as_mut().reset(Instant::now() + *limit);
                }
                Some(Ok((read, action)))
            }
            Some(Err(ReadError::Closed)) => {
                let error = self.error(TransportErrorKind::CredentialsRotated);
                self.end(Some(error))
            }
            Some(Err(ReadError::Reported(error))) => {
                let error = match &self.tracker {
                    Some(tracker) => error.in_cluster(&tracker.state().cluster),
                    None => *error,
                };
                self.end(Some(error))
            }
            Some(Err(ReadError::Failed(error))) => {
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
        let polled = self.poll_source(context, |source, context| Pin::new(source).poll_frame(context));
        let (frame, action) = match ready!(polled) {
            Some(Ok(read)) => read,
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => return Poll::Ready(None),
        };
        let Some(tracker) = self.tracker.as_mut() else {
            return Poll::Ready(Some(Ok(frame)));
        };
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
        };
        let (data, is_end) = tracker.record_and_cut(data, action == Action::EndAtLine);
        if is_end {
            self.end::<()>(None);
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.source.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.source.lock().size_hint()
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseBody")
            .field("operation", &self.request)
            .finish_non_exhaustive()
    }
}
