//! A subject whose clusters are described by objects of a simulated hub.

use std::sync::Arc;

use mcr_core::{ClusterName, Provider};
use serde_json::{Value, json};

use super::{Ability, Draft, Subject};
use crate::{sim::SimCluster, suite::fail};

/// How a cluster is described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The cluster can be connected.
    Good,
    /// The description can't be used. It still contains the draft's token.
    Broken,
    /// The cluster is not expected to answer.
    Suspended,
}

/// A provider whose clusters are described by objects of a hub. [`InHub`] makes a [`Subject`] from it.
pub trait Described: Sized + 'static {
    /// The abilities of the subject.
    const CAN: &'static [Ability];

    /// A new world, and its hub.
    fn start() -> (Self, SimCluster);

    /// The provider that watches this hub.
    fn provider(&self, hub: &SimCluster) -> Arc<dyn Provider>;

    /// The name of a cluster.
    fn name(draft: &Draft) -> String;

    /// The resource and the key of the object with which the cluster disappears.
    fn place(draft: &Draft) -> (&'static str, String);

    /// The objects that describe a cluster, in the order in which they are written.
    fn objects(&self, draft: &Draft, form: Form) -> Vec<Value>;

    /// Starts the deletion of a cluster's object, which a finalizer keeps.
    fn begin_deletion(&self, hub: &SimCluster, draft: &Draft) {
        set_finalizers::<Self>(hub, draft, &json!(["example.com/keep"]));
        delete::<Self>(hub, draft);
    }

    /// Finishes the deletion that [`begin_deletion`](Self::begin_deletion) has started.
    fn finish_deletion(&self, hub: &SimCluster, draft: &Draft) {
        set_finalizers::<Self>(hub, draft, &json!([]));
    }
}

fn set_finalizers<D: Described>(hub: &SimCluster, draft: &Draft, finalizers: &Value) {
    let (resource, key) = D::place(draft);
    let mut there = hub.get(resource, &key).unwrap_or_default();
    there["metadata"]["finalizers"] = finalizers.clone();
    if let Err(error) = hub.update(there) {
        fail(error);
    }
}

fn delete<D: Described>(hub: &SimCluster, draft: &Draft) {
    let (resource, key) = D::place(draft);
    if let Err(error) = hub.delete(resource, &key) {
        fail(error);
    }
}

/// The subject for a provider whose clusters are [`Described`] in a hub.
pub struct InHub<D>(D, SimCluster);

impl<D: Described> InHub<D> {
    fn write(&self, draft: &Draft, form: Form) -> ClusterName {
        for object in self.0.objects(draft, form) {
            if let Err(error) = self.1.apply(object) {
                fail(error);
            }
        }
        ClusterName::new(D::name(draft)).unwrap_or_else(|error| fail(error))
    }
}

impl<D: Described> Subject for InHub<D> {
    const CAN: &'static [Ability] = D::CAN;

    async fn start() -> Self {
        let (described, hub) = D::start();
        Self(described, hub)
    }

    fn provider(&self) -> Arc<dyn Provider> {
        self.0.provider(&self.1)
    }

    async fn put(&mut self, draft: &Draft) {
        self.write(draft, Form::Good);
    }

    async fn add(&mut self, draft: &Draft) -> ClusterName {
        self.write(draft, Form::Good)
    }

    async fn replace(&mut self, draft: &Draft) {
        delete::<D>(&self.1, draft);
        self.write(draft, Form::Good);
    }

    async fn break_it(&mut self, draft: &Draft) -> ClusterName {
        self.write(draft, Form::Broken)
    }

    async fn suspend(&mut self, draft: &Draft) {
        self.write(draft, Form::Suspended);
    }

    async fn begin_deletion(&mut self, draft: &Draft) {
        self.0.begin_deletion(&self.1, draft);
    }

    async fn finish_deletion(&mut self, draft: &Draft) {
        self.0.finish_deletion(&self.1, draft);
    }

    async fn remove(&mut self, draft: &Draft) {
        delete::<D>(&self.1, draft);
    }
}
