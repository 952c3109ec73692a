//! Whether a source and its targets are as they were when all was as it should be. The events of a sync's own writes lead to reconciles
//! that this answers at little cost.

use std::hash::{DefaultHasher, Hash, Hasher};

use kube::core::{DynamicObject, ObjectMeta};
use mcr::{Request, RequestKey};

use crate::{
    pass::{Pass, View},
    placement::Placement,
    plan::SourceState,
    record,
    relation::Relation,
};

/// A hash of the versions of a source and its targets, and of what is known of the fleet.
struct Versions(DefaultHasher);

impl Versions {
    fn of<S, T>(relation: &Relation<S, T>, source: &ObjectMeta) -> Self {
        let mut versions = Self(DefaultHasher::new());
        relation.memory.generation().hash(&mut versions.0);
        versions.add(source);
        versions
    }

    fn add(&mut self, object: &ObjectMeta) {
        (&object.uid, &object.resource_version).hash(&mut self.0);
    }
}

impl<S, T> Pass<'_, S, T> {
    /// The versions at the end of a pass. `None` if something other than a new version may lead to work.
    pub(crate) fn versions(&self, view: &View) -> Option<u64> {
        let (observed, source) = (&view.observed, self.source.as_ref()?);
        let is_whole = observed.source == SourceState::Live && observed.recorded == observed.wanted;
        let may_change =
            !self.relation.related.is_empty() || !self.troubles.is_empty() || !self.waits.is_empty();
        let mut versions = Versions::of(self.relation, &source.metadata);
        for place in &observed.wanted {
            versions.add(&view.found.get(&Placement::target(place))?.metadata);
        }
        (is_whole && !may_change).then(|| versions.0.finish())
    }
}

/// Whether nothing has changed since all was as it should be.
pub(crate) fn is_unchanged<S, T>(request: &Request<DynamicObject>, relation: &Relation<S, T>) -> bool {
    let (memory, key) = (&relation.memory, &request.key);
    let Some((source, last)) = request.live().zip(memory.versions(key)) else {
        return false;
    };
    let Ok(places) = record::places(&relation.name, &source.metadata) else {
        return false;
    };
    let mut versions = Versions::of(relation, &source.metadata);
    let watch = relation.target_watch();
    for RequestKey { cluster, object } in &places {
        let cluster = request
            .fleet
            .get(cluster)
            .ok()
            .filter(|cluster| cluster.state().is_ready());
        let store = cluster.and_then(|cluster| cluster.store_of::<DynamicObject>(&watch).ok());
        let Some(target) = store.and_then(|store| store.get(object).ok().flatten()) else {
            return false;
        };
        versions.add(&target.metadata);
    }
    if versions.0.finish() != last {
        return false;
    }
    // The events of the targets themselves.
    for place in places {
        memory.note_claim(key, place, false);
    }
    memory.claims(key).is_empty()
}
