//! The response guard: keeps broken responses away from `kube::Client`.
//!
//! kube logs the whole body of a response that it can't parse, so a list of Secrets that was cut off would put all of them into
//! the log.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body::Body as _;
use serde::de::IgnoredAny;

use crate::{
    body::ResponseBody,
    error::{TransportError, TransportErrorKind},
    request::RequestClass,
};

/// The size limit of an error response. A longer one is no `Status`.
const ERROR_LIMIT: usize = 1 << 20;

/// Passes on complete, well-formed responses, and those that kube does not parse as a whole. An error response without a
/// Kubernetes `Status` gets one.
///
/// # Errors
///
/// If the response is not well formed or larger than `limit` bytes, or if its body fails.
pub(super) async fn guard(
    response: Response<ResponseBody>,
    limit: usize,
) -> Result<Response<ResponseBody>, TransportError> {
    let status = response.status();
    let info = response.body().request().clone();
    let failed = status.is_client_error() || status.is_server_error();
    let is_json = media_type(response.headers())
        .is_some_and(|media| media == "application/json" || media.ends_with("+json"));
    let encoded = response
        .headers()
        .get(header::CONTENT_ENCODING)
        .is_some_and(|value| value != "identity");
    // kube does not decompress, so a server must not escape the guard with an encoding that the request did not accept.
    let is_compressed = encoded && info.accepts_encodings;
    if info.class == RequestClass::Proxy || is_compressed || status == StatusCode::SWITCHING_PROTOCOLS {
        return Ok(response);
    }
    let malformed = |problem: String| {
        TransportError::new(
            info.operation.clone(),
            TransportErrorKind::MalformedResponse { problem },
        )
    };
    if failed {
        let (mut parts, body) = response.into_parts();
        // kube puts the whole text of an error response into its log and its error, unless that is a Status.
        let is_status = |body: &Bytes| {
            well_formed(body).is_ok() && serde_json::from_slice::<kube::core::Status>(body).is_ok()
        };
        let body = read_whole(body, ERROR_LIMIT).await?;
        if let Some(body) = body.filter(|body| is_json && is_status(body)) {
            return Ok(Response::from_parts(parts, ResponseBody::buffered(body, info)));
        }
        parts.headers.remove(header::CONTENT_LENGTH);
        parts
            .headers
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = ResponseBody::buffered(status_object(status), info);
        return Ok(Response::from_parts(parts, body));
    }
    if info.class != RequestClass::Unary {
        return Ok(response);
    }
    if !is_json {
        if info.wants_object && !is_binary(response.headers()) {
            return Err(malformed(
                "it is not JSON; something between this process and the API server may answer in its place, \
                 such as a proxy or login page"
                    .to_owned(),
            ));
        }
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let Some(body) = read_whole(body, limit).await? else {
        let kind = TransportErrorKind::TooLarge { limit };
        return Err(TransportError::new(info.operation, kind));
    };
    well_formed(&body).map_err(malformed)?;
    Ok(Response::from_parts(parts, ResponseBody::buffered(body, info)))
}

/// Reads a body to its end. None if it has more than `limit` bytes; the rest is not read, and the connection closes.
async fn read_whole(mut body: ResponseBody, limit: usize) -> Result<Option<Bytes>, TransportError> {
    if body.size_hint().lower() > limit as u64 {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let ended = body.read_part(&mut bytes, limit.saturating_add(1)).await?;
    Ok((ended && bytes.len() <= limit).then(|| bytes.into()))
}

fn media_type(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    value.split(';').next().map(str::trim)
}

/// Whether the body is in one of the two binary formats of API servers.
fn is_binary(headers: &HeaderMap) -> bool {
    media_type(headers).is_some_and(|media| media.contains("protobuf") || media.contains("cbor"))
}

/// Describes what is wrong with a body that is not JSON.
fn well_formed(body: &[u8]) -> Result<(), String> {
    if std::str::from_utf8(body).is_err() {
        return Err("it is not UTF-8 text".to_owned());
    }
    // Passes on the position of the error only, because the parser's message may quote the body.
    serde_json::from_slice::<IgnoredAny>(body)
        .map(|_| ())
        .map_err(|error| {
            if error.is_eof() {
                format!("its JSON is cut off after {} bytes", body.len())
            } else {
                format!(
                    "its JSON is damaged at line {}, column {}",
                    error.line(),
                    error.column()
                )
            }
        })
}

fn status_object(status: StatusCode) -> Bytes {
    let reason = status.canonical_reason().unwrap_or("an error");
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": status.as_u16(),
        "reason": reason.replace(' ', ""),
        "message": format!(
            "{} {reason}, with an answer that is not a Kubernetes Status; it may come from something in front of the API server",
            status.as_u16()
        ),
    });
    Bytes::from(status.to_string())
}
