//! Sources of clusters.

use std::{fmt, sync::Arc};

use futures::stream::BoxStream;
use tokio_util::sync::CancellationToken;

use crate::{BoxError, ClusterName, ClusterSpec};

/// One thing a [`Provider`] says.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Change {
    /// The cluster exists and looks like this. New, changed or the same as before: the fleet finds out.
    Upsert(ClusterSpec),
    /// What describes the cluster can't be used (a half-written file, a Secret without its key). It is shown
    /// with its error; if the cluster was engaged before, the last good description goes on.
    Broken(BrokenCluster),
    /// The cluster is gone.
    Remove(ClusterName),
    /// Everything that existed when discovery began has been said. Clusters that an earlier discovery named
    /// and this one did not are removed after a grace period.
    Synced,
}

/// A cluster whose description can't be used.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BrokenCluster {
    /// The name the cluster has or would have.
    pub name: ClusterName,
    /// The object or file at fault, for people: `file /etc/fleet/a.yaml, context "dev"`.
    pub object: Arc<str>,
    /// What is wrong and what to do about it. Shown in logs and in the fleet's state, so it must not hold
    /// secrets.
    pub error: Arc<str>,
}

impl BrokenCluster {
    /// Names a cluster, the object that describes it, and what is wrong with that.
    pub fn new(name: ClusterName, object: impl Into<Arc<str>>, error: impl fmt::Display) -> Self {
        Self {
            name,
            object: object.into(),
            error: error.to_string().into(),
        }
    }
}

/// A running discovery: what a [`Provider`] says, in order.
///
/// An error item is logged and ends this discovery; so does a panic, and so does the end of the stream, unless the
/// provider was told to stop. Each time the fleet starts the discovery anew after a growing, jittered pause.
pub type Discovery = BoxStream<'static, Result<Change, BoxError>>;

/// A source of clusters.
///
/// A provider says which clusters exist; it never connects to them. Discovery can be started again at any
/// time and then says everything anew, ending the first round with [`Change::Synced`]; this is all that is
/// needed for the fleet to notice what was lost meanwhile. Layers ([`prefix`](crate::layer::prefix),
/// [`filter`](crate::layer::filter), [`merge`](crate::layer::merge)) map one provider to another.
///
/// # Cancellation
/// The stream ends soon after `stop` is cancelled. Dropping the stream must stop whatever feeds it.
///
/// ```
/// use futures::{StreamExt, stream};
/// use mcr_core::{Access, Change, ClusterName, ClusterSpec, Discovery, Provider, Trust};
/// use tokio_util::sync::CancellationToken;
///
/// /// One cluster that never changes.
/// struct Constant(ClusterSpec);
///
/// impl Provider for Constant {
///     fn name(&self) -> &str {
///         "constant"
///     }
///     fn discover(&self, stop: CancellationToken) -> Discovery {
///         let first = [Ok(Change::Upsert(self.0.clone())), Ok(Change::Synced)];
///         stream::iter(first).chain(stream::pending()).take_until(stop.cancelled_owned()).boxed()
///     }
/// }
/// ```
pub trait Provider: Send + Sync + 'static {
    /// The provider's name: short, stable, usable in a selector, a log line and a metric label.
    fn name(&self) -> &str;

    /// Starts a discovery. Called again whenever the one before ended.
    fn discover(&self, stop: CancellationToken) -> Discovery;
}

impl<P: Provider + ?Sized> Provider for Arc<P> {
    fn name(&self) -> &str {
        (**self).name()
    }
    fn discover(&self, stop: CancellationToken) -> Discovery {
        (**self).discover(stop)
    }
}

impl<P: Provider + ?Sized> Provider for Box<P> {
    fn name(&self) -> &str {
        (**self).name()
    }
    fn discover(&self, stop: CancellationToken) -> Discovery {
        (**self).discover(stop)
    }
}
