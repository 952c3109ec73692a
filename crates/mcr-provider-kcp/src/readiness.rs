/// When a workspace counts as ready, by its APIBinding. A workspace that is not ready is
/// [suspended](mcr_core::Availability::Suspended), with the reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Readiness {
    /// The phase of the binding is `Bound`: kcp serves the API in the workspace.
    Bound,
    /// The condition `Ready` is true, too.
    #[default]
    Ready,
    /// The condition `PermissionClaimsApplied` is true, too: objects that the export claims are visible. It follows
    /// `Ready` by less than a second.
    PermissionClaimsApplied,
}
