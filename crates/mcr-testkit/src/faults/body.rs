//! Bodies of answers, and how faults change them.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Fault, request::RequestInfo};

pub(super) type BoxError = Box<dyn Error + Send + Sync>;
pub(super) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Not JSON and not even text.
pub(super) const GARBAGE: &[u8] = b"<html>}{\xff\xfe not what was asked for";

pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// The answer of a fault that does not contact the upstream. `None` if the fault contacts it, or does not fit the
/// request.
pub(super) fn local_answer(fault: &Fault, info: &RequestInfo) -> Option<Response<Body>> {
    let (code, reason, message) = match fault {
        Fault::Unauthorized => (401, "Unauthorized", "Unauthorized".to_owned()),
        Fault::Forbidden => (403, "Forbidden", forbidden(info)),
        Fault::NotFound => {
            let mut response = Response::new(full("404 page not found\n"));
            *response.status_mut() = StatusCode::NOT_FOUND;
            let text = HeaderValue::from_static("text/plain; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, text);
            return Some(response);
        }
        Fault::NoStreamingLists if info.streaming_list => (
            422,
            "Invalid",
            "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for \
             watch unless the WatchList feature gate is enabled"
                .to_owned(),
        ),
        Fault::InternalError => (
            500,
            "InternalError",
            "Internal error occurred: etcdserver: a fault".to_owned(),
        ),
        Fault::Status(code) => (*code, "", "a fault".to_owned()),
        _ => return None,
    };
    let status = status(code, reason, &message);
    let mut response = Response::new(full(status.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Some(response)
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    })
}

fn forbidden(info: &RequestInfo) -> String {
    if info.resource.is_empty() {
        return format!(
            "forbidden: User \"fault\" cannot {} path \"{}\"",
            info.verb, info.path
        );
    }
    format!(
        "{} is forbidden: User \"fault\" cannot {} resource \"{}\" in API group \"{}\" at the cluster scope",
        info.resource, info.verb, info.resource, info.group
    )
}

fn expired() -> String {
    "The resourceVersion for the provided watch is too old.".to_owned()
}

/// The line of a watch with an `ERROR` event of code 410.
pub(super) fn gone_event() -> Bytes {
    let mut line = json!({ "type": "ERROR", "object": status(410, "Expired", &expired()) }).to_string();
    line.push('\n');
    line.into()
}

/// Whether a fault changes the answer to a list or the read of an object.
pub(super) fn changes(fault: &Fault, info: &RequestInfo) -> bool {
    match fault {
        Fault::Truncated | Fault::CutOff | Fault::Garbage | Fault::Undecodable { .. } => info.reads_objects(),
        Fault::NoResourceVersion => info.verb == "list",
        _ => false,
    }
}

/// Applies a fault to a body.
pub(super) fn changed(fault: &Fault, body: Bytes) -> Body {
    match fault {
        Fault::Truncated => full(body.slice(..body.len() / 2)),
        Fault::CutOff => cut_off(body.slice(..body.len() / 2)),
        Fault::Garbage => full(GARBAGE),
        Fault::Undecodable { name } => full(edited(body, |value| {
            match value.get_mut("items").and_then(Value::as_array_mut) {
                Some(items) => items
                    .iter_mut()
                    .find(|item| is_named(item, name.as_deref()))
                    .is_some_and(make_undecodable),
                None => is_named(value, name.as_deref()) && make_undecodable(value),
            }
        })),
        Fault::NoResourceVersion => full(edited(body, |value| {
            let metadata = value.get_mut("metadata").and_then(Value::as_object_mut);
            metadata.is_some_and(|metadata| metadata.remove("resourceVersion").is_some())
        })),
        _ => full(body),
    }
}

/// Edits a JSON body. A body that is not JSON, or needs no edit, is returned byte for byte.
pub(super) fn edited(body: Bytes, edit: impl FnOnce(&mut Value) -> bool) -> Bytes {
    let Ok(mut value) = serde_json::from_slice::<Value>(&body) else {
        return body;
    };
    if edit(&mut value) {
        value.to_string().into()
    } else {
        body
    }
}

pub(super) fn is_named(object: &Value, name: Option<&str>) -> bool {
    name.is_none_or(|name| object["metadata"]["name"] == name)
}

/// Makes an object that can't be decoded into its type. Name and version stay readable, as in reality, where the type
/// of a field may differ between versions of a CRD.
pub(super) fn make_undecodable(object: &mut Value) -> bool {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return false;
    };
    metadata.insert("labels".to_owned(), 7.into());
    true
}

/// A body that ends with an error after `part`, which breaks the connection.
fn cut_off(part: Bytes) -> Body {
    let frames = [
        Ok(Frame::data(part)),
        Err("a fault: the answer is cut off".into()),
    ];
    StreamBody::new(stream::iter(frames)).boxed_unsync()
}

/// Limits the rate at which a body is sent.
pub(super) fn paced(body: Body, bytes_per_second: u32) -> Body {
    let pieces = stream::unfold((body, Bytes::new()), move |(mut body, mut rest)| async move {
        while rest.is_empty() {
            match body.frame().await? {
                Ok(frame) => match frame.into_data() {
                    Ok(data) => rest = data,
                    Err(trailers) => return Some((Ok(trailers), (body, rest))),
                },
                Err(error) => return Some((Err(error), (body, rest))),
            }
        }
        let piece = pace(&mut rest, bytes_per_second).await;
        Some((Ok(Frame::data(piece)), (body, rest)))
    });
    StreamBody::new(pieces).boxed_unsync()
}

/// Waits a tenth of a second, then takes as many bytes as the rate allows in that time.
pub(super) async fn pace(rest: &mut Bytes, bytes_per_second: u32) -> Bytes {
    let rate = bytes_per_second.max(1);
    let most = usize::try_from(rate / 10).unwrap_or(usize::MAX).max(1);
    let piece = rest.split_to(most.min(rest.len()));
    sleep(Duration::from_secs_f64(piece.len() as f64 / f64::from(rate))).await;
    piece
}
