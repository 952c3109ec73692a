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

/// The open ports, before and while they serve a kcp.
#[derive(Debug)]
pub(super) struct Ports {
    tls: SimTls,
    kcp: Arc<OnceLock<Kcp>>,
    front: Port,
    shards: Vec<Port>,
}

#[derive(Debug)]
struct Port {
    number: u16,
    entry: Entry,
    open: Mutex<Option<Listening>>,
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
        let (tls, kcp) = (SimTls::new()?, Arc::new(OnceLock::new()));
        let front = Port::find(Entry::Front, &tls, &kcp).await?;
        let mut open = Vec::new();
        for number in 0..shards {
            open.push(Port::find(Entry::Shard(number), &tls, &kcp).await?);
        }
        Ok(Self {
            tls,
            kcp,
            front,
            shards: open,
        })
    }

    pub(super) fn front_url(&self) -> String {
        self.front.url()
    }

    pub(super) fn shard_urls(&self) -> Vec<String> {
        self.shards.iter().map(Port::url).collect()
    }
}

impl Port {
    async fn find(entry: Entry, tls: &SimTls, kcp: &Arc<OnceLock<Kcp>>) -> Result<Self, SimServerError> {
        let door = Arc::new(Door {
            kcp: kcp.clone(),
            entry,
        });
        let listening = listen(0, tls, door).await?;
        Ok(Self {
            number: listening.address.port(),
            entry,
            open: Mutex::new(Some(listening)),
        })
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.number)
    }

    fn close(&self) {
        self.open.lock().take();
    }

    async fn reopen(&self, ports: &Ports) -> Result<(), SimServerError> {
        let mut tries = 0;
        loop {
            let door = Arc::new(Door {
                kcp: ports.kcp.clone(),
                entry: self.entry,
            });
            match listen(self.number, &ports.tls, door).await {
                Ok(listening) => {
                    *self.open.lock() = Some(listening);
                    return Ok(());
                }
                // The task of the closed port may still hold it for a moment.
                Err(_) if tries < 200 => tries += 1,
                Err(error) => return Err(error),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
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
        if let Some(port) = self.ports.shards.get(shard.number) {
            port.close();
        }
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
        if let Some(port) = self.ports.shards.get(shard.number) {
            port.reopen(&self.ports).await?;
        }
        shard.set_down(false);
        Ok(true)
    }

    /// Restarts kcp: all connections end, then all ports are open again at the same addresses, with the same data.
    ///
    /// # Errors
    ///
    /// When another process has taken a port meanwhile.
    pub async fn restart(&self) -> Result<(), SimServerError> {
        self.ports.front.close();
        for shard in &self.kcp.inner.shards {
            self.stop_shard(&shard.name);
        }
        for shard in &self.kcp.inner.shards {
            self.start_shard(&shard.name).await?;
        }
        self.ports.front.reopen(&self.ports).await
    }
}
