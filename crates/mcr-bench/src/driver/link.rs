//! A wide network between subjects and servers, of which all connections share one link.
//!
//! It relays bytes, so that it works without rights and without `netem`. TLS goes through it. What it has of a real network: the way takes
//! time, also for the handshake of TCP; a link has one rate for each direction and a queue of a quarter of a second, in which connections take
//! turns; a lost segment comes a round trip later, is sent twice, and what is behind it on its connection waits. It has no slow start and
//! no smaller windows after a loss, which hardly matter while a hundred connections share the rate.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Mutex, mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;

use super::Servers;

/// What a segment of TCP carries at most.
const SEGMENT: u64 = 1_460;

/// The bytes of a turn.
const PIECE: usize = 8 << 10;

/// The pieces of a connection that may be on the way, in each direction.
const WINDOW: usize = 64;

/// How much the link queues, in time.
const QUEUE: Duration = Duration::from_millis(250);

/// What a link is like.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// The time of the way in one direction.
    pub delay: Duration,
    /// The rate of each direction.
    pub bytes_per_second: u64,
    /// One segment is lost of so many.
    pub one_lost_of: u64,
}

/// A round trip of 50 ms, 20 Mbit/s, and 0.1 % loss.
pub const WIDE: Network = Network {
    delay: Duration::from_millis(25),
    bytes_per_second: 2_500_000,
    one_lost_of: 1_000,
};

/// A link to the servers.
pub struct Link {
    /// The kubeconfig of the servers, behind the link.
    pub kubeconfig: PathBuf,
    shared: Arc<Shared>,
    _folder: TempDir,
    _task: AbortOnDropHandle<()>,
}

struct Shared {
    network: Network,
    server: String,
    /// When each direction will have sent what it has taken.
    free: [Mutex<Instant>; 2],
    segments: AtomicU64,
    bytes: AtomicU64,
    up: watch::Sender<bool>,
}

impl Link {
    /// Puts a link between these servers and those who use its kubeconfig. All have one address, as those that the bench starts.
    ///
    /// # Errors
    ///
    /// When the kubeconfig of the servers has no address, and when there is no port.
    pub async fn to(servers: &Servers, network: Network) -> Result<Self> {
        Self::before(&std::fs::read_to_string(&servers.kubeconfig)?, network).await
    }

    async fn before(text: &str, network: Network) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let server = text
            .split("https://")
            .nth(1)
            .context("an address in the kubeconfig")?;
        let is_end = |letter: char| !letter.is_ascii_digit() && !matches!(letter, '.' | ':');
        let server = server.split(is_end).next().unwrap_or_default().to_owned();
        let folder = tempfile::Builder::new().prefix("mcr-bench-").tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(
            &kubeconfig,
            text.replace(&server, &listener.local_addr()?.to_string()),
        )?;
        let free = || Mutex::new(Instant::now());
        let shared = Arc::new(Shared {
            network,
            server,
            free: [free(), free()],
            segments: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            up: watch::Sender::new(true),
        });
        let task = tokio::spawn(accept(shared.clone(), listener));
        Ok(Self {
            kubeconfig,
            shared,
            _folder: folder,
            _task: AbortOnDropHandle::new(task),
        })
    }

    /// The bytes on the wire so far, in both directions, without headers below TLS.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Closes all connections, and every new one, until it is up again.
    pub fn set_up(&self, up: bool) {
        self.shared.up.send_replace(up);
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (Ok((client, _)), true) = (accepted, *shared.up.borrow()) else { continue };
                connections.spawn(relay(shared.clone(), client));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn relay(shared: Arc<Shared>, client: TcpStream) {
    let mut up = shared.up.subscribe();
    let relayed = async {
        sleep(2 * shared.network.delay).await;
        let Ok(server) = TcpStream::connect(&shared.server).await else {
            return;
        };
        // If that fails, it is slower.
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::join!(
            shared.pass(0, from_client, to_server),
            shared.pass(1, from_server, to_client)
        );
    };
    tokio::select! {
        () = relayed => {}
        _ = up.wait_for(|up| !up) => {}
    }
}

impl Shared {
    /// Passes on what one side sends, until it sends no more.
    async fn pass(&self, direction: usize, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let (on_the_way, mut arriving) = mpsc::channel::<(Instant, Vec<u8>)>(WINDOW);
        let sends = async move {
            let mut last = Instant::now();
            let mut piece = vec![0; PIECE];
            while let Ok(len @ 1..) = from.read(&mut piece).await {
                last = last.max(self.arrival(direction, len as u64).await);
                let piece = piece.get(..len).unwrap_or_default().to_vec();
                if on_the_way.send((last, piece)).await.is_err() {
                    return;
                }
            }
        };
        let arrives = async move {
            while let Some((at, piece)) = arriving.recv().await {
                sleep_until(at).await;
                if to.write_all(&piece).await.is_err() {
                    return;
                }
            }
            // The other side may have closed the connection already.
            let _ = to.shutdown().await;
        };
        tokio::join!(sends, arrives);
    }

    /// Waits for a place in the queue of the link. Returns when these bytes will have arrived.
    async fn arrival(&self, direction: usize, len: u64) -> Instant {
        let Network {
            delay,
            bytes_per_second,
            one_lost_of,
        } = self.network;
        let segments = len.div_ceil(SEGMENT);
        let before = self.segments.fetch_add(segments, Ordering::Relaxed);
        let lost = (before + segments) / one_lost_of - before / one_lost_of;
        let len = len + lost * SEGMENT;
        self.bytes.fetch_add(len, Ordering::Relaxed);
        // Those who wait for the lock get it in turns.
        let mut free = self.free[direction].lock().await;
        sleep_until(free.checked_sub(QUEUE).unwrap_or(*free)).await;
        *free = (*free).max(Instant::now())
            + Duration::from_secs(1).mul_f64(len as f64 / bytes_per_second as f64);
        *free + delay * if lost > 0 { 3 } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two connections at once share 400 kB/s, and a cut link accepts none.
    #[tokio::test]
    async fn a_link_has_one_rate_a_delay_and_can_be_cut() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let network = Network {
            delay: Duration::from_millis(20),
            bytes_per_second: 400_000,
            one_lost_of: 10,
        };
        let text = format!("https://{}/", server.local_addr().unwrap());
        let link = Link::before(&text, network).await.unwrap();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = server.accept().await {
                tokio::spawn(async move { client.write_all(&[7; 100_000]).await });
            }
        });
        let text = std::fs::read_to_string(&link.kubeconfig).unwrap();
        let address = text.split('/').nth(2).unwrap();
        let begun = Instant::now();
        let read = async || {
            let mut read = Vec::new();
            let mut stream = TcpStream::connect(address).await.unwrap();
            // A cut connection may be reset.
            let _ = stream.read_to_end(&mut read).await;
            read.len()
        };
        assert_eq!(tokio::join!(read(), read()), (100_000, 100_000));
        // A tenth of the segments is sent twice.
        assert!(link.bytes() > 215_000, "{}", link.bytes());
        let took = begun.elapsed();
        assert!(took > Duration::from_millis(500), "{took:?}");
        link.set_up(false);
        assert_eq!(read().await, 0);
        link.set_up(true);
        assert_eq!(read().await, 100_000);
    }
}
