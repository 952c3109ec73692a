//! What a reconcile sees of related objects: origins and copies, from the stores first and from the servers before a write.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use kube::core::DynamicObject;
use mcr::{Cluster, ClusterName, ObjectKey, RequestKey, Store, StoreError, WatchRequest};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    api::{Remote, value},
    desired,
    error::SyncError,
    functions::{call, decode},
    kinds,
    plan::TargetState,
    related::{
        answers::CopyKey,
        copy,
        index::{Scope, Selected},
        notes::{Note, Problem},
        plan::Copy,
        rule::{Rule, Way},
    },
    sight::{Look, Sight},
};

/// What the functions of related objects are called in errors.
const RELATED: &str = "function for related objects";

/// The copies of one look.
#[derive(Default)]
pub(super) struct Copies {
    pub(super) copies: BTreeMap<CopyKey, Copy>,
    /// The desired state of the wanted copies, and the place that they belong to.
    pub(super) desired: BTreeMap<CopyKey, (Value, RequestKey)>,
    pub(super) found: BTreeMap<CopyKey, DynamicObject>,
    /// Per rule and place: what the source takes from there.
    pub(super) selected: BTreeMap<(usize, RequestKey), Selected>,
    pub(super) notes: Vec<Note>,
}

/// The places that are about to leave the record of the source.
pub(super) enum Leaving {
    /// The source stays, and so do the copies of its other places.
    Some(BTreeSet<ClusterName>),
    /// The source is released.
    All(BTreeSet<ClusterName>),
}

impl Leaving {
    pub(super) fn clusters(&self) -> &BTreeSet<ClusterName> {
        match self {
            Self::Some(clusters) | Self::All(clusters) => clusters,
        }
    }
}

/// A store, or why there is none.
enum Stored {
    Store(Store<DynamicObject>),
    Unwatched(Cluster),
    Unknown(String),
}

