//! The port of a proxy: listening, not listening, or listening with a full accept queue.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use super::{
    faulty_stream::{FaultyStream, Mode},
    http_service::answer,
    shared::Shared,
};

/// The size of the accept queue. More connections than the client of a fleet opens at once.
const BACKLOG: i32 = 1024;

pub(super) enum Command {
    /// Changes how new connections are treated.
    SetMode(Mode, oneshot::Sender<()>),
    /// Moves the proxy to another port.
    Move(oneshot::Sender<()>),
}

/// All sockets on the proxy's ports.
pub(super) struct Port {
    /// Sockets that are bound but do not listen. They reserve the ports, even while a fault closes them.
    held: Vec<Socket>,
    address: SocketAddr,
    listener: Option<TcpListener>,
    /// Connections that fill the accept queue during a black hole.
    fillers: Vec<TcpStream>,
    accepting: bool,
}

impl Port {
    pub(super) fn open() -> io::Result<Self> {
        let (socket, address) = reserve_port()?;
        Ok(Self {
            held: vec![socket],
            address,
            listener: Some(listen(address)?),
            fillers: Vec::new(),
            accepting: true,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    async fn accept(&self) -> io::Result<TcpStream> {
        match &self.listener {
            Some(listener) if self.accepting => listener.accept().await.map(|(stream, _)| stream),
            _ => std::future::pending().await,
        }
    }

    async fn set_mode(&mut self, mode: Mode) -> io::Result<()> {
        self.fillers.clear();
        self.accepting = true;
        if mode == Mode::Refuse {
            self.listener = None;
            return Ok(());
        }
        let listener = match self.listener.take() {
            Some(listener) => listener,
            None => listen(self.address)?,
        };
        // A second `listen` changes the length of the queue without an interruption.
        SockRef::from(&listener).listen(if mode == Mode::BlackHole { 0 } else { BACKLOG })?;
        self.listener = Some(listener);
        if mode == Mode::BlackHole {
            self.accepting = !self.fill().await;
        }
        Ok(())
    }

    /// Fills the accept queue. Returns whether the kernel now drops SYNs.
    async fn fill(&mut self) -> bool {
        for _ in 0..8 {
            match timeout(Duration::from_millis(50), TcpStream::connect(self.address)).await {
                Ok(Ok(filler)) => self.fillers.push(filler),
                Ok(Err(_)) => return false,
                Err(_) => return true,
            }
        }
        false
    }

    fn relocate(&mut self) -> io::Result<()> {
        let (socket, address) = reserve_port()?;
        let listening = self.listener.is_some();
        self.listener = None;
        self.fillers.clear();
        self.held.push(socket);
        self.address = address;
        if listening {
            self.listener = Some(listen(address)?);
        }
        Ok(())
    }
}

fn socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    // So that one socket can reserve the port while another one listens on it.
    socket.set_reuse_port(true)?;
    Ok(socket)
}

fn reserve_port() -> io::Result<(Socket, SocketAddr)> {
    let socket = socket()?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    let address = socket.local_addr()?.as_socket();
    let address = address.ok_or_else(|| io::Error::other("a socket without an address"))?;
    Ok((socket, address))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket()?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}

/// The task of a proxy.
pub(super) async fn run(shared: Arc<Shared>, mut port: Port, mut commands: mpsc::Receiver<Command>) {
    loop {
        tokio::select! {
            biased;
            () = shared.token.cancelled() => return,
            command = commands.recv() => match command {
                Some(Command::SetMode(mode, done)) => {
                    if let Err(error) = port.set_mode(mode).await {
                        shared.trouble(format!("treating connections as {mode:?} failed: {error}"));
                    }
                    let _ = done.send(());
                }
                Some(Command::Move(done)) => {
                    match port.relocate() {
                        Ok(()) => { shared.address.send_replace(port.address()); }
                        Err(error) => shared.trouble(format!("moving to another port failed: {error}")),
                    }
                    let _ = done.send(());
                }
                None => return,
            },
            accepted = port.accept() => match accepted {
                Ok(stream) => {
                    let connection = shared.next_connection.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(serve_connection(shared.clone(), stream, connection));
                }
                // Probably there are no file descriptors left. Waits until some are closed.
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

/// Serves one connection.
async fn serve_connection(shared: Arc<Shared>, stream: TcpStream, connection: u64) {
    let mut wire = shared.wire.subscribe();
    let _ = stream.set_nodelay(true);
    if wire.borrow().mode == Mode::Reset {
        let _ = timeout(Duration::from_secs(5), stream.readable()).await;
        let _ = stream.set_zero_linger();
        return;
    }
    let stream = FaultyStream::new(stream, connection, wire.clone());
    // Dropping the future drops the stream, which closes the connection with a FIN or a reset.
    let serving = serve_requests(&shared, stream);
    tokio::select! {
        () = serving => {}
        _ = wire.wait_for(|wire| wire.resets(connection)) => {}
        () = shared.token.cancelled() => {}
    }
}

async fn serve_requests(shared: &Arc<Shared>, mut stream: FaultyStream) {
    if stream.wait_for_bytes().await.is_err() {
        return;
    }
    let face = shared.wire.borrow().face;
    let acceptor = TlsAcceptor::from(shared.certificates.config(face));
    let Ok(tls) = acceptor.accept(stream).await else {
        return;
    };
    shared.connections.fetch_add(1, Ordering::Relaxed);
    let _open = Open::new(shared);
    let service = service_fn(|request| answer(shared, request));
    // Errors that end a connection are of no interest.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(tls), service)
        .await;
}

/// Counts an open connection until it is dropped.
struct Open<'a>(&'a Shared);

impl<'a> Open<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.open.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
