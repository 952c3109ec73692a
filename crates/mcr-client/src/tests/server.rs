//! A small HTTP server whose responses tests write byte by byte.

use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    sync::Semaphore,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}
pub(super) type Stream = Box<dyn Io>;

/// A request that the server has received: its head and body as text.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) head: String,
    pub(super) body: String,
}

impl Seen {
    pub(super) fn line(&self) -> &str {
        self.head.lines().next().unwrap()
    }

    pub(super) fn header(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines
            .filter(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
            .collect()
    }

    pub(super) fn token(&self) -> &str {
        self.header("authorization")
            .first()
            .map_or("", |value| value.trim_start_matches("Bearer "))
    }
}

#[derive(Clone)]
pub(super) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(super) async fn pass(&self) {
        self.0.acquire().await.unwrap().forget();
    }
}

pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) seen: Arc<Mutex<Vec<Seen>>>,
    /// The number of open connections.
    pub(super) open: Arc<AtomicUsize>,
    /// The number of connections since the start.
    accepted: Arc<AtomicUsize>,
    _task: AbortOnDropHandle<()>,
}

impl Server {
    /// Starts a server whose answers stop after this text.
    pub(super) async fn that_stops_after(text: &'static str) -> Self {
        Self::start(None, move |_, mut stream| async move {
            begin(&mut stream).await;
            chunk(&mut stream, text).await;
            closed(&mut stream).await;
            None
        })
        .await
    }

    /// Starts a server that responds with `answer`. `answer` gets the connection, and returns it to keep it alive.
    pub(super) async fn start<F, Fut>(tls: Option<TlsAcceptor>, answer: F) -> Self
    where
        F: Fn(Seen, Stream) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Option<Stream>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let open: Arc<AtomicUsize> = Arc::default();
        let accepted: Arc<AtomicUsize> = Arc::default();
        let (all, count, counted) = (seen.clone(), open.clone(), accepted.clone());
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let (tls, answer, seen, open) = (tls.clone(), answer.clone(), all.clone(), count.clone());
                connections.spawn(async move {
                    open.fetch_add(1, Ordering::SeqCst);
                    let stream: Option<Stream> = match tls {
                        None => Some(Box::new(tcp)),
                        Some(tls) => tls
                            .accept(tcp)
                            .await
                            .ok()
                            .map(|stream| Box::new(stream) as Stream),
                    };
                    if let Some(stream) = stream {
                        serve(stream, &seen, answer).await;
                    }
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self {
            address,
            seen,
            open,
            accepted,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// Starts a server whose answers go on at the permits of the semaphore.
    pub(super) async fn gated<F, Fut>(answer: F) -> (Self, Arc<Semaphore>)
    where
        F: Fn(Seen, Stream, Gate) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Option<Stream>> + Send + 'static,
    {
        let go_on = Arc::new(Semaphore::new(0));
        let gate = Gate(go_on.clone());
        let server = Self::start(None, move |seen, stream| answer(seen, stream, gate.clone())).await;
        (server, go_on)
    }

    /// Starts a server that responds to every request with this status and JSON.
    pub(super) async fn json(status: &'static str, body: &'static str) -> Self {
        Self::start(None, move |_, mut stream| async move {
            respond(&mut stream, status, "application/json", body).await;
            Some(stream)
        })
        .await
    }

    pub(super) fn uri(&self, scheme: &str, path: &str) -> http::Uri {
        format!("{scheme}://{}{path}", self.address).parse().unwrap()
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(super) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

async fn serve<F, Fut>(mut stream: Stream, seen: &Mutex<Vec<Seen>>, answer: F)
where
    F: Fn(Seen, Stream) -> Fut,
    Fut: Future<Output = Option<Stream>>,
{
    while let Some(request) = read(&mut stream).await {
        seen.lock().unwrap().push(request.clone());
        match answer(request, stream).await {
            Some(kept) => stream = kept,
            None => return,
        }
    }
}

async fn read(stream: &mut Stream) -> Option<Seen> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let mut seen = Seen {
        head: String::from_utf8(head).unwrap(),
        body: String::new(),
    };
    if let Some(length) = seen.header("content-length").first() {
        let mut body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body).await.ok()?;
        seen.body = String::from_utf8(body).unwrap();
    }
    Some(seen)
}

pub(super) async fn respond(stream: &mut Stream, status: &str, media: &str, body: &str) {
    let length = body.len();
    let text =
        format!("HTTP/1.1 {status}\r\ncontent-type: {media}\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).await.ok();
}

/// Writes the head of a chunked response.
pub(super) async fn begin(stream: &mut Stream) {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.ok();
}

pub(super) async fn chunk(stream: &mut Stream, text: &str) {
    stream
        .write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())
        .await
        .ok();
}

/// Waits until the client closes the connection.
pub(super) async fn closed(stream: &mut Stream) {
    let mut rest = [0; 64];
    while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
}
