use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::admission::KcpAdmission;
use super::control;
use super::delays::KcpDelays;
use super::directory::Directory;
use super::handle::Kcp;
use super::inner::Inner;
use super::server::{KcpServer, Ports};
use super::shard::Shard;
use super::state::State;
use super::user::{ADMINS, KcpUser};
use super::{kinds, root};
use mcr_testkit::sim::SimServerError;
use mcr_testkit::sim::kinds::Kinds;
use mcr_testkit::sim::state::{ServerState, Settings};
use mcr_testkit::sim::store::Store;

/// Describes a [`Kcp`].
#[derive(Debug)]
#[must_use = "build() or serve() makes the double"]
pub struct KcpBuilder {
    pub(super) shards: Vec<String>,
    delays: KcpDelays,
    settings: Settings,
}

impl Default for KcpBuilder {
    fn default() -> Self {
        Self {
            shards: vec!["root".to_owned()],
            delays: KcpDelays::default(),
            settings: Settings {
                window: 10_000,
                bookmark_interval: Duration::from_secs(60),
                watch_timeout: Duration::from_secs(1800),
                audit_limit: 10_000,
                managed_fields: true,
                finish_namespaces: true,
            },
        }
    }
}

impl Default for Kcp {
    fn default() -> Self {
        Self::new()
    }
}

impl Kcp {
    /// A kcp with one shard and the workspace `root`.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Describes a kcp.
    pub fn builder() -> KcpBuilder {
        KcpBuilder::default()
    }
}

impl KcpBuilder {
    /// Sets the number of shards: `root`, `shard-1` and so on. Default: one.
    pub fn shards(mut self, count: usize) -> Self {
        let name = |number| match number {
            0 => "root".to_owned(),
            number => format!("shard-{number}"),
        };
        self.shards = (0..count.max(1)).map(name).collect();
        self
    }

    /// Sets how long the steps of the control plane take. Default: no time.
    pub fn delays(mut self, delays: KcpDelays) -> Self {
        self.delays = delays;
        self
    }

    /// Sets how many writes of each resource a shard keeps in its history. Default: 10,000. Watches of older versions
    /// get 410.
    pub fn history(mut self, writes: usize) -> Self {
        self.settings.window = writes;
        self
    }

    /// Sets whether writes are tracked in `managedFields`. Default: yes. Without tracking, objects take less memory.
    pub fn managed_fields(mut self, on: bool) -> Self {
        self.settings.managed_fields = on;
        self
    }

    /// Makes the double, in memory.
    ///
    /// # Panics
    ///
    /// If a delay is not zero and this is called outside of a Tokio runtime.
    pub fn build(self) -> Kcp {
        let urls: Vec<String> = self
            .shards
            .iter()
            .map(|name| format!("https://{name}.kcp.invalid:6443"))
            .collect();
        self.build_at("https://kcp.invalid:6443".to_owned(), urls)
    }

    /// Makes the double and serves it with TLS: the front proxy and each shard on its own free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// If there is no free port.
    ///
    /// # Panics
    ///
    /// As [`build`](Self::build).
    pub async fn serve(self) -> Result<KcpServer, SimServerError> {
        let ports = Ports::open(self.shards.len()).await?;
        let mut urls = ports.urls();
        let front = urls.remove(0);
        let kcp = self.build_at(front, urls);
        Ok(KcpServer::open(kcp, ports))
    }

    fn build_at(self, url: String, urls: Vec<String>) -> Kcp {
        let seed = RandomState::new().hash_one(0);
        let directory = Arc::new(Directory::default());
        let shards = self.shards.into_iter().zip(urls).enumerate();
        let shards = shards.map(|(number, (name, url))| {
            let admission = KcpAdmission {
                directory: directory.clone(),
            };
            let store = Store::shared(self.settings.window, Kinds::over(kinds::everywhere()));
            let seed = seed.wrapping_add(number as u64);
            let users = mcr_testkit::sim::auth::Users::default();
            let server = ServerState::new(
                seed,
                self.settings.clone(),
                store,
                users,
                Some(Arc::new(admission)),
            );
            Arc::new(Shard::new(name.into(), number, url, server))
        });
        let admin_token = format!("kcp-admin-{seed:016x}");
        let admin = Arc::new(KcpUser::new("kcp-admin").group(ADMINS));
        let timed = Arc::new(Notify::new());
        let inner = Arc::new(Inner {
            shards: shards.collect(),
            directory,
            users: Mutex::new(HashMap::from([(admin_token.clone(), admin)])),
            control: Mutex::new(State::default()),
            delays: self.delays,
            url,
            admin_token,
            seed,
            made: AtomicU64::new(0),
            timed: timed.clone(),
            timer: Mutex::new(None),
        });
        if !self.delays.are_zero() {
            let timer = tokio::spawn(control::run_timer(Arc::downgrade(&inner), timed));
            *inner.timer.lock() = Some(timer);
        }
        root::make(&inner);
        Kcp { inner }
    }
}
