//! One discovery of all children. It has no task and no channel: it polls the children itself and drops them when it
//! is dropped.

use std::sync::Arc;

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use mcr_core::{Change, Discovering, DiscoverySettings, ProviderId};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    children::Children,
    engine::{Engine, Queue},
    registry::Registry,
};

pub(crate) struct Running {
    // Dropped first, because these futures run the children.
    tasks: FuturesUnordered<BoxFuture<'static, ()>>,
    discovering: Discovering<Queue>,
    children: watch::Receiver<Children>,
    synced: Option<SyncBarrier>,
    engine: Engaged,
}

/// The engine of a discovery. When this value is dropped, the next discovery may use the engine.
struct Engaged(Arc<Engine>);

impl Drop for Engaged {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The children that `Synced` waits for, and the end of the wait.
struct SyncBarrier {
    children: Vec<ProviderId>,
    deadline: Instant,
}

impl Running {
    pub(crate) fn start(registry: &Registry, stop: CancellationToken, settings: DiscoverySettings) -> Self {
        let engine = registry.begin();
        let mut children = registry.children.subscribe();
        engine.follow(&children.borrow_and_update().clone());
        Self {
            tasks: FuturesUnordered::new(),
            discovering: engine.set.run(stop, settings),
            children,
            synced: Some(SyncBarrier {
                children: engine.set.ids(),
                deadline: Instant::now() + registry.options.sync_timeout,
            }),
            engine: Engaged(engine),
        }
    }

    /// The next change. Cancel safe: a change that was not returned is returned by the next call.
    pub(crate) async fn next(&mut self) -> Change {
        loop {
            // The registry may be dropped. Then the children can't change any more.
            if self.children.has_changed().unwrap_or_default() {
                let children = self.children.borrow_and_update().clone();
                self.engine.0.follow(&children);
            }
            let set = self.engine.0.set.clone();
            let queue = set.sink();
            if let Some(change) = queue.pop() {
                return change;
            }
            if self.all_synced() {
                self.synced = None;
                self.engine.0.announce_rest();
                queue.push(Change::Synced);
                continue;
            }
            let deadline = self.synced.as_ref().map(|barrier| barrier.deadline);
            let deadline = async {
                match deadline {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let changed = async {
                if self.children.changed().await.is_err() {
                    std::future::pending().await
                }
            };
            tokio::select! {
                // Pending announcements come first.
                biased;
                task = self.discovering.next() => self.tasks.push(task),
                Some(()) = self.tasks.next(), if !self.tasks.is_empty() => {}
                () = queue.filled.notified() => {}
                () = changed => self.children.mark_changed(),
                () = deadline => {}
            }
        }
    }

    /// Whether `Synced` is due: all initial children have synced or were removed, or the time has passed.
    fn all_synced(&mut self) -> bool {
        let set = &self.engine.0.set;
        self.synced.as_mut().is_some_and(|barrier| {
            let pending = |id: &ProviderId| set.status(*id).is_some_and(|status| !status.synced);
            barrier.children.retain(pending);
            barrier.children.is_empty() || barrier.deadline <= Instant::now()
        })
    }
}
