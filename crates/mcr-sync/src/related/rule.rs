//! One relation to related objects: the settings of the user, without the types of the objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::core::{ApiResource, DynamicObject};
use mcr::{RequestKey, WatchRequest};
use serde_json::Value;

use super::{
    copy,
    index::{Index, Scope, Selected},
};
use crate::{desired::Desired, link::Link, mirror, name::is_valid};

/// The error of a function of the user, as text. It never contains a value of the object.
type Reported<T> = Result<T, String>;
pub(crate) type Names<S, T> = Arc<dyn Fn(&S, Option<&T>) -> BTreeSet<String> + Send + Sync>;
pub(crate) type Labels<S, T> = Arc<dyn Fn(&S, Option<&T>) -> BTreeMap<String, String> + Send + Sync>;
pub(crate) type Choose<S, T> = Arc<dyn Fn(&S, Option<&T>, &Value) -> Reported<bool> + Send + Sync>;
pub(crate) type Make<S> = Arc<dyn Fn(&S, &Value) -> Reported<Value> + Send + Sync>;
pub(crate) type Name<S> = Arc<dyn Fn(&S, &Value) -> Reported<String> + Send + Sync>;

pub(crate) enum Selection<S, T> {
    Names(Names<S, T>),
    Labels(Labels<S, T>),
    Choose(Choose<S, T>),
}

/// Which way the objects are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From beside the target to beside the source.
    Up,
    /// From beside the source to beside the target.
    Down,
}

pub(crate) struct Rule<S, T> {
    pub(crate) id: String,
    pub(crate) way: Way,
    pub(crate) resource: ApiResource,
    pub(crate) selection: Option<Selection<S, T>>,
    pub(crate) project: Option<Make<S>>,
    pub(crate) name: Option<Name<S>>,
    pub(crate) watch_labels: Option<String>,
    pub(crate) index: Arc<Index>,
}

impl<S, T> Rule<S, T> {
    pub(crate) fn origin_watch(&self) -> WatchRequest {
        let watch = WatchRequest::resource(&self.resource);
        match &self.watch_labels {
            Some(labels) => watch.labels(labels.clone()),
            None => watch,
        }
    }

    pub(crate) fn copy_watch(&self, sync: &str) -> WatchRequest {
        WatchRequest::resource(&self.resource).labels(copy::selector(sync, &self.id, None))
    }

    pub(crate) fn is_down(&self) -> bool {
        self.way == Way::Down
    }

    /// For a source and a place of its target: the scope of the origins, and the scope of the copies.
    pub(crate) fn scopes(&self, source: &RequestKey, place: &RequestKey) -> (Scope, Scope) {
        let scope = |key: &RequestKey| Scope {
            cluster: key.cluster.clone(),
            namespace: key.object.namespace.as_deref().map(str::to_owned),
        };
        match self.way {
            Way::Up => (scope(place), scope(source)),
            Way::Down => (scope(source), scope(place)),
        }
    }

    /// What the source selects in the scope of the origins.
    pub(crate) fn selected(&self, source: &S, target: Option<&T>) -> Selected {
        match &self.selection {
            Some(Selection::Names(names)) => Selected::Names(names(source, target)),
            Some(Selection::Labels(labels)) => Selected::Labels(labels(source, target)),
            Some(Selection::Choose(_)) => Selected::All,
            None => Selected::Names(BTreeSet::new()),
        }
    }

    /// Whether the function of the user chooses this object. Without such a function, every object is chosen.
    pub(crate) fn chooses(&self, source: &S, target: Option<&T>, object: &Value) -> Reported<bool> {
        match &self.selection {
            Some(Selection::Choose(choose)) => choose(source, target, object),
            _ => Ok(true),
        }
    }

    /// The name and the desired state of the copy of an origin.
    pub(crate) fn copy_of(
        &self,
        source: &S,
        origin: &RequestKey,
        object: &DynamicObject,
        link: &Link<'_>,
    ) -> Reported<(String, Desired)> {
        let live = crate::api::value(object);
        let name = match &self.name {
            Some(name) => name(source, &live)?,
            None => copy::default_name(&self.id, origin, link),
        };
        if !is_valid(&name) {
            return Err(
                "the function for names makes a name that Kubernetes does not allow; a name has at most 253 lower case letters, \
                 digits, '-' and '.', and begins and ends with a letter or digit"
                    .to_owned(),
            );
        }
        let projected = match &self.project {
            Some(project) => project(source, &live)?,
            None => {
                let mut copy = live;
                // An origin that is deleted and created again may have other values, and its copy must be able to
                // follow.
                if let Some(fields) = copy.as_object_mut() {
                    fields.remove("immutable");
                }
                mirror::strip(&self.resource, &mut copy)?;
                copy
            }
        };
        let desired = Desired::new(projected, link, copy::marks(&self.id, origin), None);
        Ok((name, desired.map_err(|error| error.to_string())?))
    }
}
