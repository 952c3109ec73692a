//! Watching the objects that describe clusters.

use std::{
    collections::{HashSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use kube::Client;
use mcr_access::{AccessPolicy, ClusterName};
use mcr_client::{Dialer, Transport};
use mcr_store::{Object, ObjectChange, ObjectKey, TemplateRegistry};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    ChangeSink, WatchProblem, WatchRequest, WatchSettings, WatchStatus,
    driver::{DriverEnv, drive},
    health::{Health, Phase},
    shared::SharedWatch,
};

/// The name of the cluster in the log, unless another is set.
const HUB: &str = "hub";

/// What a [`HubWatch`] tells.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum HubEvent {
    /// The object is there and looks like this.
    Applied(Arc<Object>),
    /// The object is gone.
    Deleted(ObjectKey),
    /// Everything that was there in the beginning has been told. Comes once.
    Synced,
    /// The objects can't be listed or watched at the moment. It is tried again by itself; objects that were
    /// told before stay as they were.
    Failing(WatchProblem),
}

/// Watches objects of one kind in a hub, for providers that learn of clusters from Secrets or custom
/// resources.
///
/// It is the same watch that fleets run on: selectors are applied by the API server, nothing of a body gets
/// into a log, an object is only [`Deleted`](HubEvent::Deleted) if the API server said so or a complete list
/// lacks it, and failures are retried with growing pauses. Dropping it ends it.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::Secret;
/// use mcr_watch::{HubEvent, HubWatch, WatchRequest};
///
/// # async fn example(client: kube::Client) -> Result<(), mcr_store::DecodeError> {
/// let request = WatchRequest::of::<Secret>().namespace("fleet").labels("example.com/kubeconfig=true");
/// let mut secrets = HubWatch::new(client, request);
/// loop {
///     match secrets.next().await {
///         HubEvent::Applied(object) => {
///             let secret: Secret = object.decode()?;
///             println!("{} describes a cluster", object.key());
///         }
///         HubEvent::Deleted(key) => println!("{key} is gone"),
///         HubEvent::Synced => println!("that was all"),
///         HubEvent::Failing(problem) => eprintln!("{}", problem.error),
///         _ => {}
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct HubWatch {
    watch: Arc<SharedWatch>,
    pending: Arc<Pending>,
    _stop: DropGuard,
}

/// What is yet to be told: at most one entry per object, however slow the listener is.
#[derive(Debug, Default)]
struct Pending {
    queue: Mutex<Queue>,
    notify: Notify,
    synced: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    keys: HashSet<ObjectKey>,
    problem: Option<WatchProblem>,
}

#[derive(Debug)]
enum Item {
    Key(ObjectKey),
    Synced,
}

impl Pending {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChangeSink for Pending {
    fn changed(&self, change: &ObjectChange) {
        let Some(key) = change.key() else { return };
        let mut queue = self.queue();
        if queue.keys.insert(key.clone()) {
            queue.items.push_back(Item::Key(key.clone()));
        }
        drop(queue);
        self.notify.notify_one();
    }

    fn status_changed(&self, status: &WatchStatus) {
        if status.synced && !self.synced.swap(true, Ordering::SeqCst) {
            self.queue().items.push_back(Item::Synced);
        }
        self.queue().problem.clone_from(&status.problem);
        self.notify.notify_one();
    }
}

impl HubWatch {
    /// Begins to watch.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn new(client: Client, request: WatchRequest) -> Self {
        Self::with_settings(client, request, Arc::default())
    }

    /// With times that tests shorten. Not part of the API.
    #[doc(hidden)]
    pub fn with_settings(client: Client, request: WatchRequest, settings: Arc<WatchSettings>) -> Self {
        let stop = CancellationToken::new();
        let templates = Arc::new(TemplateRegistry::new(request.encoding()));
        let watch = Arc::new(SharedWatch::new(request, stop.clone()));
        let pending = Arc::new(Pending::default());
        watch.subscribe(pending.clone());
        if let Err(error) = watch.request().check() {
            watch.refuse(error);
            return Self {
                watch,
                pending,
                _stop: stop.drop_guard(),
            };
        }
        let name = ClusterName::unchecked(HUB);
        let transport = Transport::new(name.clone());
        transport.swap(Dialer::new(&AccessPolicy::default()).client_channel(client));
        let env = DriverEnv {
            cluster: name,
            transport,
            health: Arc::new(Health::new(Phase::Up { endpoint: 1 })),
            list_permits: Arc::new(Semaphore::new(1)),
            settings,
            counts: Arc::default(),
            templates,
        };
        tokio::spawn(drive(watch.clone(), env));
        Self {
            watch,
            pending,
            _stop: stop.drop_guard(),
        }
    }

    /// Waits for the next event. Cancel safe. Never ends by itself.
    ///
    /// Several changes of one object may be told as one.
    pub async fn next(&mut self) -> HubEvent {
        loop {
            if let Some(event) = self.try_next() {
                return event;
            }
            self.pending.notify.notified().await;
        }
    }

    fn try_next(&mut self) -> Option<HubEvent> {
        let mut queue = self.pending.queue();
        match queue.items.pop_front() {
            Some(Item::Synced) => Some(HubEvent::Synced),
            Some(Item::Key(key)) => {
                queue.keys.remove(&key);
                drop(queue);
                Some(match self.watch.cache().store().get(&key) {
                    Some(object) => HubEvent::Applied(object),
                    None => HubEvent::Deleted(key),
                })
            }
            None => queue.problem.take().map(HubEvent::Failing),
        }
    }

    /// The object as it is now, if it is there.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Object>> {
        self.watch.cache().store().get(key)
    }

    /// How the watch is doing.
    pub fn status(&self) -> WatchStatus {
        self.watch.status()
    }
}
