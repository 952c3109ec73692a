use std::time::Duration;

/// How long the control plane of the double takes for its steps. All are zero by default: a step is then done before
/// the request that causes it returns. Other delays need a Tokio runtime; paused time works.
#[derive(Clone, Copy, Debug, Default)]
pub struct KcpDelays {
    /// From a first binding to the URL of its shard in the endpoint slice, and from the last unbinding to its removal.
    pub endpoint: Duration,
    /// From a binding to `Bound`.
    pub bind: Duration,
    /// From `Bound`, or a change of claims, or a claimed object, to the labels of the claimed objects and
    /// `PermissionClaimsApplied`.
    pub claims: Duration,
    /// From a Workspace to its logical cluster.
    pub workspace: Duration,
    /// From the arrival of the APIBindings of a moved workspace on its new shard to that of its other objects, with
    /// [`KcpMove::NewFirst`](super::KcpMove::NewFirst).
    pub copy: Duration,
    /// From a change in a workspace that is being deleted to the deletion of its content.
    pub content: Duration,
}

impl KcpDelays {
    /// The delays of an idle kcp of one process.
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
