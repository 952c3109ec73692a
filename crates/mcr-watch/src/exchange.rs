//! Requests for lists and watches, and answers that are not successes.

use std::time::Duration;

use http::{Request, Response, header};
use http_body_util::BodyExt;
use kube::client::Body;
use mcr_client::ResponseBody;
use mcr_store::parse_status;
use tokio::time::timeout;

use crate::{WatchError, WatchRequest};

/// The GET request of a list or a watch, with these query parameters.
pub(crate) fn request<'q>(
    wanted: &WatchRequest,
    accept: &str,
    parameters: impl IntoIterator<Item = (&'q str, &'q str)>,
) -> Result<Request<Body>, WatchError> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(parameters);
    if let Some(labels) = wanted.label_selector() {
        query.append_pair("labelSelector", labels);
    }
    if let Some(fields) = wanted.field_selector() {
        query.append_pair("fieldSelector", fields);
    }
    Request::get(format!("{}?{}", wanted.path(), query.finish()))
        .header(header::ACCEPT, accept)
        .header(header::ACCEPT_ENCODING, "identity")
        .body(Body::empty())
        .map_err(|_| WatchError::Malformed(format!("{wanted} does not make a valid URL")))
}

/// Turns an answer that is not a success into its error.
pub(crate) async fn checked(response: Response<ResponseBody>) -> Result<Response<ResponseBody>, WatchError> {
    const MAX_STATUS: usize = 64 << 10;
    if response.status().is_success() {
        return Ok(response);
    }
    let code = response.status().as_u16();
    let retry_after = response
        .headers()
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .map(Duration::from_secs);
    let body = http_body_util::Limited::new(response.into_body(), MAX_STATUS);
    let body = timeout(Duration::from_secs(5), body.collect()).await;
    let body = body
        .ok()
        .and_then(Result::ok)
        .map(|collected| collected.to_bytes())
        .unwrap_or_default();
    Err(WatchError::from_status(parse_status(code, &body), retry_after))
}
