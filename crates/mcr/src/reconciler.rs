//! The two forms of reconcilers, and the trait without types through which the engine calls them.

use std::{
    any::Any,
    error::Error,
    marker::PhantomData,
    sync::{Arc, OnceLock},
};

use futures::future::BoxFuture;
use kube::runtime::controller::Action as KubeAction;
use mcr_core::{BoxError, Cluster, DecodeError, Fleet, Object};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::{
    action::{Action, IntoAction},
    failure::Failure,
    request::{Request, RequestKey, RequestObject},
};

/// Brings one object of one cluster to its desired state.
///
/// Every `async fn(Request<K>, Arc<Ctx>) -> Result<impl IntoAction, E>` implements it. Your own types can implement it too.
///
/// # Cancellation
/// When the cluster leaves or the program shuts down, [`Request::token`] is cancelled. A call that has not ended after the
/// grace period is aborted at its next await.
///
/// # Panics
/// A panic in a call fails the request. It is counted, logged and retried like an error.
///
/// # Tasks
/// Each call runs in its own task. Run code that blocks its thread with [`tokio::task::spawn_blocking`].
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
    /// The result of a successful call.
    type Action: IntoAction;
    /// The error of a failed call. The request is retried with growing delays.
    ///
    /// If [`ClusterNotFound`](mcr_core::ClusterNotFound) for the cluster of the request is among the causes of the error, the
    /// request is dropped instead, without a warning in the log. If [`TerminalError`](crate::TerminalError) is among them, the
    /// request is not retried. [`Controller::on_error`](crate::Controller::on_error) sets a policy for other errors.
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

/// The arguments of a reconcile, without the type of the object.
pub(crate) struct Invocation {
    pub(crate) key: RequestKey,
    pub(crate) cluster: Cluster,
    pub(crate) fleet: Fleet,
    pub(crate) object: StoredObject,
    pub(crate) attempt: u32,
    pub(crate) token: CancellationToken,
}

/// The object of a request as the store of the primary kind has it.
pub(crate) enum StoredObject {
    Live(Arc<Object>),
    /// No longer in the store.
    Left(LeftObject),
    Absent,
    Unwatched,
}

/// An object that has left the primary watch.
#[derive(Clone)]
pub(crate) struct LeftObject {
    pub(crate) object: Arc<Object>,
    /// Whether it was deleted for certain.
    pub(crate) deleted: bool,
    /// No reconcile can have seen it: it was created and left while nothing was dispatched.
    pub(crate) unseen: bool,
}

impl StoredObject {
    pub(crate) fn state(&self) -> ObjectState {
        match self {
            Self::Live(_) | Self::Unwatched => ObjectState::Exists,
            Self::Left(left) => ObjectState::Left(left.object.clone()),
            Self::Absent => ObjectState::Absent,
        }
    }
}

/// The state of an object when its reconcile began. Unlike [`StoredObject`], it does not keep a live object in memory.
pub(crate) enum ObjectState {
    /// The object exists, or its kind is not watched.
    Exists,
    Left(Arc<Object>),
    Absent,
}

/// The context of a reconciler for one member, made at its first reconcile.
pub(crate) type ClusterContext = Arc<OnceLock<Arc<dyn Any + Send + Sync>>>;

/// The result of a reconcile.
pub(crate) enum Completion {
    Succeeded(Action),
    Failed(Failure),
    /// It failed, and the error policy chose this action.
    FailedWithAction(Failure, Action),
    /// The object could not be decoded as its type, so the reconciler was not called.
    Undecodable(Arc<Object>, DecodeError),
}

/// A reconciler without its types, so that the engine is compiled once.
pub(crate) trait RunReconcile: Send + Sync + 'static {
    fn run(self: Arc<Self>, call: Invocation, context: &ClusterContext) -> BoxFuture<'static, Completion>;
}

