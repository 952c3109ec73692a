//! What answers in the place of a program.

use std::{
    fmt,
    future::Future,
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::future::BoxFuture;

use crate::error::BoxError;

/// The longest answer of a program or service that is read, in bytes. No credential is that long.
pub const MAX_ANSWER: usize = 1 << 20;

type Call = dyn Fn(String) -> BoxFuture<'static, Result<Vec<u8>, BoxError>> + Send + Sync;

/// A credential plugin that is no program: code of this process, or a server that this code asks.
///
/// [`AllowedPlugin::service`](crate::AllowedPlugin::service) ties the name of a plugin to it, and
/// [`ExecPlugin::service`](crate::ExecPlugin::service) makes it a source of credentials. Its answers are cached, limited and checked
/// as those of a program. A clone is the same service.
///
/// ```
/// use mcr_access::{ExecPlugin, PluginService};
///
/// let service = PluginService::new(|_info| async {
///     Ok(br#"{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}"#.to_vec())
/// });
/// let source = ExecPlugin::new("login").service(service);
/// ```
#[derive(Clone)]
pub struct PluginService {
    id: u64,
    call: Arc<Call>,
}

impl PluginService {
    /// A service that answers the document of `KUBERNETES_EXEC_INFO` with an `ExecCredential` in JSON.
    ///
    /// `call` must not block, and must not put secrets into its error, which is shown. Its future is dropped at the deadline of the
    /// plugin. A panic counts as a failure.
    pub fn new<F, R>(call: F) -> Self
    where
        F: Fn(String) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Vec<u8>, BoxError>> + Send + 'static,
    {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            call: Arc::new(move |info| Box::pin(call(info))),
        }
    }

    /// The number of the service in this process. Only its clones have the same one.
    #[doc(hidden)]
    pub fn number(&self) -> u64 {
        self.id
    }

    /// Calls the service, without limits.
    pub(super) fn call(&self, info: String) -> BoxFuture<'static, Result<Vec<u8>, BoxError>> {
        (self.call)(info)
    }
}

impl PartialEq for PluginService {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for PluginService {}

impl Hash for PluginService {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl fmt::Debug for PluginService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PluginService({})", self.id)
    }
}
