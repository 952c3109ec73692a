//! The APIs of kcp that show workspaces to a provider.

/// An API of kcp that shows workspaces to a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KcpApi {
    /// The workspaces that bind an APIExport.
    Export,
    /// The workspaces that wait for the initializer of a WorkspaceType.
    Initializing,
    /// The workspaces that wait for the terminator of a WorkspaceType.
    Terminating,
}

impl KcpApi {
    /// What `initializer` and `terminator` are in a type. `None` for an export.
    pub(crate) fn of_type(self) -> Option<&'static str> {
        match self {
            Self::Export => None,
            Self::Initializing => Some("initializer"),
            Self::Terminating => Some("terminator"),
        }
    }

    /// The kind of the object that has the endpoints: its group, and its name.
    pub(crate) fn kind(self) -> (&'static str, &'static str) {
        match self {
            Self::Export => ("apis.kcp.io", "APIExportEndpointSlice"),
            Self::Initializing | Self::Terminating => ("tenancy.kcp.io", "WorkspaceType"),
        }
    }

    /// The same kind as kubectl writes it.
    pub(crate) fn resource(self) -> &'static str {
        match self {
            Self::Export => "apiexportendpointslices.apis.kcp.io",
            Self::Initializing | Self::Terminating => "workspacetypes.tenancy.kcp.io",
        }
    }

    /// The resource and the verbs on it that give the right to the workspaces.
    pub(crate) fn right(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Export => ("apiexports.apis.kcp.io/content", &["list", "watch"]),
            Self::Initializing => (self.resource(), &["initialize"]),
            Self::Terminating => (self.resource(), &["terminate"]),
        }
    }

    /// The word after `/services/` in the URL of an endpoint.
    pub(crate) fn service(self) -> &'static str {
        match self {
            Self::Export => "apiexport",
            Self::Initializing => "initializingworkspaces",
            Self::Terminating => "terminatingworkspaces",
        }
    }

    /// The kind whose objects stand for the workspaces at an endpoint: its group, its version, and its name.
    pub(crate) fn listed(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Export => ("apis.kcp.io", "v1alpha2", "APIBinding"),
            Self::Initializing | Self::Terminating => ("core.kcp.io", "v1alpha1", "LogicalCluster"),
        }
    }
}
