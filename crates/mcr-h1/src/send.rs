//! Sending a request over a connection, and reading the head of its response.

use std::future::poll_fn;

use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    connection::{Connection, HEAD_READ},
    content::Content,
    error::{Error, RequestFailed},
    framing::Framing,
    head::{Head, MAX_HEAD},
};

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

impl<Io: AsyncRead + AsyncWrite + Unpin> Connection<Io> {
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
        let (len, response, framing, keep_alive) = result.map_err(|error| RequestFailed {
            error,
            response_began: !received.is_empty(),
        })?;
        let rest = received.get(len..).unwrap_or_default();
        let content = Content::new(self, framing, keep_alive, rest);
        Ok(response.map(|()| content))
    }

    /// Reads until the head of the response is complete. Returns its length together with all interim heads.
    async fn read_head(
        &mut self,
        received: &mut Vec<u8>,
    ) -> Result<(usize, Response<()>, Framing, bool), Error> {
        let mut interim = 0;
        let mut attempts = Attempts::default();
        loop {
            let more = poll_fn(|context| {
                self.poll_read(context, HEAD_READ, |bytes| received.extend_from_slice(bytes))
            });
            if more.await.map_err(Error::Io)? == 0 {
                return Err(Error::Truncated);
            }
            loop {
                // Clients ignore empty lines before a head. Parsed again with each piece they would cost quadratic work.
                let mut head = received.get(interim..).unwrap_or_default();
                while let [b'\r', b'\n', rest @ ..] | [b'\n', rest @ ..] = head {
                    head = rest;
                }
                interim = received.len() - head.len();
                let parsed = if attempts.is_due(head) {
                    Head::parse(head)?
                } else {
                    Head::Partial
                };
                match parsed {
                    Head::Interim { len } => {
                        interim += len;
                        attempts = Attempts::default();
                    }
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
}

/// When to parse a head that arrives in pieces. The work stays proportional to the length of the head.
#[derive(Debug, Default)]
struct Attempts {
    /// How many bytes have been searched for the end of the head.
    searched: usize,
    /// The length of the head at the last attempt.
    parsed: usize,
}

impl Attempts {
    /// Whether `head` may be complete, or has doubled since the last attempt. The latter notices early that it is no head.
    fn is_due(&mut self, head: &[u8]) -> bool {
        // The empty line may have arrived in two pieces.
        let new = head.get(self.searched.saturating_sub(2)..).unwrap_or_default();
        let may_end = new.windows(2).any(|end| end == b"\n\n") || new.windows(3).any(|end| end == b"\n\r\n");
        self.searched = head.len();
        let is_due = may_end || head.len() >= 2 * self.parsed;
        if is_due {
            self.parsed = head.len();
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_byte_by_byte_is_parsed_a_few_times_and_at_its_end() {
        let long = format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "x".repeat(MAX_HEAD));
        for (head, most) in [
            (&*long, 20),
            ("HTTP/1.1 200 OK\n\n", 7),
            ("HTTP/1.1 200 OK\r\n\r\n", 7),
        ] {
            let mut attempts = Attempts::default();
            let due = (1..=head.len()).map(|len| attempts.is_due(&head.as_bytes()[..len]));
            let due: Vec<bool> = due.collect();
            assert!(due[0] && due[head.len() - 1]);
            assert!(due.iter().filter(|due| **due).count() <= most);
        }
    }
}
