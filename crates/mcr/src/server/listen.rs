//! Accepts connections and limits their number, their lifetime and their request heads.
//!
//! Probes must be answered whatever others do. So a connection counts in the limit only when it has asked for more than a
//! probe, and the others give way to newer ones. A probe sends its request at once, and is answered at once.

use std::{collections::VecDeque, pin::pin, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::front::{Connection, Front, Permit};

/// The most connections that have asked for nothing but probes. A newer one takes the place of the oldest.
const OTHERS: usize = 64;
/// The default timeout for the TLS handshake of a connection, and for the head of a request.
pub(super) const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// The largest head of a request, in bytes.
const HEAD_SIZE: usize = 16 << 10;
/// The longest lifetime of a connection.
const CONNECTION_LIFE: Duration = Duration::from_secs(120);
/// The time that a response gets to end before its connection is closed.
const GRACE: Duration = Duration::from_secs(1);

pub(super) async fn serve(
    listener: TcpListener,
    front: Arc<Front>,
    head_within: Duration,
    stop: CancellationToken,
) {
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
                connections.spawn(connection(
                    stream,
                    front.clone(),
                    place,
                    head_within,
                    stop.clone(),
                ));
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

/// The place of one connection.
#[derive(Default)]
struct Place {
    gives_way: CancellationToken,
    permit: Permit,
}

async fn connection(
    stream: TcpStream,
    front: Arc<Front>,
    place: Arc<Place>,
    head_within: Duration,
    stop: CancellationToken,
) {
    let Some(certificate) = &front.certificate else {
        let connection = Connection { front, tls: None };
        return exchange(stream, connection, place, head_within, stop).await;
    };
    let tls = certificate.now();
    let handshake = TlsAcceptor::from(tls.config()).accept(stream);
    let stream = tokio::select! {
        stream = timeout(head_within, handshake) => stream,
        () = place.gives_way.cancelled() => return,
        () = stop.cancelled() => return,
    };
    match stream {
        Ok(Ok(stream)) => {
            let is_verified = stream.get_ref().1.peer_certificates().is_some();
            let tls = Some((tls, is_verified));
            let connection = Connection { front, tls };
            exchange(stream, connection, place, head_within, stop).await;
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "a TLS handshake with metrics and health failed");
        }
        Err(_) => {}
    }
}

/// Answers the requests of a connection.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    connection: Connection,
    place: Arc<Place>,
    head_within: Duration,
    stop: CancellationToken,
) {
    let service = service_fn(|request| connection.answer(request, &place.permit));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_within)
        .max_buf_size(HEAD_SIZE)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = pin!(served);
    tokio::select! {
        ended = served.as_mut() => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection to metrics and health failed");
            }
            return;
        }
        () = place.gives_way.cancelled() => return,
        () = stop.cancelled() => {}
        () = sleep(CONNECTION_LIFE) => {}
    }
    served.as_mut().graceful_shutdown();
    // A client that does not read its response in time does not get it.
    let _ = timeout(GRACE, served).await;
}
