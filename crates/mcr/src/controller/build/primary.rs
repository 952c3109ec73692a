//! The settings of a controller that need its primary kind, and the constructors of both forms.

use std::{marker::PhantomData, sync::Arc};

use kube::{Resource, runtime::controller::Action as KubeAction};
use mcr_core::{Cluster, WatchRequest};
use serde::de::DeserializeOwned;

use super::{Controller, Primary, Secondary, options::OwnsOptions};
use crate::{
    controller::built::BuiltController, error::BuildError, mapper::OwnerKind, predicate::Predicate,
    reconciler::Uniform,
};

impl Controller<()> {
    /// Starts a controller without a primary kind. Its requests come from watches, the fleet and sources, and their keys
    /// need not name objects.
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Self::with_primary(name, None)
    }
}

/// The kinds that a controller can reconcile: every kind of kube, but not `()`.
#[diagnostic::on_unimplemented(
    message = "a controller without a primary kind has no objects that own others",
    label = "this `Controller<{Self}>` has no primary kind",
    note = "start it with `Controller::<K>::new`, or map the objects to keys with `watches`"
)]
pub trait PrimaryKind {}

#[diagnostic::do_not_recommend]
impl<K: Resource + DeserializeOwned + Send + Sync + 'static> PrimaryKind for K {}

impl<K> Controller<K>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    /// Starts a controller of a kind that is known at compile time. The name appears in logs and metrics, and must be unique
    /// in a [`Manager`](crate::Manager).
    pub fn new(name: impl Into<Arc<str>>) -> Self
    where
        K: Resource<DynamicType = ()>,
    {
        Self::with(name, &())
    }

    /// Starts a controller of a kind that is known at run time, as `DynamicObject` with its `ApiResource`.
    ///
    /// ```
    /// use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
    /// use mcr::Controller;
    ///
    /// let widgets = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    /// let controller = Controller::<DynamicObject>::with("widgets", &widgets);
    /// # let _ = controller;
    /// ```
    pub fn with(name: impl Into<Arc<str>>, dynamic: &K::DynamicType) -> Self {
        let kind = WatchRequest::with::<K>(dynamic);
        Self::with_primary(
            name,
            Some(Primary {
                request: kind.clone(),
                kind,
                owner: OwnerKind::of::<K>(dynamic),
                predicates: Vec::new(),
            }),
        )
    }

    /// Limits the watched objects of the primary kind to a namespace, or by a label or field selector. The change must keep
    /// the kind; otherwise `build` returns [`BuildError::OtherKind`].
    ///
    /// With a selector, requests have [`LeftWatch`](crate::RequestObject::LeftWatch) instead of `Deleted`, because the API
    /// server reports an object that no longer matches like a deleted one.
    pub fn watch_request(mut self, change: impl FnOnce(WatchRequest) -> WatchRequest) -> Self {
        self.primary = self.primary.map(|primary| Primary {
            request: change(primary.request),
            ..primary
        });
        self
    }

    /// Ignores changes of the primary kind that do not pass this predicate. With several predicates, a change must pass all.
    pub fn predicate(mut self, predicate: Predicate) -> Self {
        if let Some(primary) = &mut self.primary {
            primary.predicates.push(predicate);
        }
        self
    }

    /// Declares that objects of the primary kind have no namespace. Needed for `DynamicObject` with [`owns`](Self::owns): its
    /// type does not show whether the kind is namespaced.
    pub fn cluster_scoped(mut self) -> Self {
        if let Some(primary) = &mut self.primary {
            primary.owner.cluster_scoped = true;
        }
        self
    }
}

impl<K> Controller<K> {
    /// Watches objects that objects of the primary kind control. A change of such an object adds a request for the object that
    /// controls it.
    pub fn owns<O>(self) -> Self
    where
        K: PrimaryKind,
        O: Resource<DynamicType = ()> + 'static,
    {
        self.owns_with::<O>(&(), OwnsOptions::new())
    }

    /// As [`owns`](Self::owns), with options, and for kinds that are known at run time.
    pub fn owns_with<O>(mut self, dynamic: &O::DynamicType, options: OwnsOptions) -> Self
    where
        K: PrimaryKind,
        O: Resource + 'static,
    {
        let kind = WatchRequest::with::<O>(dynamic);
        let kind = if options.metadata_only {
            kind.metadata_only()
        } else {
            kind
        };
        self.watches.push(Secondary {
            kind,
            options: options.watch,
            map: None,
            every_owner: options.every_owner,
        });
        self
    }
}

impl<K> Controller<K>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    /// Finishes the controller with a reconciler and an error policy for the `Controller` of kube. They run unchanged in
    /// every cluster. `context_of` makes the context of a cluster, once each time that the cluster joins.
    ///
    /// As in kube, deleted objects are not reconciled, and the error policy decides about retries: with `Action::await_change`,
    /// the request is not retried until its object changes. The policy is not asked about a
    /// [`TerminalError`](crate::TerminalError) or about [`ClusterNotFound`](mcr_core::ClusterNotFound) for the cluster of the request
    /// among the causes, or about panics and timeouts, which are retried after the [back-off](Self::backoff).
    ///
    /// ```
    /// use std::{sync::Arc, time::Duration};
    ///
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::{Client, runtime::controller::Action};
    /// use mcr::Controller;
    ///
    /// struct Ctx {
    ///     client: Client,
    /// }
    /// async fn reconcile(map: Arc<ConfigMap>, ctx: Arc<Ctx>) -> Result<Action, kube::Error> {
    ///     let _ = (map, &ctx.client);
    ///     Ok(Action::await_change())
    /// }
    /// fn error_policy(_: Arc<ConfigMap>, _: &kube::Error, _: Arc<Ctx>) -> Action {
    ///     Action::requeue(Duration::from_secs(5))
    /// }
    ///
    /// let controller = Controller::<ConfigMap>::new("copier")
    ///     .build_uniform(reconcile, error_policy, |cluster| Ctx { client: cluster.client() })?;
    /// # let _ = controller;
    /// # Ok::<(), mcr::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// As for [`build`](Self::build). [`BuildError::TwoErrorPolicies`] if [`on_error`](Self::on_error) was called.
    pub fn build_uniform<Ctx, Fut, E>(
        self,
        reconcile: impl Fn(Arc<K>, Arc<Ctx>) -> Fut + Send + Sync + 'static,
        error_policy: impl Fn(Arc<K>, &E, Arc<Ctx>) -> KubeAction + Send + Sync + 'static,
        context_of: impl Fn(&Cluster) -> Ctx + Send + Sync + 'static,
    ) -> Result<BuiltController, BuildError>
    where
        Ctx: Send + Sync + 'static,
        Fut: Future<Output = Result<KubeAction, E>> + Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        self.finish(Arc::new(Uniform {
            reconcile,
            policy: error_policy,
            context_of,
            types: PhantomData::<fn() -> (K, Ctx, Fut)>,
        }))
    }
}
