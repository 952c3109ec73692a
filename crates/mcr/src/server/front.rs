//! What every request passes before it reaches a route.

use std::{convert::Infallible, net::IpAddr, sync::Arc, time::Duration};

use axum::{Router, response::Response};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use hyper::{body::Incoming, service::Service};
use hyper_util::service::TowerToHyperService;
use mcr_core::internal::tls::ServerTls;
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::{
    answer::{closing, error},
    guard::{Caller, Guard},
    tls::Certificate,
};

/// The most connections at once that have been given more than a probe.
const CONNECTIONS: usize = 64;
/// The longest time from a request to the head of its response.
const REQUEST_WITHIN: Duration = Duration::from_secs(30);
/// The paths that kubelets and load balancers probe.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];
/// The other paths of mcr, which answer the same methods.
const REPORTS: [&str; 2] = ["/clusters", "/metrics"];

/// What all connections of a listener share.
pub(super) struct Front {
    pub(super) router: Router,
    pub(super) guard: Guard,
    /// The names under which the server is reached, beside those of its certificate.
    pub(super) hosts: Vec<String>,
    pub(super) certificate: Option<Arc<Certificate>>,
    /// Whether only probes are answered.
    pub(super) only_probes: bool,
    pub(super) free: Arc<Semaphore>,
}

impl Front {
    /// A front for everything, behind a guard.
    pub(super) fn new(
        router: Router,
        guard: Guard,
        hosts: Vec<String>,
        certificate: Option<Arc<Certificate>>,
    ) -> Self {
        Self {
            router,
            guard,
            hosts,
            certificate,
            only_probes: false,
            free: Arc::new(Semaphore::new(CONNECTIONS)),
        }
    }

    /// A front for probes.
    pub(super) fn for_probes(router: Router) -> Self {
        Self {
            only_probes: true,
            ..Self::new(router, Guard::Open, Vec::new(), None)
        }
    }
}

/// The permit of a connection, held from the first request that is no probe and that the guard lets pass.
pub(super) type Permit = Mutex<Option<OwnedSemaphorePermit>>;

/// One connection.
pub(super) struct Connection {
    pub(super) front: Arc<Front>,
    /// The TLS of the connection, and whether its client has shown a certificate that was verified.
    pub(super) tls: Option<(Arc<ServerTls>, bool)>,
}

impl Connection {
    /// Answers a request.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        permit: &Permit,
    ) -> Result<Response, Infallible> {
        let is_probe = PROBES.contains(&request.uri().path());
        if !is_probe && let Some(refusal) = self.refusal(&request, permit).await {
            return Ok(refusal);
        }
        if is_probe && !is_read(request.method()) {
            return Ok(not_allowed());
        }
        let served = TowerToHyperService::new(self.front.router.clone()).call(request);
        timeout(REQUEST_WITHIN, served).await.unwrap_or_else(|_| {
            let message = "the response took too long";
            Ok(closing(error(StatusCode::SERVICE_UNAVAILABLE, message)))
        })
    }

    /// The response to a request that is not served.
    async fn refusal(&self, request: &Request<Incoming>, permit: &Permit) -> Option<Response> {
        let (path, headers) = (request.uri().path(), request.headers());
        if self.front.only_probes {
            return Some(error(
                StatusCode::NOT_FOUND,
                "no such path; there are /healthz and /readyz",
            ));
        }
        let authority = request.uri().authority().map(|authority| authority.as_str());
        if !self.is_own(authority, headers) {
            let message = "the host must be localhost, an address, a name in the certificate of this server, or one that \
                           it was given (ServerOptions::host, --serve-host)";
            return Some(error(StatusCode::FORBIDDEN, message));
        }
        if !is_plain(path) {
            let message = "a path has no empty segment, no . or .. and no escaped characters";
            return Some(error(StatusCode::BAD_REQUEST, message));
        }
        let verb = match *request.method() {
            Method::GET | Method::HEAD => "get",
            _ if REPORTS.contains(&path) => return Some(not_allowed()),
            Method::POST => "post",
            Method::PUT => "put",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            Method::OPTIONS => "options",
            _ => return Some(not_allowed()),
        };
        if verb != "get" && !is_of_no_other_page(headers) {
            let message = "a page of another origin may only read";
            return Some(error(StatusCode::FORBIDDEN, message));
        }
        let caller = Caller {
            verb,
            path,
            headers,
            is_verified: self.tls.as_ref().is_some_and(|(_, verified)| *verified),
            trusts_old_authorities: self
                .front
                .certificate
                .as_ref()
                .is_some_and(|certificate| certificate.trusts_old_authorities()),
        };
        // Who is refused or not decided about keeps no place from others.
        if let Some(refusal) = self.front.guard.refusal(&caller).await {
            permit.lock().take();
            return Some(closing(refusal));
        }
        let mut permit = permit.lock();
        if permit.is_none() {
            *permit = self.front.free.clone().try_acquire_owned().ok();
        }
        let message = "too many connections; try again";
        permit
            .is_none()
            .then(|| closing(error(StatusCode::SERVICE_UNAVAILABLE, message)))
    }

    /// Whether a request names this server. A page in a browser can make a name of its own lead here, and read what the server
    /// answers; it can't do that with the names that are accepted.
    fn is_own(&self, authority: Option<&str>, headers: &HeaderMap) -> bool {
        let certificate = self.tls.as_ref().map(|(tls, _)| &**tls);
        let hosts = headers.get_all(header::HOST).iter();
        let mut named = hosts
            .map(|host| host.to_str().unwrap_or_default())
            .chain(authority);
        named.all(|host| is_own_host(host, &self.front.hosts, certificate))
    }
}

