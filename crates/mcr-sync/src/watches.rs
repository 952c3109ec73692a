//! The watches of the controller of a sync.

use std::sync::Arc;

use kube::core::DynamicObject;
use mcr::{
    ClusterSelector, Controller, FleetEvent, ObjectKey, RequestKey, WatchOptions, WatchRequest, Watched,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{affected::Clusters, link::Link, reconcile::after_error, related::Way, relation::Relation};

/// The controller with its watches of sources, targets, related objects and the fleet.
pub(crate) fn controller<S, T>(relation: &Arc<Relation<S, T>>) -> Controller<DynamicObject>
where
    S: DeserializeOwned + Send + Sync + 'static,
    T: DeserializeOwned + Serialize + Send + Sync + 'static,
{
    let options = |clusters: &ClusterSelector, watch: WatchRequest| {
        WatchOptions::new()
            .clusters(clusters.clone())
            .request(move |_| watch)
            .optional()
    };
    let (of_fleet, of_targets) = (relation.clone(), relation.clone());
    let (clusters, targets) = (
        Clusters::default(),
        options(&relation.targets, relation.target_watch()),
    );
    // Notes where an object names a source, and leads to the source.
    let claimed = move |target: Watched<DynamicObject>| {
        let (source, at) = (source_of(&target)?, key_of(&target)?);
        of_targets.memory.note_claim(&source, at, !target.deleted);
        Some(source)
    };
    let mut controller = Controller::<DynamicObject>::with(relation.name.clone(), &relation.source)
        .clusters(relation.sources.clone())
        .on_error(after_error)
        .watches_with(&relation.target, claimed, targets)
        // A change of the fleet may change a placement, or end the wait for a cluster.
        .watches_fleet(move |event, fleet| {
            // The event may come after another cluster has taken the name.
            if let FleetEvent::Disengaged { name, .. } = event
                && fleet.get(name).is_err()
            {
                of_fleet.forget_cluster(name);
            }
            clusters.affected(&of_fleet, event, fleet)
        });
    for rule in &relation.related {
        let (origins, copies) = match rule.way {
            Way::Up => (&relation.targets, &relation.sources),
            Way::Down => (&relation.sources, &relation.targets),
        };
        let index = rule.index.clone();
        let concerned = move |origin: Watched<DynamicObject>| {
            index.concerned(origin.cluster.name(), &origin.object.metadata)
        };
        let index = rule.index.clone();
        let owner = move |copy: Watched<DynamicObject>| {
            let source = source_of(&copy)?;
            index.saw_copy(&source, key_of(&copy)?, copy.deleted);
            Some(source)
        };
        let of_copies = options(copies, rule.copy_watch(&relation.name));
        controller = controller
            .watches_with(&rule.resource, concerned, options(origins, rule.origin_watch()))
            .watches_with(&rule.resource, owner, of_copies);
    }
    controller
}

fn key_of(object: &Watched<DynamicObject>) -> Option<RequestKey> {
    Some(RequestKey::new(
        object.cluster.name().clone(),
        ObjectKey::of(&*object.object)?,
    ))
}

/// The source that a target or a copy names.
fn source_of(object: &Watched<DynamicObject>) -> Option<RequestKey> {
    let meta = &object.object.metadata;
    Link::read(meta.labels.as_ref()?, meta.annotations.as_ref()?)?.source_key()
}
