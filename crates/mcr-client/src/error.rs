//! The error of a request without a usable response.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use mcr_access::{BoxError, ClusterName};

/// Why a request to a cluster got no usable response.
///
/// The `kube::Client` of a cluster returns it inside `kube::Error::Service`:
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
/// The text names the cluster, the method and path, the cause, and what to do. It quotes no body, header or query. The error
/// that caused it, if any, is its [`source`](Error::source).
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
    /// The cluster was removed or replaced. This client will not work again.
    #[error("the cluster is gone from the fleet")]
    Gone,
    /// The fleet is not connected to the cluster at the moment.
    #[error("the cluster is not connected: {reason}")]
    NotConnected {
        /// Why it is not connected.
        reason: Arc<str>,
    },
    /// Connecting to the API server failed.
    #[error("can't connect: {explanation}")]
    Connect {
        /// The cause, and what to do.
        explanation: String,
    },
    /// The head of the response, or the next part of its body, did not arrive in time.
    #[error("no answer within {} s; the API server or the network to it may be overloaded or down", after.as_secs_f32())]
    Timeout {
        /// The time limit.
        after: Duration,
    },
    /// The connection failed before the response was complete.
    #[error("the answer broke off: {explanation}")]
    Interrupted {
        /// The cause.
        explanation: String,
    },
    /// The cluster became Unreachable before the response was complete. The API server may have carried out a write.
    #[error("the cluster became unreachable before it answered (it may have carried out a write): {reason}")]
    Lost {
        /// Why it is unreachable.
        reason: Arc<str>,
    },
    /// The response is not one of an API server.
    #[error("the answer is not usable: {problem}")]
    MalformedResponse {
        /// What is wrong with the response.
        problem: String,
    },
    /// The path may lead to something other than it seems, so the request was not sent.
    #[error(
        "the request was not sent, because its path {problem}; check the names in it, and build paths from names that come from data \
         with mcr_core::ObjectPath"
    )]
    UnclearPath {
        /// What is wrong with the path.
        problem: &'static str,
    },
    /// The response is larger than [`Settings::body_limit`](crate::Settings::body_limit).
    #[error(
        "the answer is larger than {} MiB, the limit of an answer that is read as a whole; ask for less: list in pages \
         (ListParams::limit) or with a selector, or use a watch of the fleet",
        *limit as f64 / f64::from(1 << 20)
    )]
    TooLarge {
        /// The size limit in bytes.
        limit: usize,
    },
    /// The [`TransportLayer`](crate::TransportLayer) of the program has failed, or refused the request.
    #[error("the transport layer of the program returned an error: {problem}")]
    Layer {
        /// The error of the layer.
        problem: String,
    },
    /// The credentials were rotated before the response was complete. Send the request again.
    #[error("the connection was closed because the cluster's credentials were replaced; try again")]
    CredentialsRotated,
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

    /// The cluster, if the request used the connection of a fleet.
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

    /// Whether the same request may succeed later. A response that is [too large](TransportErrorKind::TooLarge) would be
    /// transferred each time.
    ///
    /// The cluster may have carried out the failed request, and only the response was lost. So repeat a write only if it may
    /// happen twice.
    pub fn is_retryable(&self) -> bool {
        !matches!(
            self.kind,
            TransportErrorKind::Gone
                | TransportErrorKind::TooLarge { .. }
                | TransportErrorKind::UnclearPath { .. }
        )
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
