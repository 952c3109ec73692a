use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, USER_AGENT};
use http::request::Parts;

use super::form::Form;
use super::query::Query;
use super::state::ClusterState;

/// A request to a cluster, with its query parsed.
pub struct Request<'a> {
    pub cluster: &'a Arc<ClusterState>,
    pub parts: &'a Parts,
    pub query: &'a Query,
    pub body: &'a Bytes,
    pub form: Form,
}

impl Request<'_> {
    /// The media type of the body, without parameters.
    pub fn content_type(&self) -> &str {
        let whole = header(&self.parts.headers, CONTENT_TYPE);
        whole.split(';').next().unwrap_or_default().trim()
    }

    /// The field manager: the request's `fieldManager`, or the name of the client if there is none.
    pub fn manager(&self) -> String {
        let agent = header(&self.parts.headers, USER_AGENT);
        let own = agent.split('/').next().unwrap_or_default();
        let asked = self.query.text("fieldManager");
        let manager = if asked.is_empty() { own } else { asked };
        (if manager.is_empty() { "unknown" } else { manager }).to_owned()
    }
}

pub fn header(headers: &HeaderMap, name: impl http::header::AsHeaderName) -> &str {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}