/// The error policy of `Controller::on_error`. `None`: the request is retried after the back-off.
pub(crate) type OnError = Arc<dyn Fn(&(dyn Error + 'static), u32) -> Option<Action> + Send + Sync>;

/// Runs a [`Reconciler`].
pub(crate) struct MultiCluster<K, R, Ctx> {
    pub(crate) reconciler: R,
    pub(crate) ctx: Arc<Ctx>,
    pub(crate) on_error: Option<OnError>,
    pub(crate) kind: PhantomData<fn() -> K>,
}

impl<K, R, Ctx> RunReconcile for MultiCluster<K, R, Ctx>
where
    K: DeserializeOwned + Send + Sync + 'static,
    Ctx: Send + Sync + 'static,
    R: Reconciler<K, Ctx>,
{
    fn run(self: Arc<Self>, call: Invocation, _: &ClusterContext) -> BoxFuture<'static, Completion> {
        Box::pin(async move {
            let object = match call.object {
                StoredObject::Live(object) => match object.decode::<K>() {
                    Ok(object) => RequestObject::Live(Arc::new(object)),
                    Err(error) => return Completion::Undecodable(object, error),
                },
                StoredObject::Left(LeftObject { object, deleted, .. }) => {
                    let last_known = object.decode().ok().map(Arc::new);
                    if deleted {
                        RequestObject::Deleted { last_known }
                    } else {
                        RequestObject::LeftWatch { last_known }
                    }
                }
                StoredObject::Absent => RequestObject::Absent,
                StoredObject::Unwatched => RequestObject::Unwatched,
            };
            let policy = self.on_error.as_ref();
            let policy = policy.map(|ask| (ask, call.key.cluster.clone(), call.attempt.saturating_add(1)));
            let request = Request {
                key: call.key,
                cluster: call.cluster,
                fleet: call.fleet,
                object,
                attempt: call.attempt,
                token: call.token,
            };
            match self.reconciler.reconcile(request, self.ctx.clone()).await {
                Ok(action) => Completion::Succeeded(action.into_action()),
                Err(error) => {
                    let error: BoxError = error.into();
                    let failure = Failure::of(error.as_ref());
                    let action = policy
                        .filter(|(_, own, _)| !failure.is_decided(own))
                        .and_then(|(ask, _, attempt)| ask(error.as_ref(), attempt));
                    match action {
                        Some(action) => Completion::FailedWithAction(failure, action),
                        None => Completion::Failed(failure),
                    }
                }
            }
        })
    }
}

/// Runs a reconciler and an error policy for the `Controller` of kube.
pub(crate) struct Uniform<R, P, F, Types> {
    pub(crate) reconcile: R,
    pub(crate) policy: P,
    pub(crate) context_of: F,
    /// The types that appear only in the bounds of the functions.
    pub(crate) types: PhantomData<fn() -> Types>,
}

impl<K, R, P, F, Ctx, Fut, E> RunReconcile for Uniform<R, P, F, (K, Ctx, Fut)>
where
    K: DeserializeOwned + Send + Sync + 'static,
    Ctx: Send + Sync + 'static,
    R: Fn(Arc<K>, Arc<Ctx>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<KubeAction, E>> + Send + 'static,
    P: Fn(Arc<K>, &E, Arc<Ctx>) -> KubeAction + Send + Sync + 'static,
    F: Fn(&Cluster) -> Ctx + Send + Sync + 'static,
    E: std::error::Error + Send + 'static,
{
    fn run(self: Arc<Self>, call: Invocation, context: &ClusterContext) -> BoxFuture<'static, Completion> {
        let context = context.clone();
        Box::pin(async move {
            // As in kube, only objects that exist are reconciled.
            let object = match call.object {
                StoredObject::Live(object) => match object.decode::<K>() {
                    Ok(object) => Arc::new(object),
                    Err(error) => return Completion::Undecodable(object, error),
                },
                _ => return Completion::Succeeded(Action::done()),
            };
            let ctx = context
                .get_or_init(|| Arc::new((self.context_of)(&call.cluster)))
                .clone();
            // Always succeeds: `context_of` made the value.
            let Ok(ctx) = ctx.downcast::<Ctx>() else {
                return Completion::Succeeded(Action::done());
            };
            match (self.reconcile)(object.clone(), ctx.clone()).await {
                Ok(action) => Completion::Succeeded(action.into_action()),
                Err(error) => {
                    let failure = Failure::of(&error);
                    if failure.is_decided(call.cluster.name()) {
                        return Completion::Failed(failure);
                    }
                    let action = (self.policy)(object, &error, ctx).into_action();
                    Completion::FailedWithAction(failure, action)
                }
            }
        })
    }
}
