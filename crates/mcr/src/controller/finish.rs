//! Checks a controller and takes the types of its objects away.

use std::{sync::Arc, time::Duration};

use mcr_core::WatchRequest;

use super::{
    BuiltController, Controller,
    engine::Core,
    plan::{Plan, WatchPlan},
};
use crate::{BuildError, Predicate, mapper, queue::FairQueue, reconciler::Run};

impl<K> Controller<K> {
    pub(super) fn finish(self, runner: Arc<dyn Run>) -> Result<BuiltController, BuildError> {
        let name = self.name;
        if name.is_empty() {
            return Err(BuildError::EmptyName);
        }
        let nothing = self.primary.is_none()
            && self.watches.is_empty()
            && self.fleet_maps.is_empty()
            && self.sources.is_empty()
            && self.cluster_sources.is_empty();
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
            let request = match options.request {
                Some(change) => change(watch.kind.clone()),
                None => watch.kind.clone(),
            };
            watches.push(WatchPlan {
                request: check(&watch.kind, request)?,
                clusters: options.clusters,
                predicates: with_filter(options.predicates),
                optional: options.optional,
                map: Some(map),
            });
        }
        let plan = Plan {
            name,
            clusters: self.clusters,
            watches,
            has_primary,
            fleet_maps: self.fleet_maps,
            sources: self.sources,
            cluster_sources: self.cluster_sources,
            timeout: self.timeout,
            release_jitter: self.release_jitter,
            shutdown_grace: self.shutdown_grace,
            weigh: self.weigh,
            runner,
        };
        Ok(BuiltController::new(Core::new(plan, FairQueue::new(self.queue))))
    }
}
