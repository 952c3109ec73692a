//! The watches of the controller of a sync.

use std::sync::Arc;

use kube::core::DynamicObject;
use mcr::{Controller, FleetEvent, RequestKey, WatchOptions, Watched};
use serde::{Serialize, de::DeserializeOwned};

use crate::{affected::Clusters, copies, link::Link, reconcile::after_error, relation::Relation};

/// The controller with its watches of sources, targets, related objects and the fleet.
pub(crate) fn controller<S, T>(relation: &Arc<Relation<S, T>>) -> Controller<DynamicObject>
where
    S: DeserializeOwned + Send + Sync + 'static,
    T: DeserializeOwned + Serialize + Send + Sync + 'static,
{
    let watch = relation.target_watch();
    let targets = WatchOptions::new()
        .clusters(relation.targets.clone())
        .request(move |_| watch)
        .optional();
    let (of_fleet, of_targets) = (relation.clone(), relation.clone());
    let clusters = Clusters::default();
    let controller = Controller::<DynamicObject>::with(relation.name.clone(), &relation.source)
        .clusters(relation.sources.clone())
        .on_error(after_error)
        .watches_with(
            &relation.target,
            move |target| claimed(&of_targets, &target),
            targets,
        )
        // A change of the fleet may change a placement, or end the wait for a cluster.
        .watches_fleet(move |event, fleet| {
            // The event may come after another cluster has taken the name.
            if let FleetEvent::Disengaged { name, .. } = event
                && fleet.get(name).is_err()
            {
                copies::forget_cluster(&of_fleet, name);
                of_fleet.claims.forget_cluster(name);
                of_fleet.away.forget_cluster(name);
                of_fleet.silent.forget_cluster(name);
                of_fleet.waiting.forget_cluster(name);
                of_fleet.told.forget_cluster(name);
                of_fleet.status_kinds.forget_cluster(name);
            }
            clusters.affected(&of_fleet, event, fleet)
        });
    copies::watches(controller, relation, source_of)
}

/// Notes where an object names a source. Returns the source.
fn claimed<S, T>(relation: &Relation<S, T>, target: &Watched<DynamicObject>) -> Option<RequestKey> {
    let source = source_of(target)?;
    let object = mcr::ObjectKey::of(&*target.object)?;
    let at = RequestKey::new(target.cluster.name().clone(), object);
    if target.deleted {
        relation.claims.remove(&source, &at);
    } else {
        relation.claims.add(&source, at);
    }
    Some(source)
}

/// The source that a target names.
fn source_of(target: &Watched<DynamicObject>) -> Option<RequestKey> {
    let meta = &target.object.metadata;
    Link::read(meta.labels.as_ref()?, meta.annotations.as_ref()?)?.source_key()
}
