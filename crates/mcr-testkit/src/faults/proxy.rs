use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    Fault, FaultError, Rule, RuleId, Upstream,
    certificates::{Certificates, Face},
    faulty_stream::{Mode, Wire},
    listener::{self, Command, Port},
    rules::Active,
    shared::Shared,
    upstream::{UpstreamClient, kubeconfig},
};

/// A proxy in front of an API server that can be made to fail; see the [module](super).
///
/// Clones are handles of the same proxy, which ends when the last handle is dropped. A method that changes faults
/// returns when the change has taken effect. Concurrent changes take effect one after the other.
#[derive(Clone)]
pub struct FaultProxy {
    shared: Arc<Shared>,
    commands: mpsc::Sender<Command>,
    _end: Arc<DropGuard>,
}

/// Builds a [`FaultProxy`]. [`FaultProxy::builder`] returns it.
#[derive(Debug)]
#[must_use = "a proxy exists once start() was awaited"]
pub struct FaultProxyBuilder {
    upstream: Upstream,
    name: Option<String>,
}

impl FaultProxyBuilder {
    /// Sets the name of the context, cluster and user in its kubeconfigs. Default: `proxy`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Starts the proxy, on a free port of 127.0.0.1. Its tasks run on the current tokio runtime.
    ///
    /// # Errors
    /// [`FaultError`] if the upstream's address or certificates can't be used, or if there is no free port. Does not
    /// check whether the upstream answers.
    pub async fn start(self) -> Result<FaultProxy, FaultError> {
        let certificates = Certificates::shared()?;
        let upstream = UpstreamClient::new(&self.upstream)?;
        let port = Port::open().map_err(FaultError::Listen)?;
        let token = CancellationToken::new();
        let (commands, receiver) = mpsc::channel(1);
        let shared = Arc::new(Shared {
            name: self.name,
            upstream,
            certificates,
            rules: watch::Sender::default(),
            wire: watch::Sender::default(),
            address: watch::Sender::new(port.address()),
            hits: Arc::default(),
            memory: Arc::default(),
            next_connection: AtomicU64::new(1),
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            token: token.clone(),
            changing: tokio::sync::Mutex::default(),
            trouble: Mutex::default(),
        });
        tokio::spawn(listener::run(shared.clone(), port, receiver));
        Ok(FaultProxy {
            shared,
            commands,
            _end: Arc::new(token.drop_guard()),
        })
    }
}

/// Counters of a proxy since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxyStats {
    /// Connections whose TLS handshake succeeded.
    pub connections: u64,
    /// How many of these connections are open.
    pub open: u64,
    /// Requests.
    pub requests: u64,
    /// How often a fault has changed an answer or a line of a watch. Faults of the connection are not counted.
    pub hits: u64,
}

impl FaultProxy {
    /// Starts a proxy without faults.
    ///
    /// # Errors
    /// As in [`FaultProxyBuilder::start`].
    pub async fn start(upstream: impl Into<Upstream>) -> Result<Self, FaultError> {
        Self::builder(upstream).start().await
    }

    /// A builder, to name the proxy.
    pub fn builder(upstream: impl Into<Upstream>) -> FaultProxyBuilder {
        FaultProxyBuilder {
            upstream: upstream.into(),
            name: None,
        }
    }

