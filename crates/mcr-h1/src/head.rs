//! The head of a response: status line and headers (RFC 9112, sections 4 and 5), without I/O.

use http::{HeaderName, HeaderValue, Response, StatusCode, Version, header};

use crate::{error::Malformed, framing::Framing};

/// The longest head that is accepted, in bytes. Interim responses count.
pub const MAX_HEAD: usize = 64 << 10;

/// The most headers in one head; the same as in hyper.
const MAX_HEADERS: usize = 100;

/// The beginning of a response to a GET.
///
/// ```
/// use mcr_h1::{Framing, Head};
///
/// let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
/// let Head::Final { len, response, mut framing, keep_alive } = Head::parse(bytes)? else { panic!() };
/// assert_eq!((response.status().as_u16(), keep_alive), (200, true));
/// let mut content = Vec::new();
/// framing.read(&bytes[len..], &mut content)?;
/// assert!(framing.is_done() && content == b"hello");
/// # Ok::<(), mcr_h1::Malformed>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Head {
    /// More bytes are needed.
    Partial,
    /// An interim response such as 103. Another head follows ([RFC 9110, section 15.2]).
    ///
    /// [RFC 9110, section 15.2]: https://www.rfc-editor.org/rfc/rfc9110#section-15.2
    Interim {
        /// Its length in bytes.
        len: usize,
    },
    /// The head of the response itself.
    Final {
        /// Its length in bytes. The content follows.
        len: usize,
        /// Status, version and headers.
        response: Response<()>,
        /// How the end of the content is found.
        framing: Framing,
        /// Whether the connection can be used again after the content.
        keep_alive: bool,
    },
}

impl Head {
    /// Parses the head of the response to a GET.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if the bytes are not HTTP/1.0 or 1.1, lengths contradict each other, or there are more than 100 headers. Also
    /// for HTTP/1.0 with `Transfer-Encoding` ([RFC 9112, section 6.1]), and for `101 Switching Protocols`, which this crate never
    /// requests.
    ///
    /// [RFC 9112, section 6.1]: https://www.rfc-editor.org/rfc/rfc9112#section-6.1
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        let len = match head.parse(bytes) {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) => return Ok(Self::Partial),
            Err(_) => return Err(Malformed),
        };
        let status = head.code.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.ok_or(Malformed)?;
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Malformed);
        }
        if status.is_informational() {
            return Ok(Self::Interim { len });
        }
        let mut response = Response::new(());
        *response.status_mut() = status;
        *response.version_mut() = match head.version {
            Some(0) => Version::HTTP_10,
            _ => Version::HTTP_11,
        };
        for field in head.headers.iter() {
            let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Malformed)?;
            let value = HeaderValue::from_bytes(field.value).map_err(|_| Malformed)?;
            response.headers_mut().append(name, value);
        }
        let framing = framing(&response)?;
        let keep_alive = keep_alive(&response) && framing != Framing::UntilClosed;
        Ok(Self::Final {
            len,
            response,
            framing,
            keep_alive,
        })
    }
}

/// The elements of a header whose value is a list, in lower case. A value that is not ASCII is one unknown element.
fn elements(response: &Response<()>, name: HeaderName) -> Vec<String> {
    let values = response.headers().get_all(name).into_iter();
    values
        .flat_map(|value| value.to_str().unwrap_or("\u{fffd}").split(','))
        .map(|element| element.trim().to_ascii_lowercase())
        .collect()
}

fn keep_alive(response: &Response<()>) -> bool {
    let options = elements(response, header::CONNECTION);
    let has = |option: &str| options.iter().any(|element| element == option);
    let both = [header::TRANSFER_ENCODING, header::CONTENT_LENGTH];
    // A response with both may be an attempt at response smuggling (RFC 9112, section 6.3).
    let unambiguous = !both.iter().all(|name| response.headers().contains_key(name));
    unambiguous && !has("close") && (response.version() == Version::HTTP_11 || has("keep-alive"))
}

