//! The list and watch requests of the Kubernetes API.

use std::time::{Duration, SystemTime};

use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use kube::client::Body;
use mcr_client::{
    ResponseBody,
    internal::{HeadTimeout, Sender, jitter, probe},
};
use mcr_store::{parse_list, parse_status};
use tokio::time::{sleep, timeout};

use super::{content::Content, env::DriverEnv, listing::Source};
use crate::{error::WatchError, request::WatchRequest};

/// How much longer than a watch, or than the time limit of a list, the head may take. So the driver notices first.
const HEAD_AFTER_END: Duration = Duration::from_secs(30);

/// The time without a head after which an API server is probed that no supervisor probes. As for the clusters of a fleet.
const PROBE_AFTER: Duration = Duration::from_secs(20);

/// How long such a probe may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(8);

/// What a page is asked for by.
#[derive(Clone, Copy)]
pub(super) struct PageRequest<'a> {
    pub(super) kind: &'a WatchRequest,
    pub(super) source: Source,
    pub(super) size: u32,
    pub(super) continue_token: Option<&'a str>,
    /// Whether the response may be compressed, if the transport accepts that.
    pub(super) may_compress: bool,
}

/// Why there is no page.
#[derive(Debug)]
pub(super) enum PageError {
    /// The version of the list has expired. The token, if there is one, continues the list at a newer version.
    Expired { continue_token: Option<String> },
    /// No response came, or the API server refused.
    Refused(WatchError),
    /// The response took too long, broke off, or can't be used.
    Body(WatchError),
}

impl From<PageError> for WatchError {
    fn from(error: PageError) -> Self {
        match error {
            PageError::Expired { .. } => Self::Expired,
            PageError::Refused(error) | PageError::Body(error) => error,
        }
    }
}

/// Sends the request for one page of a list and returns the content of the response.
pub(super) async fn send_list(env: &DriverEnv, page: PageRequest<'_>) -> Result<Content, PageError> {
    let limit = page.size.to_string();
    let source = match page.source {
        // Without a limit: it would turn the list into a read from etcd.
        Source::Cache => Some(("resourceVersion", "0")),
        Source::Pages => Some(("limit", limit.as_str())),
        Source::Whole => None,
    };
    let next = page.continue_token.map(|token| ("continue", token));
    let mut request = get(page.kind, page.kind.accept_list(), source.into_iter().chain(next))
        .map_err(PageError::Refused)?;
    // Servers that convert objects, and proxies that wait for the whole response, send the head late.
    let head_timeout = HeadTimeout(env.settings.list_timeout + HEAD_AFTER_END);
    request.extensions_mut().insert(head_timeout);
    let accepts_gzip = page.may_compress && env.transport.accepts_gzip();
    if accepts_gzip {
        let gzip = HeaderValue::from_static("gzip");
        request.headers_mut().insert(header::ACCEPT_ENCODING, gzip);
    }
    let response = env.transport.send(request).await;
    let response = response.map_err(|e| PageError::Refused(WatchError::from_transport(&e.into())))?;
    match check_status(response, accepts_gzip).await {
        Ok(response) => Ok(Content::of(response, accepts_gzip)),
        Err(refusal) if page.continue_token.is_some() && matches!(refusal.error, WatchError::Expired) => {
            Err(PageError::Expired {
                continue_token: refusal.continue_token,
            })
        }
        Err(refusal) => Err(PageError::Refused(refusal.error)),
    }
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
    let mut request = get(kind, kind.accept_watch(), query)?;
    // Some servers send the head only with the end of the watch.
    request
        .extensions_mut()
        .insert(HeadTimeout(lifetime + HEAD_AFTER_END));
    let response = env.transport.send(request).await;
    let response = response.map_err(|e| WatchError::from_transport(&e.into()))?;
    let accepted = check_status(response, false).await;
    Ok(accepted.map(Response::into_body).map_err(|refusal| refusal.error))
}

/// Resolves when the API server answers nothing any more. For a list or a watch that waits for its head, if no supervisor probes the
/// cluster.
pub(super) async fn silent(env: &DriverEnv, kind: &WatchRequest) -> WatchError {
    loop {
        sleep(PROBE_AFTER).await;
        let probe = PageRequest {
            kind,
            source: Source::Pages,
            size: 1,
            continue_token: None,
            may_compress: false,
        };
        // A server that refuses is not silent.
        match timeout(PROBE_TIMEOUT, send_list(env, probe)).await {
            Err(_) => return WatchError::Timeout(PROBE_AFTER + PROBE_TIMEOUT),
            Ok(Err(PageError::Refused(error @ WatchError::Transport(_)))) => return error,
            Ok(_) => {}
        }
    }
}

/// The newest resource version of a kind; none if the API server does not show it. A list of one object shows it, wherever the
/// API server takes that object from.
pub(super) async fn newest_version(env: &DriverEnv, kind: &WatchRequest) -> Option<String> {
    const ACCEPT: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json";
    const MAX_BODY: usize = 2 << 20;
    let asked = async {
        let request = get(&kind.unselected(), ACCEPT, [("limit", "1")]).ok()?;
        let response = env.transport.send(request).await.ok()?;
        let body = check_status(response, false).await.ok()?.into_body();
        let body = http_body_util::Limited::new(body, MAX_BODY).collect().await;
        Some(parse_list(&body.ok()?.to_bytes()).ok()?.resource_version)
    };
    timeout(PROBE_TIMEOUT, asked).await.ok()?
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
        .extension(Sender::Controllers)
        .body(Body::empty())
        .map_err(|_| WatchError::Malformed(format!("{kind} does not make a valid URL")))
}

/// An answer that is not a success.
struct Refusal {
    error: WatchError,
    /// Continues an expired list at a newer version.
    continue_token: Option<String>,
}

/// Turns a response that is not a success into its error.
async fn check_status(
    response: Response<ResponseBody>,
    accepts_gzip: bool,
) -> Result<Response<ResponseBody>, Refusal> {
    const MAX_STATUS: usize = 64 << 10;
    let (status, headers) = (response.status(), response.headers());
    let is_html = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|media| media.as_bytes().starts_with(b"text/html"));
    if status.is_success() && status != StatusCode::NO_CONTENT && !is_html {
        return Ok(response);
    }
    let headers = headers.clone();
    let retry_after = headers
        .get(header::RETRY_AFTER)
        .and_then(|value| retry_after(value.to_str().ok()?, SystemTime::now()));
    let body = Content::of(response, accepts_gzip).read_all(MAX_STATUS);
    let body = timeout(Duration::from_secs(5), body).await;
    let body = body.ok().flatten().unwrap_or_default();
    // API servers answer these without a Status, too; the others come from something else then.
    let by_code_alone = status.is_server_error() || matches!(status.as_u16(), 401 | 404 | 410 | 429);
    let mut parsed = parse_status(status.as_u16(), &body);
    if !by_code_alone && !probe::is_status(&body) {
        return Err(Refusal {
            error: WatchError::Foreign(probe::describe_foreign(status, &headers, &body)),
            continue_token: None,
        });
    }
    let continue_token = parsed
        .metadata
        .take()
        .and_then(|metadata| metadata.continue_token);
    Err(Refusal {
        error: WatchError::from_status(parsed, retry_after),
        continue_token: continue_token.filter(|token| !token.is_empty()),
    })
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