fn is_own_host(host: &str, own: &[String], certificate: Option<&ServerTls>) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok()
        || own.iter().any(|own| name.eq_ignore_ascii_case(own))
        || certificate.is_some_and(|certificate| certificate.is_for(name))
}

/// Whether a request comes from a page of this server or from no page. A browser sends a POST for any page, and only hides
/// the answer from it; but it adds the origin of the page.
fn is_of_no_other_page(headers: &HeaderMap) -> bool {
    let own = headers.get(header::HOST).map(HeaderValue::as_bytes);
    headers.get_all(header::ORIGIN).iter().all(|origin| {
        let origin = origin.as_bytes();
        let host = origin
            .strip_prefix(b"https://")
            .or_else(|| origin.strip_prefix(b"http://"));
        host.zip(own)
            .is_some_and(|(host, own)| host.eq_ignore_ascii_case(own))
    })
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn not_allowed() -> Response {
    let mut response = error(
        StatusCode::METHOD_NOT_ALLOWED,
        "only GET and HEAD are allowed here",
    );
    response
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static("GET,HEAD"));
    response
}

/// Whether a path means the same to the guard and to a route.
fn is_plain(path: &str) -> bool {
    let segments = path
        .strip_prefix('/')
        .map(|path| path.trim_end_matches('/').split('/'));
    !path.contains(['%', '\\'])
        && !path.ends_with("//")
        && segments.is_some_and(|mut segments| {
            path == "/" || segments.all(|segment| !matches!(segment, "" | "." | ".."))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_a_page_can_choose_is_refused() {
        let own = ["metrics.fleet.svc".to_owned()];
        for host in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1:8080",
            "[::1]:8080",
            "10.0.0.7",
            "Metrics.fleet.svc:8443",
        ] {
            assert!(is_own_host(host, &own, None), "{host}");
        }
        for host in [
            "",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            ":8080",
            "[::1].evil:1",
            "metrics.fleet.svc.evil.example",
        ] {
            assert!(!is_own_host(host, &own, None), "{host}");
        }
    }

    #[test]
    fn a_path_that_a_route_could_read_in_another_way_is_refused() {
        for path in ["/", "/clusters", "/debug/pprof/", "/a/b.c", "/..."] {
            assert!(is_plain(path), "{path}");
        }
        for path in [
            "",
            "*",
            "//clusters",
            "/debug//clusters",
            "/debug/../clusters",
            "/debug/..",
            "/./clusters",
            "/%63lusters",
            "/debug/..%2fclusters",
            "/debug\\..\\clusters",
            "/debug//",
        ] {
            assert!(!is_plain(path), "{path}");
        }
    }
}
