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

use std::{collections::BTreeMap, io};

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

pub(crate) type Query = BTreeMap<String, String>;

pub(crate) fn query_of(uri: &http::Uri) -> Query {
    let query = uri.query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

/// The version, offset and limit of the page that a query asks for. `newest` is the version of a first page.
pub(crate) fn page_of(query: &Query, newest: u64) -> (u64, usize, usize) {
    let limit = query.get("limit");
    let limit = limit.map_or(usize::MAX, |limit| limit.parse().unwrap());
    match query.get("continue").and_then(|token| token.split_once(':')) {
        Some((version, offset)) => (version.parse().unwrap(), offset.parse().unwrap(), limit),
        None => (newest, 0, limit),
    }
}

/// The metadata of a page that ends there.
pub(crate) fn page_metadata(version: u64, end: usize, all: usize) -> Value {
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if end < all {
        metadata["continue"] = json!(format!("{version}:{end}"));
    }
    metadata
}

/// What is there after these events.
pub(crate) fn after<'a, K: Ord + Clone + 'a, V: Clone + 'a>(
    events: impl Iterator<Item = (&'static str, &'a K, &'a V)>,
) -> BTreeMap<K, V> {
    let mut objects = BTreeMap::new();
    for (verb, key, object) in events {
        if verb == "DELETED" {
            objects.remove(key);
        } else {
            objects.insert(key.clone(), object.clone());
        }
    }
    objects
}

/// What API servers answer to `/version`.
pub(crate) fn version() -> Value {
    json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0"})
}

/// The namespace whose UID is the identity of a cluster.
pub(crate) fn kube_system(uid: &str) -> Value {
    json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "kube-system", "uid": uid}})
}
