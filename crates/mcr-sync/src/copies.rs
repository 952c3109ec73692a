//! Which copies of related objects shall exist, and what the servers report about origins and copies.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::core::{ApiResource, DynamicObject};
use mcr::{Cluster, ClusterName, ObjectKey, RequestKey, Store};

use crate::{
    api::{self, Remote, value},
    error::SyncError,
    functions::{call, decode},
    kinds,
    name::is_valid,
    pass::{Pass, View},
    placement::Placement,
    plan::State,
    related::{Note, Problem, Rule, Scope, Selected, Way, copy},
    relation::{SourceKind, TargetKind},
    silent::LIST,
};

/// The name in errors of the user's functions for related objects.
const RELATED: &str = "function for related objects";

impl<S: SourceKind, T: TargetKind> Pass<'_, S, T> {
    /// Finds the copies of a rule that shall exist, each with the place that it belongs to. `rule_index` is the
    /// position of the rule.
    pub(crate) fn wanted_copies(
        &mut self,
        rule_index: usize,
        view: &mut View,
    ) -> Result<BTreeMap<Placement, RequestKey>, SyncError> {
        let (relation, source_key) = (self.relation, &self.request.key);
        let rule = &relation.related[rule_index];
        let mut selections = Vec::new();
        for place in view.observed.wanted.clone() {
            let target = Placement::target(&place);
            let object = match view.observed.objects.get(&target).map(|target| target.state) {
                Some(state) if state.is_ours() => view.found.get(&target),
                Some(State::Absent) if rule.way == Way::Down => None,
                _ => {
                    view.observed.uncertain.insert(place);
                    continue;
                }
            };
            let Some(source) = self.decoded()? else { continue };
            let target = object.map(|object| decode("decoding of a target", value(object)));
            let selected = target.transpose().and_then(|target: Option<T>| {
                let selected = call(RELATED, || rule.selected(&source.typed, target.as_ref()))?;
                Ok((target, selected))
            });
            match selected {
                Ok((target, selected)) => selections.push((place, target, selected)),
                Err(error) => {
                    view.observed.uncertain.insert(place.clone());
                    self.failed.insert(place, error);
                }
            }
        }
        // Noted before the stores are read. So a change of an origin is either in the store already, or its event
        // finds the source in the index.
        let mut interests: BTreeMap<Scope, BTreeSet<Selected>> = BTreeMap::new();
        for (place, _, selected) in &selections {
            let (from, _) = rule.scopes(source_key, place);
            interests.entry(from).or_default().insert(selected.clone());
        }
        rule.index.note(source_key, interests);
        let mut wanted = BTreeMap::new();
        for (place, target, selected) in selections {
            let (from, to) = rule.scopes(source_key, &place);
            view.selected
                .insert((rule_index, place.clone()), selected.clone());
            let mut note = |key, problem| {
                view.notes.push(Note {
                    rule: rule_index,
                    key,
                    problem,
                })
            };
            let objects = match self.matching_origins(rule_index, &from, &selected) {
                Ok(objects) => objects,
                Err(reason) => {
                    note(from.key(&rule.resource.plural), Problem::Unknown(reason));
                    view.observed.uncertain.insert(place);
                    continue;
                }
            };
            let mut missing = match selected {
                Selected::Names(names) => names,
                _ => BTreeSet::new(),
            };
            for object in objects {
                let Some(key) = ObjectKey::of(&*object) else {
                    continue;
                };
                let origin = RequestKey::new(from.cluster.clone(), key);
                if copy::is_made_by(&self.relation.name, &object.metadata) {
                    continue;
                }
                missing.remove(&*origin.object.name);
                let Some(source) = self.decoded()? else { continue };
                let link = relation.link(source_key);
                let made = call(RELATED, || {
                    let chosen = rule.chooses(&source.typed, target.as_ref(), &value(&object))?;
                    let copy = chosen.then(|| rule.copy_of(&source.typed, &origin, &object, &link));
                    copy.transpose()
                });
                match made.unwrap_or_else(|panicked| Err(panicked.to_string())) {
                    Ok(None) => {}
                    Ok(Some((name, desired))) => {
                        let copy = Placement::copy(rule_index, to.key(&name));
                        if view.desired.contains_key(&copy) {
                            note(copy.at, Problem::SameName);
                            continue;
                        }
                        view.desired.insert(copy.clone(), desired.into());
                        wanted.insert(copy, place.clone());
                    }
                    Err(reason) => {
                        note(origin, Problem::Failed(reason));
                        view.observed.uncertain.insert(place.clone());
                    }
                }
            }
            for name in missing {
                // A reference that is not a valid name is not quoted, because it may be anything, even a secret.
                let name = if is_valid(&name) {
                    &name
                } else {
                    "(a name that is not valid)"
                };
                note(from.key(name), Problem::Missing);
            }
        }
        Ok(wanted)
    }

    /// The origins that a selection matches, before the function of the user chooses among them.
    fn matching_origins(
        &self,
        rule_index: usize,
        from: &Scope,
        selected: &Selected,
    ) -> Result<Vec<Arc<DynamicObject>>, String> {
        if let Some(objects) = self.origins.get(&(rule_index, from.clone(), selected.clone())) {
            return Ok(objects.clone());
        }
        let store = self.origin_store(&self.relation.related[rule_index], &from.cluster)?;
        let keys = match selected {
            Selected::Names(names) => names.iter().map(|name| from.key(name).object).collect(),
            _ => store.keys().map_err(|error| error.to_string())?,
        };
        let in_scope = |key: &&ObjectKey| key.namespace.as_deref() == from.namespace.as_deref();
        let mut objects = Vec::new();
        for key in keys.iter().filter(in_scope) {
            let found = store.get(key).map_err(|error| error.to_string())?;
            objects.extend(found.filter(|object| selected.matches(&object.metadata)));
        }
        objects.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Ok(objects)
    }

    fn origin_store(&self, rule: &Rule<S, T>, name: &ClusterName) -> Result<Store<DynamicObject>, String> {
        let Ok(cluster) = self.cluster(name) else {
            return Err(format!("cluster {name} is not in the fleet"));
        };
        if !cluster.state().is_ready() {
            return Err(format!("cluster {} is not connected", cluster.name()));
        }
        let watch = rule.origin_watch();
        let store = cluster.store_of::<DynamicObject>(&watch);
        let store = store.map_err(|error| error.to_string())?;
        if !store.is_synced() {
            let problem = self.unlisted(cluster.name(), &watch);
            return Err(problem.unwrap_or_else(|| "it is not listed yet".to_owned()));
        }
        Ok(store)
    }

    /// Reads the origins of a place from their server. Returns whether they were not read before.
    pub(crate) async fn confirm_origins(
        &mut self,
        rule_index: usize,
        place: &RequestKey,
        selected: &Selected,
    ) -> Result<bool, SyncError> {
        let rule = &self.relation.related[rule_index];
        let (from, _) = rule.scopes(&self.request.key, place);
        let key = (rule_index, from.clone(), selected.clone());
        if self.origins.contains_key(&key) {
            return Ok(false);
        }
        let cluster = self.cluster(&from.cluster)?;
        let mut objects = Vec::new();
        match selected {
            Selected::Names(names) => {
                // A name that is not valid can't exist, and would change the path of the request.
                for name in names.iter().filter(|name| is_valid(name)) {
                    let remote = self.bounded(Remote::new(&cluster, &rule.resource, &from.key(name).object)?);
                    objects.extend(match &rule.watch_labels {
                        Some(labels) => remote.get_labelled(labels).await?,
                        None => remote.get().await?,
                    });
                }
            }
            Selected::Labels(_) | Selected::All => {
                let (namespace, labels) = (from.namespace.as_deref(), rule.watch_labels.as_deref());
                objects = self.list(&cluster, &rule.resource, namespace, labels).await?;
                objects.retain(|object| selected.matches(&object.metadata));
                objects.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
            }
        }
        self.origins.insert(key, objects);
        Ok(true)
    }

    /// Lists all copies of the source that belong to a place, on their servers. Leaves out copies beside a target that
    /// was given up, and copies beside the source if the source's own cluster was given up.
    pub(crate) async fn list_copies(&mut self, place: &RequestKey, view: &View) -> Result<(), SyncError> {
        let target = view.observed.objects.get(&Placement::target(place));
        let is_given_up = target.is_some_and(|target| target.state == State::Abandoned);
        for (rule_index, rule) in self.relation.related.iter().enumerate() {
            let name = match rule.way {
                Way::Up if self.is_abandoned(&self.request.key) => continue,
                Way::Up => &self.request.key.cluster,
                Way::Down if is_given_up => continue,
                Way::Down => &place.cluster,
            };
            let link = self.relation.link(&self.request.key);
            let selector = copy::selector(&self.relation.name, &rule.id, Some(&link));
            let cluster = self.cluster(name)?;
            let found = self.list(&cluster, &rule.resource, None, Some(&selector)).await;
            for object in kinds::or_none(found, &cluster, &rule.resource).await? {
                if let Some(key) = ObjectKey::of(&*object) {
                    let copy = Placement::copy(rule_index, RequestKey::new(cluster.name().clone(), key));
                    if !self.live.contains_key(&copy) {
                        self.from_lists.insert(copy.clone());
                        self.live.insert(copy, Some(object));
                    }
                }
            }
        }
        // Noted only now: if one of the lists has failed, the place is not listed.
        self.listed.insert(place.clone(), !is_given_up);
        Ok(())
    }

    /// Lists objects in a cluster. For another cluster than the source's, waits no longer than
    /// [`silent`](crate::silent) allows.
    async fn list(
        &self,
        cluster: &Cluster,
        resource: &ApiResource,
        namespace: Option<&str>,
        labels: Option<&str>,
    ) -> Result<Vec<Arc<DynamicObject>>, SyncError> {
        let listed = api::list(cluster, resource, namespace, labels);
        if cluster.name() == self.request.cluster.name() {
            return listed.await;
        }
        let answering = self.relation.silent.of(cluster.name());
        let listed = answering.ask(LIST, false, Result::is_ok, listed).await;
        listed.unwrap_or_else(|| {
            let kind = ObjectKey::cluster_scoped(&*resource.plural);
            Err(SyncError::NoAnswer(RequestKey::new(cluster.name().clone(), kind)))
        })
    }
}
