//! Accepts connections and bounds what each of them may take.

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

/// Further connections wait in the socket's backlog.
const CONNECTIONS: usize = 64;
/// How long the head of a request may take, where nothing else is said.
pub(super) const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// How large the head of a request may be.
const HEAD_SIZE: usize = 16 << 10;
/// How long a connection is kept, however little is said on it.
const CONNECTION_LIFE: Duration = Duration::from_secs(120);
/// How long an answer under way may take when its connection is to end.
const ENDING: Duration = Duration::from_secs(1);

pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    head_within: Duration,
    stop: CancellationToken,
) {
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    let mut told = false;
    loop {
        let accepted = async {
            // Never closed; without a permit there would be no bound.
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
                told = false;
                connections.spawn(connection(
                    stream,
                    router.clone(),
                    head_within,
                    stop.clone(),
                    permit,
                ));
            }
            Some((Err(error), _)) => {
                // Out of file descriptors, mostly; that passes, or shows elsewhere too.
                if !std::mem::replace(&mut told, true) {
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
                tracing::debug!(%error, "a connection to metrics and health broke off");
            }
            return;
        }
        () = stop.cancelled() => {}
        () = sleep(CONNECTION_LIFE) => {}
    }
    connection.as_mut().graceful_shutdown();
    // Whoever does not read its answer does not get it.
    let _ = timeout(ENDING, connection).await;
}
