//! Keeps broken answers away from `kube::Client`, which logs the whole body of an answer that does not parse:
//! one truncated list of Secrets would write them all into the log.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::BodyExt;
use serde::de::IgnoredAny;

use crate::{
    body::ResponseBody,
    error::{TransportError, TransportErrorKind},
    request::Class,
};

/// Lets complete, well-formed answers through, and what kube does not read as a whole.
pub(super) async fn guard(
    response: Response<ResponseBody>,
) -> Result<Response<ResponseBody>, TransportError> {
    let status = response.status();
    let operation = response.body().operation().clone();
    let failed = status.is_client_error() || status.is_server_error();
    let is_json = media_type(response.headers())
        .is_some_and(|media| media == "application/json" || media.ends_with("+json"));
    let encoded = response
        .headers()
        .get(header::CONTENT_ENCODING)
        .is_some_and(|value| value != "identity");
    // An encoding that was not asked for is read by nobody, so it must not be a way around this either.
    let raw = encoded && operation.takes_encodings;
    if matches!(operation.class, Class::Proxy) || raw || status == StatusCode::SWITCHING_PROTOCOLS {
        return Ok(response);
    }
    let malformed = |problem: String| {
        TransportError::new(
            operation.text.clone(),
            TransportErrorKind::MalformedResponse { problem },
        )
    };
    if failed {
        let (mut parts, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        // kube puts the whole text of what is no Status into its log and into its error.
        let is_status =
            well_formed(&body).is_ok() && serde_json::from_slice::<kube::core::Status>(&body).is_ok();
        if is_json && is_status {
            return Ok(Response::from_parts(parts, ResponseBody::whole(body, operation)));
        }
        parts.headers.remove(header::CONTENT_LENGTH);
        parts
            .headers
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = ResponseBody::whole(status_object(status), operation);
        return Ok(Response::from_parts(parts, body));
    }
    if operation.class != Class::Unary {
        return Ok(response);
    }
    if !is_json {
        if operation.wants_object && !is_protobuf(response.headers()) {
            return Err(malformed(
                "it is not JSON; something between this process and the API server may answer in its place, \
                 such as a proxy or login page"
                    .to_owned(),
            ));
        }
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    well_formed(&body).map_err(malformed)?;
    Ok(Response::from_parts(parts, ResponseBody::whole(body, operation)))
}

fn media_type(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    value.split(';').next().map(str::trim)
}

fn is_protobuf(headers: &HeaderMap) -> bool {
    media_type(headers).is_some_and(|media| media.contains("protobuf") || media.contains("cbor"))
}

fn well_formed(body: &[u8]) -> Result<(), String> {
    if std::str::from_utf8(body).is_err() {
        return Err("it is not UTF-8 text".to_owned());
    }
    // The parser's own words are not passed on, only its place.
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
