//! Why a request got no usable answer.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use mcr_access::{BoxError, ClusterName};

/// Why a request to a cluster got no usable answer.
///
/// This is what the `kube::Client` of a cluster reports, inside of `kube::Error::Service`:
///
/// ```
/// use mcr_client::TransportError;
///
/// fn is_gone(error: &kube::Error) -> bool {
///     let kube::Error::Service(error) = error else { return false };
///     error.downcast_ref::<TransportError>().is_some_and(TransportError::is_gone)
/// }
/// ```
///
/// The text names the cluster, the method and path, the cause in words, and what to do; it holds nothing of a
/// body, a header or a query. Causes that were errors themselves follow as [`source`](Error::source).
#[derive(Debug)]
pub struct TransportError {
    cluster: Option<ClusterName>,
    operation: Arc<str>,
    kind: TransportErrorKind,
    source: Option<BoxError>,
}

/// What went wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransportErrorKind {
    /// The cluster was removed or replaced; this client will not work again.
    #[error("the cluster is gone from the fleet")]
    Gone,
    /// The fleet does not connect to the cluster at the moment.
    #[error("the cluster is not connected: {reason}")]
    NotConnected {
        /// Why.
        reason: Arc<str>,
    },
    /// There is no connection to the API server.
    #[error("can't connect: {explanation}")]
    Connect {
        /// The cause in words, and what to do.
        explanation: String,
    },
    /// No answer, or no further part of it, came in time.
    #[error("no answer within {} s; the API server or the network to it may be overloaded or down", after.as_secs_f32())]
    Timeout {
        /// How long was waited.
        after: Duration,
    },
    /// The connection broke before the answer was complete.
    #[error("the answer broke off: {explanation}")]
    Interrupted {
        /// The cause in words.
        explanation: String,
    },
    /// What came is not an answer of an API server.
    #[error("the answer is not usable: {problem}")]
    MalformedResponse {
        /// What is wrong with it.
        problem: String,
    },
    /// The credentials were replaced while the answer was still coming; ask again.
    #[error("the connection was closed because the cluster's credentials were replaced; try again")]
    Retired,
}

impl TransportError {
    pub(crate) fn new(operation: Arc<str>, kind: TransportErrorKind) -> Self {
        Self {
            cluster: None,
            operation,
            kind,
            source: None,
        }
    }

    pub(crate) fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    pub(crate) fn in_cluster(mut self, cluster: &ClusterName) -> Self {
        self.cluster = Some(cluster.clone());
        self
    }

    /// The cluster, if the request went through the fleet's connection to it.
    pub fn cluster(&self) -> Option<&ClusterName> {
        self.cluster.as_ref()
    }

    /// The method and path of the request, without its query.
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// What went wrong.
    pub fn kind(&self) -> &TransportErrorKind {
        &self.kind
    }

    /// Whether the cluster was removed or replaced.
    pub fn is_gone(&self) -> bool {
        self.kind == TransportErrorKind::Gone
    }

    /// Whether the same request may succeed later. A request that was not a read may have been carried out
    /// although its answer was lost.
    pub fn is_retryable(&self) -> bool {
        !self.is_gone()
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(cluster) = &self.cluster {
            write!(f, "cluster {:?}: ", cluster.as_str())?;
        }
        write!(f, "{}: {}", self.operation, self.kind)
    }
}

impl Error for TransportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source
            .as_ref()
            .map(|source| source.as_ref() as &(dyn Error + 'static))
    }
}
