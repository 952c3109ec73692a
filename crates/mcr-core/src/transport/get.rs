//! GET over a connection that nothing else belongs to: no task and no channel. While it waits it holds no buffer but the
//! 4 KiB that rustls reads into.
//!
//! A fleet waits with one watch for each cluster and kind. Over hyper each of them holds a task, the channel of its
//! requests (9 KiB), a buffer to write from (8 KiB) and one to read into (8 KiB), and each piece of a list goes from task
//! to task. What has a body, or changes the protocol, goes through hyper.
//!
//! Not over a library without I/O: the one that is well kept, ureq-proto, logs heads and bodies at trace level.

use std::{
    cell::Cell,
    future::poll_fn,
    io,
    pin::Pin,
    sync::Weak,
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};

use super::{
    connect::Stream,
    explain::{CUT_OFF, HEAD_TOO_LONG, NOT_HTTP},
    framing::{Framing, Head, LONGEST_HEAD, Malformed},
    pool::{Free, Idle},
};

/// How much is read at once.
const SPACE: usize = 64 << 10;

/// How much is read at once before the head of an answer is there. What comes behind it is copied once more.
pub(super) const FIRST: usize = 8 << 10;

thread_local! {
    static RECEIVING: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Lends the beginning of a buffer that all connections of a thread are read into, so that none holds one while it waits. A
/// caller that has it already is lent another.
fn with_space<T>(at_most: usize, with: impl FnOnce(&mut [u8]) -> T) -> T {
    let mut space = RECEIVING.try_with(Cell::take).unwrap_or_default();
    space.resize(SPACE, 0);
    let result = with(space.get_mut(..at_most).unwrap_or_default());
    // There is none to give it back to while the thread ends.
    let _ = RECEIVING.try_with(|receiving| receiving.set(space));
    result
}

/// To a server, with nothing under way.
pub(super) struct Connection(Box<Stream>);

/// Why there is no answer, or no more of it.
#[derive(Debug, thiserror::Error)]
pub(super) enum GetError {
    #[error("the connection failed")]
    Io(#[source] io::Error),
    #[error("{}", CUT_OFF)]
    Truncated,
    #[error("{}", NOT_HTTP)]
    Malformed,
    #[error("{}", HEAD_TOO_LONG)]
    HeadTooLong,
}

impl From<Malformed> for GetError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// A request that failed.
pub(super) struct Failed {
    pub(super) error: GetError,
    /// Whether anything came back.
    pub(super) answered: bool,
}

/// A request as it is sent; its URI is a path and query.
pub(super) fn written<B>(request: &Request<B>) -> Vec<u8> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mut bytes = Vec::with_capacity(1 << 10);
    for part in ["GET ", path, " HTTP/1.1\r\n"] {
        bytes.extend_from_slice(part.as_bytes());
    }
    for (name, value) in request.headers() {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

impl Connection {
    pub(super) fn new(stream: Stream) -> Self {
        Self(Box::new(stream))
    }

    pub(super) fn into_stream(self) -> Stream {
        *self.0
    }

    /// Whether the server has left it open and sent nothing that nobody asked for. A read finds both in the socket and in
    /// what rustls has decrypted already.
    pub(super) fn is_usable(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.poll_read(&mut context, FIRST, |_| ()).is_pending()
    }

    /// Sends a request and returns when the head of its answer is there. Then the connection belongs to the content, and
    /// after that to those that are idle.
    pub(super) async fn send(
        mut self,
        request: &[u8],
        idle: Weak<Idle>,
    ) -> Result<Response<Content>, Failed> {
        let mut read = Vec::new();
        let sent = async {
            self.0.write_all(request).await.map_err(GetError::Io)?;
            self.0.flush().await.map_err(GetError::Io)
        };
        let answer = match sent.await {
            Ok(()) => self.head(&mut read).await,
            Err(error) => Err(error),
        };
        let failed = |error| Failed {
            error,
            answered: !read.is_empty(),
        };
        let (len, response, mut framing, keeps) = answer.map_err(failed)?;
        let rest = read.get(len..).unwrap_or_default();
        let mut first = Vec::with_capacity(rest.len());
        let used = framing
            .read(rest, &mut first)
            .map_err(|malformed| failed(malformed.into()))?;
        let mut content = Content {
            connection: Some(self),
            framing,
            keeps: keeps && used == rest.len(),
            first: first.into(),
            failed: None,
            idle,
        };
        content.end_if_done();
        Ok(response.map(|()| content))
    }

    async fn head(&mut self, read: &mut Vec<u8>) -> Result<(usize, Response<()>, Framing, bool), GetError> {
        let mut interim = 0;
        loop {
            let more =
                poll_fn(|context| self.poll_read(context, FIRST, |bytes| read.extend_from_slice(bytes)));
            if more.await.map_err(GetError::Io)? == 0 {
                return Err(GetError::Truncated);
            }
            loop {
                match Head::read(read.get(interim..).unwrap_or_default())? {
                    Head::Interim(len) => interim += len,
                    Head::Final { len, .. } if interim + len > LONGEST_HEAD => {
                        return Err(GetError::HeadTooLong);
                    }
                    Head::Partial if read.len() > LONGEST_HEAD => return Err(GetError::HeadTooLong),
                    Head::Partial => break,
                    Head::Final {
                        len,
                        response,
                        framing,
                        keeps,
                    } => return Ok((interim + len, response, framing, keeps)),
                }
            }
        }
    }

    /// Hands over what has come, at most as much as is said; returns how much that was, and 0 at the end.
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        at_most: usize,
        take: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<usize>> {
        with_space(at_most, |space| {
            let mut space = ReadBuf::new(space);
            ready!(Pin::new(&mut *self.0).poll_read(context, &mut space))?;
            take(space.filled());
            Poll::Ready(Ok(space.filled().len()))
        })
    }
}

/// The content of an answer. Its connection is free when the last of it has been read, and closes when it is dropped
/// before.
pub(super) struct Content {
    /// Not there any more when it is free, or of no use.
    connection: Option<Connection>,
    framing: Framing,
    /// Whether the connection can be used again after it.
    keeps: bool,
    /// What came with the head.
    first: Bytes,
    /// What went wrong after the last piece.
    failed: Option<GetError>,
    idle: Weak<Idle>,
}

impl Content {
    fn end_if_done(&mut self) {
        if self.framing.is_done()
            && let Some(connection) = self.connection.take()
            && self.keeps
            && let Some(idle) = self.idle.upgrade()
        {
            idle.put(Free::Plain(connection));
        }
    }

    /// Appends what has come to `content`, without a piece of its own; for the rest as [`poll_frame`](http_body::Body).
    pub(super) fn poll_append(
        &mut self,
        context: &mut Context<'_>,
        content: &mut Vec<u8>,
    ) -> Poll<Option<Result<(), GetError>>> {
        let before = content.len();
        content.extend_from_slice(&std::mem::take(&mut self.first));
        while self.connection.is_some() && content.len() == before {
            ready!(self.poll_read(context, content));
        }
        Poll::Ready(if content.len() == before {
            self.failed.take().map(Err)
        } else {
            Some(Ok(()))
        })
    }

    /// Reads once; what came of it goes to `content`.
    fn poll_read(&mut self, context: &mut Context<'_>, content: &mut Vec<u8>) -> Poll<()> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(());
        };
        let mut used = Ok(0);
        let read = ready!(connection.poll_read(context, SPACE, |bytes| {
            used = self.framing.read(bytes, content);
        }));
        let error = match (read, used) {
            (Err(error), _) => Some(GetError::Io(error)),
            (_, Err(malformed)) => Some(malformed.into()),
            (Ok(0), _) if self.framing == Framing::UntilClosed => None,
            (Ok(0), _) => Some(GetError::Truncated),
            (Ok(read), Ok(used)) => {
                self.keeps &= used == read;
                self.end_if_done();
                return Poll::Ready(());
            }
        };
        self.failed = error;
        self.connection = None;
        Poll::Ready(())
    }
}

impl http_body::Body for Content {
    type Data = Bytes;
    type Error = GetError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, GetError>>> {
        if !self.first.is_empty() {
            let first = std::mem::take(&mut self.first);
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let mut content = Vec::new();
        let read = ready!(self.poll_append(context, &mut content));
        Poll::Ready(read.map(|read| read.map(|()| Frame::data(content.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_empty() && self.connection.is_none() && self.failed.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.framing.left() {
            Some(left) => SizeHint::with_exact(left + self.first.len() as u64),
            None => SizeHint::default(),
        }
    }
}