impl<S, T> Sight<'_, S, T>
where
    S: DeserializeOwned + Send + Sync,
    T: DeserializeOwned + Serialize + Send + Sync,
{
    /// Looks at the copies of all rules. Without `wanted`, no copy shall exist.
    pub(super) async fn copies(
        &mut self,
        look: &Look,
        wanted: &BTreeSet<RequestKey>,
        leaving: &Leaving,
    ) -> Result<Copies, SyncError> {
        let relation = self.relation;
        let mut all = Copies::default();
        for (at, rule) in relation.related.iter().enumerate() {
            let uncertain = self.wanted_copies(at, rule, look, wanted, &mut all).await?;
            self.other_copies(at, rule, look, wanted, leaving, &uncertain, &mut all)
                .await?;
        }
        self.related.size = all.copies.len();
        Ok(all)
    }

    fn note(rule: &Rule<S, T>, key: RequestKey, problem: Problem) -> Note {
        Note {
            id: rule.id.clone(),
            kind: rule.resource.kind.clone(),
            key,
            problem,
        }
    }

    /// Finds the copies that shall exist. Returns the clusters of places of which this is not known.
    async fn wanted_copies(
        &mut self,
        at: usize,
        rule: &Rule<S, T>,
        look: &Look,
        wanted: &BTreeSet<RequestKey>,
        all: &mut Copies,
    ) -> Result<BTreeSet<ClusterName>, SyncError> {
        let own = self.request.key.clone();
        let mut uncertain = BTreeSet::new();
        let mut selections = Vec::new();
        let source: Option<S> = match &self.source {
            Some(source) if !wanted.is_empty() => Some(decode("decoding", value(source))?),
            _ => None,
        };
        for place in wanted {
            let object = match look.observed.targets.get(place) {
                Some(TargetState::Ours { deleting: false, .. }) => look.objects.get(place),
                Some(TargetState::Absent) if rule.way == Way::Down => None,
                _ => {
                    uncertain.insert(place.cluster.clone());
                    continue;
                }
            };
            let Some(source) = &source else { continue };
            let target = object.map(|object| decode("decoding of a target", value(object)));
            let selected = target.transpose().and_then(|target: Option<T>| {
                let selected = call(RELATED, || rule.selected(source, target.as_ref()))?;
                Ok((target, selected))
            });
            match selected {
                Ok((target, selected)) => selections.push((place.clone(), target, selected)),
                Err(error) => {
                    uncertain.insert(place.cluster.clone());
                    self.failed.insert(place.clone(), error);
                }
            }
        }
        let mut interests: BTreeMap<Scope, BTreeSet<Selected>> = BTreeMap::new();
        for (place, _, selected) in &selections {
            let (from, _) = rule.scopes(&own, place);
            interests.entry(from).or_default().insert(selected.clone());
        }
        rule.index.note(&own, interests);
        let Some(source) = source else {
            return Ok(uncertain);
        };
        for (place, target, selected) in selections {
            let (from, to) = rule.scopes(&own, &place);
            all.selected.insert((at, place.clone()), selected.clone());
            let objects = match self.origins(at, rule, &place, &from, &selected)? {
                Ok(objects) => objects,
                Err(reason) => {
                    let everything = key_in(&from, &rule.resource.plural);
                    all.notes
                        .push(Self::note(rule, everything, Problem::Unknown(reason)));
                    uncertain.insert(place.cluster.clone());
                    continue;
                }
            };
            let mut missing = match selected {
                Selected::Names(names) => names,
                _ => BTreeSet::new(),
            };
            for object in objects {
                let Some(key) = ObjectKey::of(&object) else {
                    continue;
                };
                let origin = RequestKey::new(from.cluster.clone(), key);
                if copy::is_made_by(&self.relation.name, &object.metadata) {
                    continue;
                }
                missing.remove(&*origin.object.name);
                let link = self.relation.link(&own);
                let made = call(RELATED, || {
                    let chosen = rule.chooses(&source, target.as_ref(), &value(&object))?;
                    chosen
                        .then(|| rule.copy_of(&source, &origin, &object, &link))
                        .transpose()
                });
                match made.unwrap_or_else(|panicked| Err(panicked.to_string())) {
                    Ok(None) => {}
                    Ok(Some((name, desired))) => {
                        let key = (at, key_in(&to, &name));
                        match all.desired.entry(key) {
                            Entry::Occupied(entry) => {
                                let taken = entry.key().1.clone();
                                all.notes.push(Self::note(rule, taken, Problem::Twice));
                            }
                            Entry::Vacant(entry) => {
                                entry.insert((desired, place.clone()));
                            }
                        }
                    }
                    Err(reason) => {
                        all.notes.push(Self::note(rule, origin, Problem::Failed(reason)));
                        uncertain.insert(place.cluster.clone());
                    }
                }
            }
            for mut name in missing {
                // A reference that is no name may be anything, a secret too.
                if !crate::name::is_valid(&name) {
                    "(a name that is not valid)".clone_into(&mut name);
                }
                let note = Self::note(rule, key_in(&from, &name), Problem::Missing);
                all.notes.push(note);
            }
        }
        Ok(uncertain)
    }

    /// Finds out how the wanted copies are, and which others exist.
    #[allow(clippy::too_many_arguments)]
    async fn other_copies(
        &mut self,
        at: usize,
        rule: &Rule<S, T>,
        look: &Look,
        wanted: &BTreeSet<RequestKey>,
        leaving: &Leaving,
        uncertain: &BTreeSet<ClusterName>,
        all: &mut Copies,
    ) -> Result<(), SyncError> {
        let own = self.request.key.clone();
        let mut keys: BTreeSet<RequestKey> = rule.index.copies(&own).into_iter().collect();
        keys.extend(
            all.desired
                .keys()
                .filter(|key| key.0 == at)
                .map(|key| key.1.clone()),
        );
        keys.extend(
            self.related
                .copies
                .keys()
                .filter(|key| key.0 == at)
                .map(|key| key.1.clone()),
        );
        for key in keys {
            let copy_key = (at, key.clone());
            let desired = all.desired.get(&copy_key);
            let found = match self.copy_at(at, rule, &key).await {
                Ok(found) => found,
                Err(reason) => {
                    if desired.is_some() {
                        all.notes.push(Self::note(rule, key, Problem::Unknown(reason)));
                    }
                    continue;
                }
            };
            let live = found.as_ref().map(value);
            let ours = found
                .as_ref()
                .zip(live.as_ref())
                .filter(|(object, live)| copy::is_ours(object, live, &rule.id, &self.relation.link(&own)));
            let deleting = found
                .as_ref()
                .is_some_and(|object| object.metadata.deletion_timestamp.is_some());
            let copy = match (desired, ours) {
                (Some((desired, place)), Some((_, live))) => match desired::to_patch(desired, live) {
                    Ok(patch) => {
                        let (differs, trouble, wait) =
                            rule.writes.judge(&key, desired, live, patch.is_some());
                        let note = |trouble| Self::note(rule, key.clone(), Problem::Trouble(trouble));
                        all.notes.extend(trouble.map(note));
                        self.waits.extend(wait);
                        Some(TargetState::Ours { differs, deleting })
                    }
                    Err(error) => {
                        self.failed.insert(place.clone(), error.into());
                        continue;
                    }
                },
                (Some(_), None) if found.is_some() => Some(TargetState::Foreign { adoptable: false }),
                (Some(_), None) => Some(TargetState::Absent),
                (None, _) => None,
            };
            let copy = match (copy, ours) {
                (Some(state), _) => Copy::Wanted {
                    state,
                    early: rule.way == Way::Down,
                },
                (None, Some((object, _))) => {
                    let of = match rule.way {
                        Way::Up => copy::origin_cluster(&object.metadata),
                        Way::Down => Some(key.cluster.clone()),
                    };
                    if is_stale(of.as_ref(), look, wanted, leaving, uncertain) {
                        Copy::Stale { deleting }
                    } else {
                        Copy::Kept
                    }
                }
                (None, None) => continue,
            };
            all.copies.insert(copy_key.clone(), copy);
            if let Some(object) = found {
                all.found.insert(copy_key, object);
            }
        }
        Ok(())
    }

    fn stored(&self, cluster: &ClusterName, watch: &WatchRequest) -> Stored {
        let Ok(cluster) = self.cluster(cluster) else {
            return Stored::Unknown(format!("cluster {cluster} is not in the fleet"));
        };
        if !cluster.state().is_ready() {
            return Stored::Unknown(format!("cluster {} is not connected", cluster.name()));
        }
        match cluster.store_of::<DynamicObject>(watch) {
            Ok(store) if store.is_synced() => Stored::Store(store),
            Ok(store) => match store.len() {
                Ok(_) => Stored::Store(store),
                Err(error) => Stored::Unknown(error.to_string()),
            },
            Err(StoreError::NotWatched { .. }) => Stored::Unwatched(cluster),
            Err(error) => Stored::Unknown(error.to_string()),
        }
    }

    /// The objects of this selection. The function of the user is not yet asked.
    fn origins(
        &self,
        at: usize,
        rule: &Rule<S, T>,
        place: &RequestKey,
        from: &Scope,
        selected: &Selected,
    ) -> Result<Result<Vec<DynamicObject>, String>, SyncError> {
        if let Some((of, objects)) = self.related.origins.get(&(at, place.clone()))
            && of == selected
        {
            return Ok(Ok(objects.clone()));
        }
        let store = match self.stored(&from.cluster, &rule.origin_watch()) {
            Stored::Store(store) => store,
            Stored::Unwatched(cluster) => {
                return Ok(Err(format!(
                    "the kind is not watched in cluster {}",
                    cluster.name()
                )));
            }
            Stored::Unknown(reason) => return Ok(Err(reason)),
        };
        let keys = match selected {
            Selected::Names(names) => names.iter().map(|name| key_in(from, name).object).collect(),
            _ => match store.keys() {
                Ok(keys) => keys,
                Err(error) => return Ok(Err(error.to_string())),
            },
        };
        let in_scope = |key: &&ObjectKey| key.namespace.as_deref() == from.namespace.as_deref();
        let mut objects = Vec::new();
        for key in keys.iter().filter(in_scope) {
            match store.get(key) {
                Ok(Some(object)) if selected.matches(&object.metadata) => objects.push((*object).clone()),
                Ok(_) => {}
                Err(error) => return Ok(Err(error.to_string())),
            }
        }
        objects.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Ok(Ok(objects))
    }

    /// The object at the place of a copy.
    async fn copy_at(
        &mut self,
        at: usize,
        rule: &Rule<S, T>,
        key: &RequestKey,
    ) -> Result<Option<DynamicObject>, String> {
        if let Some(found) = self.related.copies.get(&(at, key.clone())) {
            return Ok(found.clone());
        }
        match self.stored(&key.cluster, &rule.copy_watch(&self.relation.name)) {
            Stored::Store(store) => match store.get(&key.object) {
                Ok(found) => Ok(found.map(|object| (*object).clone())),
                Err(error) => Err(error.to_string()),
            },
            Stored::Unwatched(cluster) => {
                let remote = Remote::new(&cluster, &rule.resource, &key.object);
                let found = match remote {
                    Ok(remote) => self.bounded(remote).get().await,
                    Err(error) => Err(error),
                };
                let found = found.map_err(|error| error.to_string())?;
                self.related.copies.insert((at, key.clone()), found.clone());
                Ok(found)
            }
            Stored::Unknown(reason) => Err(reason),
        }
    }

    /// Lists the copies of the source in a cluster, if they were not listed yet. Returns whether they were listed now.
    pub(super) async fn list_copies(&mut self, at: usize, cluster: &ClusterName) -> Result<bool, SyncError> {
        let listed = (at, cluster.clone());
        if self.related.listed.contains(&listed) {
            return Ok(false);
        }
        let rule = &self.relation.related[at];
        let link = self.relation.link(&self.request.key);
        let selector = copy::selector(&self.relation.name, &rule.id, Some(&link));
        let cluster = self.cluster(cluster)?;
        let found = self.list(&cluster, &rule.resource, None, Some(&selector)).await;
        let found = kinds::or_none(found, &cluster, &rule.resource).await?;
        self.related.listed.insert(listed);
        for object in found {
            if let Some(key) = ObjectKey::of(&object) {
                let key = RequestKey::new(cluster.name().clone(), key);
                self.related.copies.insert((at, key), Some(object));
            }
        }
        Ok(true)
    }

    /// Asks the servers for the origins of a place. Returns whether they had not been asked yet.
    pub(super) async fn confirm_origins(
        &mut self,
        at: usize,
        place: &RequestKey,
        selected: &Selected,
    ) -> Result<bool, SyncError> {
        let rule = &self.relation.related[at];
        let key = (at, place.clone());
        if self
            .related
            .origins
            .get(&key)
            .is_some_and(|(of, _)| of == selected)
        {
            return Ok(false);
        }
        let (from, _) = rule.scopes(&self.request.key, place);
        let cluster = self.cluster(&from.cluster)?;
        let mut objects = Vec::new();
        match selected {
            Selected::Names(names) => {
                // A name that is not valid can't exist, and would be another path in a request.
                for name in names.iter().filter(|name| crate::name::is_valid(name)) {
                    let remote = Remote::new(&cluster, &rule.resource, &key_in(&from, name).object)?;
                    let remote = self.bounded(remote);
                    objects.extend(match &rule.watch_labels {
                        Some(labels) => remote.get_labelled(labels).await?,
                        None => remote.get().await?,
                    });
                }
            }
            Selected::Labels(_) | Selected::All => {
                let namespace = from.namespace.as_deref();
                let labels = rule.watch_labels.as_deref();
                objects = self.list(&cluster, &rule.resource, namespace, labels).await?;
                objects.retain(|object| selected.matches(&object.metadata));
                objects.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
            }
        }
        self.related.origins.insert(key, (selected.clone(), objects));
        Ok(true)
    }

    pub(super) fn remote_copy(&self, key: &CopyKey) -> Result<Remote, SyncError> {
        let cluster = self.cluster(&key.1.cluster)?;
        let resource = &self.relation.related[key.0].resource;
        Ok(self.bounded(Remote::new(&cluster, resource, &key.1.object)?))
    }
}

fn key_in(scope: &Scope, name: &str) -> RequestKey {
    let object = match &scope.namespace {
        Some(namespace) => ObjectKey::namespaced(namespace.as_str(), name),
        None => ObjectKey::cluster_scoped(name),
    };
    RequestKey::new(scope.cluster.clone(), object)
}

/// Whether a copy that nobody wants is to go. `of` is the cluster of the place that it belongs to, if that is known.
fn is_stale(
    of: Option<&ClusterName>,
    look: &Look,
    wanted: &BTreeSet<RequestKey>,
    leaving: &Leaving,
    uncertain: &BTreeSet<ClusterName>,
) -> bool {
    if matches!(leaving, Leaving::All(_)) || of.is_some_and(|of| leaving.clusters().contains(of)) {
        return true;
    }
    if wanted.is_empty() {
        return false;
    }
    let Some(of) = of else { return uncertain.is_empty() };
    let has = |places: &BTreeSet<RequestKey>| places.iter().any(|place| place.cluster == *of);
    let is_left = !has(wanted) && has(&look.observed.recorded);
    !uncertain.contains(of) && !is_left
}
