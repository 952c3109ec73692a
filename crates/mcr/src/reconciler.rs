//! The two forms of reconcilers, and how the engine calls them.

use std::{
    any::Any,
    marker::PhantomData,
    sync::{Arc, OnceLock},
};

use futures::future::BoxFuture;
use kube::runtime::controller::Action as KubeAction;
use mcr_core::{BoxError, Cluster, DecodeError, Fleet, Object};
use serde::de::DeserializeOwned;

use crate::{Action, IntoAction, Request, RequestKey, RequestObject, failure::Failure, request::Ending};

/// Brings one object of one cluster to the state it should have.
///
/// Implemented by every `async fn(Request<K>, Arc<Ctx>) -> Result<impl IntoAction, E>`; a type of one's own can
/// implement it as well.
///
/// # Cancellation
/// When the cluster leaves or the program shuts down, [`Request::token`] is cancelled; a call that has not ended after the
/// grace period is aborted at its next await. A panic is a failed call: it is counted, logged and retried like an error.
///
/// # Tasks
/// Each call runs in a task of its own. One that keeps its thread keeps others from that thread, as in any task; for
/// that there is [`tokio::task::spawn_blocking`].
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mcr::{Action, Reconciler, Request};
/// use std::sync::Arc;
///
/// struct Copier;
///
/// impl Reconciler<ConfigMap, ()> for Copier {
///     type Action = Action;
///     type Error = kube::Error;
///
///     async fn reconcile(&self, request: Request<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
///         println!("{}", request.key);
///         Ok(Action::done())
///     }
/// }
/// ```
pub trait Reconciler<K, Ctx>: Send + Sync + 'static {
    /// What is returned when it went well.
    type Action: IntoAction;
    /// What is returned when it did not: the request is tried again with growing pauses.
    ///
    /// An error that has [`ClusterNotFound`](mcr_core::ClusterNotFound) of the request's own cluster among its
    /// causes ends the request quietly.
    type Error: Into<BoxError>;

    /// Reconciles one object.
    fn reconcile(
        &self,
        request: Request<K>,
        ctx: Arc<Ctx>,
    ) -> impl Future<Output = Result<Self::Action, Self::Error>> + Send;
}

impl<K, Ctx, F, Fut, A, E> Reconciler<K, Ctx> for F
where
    F: Fn(Request<K>, Arc<Ctx>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<A, E>> + Send,
    A: IntoAction,
    E: Into<BoxError>,
{
    type Action = A;
    type Error = E;

    fn reconcile(&self, request: Request<K>, ctx: Arc<Ctx>) -> impl Future<Output = Result<A, E>> + Send {
        self(request, ctx)
    }
}

/// One call, before the object's type is known.
pub(crate) struct Invocation {
    pub(crate) key: RequestKey,
    pub(crate) cluster: Cluster,
    pub(crate) fleet: Fleet,
    pub(crate) object: Found,
    pub(crate) attempt: u32,
    pub(crate) ending: Ending,
}

/// What the stores say of the object.
pub(crate) enum Found {
    Live(Arc<Object>),
    Deleted(Arc<Object>),
    Absent,
    Unwatched,
}

impl Found {
    pub(crate) fn standing(&self) -> Standing {
        match self {
            Self::Live(_) | Self::Unwatched => Standing::Exists,
            Self::Deleted(object) => Standing::Deleted(object.clone()),
            Self::Absent => Standing::Absent,
        }
    }
}

/// What of [`Found`] matters when the call has ended.
pub(crate) enum Standing {
    /// As far as anybody knows.
    Exists,
    Deleted(Arc<Object>),
    Absent,
}

/// What a reconciler keeps for one engagement of one cluster; made when first needed.
pub(crate) type ClusterLocal = Arc<OnceLock<Arc<dyn Any + Send + Sync>>>;

/// How a call ended.
pub(crate) enum Ended {
    Done(Action),
    Failed(Failure),
    /// It failed, and the error policy decided what to do.
    Decided(Failure, Action),
    /// The object is not what its type says.
    Undecodable(Arc<Object>, DecodeError),
}

/// A reconciler without its types, so that the engine exists once.
pub(crate) trait Run: Send + Sync + 'static {
    fn run(self: Arc<Self>, call: Invocation, local: &ClusterLocal) -> BoxFuture<'static, Ended>;
}