/// The framing that the headers declare (RFC 9112, section 6.3).
fn framing(response: &Response<()>) -> Result<Framing, Malformed> {
    if matches!(
        response.status(),
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
    ) {
        return Ok(Framing::Length(0));
    }
    if response.headers().contains_key(header::TRANSFER_ENCODING) {
        // RFC 9112, section 6.1: the framing of such a message is faulty.
        if response.version() == Version::HTTP_10 {
            return Err(Malformed);
        }
        let codings = elements(response, header::TRANSFER_ENCODING);
        let chunked = codings.last().is_some_and(|last| last == "chunked");
        return Ok(if chunked {
            Framing::chunked()
        } else {
            Framing::UntilClosed
        });
    }
    if !response.headers().contains_key(header::CONTENT_LENGTH) {
        return Ok(Framing::UntilClosed);
    }
    let lengths = elements(response, header::CONTENT_LENGTH);
    let (first, more) = lengths.split_first().ok_or(Malformed)?;
    let is_number = first.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || more.iter().any(|other| other != first) {
        return Err(Malformed);
    }
    first.parse().map(Framing::Length).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head(text: &str) -> Result<Head, Malformed> {
        Head::parse(text.as_bytes())
    }

    /// The framing of a response with these headers, and whether its connection can be used again.
    fn ends(status: &str, headers: &str) -> Result<(Framing, bool), Malformed> {
        match head(&format!("{status}\r\n{headers}\r\n"))? {
            Head::Final {
                framing, keep_alive, ..
            } => Ok((framing, keep_alive)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_end_is_where_the_head_reports() {
        let ok = |headers: &str| ends("HTTP/1.1 200 OK", headers);
        let chunked = Framing::chunked();
        assert_eq!(ok("content-length: 7\r\n"), Ok((Framing::Length(7), true)));
        assert_eq!(ok("content-length: 7, 7\r\n"), Ok((Framing::Length(7), true)));
        assert_eq!(ok("Transfer-Encoding: Chunked\r\n"), Ok((chunked, true)));
        assert_eq!(ok("transfer-encoding: gzip, chunked\r\n"), Ok((chunked, true)));
        assert_eq!(
            ok("transfer-encoding: gzip\r\n"),
            Ok((Framing::UntilClosed, false))
        );
        assert_eq!(ok(""), Ok((Framing::UntilClosed, false)));
        assert_eq!(
            ok("transfer-encoding: \u{fc}, chunked\r\n"),
            Ok((Framing::UntilClosed, false))
        );
        assert_eq!(
            ok("content-length: 7\r\nconnection: x, Close\r\n"),
            Ok((Framing::Length(7), false))
        );
        // The chunks decide, and the connection is not used again.
        assert_eq!(
            ok("content-length: 7\r\ntransfer-encoding: chunked\r\n"),
            Ok((chunked, false))
        );
        assert_eq!(
            ok("content-length: 7\r\ncontent-length: \u{fc}\r\n"),
            Err(Malformed)
        );
        for length in ["", "7,", "7, 8", "-7", "+7", "7a", "99999999999999999999"] {
            assert_eq!(
                ok(&format!("content-length: {length}\r\n")),
                Err(Malformed),
                "{length}"
            );
        }
        let empty = Ok((Framing::Length(0), true));
        assert_eq!(ends("HTTP/1.1 204 No Content", ""), empty);
        assert_eq!(ends("HTTP/1.1 304 Not Modified", "content-length: 7\r\n"), empty);
        let seven = "content-length: 7\r\n";
        assert_eq!(ends("HTTP/1.0 200 OK", seven), Ok((Framing::Length(7), false)));
        assert_eq!(
            ends(
                "HTTP/1.0 200 OK",
                "content-length: 7\r\nconnection: keep-alive\r\n"
            ),
            Ok((Framing::Length(7), true))
        );
        for headers in ["", "connection: keep-alive\r\n", seven] {
            let headers = format!("transfer-encoding: chunked\r\n{headers}");
            assert_eq!(ends("HTTP/1.0 200 OK", &headers), Err(Malformed), "{headers}");
        }
    }

    #[test]
    fn what_comes_before_the_answer_is_not_the_answer() {
        assert!(matches!(
            head("HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1"),
            Ok(Head::Interim { len: 37 })
        ));
        assert!(matches!(
            head("HTTP/1.1 200 OK\r\ncontent-len"),
            Ok(Head::Partial)
        ));
        assert!(matches!(head(""), Ok(Head::Partial)));
        assert_eq!(
            head("HTTP/1.1 101 Switching Protocols\r\n\r\n").err(),
            Some(Malformed)
        );
        assert_eq!(head("SSH-2.0-OpenSSH_9.7\r\n").err(), Some(Malformed));
        assert_eq!(head("HTTP/2 200 OK\r\n\r\n").err(), Some(Malformed));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Head::parse(&bytes);
        }
    }
}
