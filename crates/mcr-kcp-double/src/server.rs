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

/// A double of kcp with TLS on 127.0.0.1. The front proxy and each shard have their own ports. Dropping it closes the
/// ports and all connections.
#[derive(Debug)]
pub struct KcpServer {
    kcp: Kcp,
    ports: Ports,
}

/// The open ports: first the port of the front proxy, then those of the shards.
#[derive(Debug)]
pub(super) struct Ports {
    tls: SimTls,
    /// Empty until the ports serve a kcp.
    kcp: Arc<OnceLock<Kcp>>,
    all: Vec<(u16, Mutex<Option<Listening>>)>,
}

#[derive(Debug)]
struct PortService {
    kcp: Arc<OnceLock<Kcp>>,
    entry: Entry,
}

impl Answers for PortService {
    fn answer(&self, parts: Parts, body: Bytes, _: Option<&[u8]>) -> Response<SimBody> {
        let running_kcp = || {
            let kcp = self.kcp.get();
            kcp.filter(|kcp| !self.entry.is_stopped(&kcp.inner))
        };
        let answered = running_kcp().map(|kcp| path::answer(&kcp.inner, self.entry, parts, &body));
        // Connections end shortly after their port was closed. A watch that begins while the shard stops must not
        // continue.
        answered.filter(|_| running_kcp().is_some()).unwrap_or_else(|| {
            let mut response = Response::new(SimBody::full(Bytes::new()));
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response
        })
    }
}

impl Ports {
    /// Opens a port for the front proxy and one for each shard.
    pub(super) async fn open(shards: usize) -> Result<Self, SimServerError> {
        let mut ports = Self {
            tls: SimTls::new()?,
            kcp: Arc::default(),
            all: Vec::new(),
        };
        for index in 0..=shards {
            let listening = ports.listen(index, 0).await?;
            ports
                .all
                .push((listening.address.port(), Mutex::new(Some(listening))));
        }
        Ok(ports)
    }

    async fn listen(&self, index: usize, port: u16) -> Result<Listening, SimServerError> {
        let kcp = self.kcp.clone();
        let entry = index.checked_sub(1).map_or(Entry::Front, Entry::Shard);
        listen(port, &self.tls, Arc::new(PortService { kcp, entry })).await
    }

    pub(super) fn urls(&self) -> Vec<String> {
        let ports = self.all.iter();
        ports
            .map(|(port, _)| format!("https://127.0.0.1:{port}"))
            .collect()
    }

    fn close(&self, index: usize) {
        self.all[index].1.lock().take();
    }

    async fn reopen(&self, index: usize) -> Result<(), SimServerError> {
        let (port, open) = &self.all[index];
        let mut tries = 0;
        let listening = loop {
            match self.listen(index, *port).await {
                // The task of the closed port may keep the port for a moment.
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
        // This never fails: the cell was created together with the ports and is still empty.
        let _ = ports.kcp.set(kcp.clone());
        Self { kcp, ports }
    }

    /// The served kcp.
    pub fn kcp(&self) -> &Kcp {
        &self.kcp
    }

    /// The certificate authority of the front proxy and all shards, which clients must trust, PEM.
    pub fn ca_pem(&self) -> String {
        self.ports.tls.ca_pem()
    }

    /// A kubeconfig of the admin that leads to a workspace (path or id) at the front proxy.
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

    /// Starts a stopped shard again at the same address, with its data. `false` if there is no such shard.
    ///
    /// # Errors
    ///
    /// If another process has taken the port.
    pub async fn start_shard(&self, name: &str) -> Result<bool, SimServerError> {
        let Some(shard) = self.kcp.inner.shard_named(name) else {
            return Ok(false);
        };
        self.ports.reopen(shard.number + 1).await?;
        shard.set_down(false);
        Ok(true)
    }

    /// Restarts kcp: ends all connections, then opens all ports again at the same addresses, with the same data.
    ///
    /// # Errors
    ///
    /// If another process has taken a port meanwhile.
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