pub(crate) struct Aware<K, R, Ctx> {
    reconciler: R,
    ctx: Arc<Ctx>,
    _kind: PhantomData<fn() -> K>,
}

impl<K, R, Ctx> Aware<K, R, Ctx> {
    pub(crate) fn new(reconciler: R, ctx: Arc<Ctx>) -> Self {
        Self {
            reconciler,
            ctx,
            _kind: PhantomData,
        }
    }
}

impl<K, R, Ctx> Run for Aware<K, R, Ctx>
where
    K: DeserializeOwned + Send + Sync + 'static,
    Ctx: Send + Sync + 'static,
    R: Reconciler<K, Ctx>,
{
    fn run(self: Arc<Self>, call: Invocation, _: &ClusterLocal) -> BoxFuture<'static, Ended> {
        Box::pin(async move {
            let object = match call.object {
                Found::Live(object) => match object.decode::<K>() {
                    Ok(object) => RequestObject::Live(Arc::new(object)),
                    Err(error) => return Ended::Undecodable(object, error),
                },
                Found::Deleted(object) => RequestObject::Deleted {
                    last_known: object.decode().ok().map(Arc::new),
                },
                Found::Absent => RequestObject::Absent,
                Found::Unwatched => RequestObject::Unwatched,
            };
            let request = Request {
                key: call.key,
                cluster: call.cluster,
                fleet: call.fleet,
                object,
                attempt: call.attempt,
                ending: call.ending,
            };
            match self.reconciler.reconcile(request, self.ctx.clone()).await {
                Ok(action) => Ended::Done(action.into_action()),
                Err(error) => {
                    let error: BoxError = error.into();
                    Ended::Failed(Failure::of(error.as_ref()))
                }
            }
        })
    }
}

/// A reconciler written for kube's own `Controller`.
pub(crate) struct Uniform<K, R, P, F> {
    reconcile: R,
    policy: P,
    context_of: F,
    _kind: PhantomData<fn() -> K>,
}

impl<K, R, P, F> Uniform<K, R, P, F> {
    pub(crate) fn new(reconcile: R, policy: P, context_of: F) -> Self {
        Self {
            reconcile,
            policy,
            context_of,
            _kind: PhantomData,
        }
    }
}

/// Hides the future and error types that only the functions know.
pub(crate) struct Typed<T, Ctx, Fut>(T, PhantomData<fn() -> (Ctx, Fut)>);

impl<T, Ctx, Fut> Typed<T, Ctx, Fut> {
    pub(crate) fn new(inner: T) -> Self {
        Self(inner, PhantomData)
    }
}

impl<K, R, P, F, Ctx, Fut, E> Run for Typed<Uniform<K, R, P, F>, Ctx, Fut>
where
    K: DeserializeOwned + Send + Sync + 'static,
    Ctx: Send + Sync + 'static,
    R: Fn(Arc<K>, Arc<Ctx>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<KubeAction, E>> + Send + 'static,
    P: Fn(Arc<K>, &E, Arc<Ctx>) -> KubeAction + Send + Sync + 'static,
    F: Fn(&Cluster) -> Ctx + Send + Sync + 'static,
    E: std::error::Error + Send + 'static,
{
    fn run(self: Arc<Self>, call: Invocation, local: &ClusterLocal) -> BoxFuture<'static, Ended> {
        let local = local.clone();
        Box::pin(async move {
            let inner = &self.0;
            // As in kube: only what exists is reconciled.
            let object = match call.object {
                Found::Live(object) => match object.decode::<K>() {
                    Ok(object) => Arc::new(object),
                    Err(error) => return Ended::Undecodable(object, error),
                },
                _ => return Ended::Done(Action::done()),
            };
            let ctx = local
                .get_or_init(|| Arc::new((inner.context_of)(&call.cluster)))
                .clone();
            // It was put there two lines above, so the type is known.
            let Ok(ctx) = ctx.downcast::<Ctx>() else {
                return Ended::Done(Action::done());
            };
            match (inner.reconcile)(object.clone(), ctx.clone()).await {
                Ok(action) => Ended::Done(action.into_action()),
                Err(error) => {
                    let failure = Failure::of(&error);
                    if failure.cluster_not_found.as_deref() == Some(call.cluster.name().as_str()) {
                        return Ended::Failed(failure);
                    }
                    let action = (inner.policy)(object, &error, ctx).into_action();
                    Ended::Decided(failure, action)
                }
            }
        })
    }
}
