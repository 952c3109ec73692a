//! The watches of related objects: those of the origins, and those of the copies.

use kube::core::DynamicObject;
use mcr::{ClusterName, Controller, ObjectKey, RequestKey, WatchOptions, Watched};

use crate::{related::rule::Way, relation::Relation};

/// Adds the watches. `source_of` reads the source from the marks of a copy.
pub(crate) fn watches<S, T>(
    mut controller: Controller<DynamicObject>,
    relation: &Relation<S, T>,
    source_of: fn(&Watched<DynamicObject>) -> Option<RequestKey>,
) -> Controller<DynamicObject> {
    for rule in &relation.related {
        let (origins, copies) = match rule.way {
            Way::Up => (&relation.targets, &relation.sources),
            Way::Down => (&relation.sources, &relation.targets),
        };
        let options = |clusters: &mcr::ClusterSelector, watch: mcr::WatchRequest| {
            WatchOptions::new()
                .clusters(clusters.clone())
                .request(move |_| watch)
                .optional()
        };
        let index = rule.index.clone();
        let concerned = move |origin: Watched<DynamicObject>| {
            index.concerned(origin.cluster.name(), &origin.object.metadata)
        };
        let index = rule.index.clone();
        let owner = move |copy: Watched<DynamicObject>| {
            let source = source_of(&copy)?;
            let at = RequestKey::new(copy.cluster.name().clone(), ObjectKey::of(&*copy.object)?);
            index.saw_copy(&source, at, copy.deleted);
            Some(source)
        };
        controller = controller
            .watches_with(&rule.resource, concerned, options(origins, rule.origin_watch()))
            .watches_with(
                &rule.resource,
                owner,
                options(copies, rule.copy_watch(&relation.name)),
            );
    }
    controller
}

/// Forgets which objects concern this source.
pub(crate) fn forget_source<S, T>(relation: &Relation<S, T>, source: &RequestKey) {
    for rule in &relation.related {
        rule.index.note(source, Default::default());
    }
}

/// Forgets the sources and the copies of a cluster that has left.
pub(crate) fn forget_cluster<S, T>(relation: &Relation<S, T>, cluster: &ClusterName) {
    for rule in &relation.related {
        rule.index.forget_cluster(cluster);
    }
}