    /// The current URL of the proxy: `https://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address())
    }

    /// The current address of the proxy.
    pub fn address(&self) -> SocketAddr {
        *self.shared.address.borrow()
    }

    /// The certificate authority that clients must trust, PEM. All proxies of a process have the same.
    pub fn ca_pem(&self) -> String {
        self.shared.certificates.ca_pem.clone()
    }

    /// A kubeconfig for this proxy with a bearer token. The proxy forwards the token, unless the [`Upstream`] has its
    /// own credentials.
    pub fn kubeconfig_with_token(&self, token: &str) -> String {
        self.kubeconfig(&json!({ "token": token }))
    }

    /// A kubeconfig for this proxy without credentials, for an [`Upstream`] that has its own.
    pub fn kubeconfig_without_credentials(&self) -> String {
        self.kubeconfig(&json!({}))
    }

    fn kubeconfig(&self, user: &serde_json::Value) -> String {
        let name = self.shared.name.as_deref().unwrap_or("proxy");
        kubeconfig(name, &self.url(), &self.ca_pem(), user)
    }

    /// Replaces all faults by this one.
    pub async fn set(&self, rule: impl Into<Rule>) -> RuleId {
        self.change(Some(rule.into()), |_| false).await
    }

    /// Adds a fault.
    pub async fn add(&self, rule: impl Into<Rule>) -> RuleId {
        self.change(Some(rule.into()), |_| true).await
    }

    /// Ends one fault. Does nothing if it has ended already.
    pub async fn remove(&self, id: RuleId) {
        self.change(None, |known| known != id).await;
    }

    /// Ends all faults. Connections that [`Fault::HalfOpen`] has killed stay dead, and a proxy that has moved stays at
    /// its new port.
    pub async fn clear(&self) {
        self.change(None, |_| false).await;
    }

    /// The active faults, in the order in which they were set.
    pub fn rules(&self) -> Vec<Rule> {
        self.shared
            .rules
            .borrow()
            .iter()
            .map(|active| active.rule.clone())
            .collect()
    }

    /// Resets all open connections, once.
    pub async fn reset_connections(&self) {
        let _changing = self.shared.changing.lock().await;
        self.wire(|wire, next| wire.reset_before = next);
    }

    /// The counters of the proxy.
    pub fn stats(&self) -> ProxyStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ProxyStats {
            connections: count(&self.shared.connections),
            open: count(&self.shared.open),
            requests: count(&self.shared.requests),
            hits: count(&self.shared.hits),
        }
    }

    /// The last failure of the proxy itself, such as a lack of ports or file descriptors. `None` if there was none.
    pub fn trouble(&self) -> Option<String> {
        self.shared.trouble.lock().clone()
    }

    /// Changes the wire. `change` gets the number of the next connection. A connection reads the wire only after it
    /// got its number. So it has a lower number than that, or it reads the changed wire.
    fn wire(&self, change: impl FnOnce(&mut Wire, u64)) {
        let shared = &self.shared;
        shared
            .wire
            .send_modify(|wire| change(wire, shared.next_connection.load(Ordering::SeqCst)));
    }

    async fn change(&self, add: Option<Rule>, keep: impl Fn(RuleId) -> bool) -> RuleId {
        let mut changing = self.shared.changing.lock().await;
        let mut rules: Vec<Arc<Active>> = {
            let now = self.shared.rules.borrow();
            now.iter().filter(|active| keep(active.id)).cloned().collect()
        };
        let id = RuleId(changing.last_id + 1);
        let added = add.as_ref().map(|rule| rule.fault.clone());
        if let Some(rule) = add {
            changing.last_id = id.0;
            rules.push(Arc::new(Active::new(id, rule)));
        }
        let (mode, face) = (mode(&rules), face(&rules));
        self.shared.rules.send_replace(Arc::new(rules));

        if mode == Mode::BlackHole {
            // The silence begins before the queue is full, so that a connection in between gets no answer.
            self.wire(|wire, _| wire.mode = mode);
        }
        if changing.met != Some(mode) {
            changing.met = None;
            self.command(|done| Command::SetMode(mode, done)).await;
            changing.met = Some(mode);
        }
        if added == Some(Fault::AddressChange) {
            self.command(Command::Move).await;
        }
        self.wire(|wire, next| {
            wire.mode = mode;
            wire.face = face;
            match added {
                Some(
                    Fault::Refuse
                    | Fault::Reset
                    | Fault::WrongCa
                    | Fault::ExpiredCertificate
                    | Fault::WrongHost
                    | Fault::AddressChange,
                ) => wire.reset_before = next,
                Some(Fault::HalfOpen) => wire.dead_before = next,
                _ => {}
            }
        });
        id
    }

    async fn command(&self, command: impl FnOnce(oneshot::Sender<()>) -> Command) {
        let (done, wait) = oneshot::channel();
        // This fails only if the runtime of the proxy has ended, and the proxy with it.
        if self.commands.send(command(done)).await.is_ok() {
            let _ = wait.await;
        }
    }
}

fn mode(rules: &[Arc<Active>]) -> Mode {
    rules
        .iter()
        .map(|active| match active.fault() {
            Fault::Refuse => Mode::Refuse,
            Fault::BlackHole => Mode::BlackHole,
            Fault::Silent => Mode::Silent,
            Fault::Reset => Mode::Reset,
            _ => Mode::Open,
        })
        .min()
        .unwrap_or_default()
}

fn face(rules: &[Arc<Active>]) -> Face {
    rules
        .iter()
        .find_map(|active| match active.fault() {
            Fault::WrongCa => Some(Face::WrongCa),
            Fault::ExpiredCertificate => Some(Face::Expired),
            Fault::WrongHost => Some(Face::WrongHost),
            _ => None,
        })
        .unwrap_or_default()
}

impl fmt::Debug for FaultProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultProxy")
            .field("name", &self.shared.name)
            .field("address", &self.address())
            .field("rules", &self.rules())
            .finish_non_exhaustive()
    }
}
