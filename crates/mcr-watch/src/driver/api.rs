//! The list and watch requests of the Kubernetes API.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::BodyExt;
use kube::client::Body;
use mcr_client::{ResponseBody, internal::jitter};
use mcr_store::parse_status;
use tokio::time::timeout;

use super::env::DriverEnv;
use crate::{WatchError, WatchRequest, permit::Permit};

/// How long a list keeps its permit while it waits for the response. Hundreds of silent clusters may stand in line
/// before a healthy one, so this is short. When the response comes, the list acquires a permit again.
const PERMIT_WHILE_WAITING: Duration = Duration::from_millis(250);

/// How long a list keeps its permit while it reads the body: a slow cluster must not keep the others from listing.
const PERMIT_WHILE_READING: Duration = Duration::from_secs(10);

/// Sends the request for one page of a list and reads the body of the response. `newest` asks for the newest state, in pages.
/// Otherwise the list may come from the API server's cache, in one page: a limit would turn it into a read from etcd.
pub(super) async fn list_page(
    env: &DriverEnv,
    kind: &WatchRequest,
    newest: bool,
    continue_token: Option<&str>,
    permit: &mut Permit,
) -> Result<Bytes, WatchError> {
    let limit = env.settings.page_size.to_string();
    let scope = if newest {
        ("limit", limit.as_str())
    } else {
        ("resourceVersion", "0")
    };
    let next = continue_token.map(|token| ("continue", token));
    let request = get(
        kind,
        kind.accept_list(),
        [Some(scope), next].into_iter().flatten(),
    )?;
    let sent = env.transport.send(request);
    let response = permit.hold_at_most(PERMIT_WHILE_WAITING, sent).await;
    let response = response.map_err(|e| WatchError::from_transport(&e.into()))?;
    let response = check_status(response).await?;
    // The API server accepts the credentials and answers. Count that now, however long the body takes: a controller
    // that sees the kind listed may change how the cluster is reached, and by then this connection must count as one
    // that works.
    env.health.answered();
    permit.acquire_again(&env.list_permits).await;
    let body = response.into_body().into_bytes(env.counts.expected_page());
    let body = permit.hold_at_most(PERMIT_WHILE_READING, body).await;
    let body = body.map_err(|e| WatchError::from_transport(&e.into()))?;
    env.counts.read_page(body.len());
    Ok(body)
}

/// Starts a watch from a resource version. The outer error means that no response came, the inner error that the API
/// server refused.
pub(super) async fn start_watch(
    env: &DriverEnv,
    kind: &WatchRequest,
    resource_version: &str,
) -> Result<Result<ResponseBody, WatchError>, WatchError> {
    let lifetime = env.settings.watch_timeout;
    let lifetime = lifetime.mul_f64(0.9) + jitter(lifetime.mul_f64(0.1));
    // The API server takes 0 for no limit at all.
    let seconds = lifetime.as_secs().max(1).to_string();
    let query = [
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("resourceVersion", resource_version),
        ("timeoutSeconds", &seconds),
    ];
    let response = env.transport.send(get(kind, kind.accept_watch(), query)?).await;
    let response = response.map_err(|e| WatchError::from_transport(&e.into()))?;
    Ok(check_status(response).await.map(Response::into_body))
}

/// Builds the GET request for a kind, with its selectors and these query parameters.
fn get<'q>(
    kind: &WatchRequest,
    accept: &str,
    parameters: impl IntoIterator<Item = (&'q str, &'q str)>,
) -> Result<Request<Body>, WatchError> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(parameters);
    if let Some(labels) = kind.label_selector() {
        query.append_pair("labelSelector", labels);
    }
    if let Some(fields) = kind.field_selector() {
        query.append_pair("fieldSelector", fields);
    }
    Request::get(format!("{}?{}", kind.path(), query.finish()))
        .header(header::ACCEPT, accept)
        .header(header::ACCEPT_ENCODING, "identity")
        .body(Body::empty())
        .map_err(|_| WatchError::Malformed(format!("{kind} does not make a valid URL")))
}

/// Turns a response that is not a success into its error.
async fn check_status(response: Response<ResponseBody>) -> Result<Response<ResponseBody>, WatchError> {
    const MAX_STATUS: usize = 64 << 10;
    if response.status().is_success() {
        return Ok(response);
    }
    let code = response.status().as_u16();
    let retry_after = response
        .headers()
        .get(header::RETRY_AFTER)
        .and_then(|value| retry_after(value.to_str().ok()?, SystemTime::now()));
    let body = http_body_util::Limited::new(response.into_body(), MAX_STATUS);
    let body = timeout(Duration::from_secs(5), body.collect()).await;
    let body = body
        .ok()
        .and_then(Result::ok)
        .map(|collected| collected.to_bytes())
        .unwrap_or_default();
    Err(WatchError::from_status(parse_status(code, &body), retry_after))
}

/// The time to wait that a `Retry-After` asks for: seconds, or a date ([RFC 9110, section 10.2.3]). None for a date in the past.
///
/// [RFC 9110, section 10.2.3]: https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3
fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let seconds = value.parse().ok().map(Duration::from_secs);
    seconds.or_else(|| httpdate::parse_http_date(value).ok()?.duration_since(now).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_asks_to_wait_with_seconds_or_with_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_700);
        for (value, seconds) in [
            ("7", Some(7)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(77)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", None),
            ("-7", None),
            ("soon", None),
        ] {
            assert_eq!(
                retry_after(value, now),
                seconds.map(Duration::from_secs),
                "{value}"
            );
        }
    }
}
