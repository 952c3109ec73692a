use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use parking_lot::Mutex;

use super::handle::Kcp;
use super::path::{self, Entry};
use mcr_testkit::sim::kubeconfig;
use mcr_testkit::sim::{Answers, Listening, listen};
use mcr_testkit::sim::{SimBody, SimServerError, SimTls};

/// A double of kcp behind TLS on 127.0.0.1: the front proxy and each shard on a port of its own. Dropping it closes the
/// ports and all connections.
#[derive(Debug)]
pub struct KcpServer {
    kcp: Kcp,
    ports: Ports,
}

/// The open ports: that of the front proxy, then those of the shards.
#[derive(Debug)]
pub(super) struct Ports {
    tls: SimTls,
    /// None before they serve a kcp.
    kcp: Arc<OnceLock<Kcp>>,
    all: Vec<(u16, Mutex<Option<Listening>>)>,
}

#[derive(Debug)]
struct Door {
    kcp: Arc<OnceLock<Kcp>>,
    entry: Entry,
}

impl Answers for Door {
    fn answer(&self, parts: Parts, body: Bytes, _: Option<&[u8]>) -> Response<SimBody> {
        let up = || {
            let kcp = self.kcp.get();
            kcp.filter(|kcp| !self.entry.is_stopped(&kcp.inner))
        };
        let answered = up().map(|kcp| path::answer(&kcp.inner, self.entry, parts, &body));
        // Connections end a moment after their port has closed. A watch that begins while the shard stops must not go on.
        answered.filter(|_| up().is_some()).unwrap_or_else(|| {
            let mut response = Response::new(SimBody::full(Bytes::new()));
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response
        })
    }
}

impl Ports {
    /// Opens a port for the front proxy and one for each shard.
    pub(super) async fn find(shards: usize) -> Result<Self, SimServerError> {
        let mut ports = Self {
            tls: SimTls::new()?,
            kcp: Arc::default(),
            all: Vec::new(),
        };
        for at in 0..=shards {
            let listening = ports.listen(at, 0).await?;
            ports
                .all
                .push((listening.address.port(), Mutex::new(Some(listening))));
        }
        Ok(ports)
    }

    async fn listen(&self, at: usize, port: u16) -> Result<Listening, SimServerError> {
        let kcp = self.kcp.clone();
        let entry = at.checked_sub(1).map_or(Entry::Front, Entry::Shard);
        listen(port, &self.tls, Arc::new(Door { kcp, entry })).await
    }

    pub(super) fn urls(&self) -> Vec<String> {
        let ports = self.all.iter();
        ports
            .map(|(port, _)| format!("https://127.0.0.1:{port}"))
            .collect()
    }

    fn close(&self, at: usize) {
        self.all[at].1.lock().take();
    }

    async fn reopen(&self, at: usize) -> Result<(), SimServerError> {
        let (port, open) = &self.all[at];
        let mut tries = 0;
        let listening = loop {
            match self.listen(at, *port).await {
                // The task of the closed port may still hold it for a moment.
                Err(_) if tries < 200 => tries += 1,
                result => break result?,
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        *open.lock() = Some(listening);
        Ok(())
    }
}

impl KcpServer {
    pub(super) fn open(kcp: Kcp, ports: Ports) -> Self {
        // Nobody else has set it: the cell was made with the ports.
        let _ = ports.kcp.set(kcp.clone());
        Self { kcp, ports }
    }

    /// The served kcp.
    pub fn kcp(&self) -> &Kcp {
        &self.kcp
    }

    /// The certificate authority that clients must trust, PEM: one for the front proxy and all shards.
    pub fn ca_pem(&self) -> String {
        self.ports.tls.ca_pem()
    }

    /// A kubeconfig of the admin for a workspace (path or id) at the front proxy.
    pub fn kubeconfig(&self, path: &str) -> String {
        self.kubeconfig_with_token(path, self.kcp.admin_token())
    }

    /// As [`kubeconfig`](Self::kubeconfig), with the token of another user.
    pub fn kubeconfig_with_token(&self, path: &str, token: &str) -> String {
        kubeconfig::with_token(path, &self.kcp.url(path), &self.ca_pem(), token)
    }

    /// Closes the port of a shard and all its connections. The front proxy answers 502 for its workspaces. `false` if
    /// there is no such shard.
    pub fn stop_shard(&self, name: &str) -> bool {
        let Some(shard) = self.kcp.inner.shard_named(name) else {
            return false;
        };
        shard.set_down(true);
        self.ports.close(shard.number + 1);
        true
    }

    /// Starts a stopped shard again at its address, with its data. `false` if there is no such shard.
    ///
    /// # Errors
    ///
    /// When another process has taken the port.
    pub async fn start_shard(&self, name: &str) -> Result<bool, SimServerError> {
        let Some(shard) = self.kcp.inner.shard_named(name) else {
            return Ok(false);
        };
        self.ports.reopen(shard.number + 1).await?;
        shard.set_down(false);
        Ok(true)
    }

    /// Restarts kcp: all connections end, then all ports are open again at the same addresses, with the same data.
    ///
    /// # Errors
    ///
    /// When another process has taken a port meanwhile.
    pub async fn restart(&self) -> Result<(), SimServerError> {
        self.ports.close(0);
        for shard in &self.kcp.inner.shards {
            self.stop_shard(&shard.name);
        }
        for shard in &self.kcp.inner.shards {
            self.start_shard(&shard.name).await?;
        }
        self.ports.reopen(0).await
    }
}
