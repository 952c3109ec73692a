//! A connection that sends one request at a time.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::{Content, Error, Framing, Head, MAX_HEAD, RequestFailed, buffer};

/// The size of a read until the head of a response is complete. Content that arrives with the head is copied once more, so the
/// size is smaller than the receive buffer.
pub const HEAD_READ: usize = 8 << 10;

/// A connection without a request under way.
///
/// It holds the stream and nothing else. `Io` is a connected stream such as `TcpStream`, a TLS stream, or a box of one.
#[derive(Debug)]
pub struct Connection<Io>(Io);

/// The bytes of a GET request. Its URI is a path and query. No header is added.
///
/// The caller sets the `Host` header, which [RFC 9112, section 3.2](https://www.rfc-editor.org/rfc/rfc9112#section-3.2) requires.
///
/// ```
/// let request = http::Request::get("/livez").header("host", "localhost").body(())?;
/// assert_eq!(mcr_h1::serialize(&request), b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n");
/// # Ok::<(), http::Error>(())
/// ```
pub fn serialize<B>(request: &Request<B>) -> Vec<u8> {
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

impl<Io> Connection<Io> {
    /// A connection over an established stream.
    pub fn new(io: Io) -> Self {
        Self(io)
    }

    /// The stream, for another protocol or another HTTP client. No byte of it has been read ahead.
    pub fn into_inner(self) -> Io {
        self.0
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Connection<Io> {
    /// Whether an idle connection can take a request: the server has neither closed it nor sent anything unasked.
    ///
    /// Never waits. It tries to read, which finds both in the socket and in the buffer of a TLS stream.
    pub fn is_usable(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.poll_read(&mut context, HEAD_READ, |_| ()).is_pending()
    }

    /// Sends a request that [`serialize`] has written, and returns with the head of the response.
    ///
    /// The [`Content`] holds the connection until its end. There is no time limit: put one around this method. Dropping the
    /// future closes the connection.
    ///
    /// # Errors
    ///
    /// [`RequestFailed`] if there is no response. The connection is then closed.
    pub async fn send(mut self, request: &[u8]) -> Result<Response<Content<Io>>, RequestFailed> {
        let mut received = Vec::new();
        let result = match self.write(request).await {
            Ok(()) => self.read_head(&mut received).await,
            Err(error) => Err(error),
        };
        let failed = |error| RequestFailed {
            error,
            response_began: !received.is_empty(),
        };
        let (len, response, framing, keep_alive) = result.map_err(failed)?;
        let rest = received.get(len..).unwrap_or_default();
        let content = Content::new(self, framing, keep_alive, rest);
        let content = content.map_err(|malformed| failed(malformed.into()))?;
        Ok(response.map(|()| content))
    }

    async fn write(&mut self, request: &[u8]) -> Result<(), Error> {
        self.0.write_all(request).await.map_err(Error::Io)?;
        self.0.flush().await.map_err(Error::Io)
    }

    /// Reads until the head of the response is complete. Returns its length together with all interim heads.
    async fn read_head(
        &mut self,
        received: &mut Vec<u8>,
    ) -> Result<(usize, Response<()>, Framing, bool), Error> {
        let mut interim = 0;
        loop {
            let more = poll_fn(|context| {
                self.poll_read(context, HEAD_READ, |bytes| received.extend_from_slice(bytes))
            });
            if more.await.map_err(Error::Io)? == 0 {
                return Err(Error::Truncated);
            }
            loop {
                match Head::parse(received.get(interim..).unwrap_or_default())? {
                    Head::Interim { len } => interim += len,
                    Head::Final { len, .. } if interim + len > MAX_HEAD => return Err(Error::HeadTooLong),
                    Head::Partial if received.len() > MAX_HEAD => return Err(Error::HeadTooLong),
                    Head::Partial => break,
                    Head::Final {
                        len,
                        response,
                        framing,
                        keep_alive,
                    } => return Ok((interim + len, response, framing, keep_alive)),
                }
            }
        }
    }

    /// Reads at most `len` bytes and passes them to `take`. Returns their number, which is 0 at the end of the stream.
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        len: usize,
        take: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<usize>> {
        buffer::with(len, |buffer| {
            let mut buffer = ReadBuf::new(buffer);
            ready!(Pin::new(&mut self.0).poll_read(context, &mut buffer))?;
            take(buffer.filled());
            Poll::Ready(Ok(buffer.filled().len()))
        })
    }
}
