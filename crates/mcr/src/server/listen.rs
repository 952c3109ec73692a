//! Accepts connections and limits their number, their lifetime and their request heads.

use std::{pin::pin, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// The most connections at once. Further ones wait in the backlog of the socket.
const CONNECTIONS: usize = 64;
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
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    let mut warned = false;
    loop {
        let accepted = async {
            // The semaphore is never closed, so this always returns a permit.
            let permit = free.clone().acquire_owned().await.ok()?;
            Some((listener.accept().await, permit))
        };
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            Some(_) = connections.join_next() => continue,
            () = stop.cancelled() => break,
        };
        match accepted {
            Some((Ok((stream, _)), permit)) => {
                warned = false;
                connections.spawn(connection(
                    stream,
                    router.clone(),
                    head_within,
                    stop.clone(),
                    permit,
                ));
            }
            Some((Err(error), _)) => {
                // Mostly the process is out of file descriptors for a while. One warning is enough.
                if !std::mem::replace(&mut warned, true) {
                    tracing::warn!(%error, "a connection to metrics and health can't be accepted; trying again");
                }
                sleep(Duration::from_millis(200)).await;
            }
            None => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn connection(
    stream: TcpStream,
    router: Router,
    head_within: Duration,
    stop: CancellationToken,
    _permit: OwnedSemaphorePermit,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_within)
        .max_buf_size(HEAD_SIZE)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection to metrics and health failed");
            }
            return;
        }
        () = stop.cancelled() => {}
        () = sleep(CONNECTION_LIFE) => {}
    }
    connection.as_mut().graceful_shutdown();
    // A client that does not read its response in time does not get it.
    let _ = timeout(GRACE, connection).await;
}
