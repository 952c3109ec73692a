//! The error that ends the retries of a request.

use std::{error::Error, fmt};

use mcr_core::BoxError;

/// An error that a retry can't mend, such as a spec that makes no sense.
///
/// If it is among the causes of the error of a reconciler, the request is not retried, and no error policy is asked. The next
/// change of the object, or of an object that is mapped to it, leads to another reconcile.
///
/// The log shows the failure once, the reconcile counts as [`terminal`](crate::ControllerCounts::terminal), and the status lists
/// it with [`retry_at`](crate::FailingRequest::retry_at) `None`.
///
/// It has the text of the error that it wraps, which is its [`source`](Error::source).
///
/// ```
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mcr::{BoxError, Request, TerminalError};
///
/// async fn reconcile(request: Request<ConfigMap>, _: Arc<()>) -> Result<(), BoxError> {
///     let Some(map) = request.live() else { return Ok(()) };
///     let size = map.data.as_ref().and_then(|data| data.get("size")).map_or("1", String::as_str);
///     let _size: u32 = size.parse().map_err(TerminalError::new)?;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct TerminalError(BoxError);

impl TerminalError {
    /// Makes an error terminal. A text is an error, too.
    pub fn new(error: impl Into<BoxError>) -> Self {
        Self(error.into())
    }
}

impl fmt::Display for TerminalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for TerminalError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.0.as_ref())
    }
}
