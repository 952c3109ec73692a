//! Finishes a controller: checks its settings and removes the types of its objects.

use std::{sync::Arc, time::Duration};

use mcr_core::WatchRequest;
use serde::de::DeserializeOwned;

use super::{
    builder::Controller,
    built::BuiltController,
    engine::Core,
    plan::{Plan, WatchPlan},
};
use crate::{
    BuildError, Predicate, Reconciler, mapper,
    queue::FairQueue,
    reconciler::{MultiCluster, RunReconcile},
};

impl<K> Controller<K>
where
    K: DeserializeOwned + Send + Sync + 'static,
{
    /// Finishes the controller with a multi-cluster [`Reconciler`].
    ///
    /// Give the result to a [`Manager`](crate::Manager), or [run](BuiltController::run) it yourself.
    ///
    /// # Errors
    /// [`BuildError`] if nothing could ever trigger the controller, or if a setting makes no sense.
    pub fn build<Ctx>(
        mut self,
        // If the arguments are others, rustc ignores the hints of attributes, but it shows the next line.
        reconciler: impl Reconciler<K, Ctx>, // kube's `async fn(Arc<K>, Arc<Ctx>)` goes to `build_uniform`
        ctx: Arc<Ctx>,
    ) -> Result<BuiltController, BuildError>
    where
        Ctx: Send + Sync + 'static,
    {
        let on_error = self.on_error.take();
        self.finish(Arc::new(MultiCluster::<K, _, Ctx>::new(
            reconciler, ctx, on_error,
        )))
    }
}

impl<K> Controller<K> {
    pub(super) fn finish(self, reconciler: Arc<dyn RunReconcile>) -> Result<BuiltController, BuildError> {
        let name = self.name;
        if name.is_empty() {
            return Err(BuildError::EmptyName);
        }
        // `build` has taken it.
        if self.on_error.is_some() {
            return Err(BuildError::TwoErrorPolicies { controller: name });
        }
        let nothing = self.primary.is_none()
            && self.watches.is_empty()
            && self.fleet_maps.is_empty()
            && self.sources.is_empty();
        if nothing {
            return Err(BuildError::NoWatches { controller: name });
        }
        for (setting, zero) in [
            ("concurrency", self.queue.concurrency == Some(0)),
            ("cluster_concurrency", self.queue.cluster_concurrency == Some(0)),
            ("timeout", self.timeout == Some(Duration::ZERO)),
        ] {
            if zero {
                return Err(BuildError::Zero {
                    controller: name,
                    setting,
                });
            }
        }
        let check = |kind: &WatchRequest, request: WatchRequest| {
            if kind.resource_name() == request.resource_name() {
                Ok(request)
            } else {
                let (kind, other) = (kind.to_string(), request.to_string());
                Err(BuildError::OtherKind {
                    controller: name.clone(),
                    kind,
                    other,
                })
            }
        };
        let mut watches = Vec::new();
        let owner = self.primary.as_ref().map(|primary| primary.owner.clone());
        let has_primary = self.primary.is_some();
        let with_filter = |own: Vec<Predicate>| self.event_filter.iter().cloned().chain(own).collect();
        if let Some(primary) = self.primary {
            watches.push(WatchPlan {
                request: check(&primary.kind, primary.request)?,
                clusters: None,
                predicates: with_filter(primary.predicates),
                optional: false,
                gates_all: None,
                map: None,
            });
        }
        for watch in self.watches {
            let map = match (watch.map, &owner) {
                (Some(map), _) => map,
                (None, Some(owner)) => mapper::owners(owner.clone(), watch.every_owner),
                // `owns` exists only where there is a primary kind.
                (None, None) => continue,
            };
            let options = watch.options;
            let gates_all =
                options
                    .gating_cluster(&self.clusters)
                    .map_err(|selector| BuildError::GatesAll {
                        controller: name.clone(),
                        watch: watch.kind.to_string(),
                        selector: selector.to_string(),
                    })?;
            let request = match options.request {
                Some(change) => change(watch.kind.clone()),
                None => watch.kind.clone(),
            };
            watches.push(WatchPlan {
                request: check(&watch.kind, request)?,
                clusters: options.clusters,
                predicates: with_filter(options.predicates),
                optional: options.optional,
                gates_all,
                map: Some(map),
            });
        }
        let plan = Plan {
            name,
            clusters: self.clusters,
            watches,
            has_primary,
            leader_only: self.leader_only,
            fleet_maps: self.fleet_maps,
            timeout: self.timeout,
            release_jitter: self.release_jitter,
            shutdown_grace: self.shutdown_grace,
            weigh: self.weigh,
            reconciler,
        };
        let core = Core::new(plan, FairQueue::new(self.queue));
        Ok(BuiltController::new(core, self.sources))
    }
}
