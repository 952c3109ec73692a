//! A watch on its own, for objects that describe clusters.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
};

use kube::Client;
use mcr_access::{AccessPolicy, ClusterName, internal::lock};
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

/// An event of a [`HubWatch`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum HubEvent {
    /// The object was created or changed, or existed at the start.
    Applied(Arc<Object>),
    /// The object was deleted.
    Deleted(ObjectKey),
    /// All objects that existed at the start have been reported. Comes once.
    Synced,
    /// The objects can't be listed or watched at the moment. The watch tries again by itself, and keeps the objects that it
    /// has.
    Failing(WatchProblem),
}

/// Watches objects of one kind in a hub, for providers that find clusters in Secrets or custom resources.
///
/// Fleets use the same watch. The API server applies the selectors. No part of a response body gets into the log. An object
/// is only [`Deleted`](HubEvent::Deleted) if the API server has reported it, or if a complete list lacks the object. After
/// a failure the watch tries again, with growing pauses. Dropping the `HubWatch` ends it.
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
///         HubEvent::Synced => println!("the first list is complete"),
///         HubEvent::Failing(problem) => eprintln!("{}", problem.error),
///         _ => {}
///     }
/// }
/// # }
/// ```
pub struct HubWatch {
    client: Client,
    settings: Arc<WatchSettings>,
    watch: Arc<SharedWatch>,
    pending: Arc<Pending>,
    _stop: DropGuard,
}

/// The events that [`HubWatch::next`] has not returned yet: at most one for each object, however slow the caller is.
#[derive(Debug, Default)]
struct Pending {
    queue: Mutex<Queue>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    keys: HashSet<ObjectKey>,
    synced: bool,
    problem: Option<WatchProblem>,
}

#[derive(Debug)]
enum Item {
    Key(ObjectKey),
    Synced,
}

impl Pending {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
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
        let mut queue = self.queue();
        if status.synced && !std::mem::replace(&mut queue.synced, true) {
            queue.items.push_back(Item::Synced);
        }
        queue.problem.clone_from(&status.problem);
        drop(queue);
        self.notify.notify_one();
    }
}

impl HubWatch {
    /// Starts a watch. Log lines name its cluster `hub`, unless [`name`](Self::name) sets another name.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn new(client: Client, request: WatchRequest) -> Self {
        Self::with_settings(client, request, Arc::default())
    }

    /// Starts a watch with other timeouts. Not part of the API.
    #[doc(hidden)]
    pub fn with_settings(client: Client, request: WatchRequest, settings: Arc<WatchSettings>) -> Self {
        Self::start(ClusterName::unchecked("hub"), client, request, settings)
    }

    /// Sets the name of the cluster in log lines. Call it before the first [`next`](Self::next): it starts the watch anew.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    #[must_use]
    pub fn name(self, name: ClusterName) -> Self {
        let request = self.watch.request().clone();
        Self::start(name, self.client, request, self.settings)
    }

    fn start(name: ClusterName, client: Client, request: WatchRequest, settings: Arc<WatchSettings>) -> Self {
        let stop = CancellationToken::new();
        let templates = Arc::new(TemplateRegistry::new(request.encoding()));
        let watch = Arc::new(SharedWatch::new(request, stop.clone()));
        let pending = Arc::new(Pending::default());
        watch.subscribe(pending.clone());
        if let Err(error) = watch.request().check() {
            watch.refuse(error);
        } else {
            let transport = Transport::new(name.clone());
            transport.swap(Dialer::new(&AccessPolicy::default()).client_channel(client.clone()));
            let env = DriverEnv {
                cluster: name,
                transport,
                health: Arc::new(Health::new(Phase::Up { endpoint: 1 })),
                list_permits: Arc::new(Semaphore::new(1)),
                settings: settings.clone(),
                counts: Arc::default(),
                templates,
            };
            tokio::spawn(drive(watch.clone(), env));
        }
        Self {
            client,
            settings,
            watch,
            pending,
            _stop: stop.drop_guard(),
        }
    }

    /// Waits for the next event. Cancel safe. The events never end.
    ///
    /// Several changes of one object may be one event.
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

    /// The object as it is now, if it exists.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Object>> {
        self.watch.cache().store().get(key)
    }

    /// The status of the watch.
    pub fn status(&self) -> WatchStatus {
        self.watch.status()
    }
}

impl std::fmt::Debug for HubWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HubWatch")
            .field("watch", &self.watch)
            .finish_non_exhaustive()
    }
}
