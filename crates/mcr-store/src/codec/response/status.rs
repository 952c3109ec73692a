//! The `Status` of an error.

use serde::Deserialize;

/// The longest message that is kept, in bytes.
const MAX_MESSAGE: usize = 500;

/// The parts of a Kubernetes `Status` that affect what a client does. Fields that the server did not send are empty.
#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    /// The reason in one word, for example `Expired`.
    pub reason: String,
    /// The reason in a sentence.
    pub message: String,
    /// Further details.
    pub details: Option<StatusDetails>,
    /// The metadata, which the answer to a list with an expired token has.
    pub metadata: Option<StatusMetadata>,
}

/// The metadata of a [`Status`].
#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct StatusMetadata {
    /// A token to continue a list whose own token has expired. The remaining pages are of a newer version.
    #[serde(rename = "continue")]
    pub continue_token: Option<String>,
}

/// The details of a [`Status`].
#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusDetails {
    /// The seconds to wait before another request.
    pub retry_after_seconds: Option<u32>,
}

/// Parses the body of an error answer. A body that is not a `Status`, such as the HTML page of a proxy, gives the code
/// alone.
///
/// `code` is the status of the HTTP answer and replaces the one in the body. The message is cut after 500 bytes.
///
/// ```
/// use mcr_store::parse_status;
///
/// let status = parse_status(410, br#"{"kind":"Status","reason":"Expired","message":"too old"}"#);
/// assert_eq!((status.code, &*status.reason), (410, "Expired"));
/// assert_eq!(parse_status(502, b"<html>").message, "");
/// ```
pub fn parse_status(code: u16, body: &[u8]) -> Status {
    let mut status: Status = serde_json::from_slice(body).unwrap_or_default();
    status.code = code;
    let end = char_boundary_up_to(&status.message, MAX_MESSAGE);
    status.message.truncate(end);
    status
}

/// The last position up to `at` that is not inside a character.
fn char_boundary_up_to(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|i| text.is_char_boundary(*i))
        .unwrap_or(0)
}
