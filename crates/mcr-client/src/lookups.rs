//! Look-ups of host names, of which a bounded number runs at once.
//!
//! `getaddrinfo` can't be cancelled: it goes on in a thread of the runtime after its caller has given up, and token files are read
//! in the same threads. So a look-up has a place until it ends, and those that hang do not take the places of the others.

use std::{
    collections::HashMap,
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{sync::oneshot, task::spawn_blocking};

/// So many look-ups of one host run at once.
const OF_ONE_HOST: usize = 2;
/// A look-up that takes longer counts as failed, whatever it finds.
const SLOW: Duration = Duration::from_secs(2);
/// The results of so many hosts are remembered.
const REMEMBERED: usize = 16_384;

type LookUp = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

pub(crate) struct Lookups {
    state: Mutex<State>,
    look_up: Box<LookUp>,
}

#[derive(Default)]
struct State {
    total: usize,
    /// How many look-ups run, by host and by zone.
    running: HashMap<String, usize>,
    /// Whether the last look-up of a host was quick and found something.
    last: HashMap<String, bool>,
    waiting: Vec<Waiting>,
}

struct Waiting {
    host: String,
    zone: String,
    start: oneshot::Sender<Place>,
}

/// The right to look up a host, until the look-up ends.
struct Place {
    lookups: Arc<Lookups>,
    host: String,
    well: Option<bool>,
}

impl Lookups {
    /// Those of this process.
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: LazyLock<Arc<Lookups>> =
            LazyLock::new(|| Lookups::new(|host| Ok((host, 0).to_socket_addrs()?.collect())));
        SHARED.clone()
    }

    fn new(look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            look_up: Box::new(look_up),
        })
    }

    /// Looks up a host. Dropping the future gives up the wait; a look-up that runs goes on, and keeps its place.
    pub(crate) async fn look_up(self: &Arc<Self>, host: &str) -> io::Result<Vec<SocketAddr>> {
        let (start, started) = oneshot::channel();
        let (host, zone) = (host.to_owned(), zone(host));
        self.state.lock().waiting.push(Waiting { host, zone, start });
        self.advance();
        let place = started.await.map_err(io::Error::other)?;
        let ended = spawn_blocking(|| place.look_up());
        ended.await.map_err(io::Error::other)?
    }

    /// Starts the look-ups that have a place.
    fn advance(self: &Arc<Self>) {
        let started = self.state.lock().start();
        for Waiting { host, start, .. } in started {
            let lookups = self.clone();
            // Of a caller that has just given up, the place is dropped.
            drop(start.send(Place {
                lookups,
                host,
                well: None,
            }));
        }
    }
}

impl State {
    /// The look-ups that start now: first of hosts whose last one was well, then of new ones, then of those that failed.
    fn start(&mut self) -> Vec<Waiting> {
        let Self {
            total,
            running,
            last,
            waiting,
        } = self;
        let mut started = Vec::new();
        waiting.retain(|waiting| !waiting.start.is_closed());
        // So many may run at all, and in one zone, for one more of this kind to start.
        for (kind, at_all, of_zone) in [(Some(true), 128, 32), (None, 96, 16), (Some(false), 48, 8)] {
            started.extend(waiting.extract_if(.., |Waiting { host, zone, .. }| {
                let runs = |of: &str| running.get(of).copied().unwrap_or_default();
                let fits = *total < at_all
                    && last.get(host).copied() == kind
                    && runs(host) < OF_ONE_HOST
                    && runs(zone) < of_zone;
                if fits {
                    *total += 1;
                    *running.entry(host.clone()).or_default() += 1;
                    *running.entry(zone.clone()).or_default() += 1;
                }
                fits
            }));
        }
        started
    }

    fn ended(&mut self, host: &str, well: Option<bool>) {
        self.total -= 1;
        for of in [host, &zone(host)] {
            if let Some(running) = self.running.get_mut(of) {
                *running -= 1;
                if *running == 0 {
                    self.running.remove(of);
                }
            }
        }
        if let Some(well) = well {
            if self.last.len() >= REMEMBERED {
                self.last.clear();
            }
            self.last.insert(host.to_owned(), well);
        }
    }
}

impl Place {
    fn look_up(mut self) -> io::Result<Vec<SocketAddr>> {
        let begun = Instant::now();
        let found = (self.lookups.look_up)(&self.host);
        self.well = Some(found.is_ok() && begun.elapsed() < SLOW);
        found
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lookups.state.lock().ended(&self.host, self.well);
        self.lookups.advance();
    }
}

/// What hosts of one zone of the DNS have in common, as far as their names tell. The dot keeps it apart from hosts.
fn zone(host: &str) -> String {
    let host = host.trim_end_matches('.');
    let dots = host.rmatch_indices('.').nth(1);
    format!(".{}", dots.map_or(host, |(at, _)| &host[at + 1..]))
}

#[cfg(test)]
mod tests {
    use parking_lot::Condvar;
    use tokio::{task::JoinSet, task::yield_now};

    use super::*;

    #[tokio::test]
    async fn names_that_hang_leave_places_for_the_others_until_they_end() {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let held = gate.clone();
        let lookups = Lookups::new(move |host| {
            if host.contains("dead") {
                held.1.wait_while(&mut held.0.lock(), |open| !*open);
            }
            Ok(Vec::new())
        });
        let total = || lookups.state.lock().total;
        for known in ["known.dead.example", "a.well"] {
            lookups.state.lock().last.insert(known.to_owned(), true);
        }
        let mut hung = JoinSet::new();
        for number in 0..1_000 {
            // Names of one dead zone, names of many, and the same names again and again.
            let names = [format!("{number}.dead.example"), format!("dead.{number}")];
            let again = ["dead.one", "known.dead.example"].map(str::to_owned);
            for host in names.into_iter().chain(again) {
                let lookups = lookups.clone();
                hung.spawn(async move { lookups.look_up(&host).await });
            }
        }
        while total() < 96 {
            yield_now().await;
        }
        lookups.look_up("a.well").await.unwrap();
        {
            let State { total, running, .. } = &*lookups.state.lock();
            assert!(*total <= 96 + OF_ONE_HOST, "{running:?}");
            assert_eq!(
                [running["known.dead.example"], running["dead.one"]],
                [OF_ONE_HOST; 2]
            );
            assert!(running[".dead.example"] <= 16 + OF_ONE_HOST, "{running:?}");
        }
        // Callers give up; what runs goes on, and keeps its places.
        hung.shutdown().await;
        assert!(total() >= 96);
        *gate.0.lock() = true;
        gate.1.notify_all();
        while total() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        lookups.look_up("new.well").await.unwrap();
        assert!(lookups.state.lock().running.is_empty());
    }
}
