//! The stores and watches of a cluster, as users get them.

use std::sync::Arc;

use futures::future::OptionFuture;
use kube::Resource;
use mcr_store::Indexer;
use mcr_watch::{
    ChangeSink, KindStatus, Store, StoreError, WatchHandle, WatchRequest,
    internal::{DriverEnv, SharedWatch, confirm_grant, drive},
};
use serde::de::DeserializeOwned;

use super::handle::Cluster;
use crate::fleet::state::ClusterState::{self, Draining, Gone, Ready, Suspended};

impl Cluster {
    /// The store of a kind that is watched. Never starts a watch.
    ///
    /// # Errors
    /// - [`StoreError::NotWatched`] if the kind is not watched in this cluster.
    /// - [`StoreError::Ambiguous`] if several watches of the kind exist, and none of them is of all its objects.
    /// - [`StoreError::Gone`] if the cluster has left the fleet.
    pub fn store<K: Resource<DynamicType = ()> + DeserializeOwned>(&self) -> Result<Store<K>, StoreError> {
        self.0.watches.store(&WatchRequest::of::<K>())
    }

    /// The store of a kind whose type is known at run time only; see [`store`](Self::store).
    ///
    /// # Errors
    /// Like [`store`](Self::store).
    pub fn store_with<K>(&self, dynamic: &K::DynamicType) -> Result<Store<K>, StoreError>
    where
        K: Resource + DeserializeOwned,
    {
        self.0.watches.store(&WatchRequest::with::<K>(dynamic))
    }

    /// The store of the watch with exactly this request.
    ///
    /// # Errors
    /// [`StoreError::NotWatched`] if there is no such watch, [`StoreError::Gone`] if the cluster has left the fleet.
    pub fn store_of<K: DeserializeOwned>(&self, request: &WatchRequest) -> Result<Store<K>, StoreError> {
        self.0.watches.store_of(request)
    }

    /// Watches a kind for as long as the handle lives. Equal requests share one watch.
    ///
    /// Returns at once; the list begins when the cluster is connected. The `sink` receives every object of the store
    /// first, then every change.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the cluster has left the fleet.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn watch(
        &self,
        request: WatchRequest,
        sink: Option<Arc<dyn ChangeSink>>,
    ) -> Result<WatchHandle, StoreError> {
        let start = |watch: &Arc<SharedWatch>| self.start(watch);
        self.0.watches.watch(request, sink, &self.0.token, start)
    }

    fn start(&self, watch: &Arc<SharedWatch>) {
        if let Some(placement) = self.placement() {
            if let Some(grant) = placement.join(watch) {
                let (cluster, env) = (self.clone(), self.driver_env(watch.request()));
                let ready = async move { _ = cluster.wait_for(ClusterState::is_ready).await };
                let confirmed = confirm_grant(watch.clone(), grant, ready, env);
                self.0.tasks.spawn(confirmed);
            }
            return;
        }
        if let Err(error) = watch.request().check() {
            return watch.refuse(error);
        }
        for (name, indexer) in self.0.resources.kinds.indexers(watch.request()) {
            watch.cache().store().add_index(name, indexer);
        }
        let (request, stop) = (watch.request().clone(), watch.stopped().clone());
        let env = self.driver_env(&request);
        self.0.tasks.spawn(drive(watch.clone(), request, stop, env));
    }

    /// The environment of the driver of a watch of this cluster.
    pub(crate) fn driver_env(&self, request: &WatchRequest) -> DriverEnv {
        let resources = &self.0.resources;
        DriverEnv {
            cluster: self.0.name.clone(),
            transport: self.transport().clone(),
            health: self.health().clone(),
            list_budget: resources.list_budget.clone(),
            settings: resources.settings.watch.clone(),
            counts: resources.observers.counts.kinds.of(request),
            templates: resources.kinds.templates(request),
        }
    }

    /// Makes every watch follow the new placement of the cluster.
    pub(crate) fn rejoin(&self) {
        self.0.watches.all().iter().for_each(|watch| self.start(watch));
    }

    /// The status of each watch of the cluster.
    pub fn kinds(&self) -> Vec<KindStatus> {
        self.0.watches.kinds()
    }

    /// Waits until the cluster answers and each of its watches has read a complete list, or until the cluster is
    /// suspended or leaves. Returns whether there was anything to wait for. Cancel safe.
    pub(crate) async fn wait_until_synced(&self) -> bool {
        let mut waited = false;
        loop {
            let (state, mut watches) = (self.state(), self.0.watches.all().into_iter());
            let unlisted = watches.find(|watch| !watch.is_synced());
            match state {
                Suspended { .. } | Draining | Gone => return waited,
                Ready if unlisted.is_none() => return waited,
                _ => waited = true,
            }
            let listed = unlisted.map(|watch| async move {
                tokio::select! { () = watch.synced() => {}, () = watch.stopped().cancelled() => {} }
            });
            tokio::select! {
                _ = self.wait_for(|now| !now.same_kind(&state)) => {}
                Some(()) = OptionFuture::from(listed) => {}
            }
        }
    }

    /// Adds an index to the running watches of a kind.
    pub(crate) fn add_index(&self, kind: &WatchRequest, name: &Arc<str>, indexer: &Indexer) {
        // The objects of a scope are indexed by the watches of its endpoints.
        if self.placement().is_some() {
            return;
        }
        for watch in self.0.watches.of_kind(kind) {
            watch.cache().store().add_index(name.clone(), indexer.clone());
        }
    }
}
