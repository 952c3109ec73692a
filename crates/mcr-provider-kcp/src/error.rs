/// The error of building a provider of this crate: an invalid option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KcpError {
    /// There is no access.
    #[error(
        "there is no workspace to find the endpoints in; set how to reach the workspace of the endpoint slice, or of the \
         WorkspaceType, with `access`"
    )]
    NoWorkspace,
    /// The access is a ready client or a place in a scope.
    #[error(
        "the provider connects to shards with the credentials of the workspace, which it can't take out of a ready client; \
         give a kubeconfig, or an address and a credential source"
    )]
    NoCredentials,
    /// The kubeconfig is untrusted.
    #[error(
        "the kubeconfig of the workspace is untrusted, but its credentials are sent to all addresses that the endpoint slice, \
         or the WorkspaceType, names; use a kubeconfig that is trusted"
    )]
    Untrusted,
    /// There is neither a slice nor an export.
    #[error(
        "there is no API to provide; name its APIExportEndpointSlice with `slice`, or its APIExport with `export`"
    )]
    NoApi,
    /// There is no WorkspaceType.
    #[error("there is no type of workspaces to provide; name the WorkspaceType with `workspace_type`")]
    NoType,
    /// The name of the slice, the export, the WorkspaceType, the initializer or the terminator is no valid name.
    #[error(
        "{0:?} can't be the name of an object of kcp; correct the name of the endpoint slice, the export or the \
         WorkspaceType"
    )]
    Name(String),
    /// The name prefix gives names that clusters can't have.
    #[error("{0:?} can't be the beginning of cluster names; correct the name prefix")]
    Prefix(String),
    /// A key of labels that no label can have.
    #[error(
        "{0:?} can't be the key of a label, such as \"team\" or \"example.com/team\"; correct `label_keys`"
    )]
    LabelKey(String),
}
