//! Accepts connections and limits their number, their lifetime and their request heads.
//!
//! Probes must be answered whatever others do. So a connection counts in the limit only when it has asked for more than a
//! probe, and the others give way to newer ones. A probe sends its request at once, and is answered at once.

use std::{collections::VecDeque, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use axum::{Router, response::Response};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use parking_lot::Mutex;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::app::error;

/// The most connections at once that have asked for more than a probe.
const CONNECTIONS: usize = 64;
/// The most other connections. A newer one takes the place of the oldest.
const OTHERS: usize = 64;
/// The paths that kubelets and load balancers probe.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];
/// The default timeout for the head of a request.
pub(super) const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// The largest head of a request, in bytes.
const HEAD_SIZE: usize = 16 << 10;
/// The longest lifetime of a connection.
const CONNECTION_LIFE: Duration = Duration::from_secs(120);
/// The time that a response gets to end before its connection is closed.
const GRACE: Duration = Duration::from_secs(1);

pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    head_within: Duration,
    stop: CancellationToken,
) {
    let shared = Arc::new(Shared {
        free: Arc::new(Semaphore::new(CONNECTIONS)),
        is_local: listener
            .local_addr()
            .is_ok_and(|address| address.ip().to_canonical().is_loopback()),
    });
    let mut others: VecDeque<Arc<Place>> = VecDeque::new();
    let mut connections = JoinSet::new();
    let mut warned = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                warned = false;
                // A place that only this list has belongs to a connection that has ended.
                others.retain(|place| Arc::strong_count(place) > 1 && place.permit.lock().is_none());
                if others.len() >= OTHERS
                    && let Some(oldest) = others.pop_front()
                {
                    oldest.gives_way.cancel();
                }
                let place = Arc::new(Place::default());
                others.push_back(place.clone());
                let serves = Serves {
                    shared: shared.clone(),
                    place,
                    router: TowerToHyperService::new(router.clone()),
                };
                connections.spawn(connection(stream, serves, head_within, stop.clone()));
            }
            Err(error) => {
                // Mostly the process is out of file descriptors for a while. One warning is enough.
                if !std::mem::replace(&mut warned, true) {
                    tracing::warn!(%error, "a connection to metrics and health can't be accepted; trying again");
                }
                sleep(Duration::from_millis(200)).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// What all connections share.
struct Shared {
    free: Arc<Semaphore>,
    /// Whether the server listens for this machine only.
    is_local: bool,
}

/// The place of one connection.
#[derive(Default)]
struct Place {
    gives_way: CancellationToken,
    /// Held from the first request that is no probe.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

/// Answers the requests of one connection.
struct Serves {
    shared: Arc<Shared>,
    place: Arc<Place>,
    router: TowerToHyperService<Router>,
}

impl Serves {
    /// The response to a request that is not served.
    fn refusal(&self, path: &str, headers: &HeaderMap) -> Option<Response> {
        if PROBES.contains(&path) {
            return None;
        }
        let host = headers
            .get(header::HOST)
            .map(|host| host.to_str().unwrap_or_default());
        if self.shared.is_local && !host.is_none_or(is_this_machine) {
            let message = "this server is for this machine only, so the host must be localhost or an address";
            return Some(error(StatusCode::FORBIDDEN, message));
        }
        let mut permit = self.place.permit.lock();
        if permit.is_none() {
            *permit = self.shared.free.clone().try_acquire_owned().ok();
        }
        permit.is_none().then(|| {
            let mut response = error(StatusCode::SERVICE_UNAVAILABLE, "too many connections; try again");
            response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
            response
        })
    }
}

/// Whether a Host names this machine or an address. A page in a browser can make a name of its own lead here, and read what the
/// server answers; it can't do that with these.
fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

async fn connection(stream: TcpStream, serves: Serves, head_within: Duration, stop: CancellationToken) {
    let place = serves.place.clone();
    let service = service_fn(|request: Request<Incoming>| {
        let refusal = serves.refusal(request.uri().path(), request.headers());
        let served = refusal.is_none().then(|| serves.router.call(request));
        async move {
            match (refusal, served) {
                (None, Some(served)) => served.await,
                (refusal, _) => Ok(refusal.unwrap_or_default()),
            }
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_within)
        .max_buf_size(HEAD_SIZE)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection to metrics and health failed");
            }
            return;
        }
        () = place.gives_way.cancelled() => return,
        () = stop.cancelled() => {}
        () = sleep(CONNECTION_LIFE) => {}
    }
    connection.as_mut().graceful_shutdown();
    // A client that does not read its response in time does not get it.
    let _ = timeout(GRACE, connection).await;
}

#[cfg(test)]
mod tests {
    use super::is_this_machine;

    #[test]
    fn a_host_that_a_page_can_choose_is_refused() {
        for host in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1:8080",
            "[::1]:8080",
            "10.0.0.7",
        ] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in [
            "",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            ":8080",
            "[::1].evil:1",
        ] {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
