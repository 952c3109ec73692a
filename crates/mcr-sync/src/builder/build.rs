//! Checks the settings, and makes the controller.

use std::sync::Arc;

use kube::{Resource, core::DynamicObject};
use mcr::{BuiltController, Controller};
use serde::{Serialize, de::DeserializeOwned};

use super::{Makes, ObjectSync};
use crate::{
    error::BuildError,
    mirror,
    name::MAX_NAME,
    reconcile::reconcile,
    relation::{Relation, TargetNamespace},
    watches::{controller, watch_marked, with_labels},
};

/// The longest name of a sync: it is a part of the name of an annotation.
const MAX_SYNC_NAME: usize = 50;

impl<S, T> ObjectSync<S, T>
where
    S: Resource + DeserializeOwned + Send + Sync + 'static,
    T: Resource + DeserializeOwned + Serialize + Send + Sync + 'static,
{
    pub(crate) fn check_name(&self) -> Result<(), BuildError> {
        let Relation { name, owner, .. } = &self.relation;
        if !is_label(name, MAX_SYNC_NAME) {
            return Err(BuildError::Name(name.to_string()));
        }
        match owner {
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

    /// As [`build`](Self::build), with a function that changes the controller's settings, such as its concurrency.
    /// [`from`](Self::from) still selects the source clusters.
    ///
    /// The watch of the sources may be limited, for example to a namespace. **A source that leaves such a watch keeps
    /// its targets and its finalizer**, and its deletion waits until it is back in the watch or somebody removes the
    /// finalizer. The failure is reported once. To choose sources by a label that may change, use
    /// [`source_labels`](Self::source_labels) or [`filter`](Self::filter).
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_with(
        self,
        change: impl FnOnce(Controller<DynamicObject>) -> Controller<DynamicObject>,
    ) -> Result<BuiltController, BuildError> {
        self.check_name()?;
        let relation = &self.relation;
        if let TargetNamespace::Fixed(namespace) = &relation.namespace
            && !is_label(namespace, MAX_NAME)
        {
            return Err(BuildError::Namespace(namespace.clone()));
        }
        for (at, rule) in relation.related.iter().enumerate() {
            let is_taken = relation.related[..at].iter().any(|other| other.id == rule.id);
            if is_taken || !is_label(&rule.id, MAX_SYNC_NAME) {
                return Err(BuildError::RelatedId(rule.id.clone()));
            }
            if rule.selection.is_none() {
                return Err(BuildError::NoSelection(rule.id.clone()));
            }
        }
        if self.makes == Makes::Mirrors && mirror::is_cluster_specific(&relation.target) {
            return Err(BuildError::NotMirrored(relation.target.kind.clone()));
        }
        if !self.is_placed {
            return Err(BuildError::NoPlacement(relation.name.to_string()));
        }
        if self.makes == Makes::Nothing {
            return Err(BuildError::NoProjection(relation.name.to_string()));
        }
        let relation = Arc::new(self.relation);
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

/// Whether a name of at most `most` characters is usable as the value of a label, as a part of the name of an
/// annotation, and as the name of a namespace.
fn is_label(name: &str, most: usize) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= most
        && name.starts_with(is_word)
        && name.ends_with(is_word)
        && name.chars().all(|c| is_word(c) || c == '-')
}
