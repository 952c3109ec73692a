//! API servers that misbehave, for the tests of this workspace. They stand in memory behind a `kube::Client`, for paused time.
//!
//! - [`scripted::Server`] follows the script of a test, byte by byte, on a socket, too.
//! - [`place::Place`] has objects with a history, and fails in every way a list or a watch can.
//! - [`shard::Shard`] is a shard of kcp: the API of many workspaces behind one endpoint.
//!
//! The crate depends on no other of the workspace, so the lowest can use it without a development cycle. What users can test
//! their controllers with is in `mcr-testkit`.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a double that fails ends its test"
)]

pub mod place;
pub mod scripted;
pub mod shard;

use std::io;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use serde_json::{Value, json};

/// An answer in memory.
pub(crate) type InMemory = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// An answer in JSON, whose body comes in these parts.
pub(crate) fn answer(
    code: u16,
    parts: impl Stream<Item = Result<Bytes, io::Error>> + Send + 'static,
) -> InMemory {
    let body = StreamBody::new(parts.map(|part| part.map(Frame::data)));
    Response::builder()
        .status(StatusCode::from_u16(code).unwrap())
        .header("content-type", "application/json")
        .body(body.boxed_unsync())
        .unwrap()
}

/// A `Status` as API servers answer.
pub fn status_object(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code})
}
