//! Builds the controller of a sync with its watches.

use std::{collections::HashSet, fmt::Display, sync::Arc, time::Duration};

use kube::core::{DynamicObject, PartialObjectMeta};
use mcr::{
    Cluster, ClusterSelector, Controller, FleetEvent, ObjectKey, RequestKey, WatchOptions, WatchRequest,
    Watched,
};

use crate::{
    affected::Clusters,
    link::Link,
    reconcile::after_error,
    record,
    related::Way,
    relation::{Relation, SourceKind, TargetKind},
};

/// The time between two requests for each source that has lost its labels.
///
/// When a source leaves the watch of the sources, a standby drops the request. After the standby becomes the leader,
/// there may be no other event of the source.
const UNSELECTED_INTERVAL: Duration = Duration::from_secs(600);

type Meta = PartialObjectMeta<DynamicObject>;

/// The controller with its watches of sources, targets, related objects and the fleet.
pub(crate) fn controller<S: SourceKind + 'static, T: TargetKind + 'static>(
    relation: &Arc<Relation<S, T>>,
) -> Controller<DynamicObject> {
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
    // Requests the source that a target names, and notes the target in memory, because the record of the source may
    // not have it.
    let claimed_source = move |target: Watched<DynamicObject>| {
        let (source, at) = (source_of(&target)?, key_of(&target)?);
        of_targets.memory.note_claim(&source, at, !target.deleted);
        Some(source)
    };
    let mut controller = Controller::<DynamicObject>::with(relation.name.clone(), &relation.source)
        .clusters(relation.sources.clone())
        .on_error(after_error)
        .watches_with(&relation.target, claimed_source, targets)
        // A change of the fleet may change a placement, or end the wait for a cluster.
        .watches_fleet(move |event, fleet| {
            // A new cluster may have joined under the same name already. Then its entries in memory must stay.
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
        let sources_of_origin = move |origin: Watched<DynamicObject>| {
            index.concerned(origin.cluster.name(), &origin.object.metadata)
        };
        let index = rule.index.clone();
        let source_of_copy = move |copy: Watched<DynamicObject>| {
            let source = source_of(&copy)?;
            index.note_copy(&source, key_of(&copy)?, copy.deleted);
            Some(source)
        };
        let of_copies = options(copies, rule.copy_watch(&relation.name));
        controller = controller
            .watches_with(
                &rule.resource,
                sources_of_origin,
                options(origins, rule.origin_watch()),
            )
            .watches_with(&rule.resource, source_of_copy, of_copies);
    }
    controller
}

/// Adds labels to those that a watch request selects.
pub(crate) fn with_labels(request: &WatchRequest, labels: impl Display) -> WatchRequest {
    let other = request.label_selector().filter(|other| !other.is_empty());
    let labels = other.map_or_else(|| labels.to_string(), |other| format!("{other},{labels}"));
    request.clone().labels(labels)
}

/// Adds a watch of all sources that have the mark of the sync, within the limits that the user has set.
///
/// No other watch has the sources that have lost the selected labels.
pub(crate) fn watch_marked<S: 'static, T: 'static>(
    controller: Controller<DynamicObject>,
    relation: &Arc<Relation<S, T>>,
    limits: &WatchRequest,
) -> Controller<DynamicObject> {
    let marked = with_labels(limits, record::annotation(&relation.name)).metadata_only();
    let (watch, selecting, marking) = (marked.clone(), relation.clone(), relation.clone());
    let memory = relation.memory.clone();
    let options = WatchOptions::new().request(move |_| watch).optional();
    // Sources with the labels are in the watch of the sources already. A mark without a finalizer or a record proves
    // nothing, because somebody may have copied the manifest of a source.
    let unselected = move |source: Watched<Meta>| {
        let meta = &source.object.metadata;
        let is_unselected = record::may_have_targets(&selecting.name, meta) && !selecting.has_labels(meta);
        ObjectKey::of(&*source.object).filter(|_| is_unselected)
    };
    controller
        .watches_with(&relation.source, unselected, options)
        .source(move |enqueue, stop| {
            let memory = memory.clone();
            async move {
                while let Some(later) = stop.run_until_cancelled(memory.later()).await {
                    for (key, after) in later {
                        enqueue.add_after(key, after);
                    }
                }
                Ok(())
            }
        })
        .cluster_source(move |cluster, enqueue, stop| {
            let (relation, marked) = (marking.clone(), marked.clone());
            async move {
                let next = || stop.run_until_cancelled(tokio::time::sleep(UNSELECTED_INTERVAL));
                while next().await.is_some() {
                    for key in unselected_sources(&relation, &cluster, &marked)
                        .into_iter()
                        .flatten()
                    {
                        enqueue.add_initial(key);
                    }
                }
                Ok(())
            }
        })
}

/// The sources that have the mark and the finalizer, but have lost the selected labels and so left the watch of the
/// sources. `None` if one of the two watches is missing.
fn unselected_sources<S, T>(
    relation: &Relation<S, T>,
    cluster: &Cluster,
    marked: &WatchRequest,
) -> Option<Vec<ObjectKey>> {
    let watched = cluster.store_of::<DynamicObject>(relation.source_watch()?).ok()?;
    let watched = HashSet::<_>::from_iter(watched.keys_unsynced().ok()?);
    let marked = cluster.store_of::<Meta>(marked).ok()?;
    let mut unselected = marked.keys_unsynced().ok()?;
    let is_unselected = |source: Arc<Meta>| {
        record::has_finalizer(&relation.name, &source.metadata) && !relation.has_labels(&source.metadata)
    };
    unselected.retain(|key| {
        !watched.contains(key) && marked.get_unsynced(key).ok().flatten().is_some_and(is_unselected)
    });
    Some(unselected)
}

/// The cluster and the key of an object.
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
