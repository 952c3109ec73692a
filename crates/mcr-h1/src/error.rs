//! Failed requests.

use std::io;

/// Bytes that are not HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server sent something that is not HTTP/1.1; check the port, and whether the address needs https://"
)]
pub struct Malformed;

/// The response did not arrive, or not completely.
///
/// Texts never quote what the server sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed.
    #[error("the connection failed")]
    Io(#[source] io::Error),
    /// The server closed the connection before the end of the response.
    #[error("the connection was closed in the middle of a response; the server may be restarting")]
    Truncated,
    /// The response is not HTTP/1.1.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The status line and the headers, interim responses included, are longer than [`MAX_HEAD`](crate::MAX_HEAD).
    #[error(
        "the status line and headers of the response are longer than 64 KiB; something before the server adds headers or \
         cookies, which it should not do for API clients"
    )]
    HeadTooLong,
}

/// A request without a response.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct RequestFailed {
    /// What failed.
    #[source]
    pub error: Error,
    /// Whether any byte of a response arrived.
    ///
    /// If none did and the connection was used before, the server has most likely closed it while it was idle. A GET can
    /// then be sent again over another connection ([RFC 9110, section 9.2.2]).
    ///
    /// [RFC 9110, section 9.2.2]: https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2
    pub response_began: bool,
}
