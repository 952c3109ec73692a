//! What only a controller with a primary kind can do.

use std::sync::Arc;

use kube::{Resource, runtime::controller::Action as KubeAction};
use mcr_core::{Cluster, WatchRequest};
use serde::de::DeserializeOwned;

use super::{
    BuiltController, Controller, OwnsOptions,
    builder::{Primary, Secondary},
};
use crate::{
    BuildError, Predicate,
    mapper::OwnerKind,
    reconciler::{Typed, Uniform},
};

impl Controller<()> {
    /// Starts a controller without a primary kind: requests come from watches, the fleet and sources, and their
    /// keys mean what the mappers make them mean.
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Self::with_primary(name, None)
    }
}

impl<K> Controller<K>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    /// Starts a controller of a kind known at compile time. The name shows in logs and metrics, and is unique in
    /// a [`Manager`](crate::Manager).
    pub fn new(name: impl Into<Arc<str>>) -> Self
    where
        K: Resource<DynamicType = ()>,
    {
        Self::with(name, &())
    }

    /// Starts a controller of a kind known at run time, as `DynamicObject` with its `ApiResource`.
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

    /// Says which objects of the primary kind to watch: a namespace, a label or field selector. Must keep the
    /// kind.
    pub fn watch_request(mut self, change: impl FnOnce(WatchRequest) -> WatchRequest) -> Self {
        self.primary = self.primary.map(|primary| Primary {
            request: change(primary.request),
            ..primary
        });
        self
    }

    /// Lets only these changes of the primary kind through. Several predicates must all agree.
    pub fn predicate(mut self, predicate: Predicate) -> Self {
        if let Some(primary) = &mut self.primary {
            primary.predicates.push(predicate);
        }
        self
    }

    /// Says that objects of the primary kind have no namespace, where the type does not: for `DynamicObject`.
    /// Only needed to find owners.
    pub fn cluster_scoped(mut self) -> Self {
        if let Some(primary) = &mut self.primary {
            primary.owner.cluster_scoped = true;
        }
        self
    }

    /// Watches objects that the primary kind controls: a change of one leads to a request for its controller.
    pub fn owns<O>(self) -> Self
    where
        O: Resource<DynamicType = ()> + 'static,
    {
        self.owns_with::<O>(&(), OwnsOptions::new())
    }

    /// As [`owns`](Self::owns), with options, and for kinds known at run time.
    pub fn owns_with<O>(mut self, dynamic: &O::DynamicType, options: OwnsOptions) -> Self
    where
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

    /// Finishes the controller with a reconciler and an error policy written for kube's own `Controller`, which
    /// run unchanged in every cluster. `context_of` makes the context for each cluster, once for each time that
    /// the cluster joins.
    ///
    /// As in kube, objects that are deleted are not reconciled, and what is done after an error is the policy's
    /// decision.
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
    /// As of [`build`](Self::build).
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
        let runner = Uniform::<K, _, _, _>::new(reconcile, error_policy, context_of);
        self.finish(Arc::new(Typed::<_, Ctx, Fut>::new(runner)))
    }
}
