use std::time::Duration;

/// How long the steps of the double's control plane take. All delays are zero by default: then a step is done before
/// the request that causes it returns. Other delays need a Tokio runtime. Paused time works.
#[derive(Clone, Copy, Debug, Default)]
pub struct KcpDelays {
    /// From the first binding on a shard until the shard's URL is in the endpoint slice, and from the last unbinding
    /// until the URL is removed.
    pub endpoint: Duration,
    /// From the creation of a binding until it is `Bound`.
    pub bind: Duration,
    /// From `Bound`, a change of claims, or a write of a claimed object, until the claimed objects have their labels
    /// and the binding is `PermissionClaimsApplied`.
    pub claims: Duration,
    /// From the creation of a Workspace until its logical cluster exists.
    pub workspace: Duration,
    /// While a workspace moves with [`KcpMove::NewFirst`](super::KcpMove::NewFirst): from the arrival of its
    /// APIBindings on the new shard until its other objects arrive.
    pub copy: Duration,
    /// From a change in a workspace that is being deleted until its contents are deleted.
    pub content: Duration,
}

impl KcpDelays {
    /// The delays that were measured in an idle kcp with one process.
    pub fn measured() -> Self {
        Self {
            endpoint: Duration::from_millis(100),
            bind: Duration::from_millis(200),
            claims: Duration::from_millis(350),
            workspace: Duration::from_millis(400),
            copy: Duration::from_millis(100),
            content: Duration::from_secs(5),
        }
    }

    pub(super) fn are_zero(&self) -> bool {
        let bindings = self.endpoint + self.bind + self.claims;
        (bindings + self.workspace + self.copy + self.content).is_zero()
    }
}
