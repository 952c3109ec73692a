//! Checks of the settings, and the controller that is made of them.

use std::sync::{Arc, OnceLock};

use kube::{Resource, core::DynamicObject};
use mcr::{BuiltController, Controller};
use serde::{Serialize, de::DeserializeOwned};

use super::ObjectSync;
use crate::{
    error::BuildError,
    kinds::StatusKinds,
    mirror,
    name::MAX_NAME,
    reconcile::reconcile,
    relation::{Relation, TargetNamespace},
    silent::Silent,
    watches::{controller, watch_marked, with_labels},
    writes::{Namespaces, Writes},
};

/// The longest name of a sync: it is a part of the name of an annotation.
const MAX_SYNC_NAME: usize = 50;

impl<S, T> ObjectSync<S, T>
where
    S: Resource + DeserializeOwned + Send + Sync + 'static,
    T: Resource + DeserializeOwned + Serialize + Send + Sync + 'static,
{
    pub(crate) fn check_name(&self) -> Result<(), BuildError> {
        if !is_label(&self.name, MAX_SYNC_NAME) {
            return Err(BuildError::Name(self.name.clone()));
        }
        match &self.owner {
            Some(owner) if !is_label(owner, MAX_NAME) => Err(BuildError::Owner(owner.clone())),
            _ => Ok(()),
        }
    }

    /// Makes the controller.
    ///
    /// # Errors
    /// [`BuildError`] if a setting is missing or makes no sense.
    pub fn build(self) -> Result<BuiltController, BuildError> {
        self.build_with(|controller| controller)
    }

    /// As [`build`](Self::build), with a change of the controller's settings, such as its concurrency. The clusters stay those of
    /// [`from`](Self::from).
    ///
    /// The watch of the sources may be limited, for example to a namespace. **A source that leaves such a watch keeps its targets and
    /// its finalizer**, and its deletion waits until it is back in the watch or somebody removes the finalizer. The failure is reported
    /// once. To choose sources by a label that may change, use [`source_labels`](Self::source_labels) or [`filter`](Self::filter).
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_with(
        self,
        change: impl FnOnce(Controller<DynamicObject>) -> Controller<DynamicObject>,
    ) -> Result<BuiltController, BuildError> {
        self.check_name()?;
        let name = self.name;
        if let TargetNamespace::Fixed(namespace) = &self.namespace
            && !is_label(namespace, MAX_NAME)
        {
            return Err(BuildError::Namespace(namespace.clone()));
        }
        for (at, rule) in self.related.iter().enumerate() {
            let is_taken = self.related[..at].iter().any(|other| other.id == rule.id);
            if is_taken || !is_label(&rule.id, MAX_SYNC_NAME) {
                return Err(BuildError::RelatedId(rule.id.clone()));
            }
            if rule.selection.is_none() {
                return Err(BuildError::NoSelection(rule.id.clone()));
            }
        }
        if self.mirrors && mirror::is_of_its_cluster(&self.target) {
            return Err(BuildError::NotMirrored(self.target.kind));
        }
        let Some((targets, place)) = self.place else {
            return Err(BuildError::NoPlacement(name));
        };
        let Some(project) = self.project else {
            return Err(BuildError::NoProjection(name));
        };
        let relation = Arc::new(Relation {
            name: name.into(),
            owner: self.owner,
            source: self.source,
            target: self.target,
            sources: self.sources,
            targets,
            place,
            sees_clusters: self.placement_sees_clusters || !self.mutations.is_empty(),
            project,
            mutations: self.mutations,
            template: self.template,
            namespace: self.namespace,
            status: self.status,
            condition: self.condition,
            filter: self.filter,
            adopt: self.adopt,
            abandon_after: self.abandon_after,
            namespaces: self.create_namespaces.then(Namespaces::default),
            related: self.related,
            mode: self.mode,
            replaces: self.replaces,
            events: self.events,
            source_labels: self.source_labels,
            source_watch: OnceLock::new(),
            memory: self.memory,
            silent: Silent::default(),
            writes: Writes::default(),
            status_kinds: StatusKinds::default(),
        });
        let mut limits = None;
        let mut controller = change(controller(&relation))
            .clusters(relation.sources.clone())
            .watch_request(|request| {
                let request = match &relation.source_labels {
                    Some(selector) => with_labels(limits.insert(request), selector),
                    None => request,
                };
                relation.source_watch.get_or_init(|| request.clone());
                request
            });
        if let Some(limits) = limits {
            controller = watch_marked(controller, &relation, &limits);
        }
        Ok(controller.build(reconcile::<S, T>, relation)?)
    }
}

/// Whether a name of at most so many characters is usable as the value of a label, as a part of the name of an annotation, and as
/// that of a namespace.
fn is_label(name: &str, most: usize) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= most
        && name.starts_with(is_word)
        && name.ends_with(is_word)
        && name.chars().all(|c| is_word(c) || c == '-')
}
