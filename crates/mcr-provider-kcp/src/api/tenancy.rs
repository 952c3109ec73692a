//! The group `tenancy.kcp.io`: workspaces and their types.

/// Version `v1alpha1`.
pub mod v1alpha1 {
    use k8s_openapi::{api::rbac::v1::PolicyRule, apimachinery::pkg::apis::meta::v1::LabelSelector};
    use kube::CustomResource;
    use serde::{Deserialize, Serialize};
    use std::collections::BTreeMap;

    use crate::api::condition::Condition;

    /// The spec of a Workspace.
    #[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    #[kube(
        group = "tenancy.kcp.io",
        version = "v1alpha1",
        kind = "Workspace",
        plural = "workspaces",
        singular = "workspace",
        shortname = "ws",
        status = "WorkspaceStatus",
        derive = "PartialEq",
        schema = "disabled",
        doc = "A workspace, as its parent workspace shows it."
    )]
    #[serde(rename_all = "camelCase")]
    pub struct WorkspaceSpec {
        /// The type.
        #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
        pub type_: Option<WorkspaceTypeReference>,
        /// The shards to choose from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub location: Option<WorkspaceLocation>,
        /// The id of the logical cluster, set by kcp.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cluster: Option<String>,
        /// The address, set by kcp.
        #[serde(rename = "URL", default, skip_serializing_if = "Option::is_none")]
        pub url: Option<String>,
        /// The object whose API the workspace shows in place of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub mount: Option<Mount>,
    }

    /// The name of a WorkspaceType.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct WorkspaceTypeReference {
        /// The name.
        pub name: String,
        /// The path of its workspace. `None`: kcp searches the workspace and its ancestors.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub path: Option<String>,
    }

    /// Where a workspace is to be.
    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    pub struct WorkspaceLocation {
        /// The labels of the shards to choose from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub selector: Option<LabelSelector>,
    }

    /// The object that is mounted in a workspace.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Mount {
        /// The object.
        #[serde(rename = "ref")]
        pub reference: MountReference,
    }

    /// The name of an object that is mounted in a workspace.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct MountReference {
        /// The group and version.
        pub api_version: String,
        /// The kind.
        pub kind: String,
        /// The name.
        pub name: String,
        /// The namespace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub namespace: Option<String>,
    }

    /// The status of a Workspace.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct WorkspaceStatus {
        /// `Scheduling`, `Initializing`, `Ready`, `Unavailable`, and others.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub phase: Option<String>,
        /// `WorkspaceScheduled`, `WorkspaceInitialized` and others.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub conditions: Vec<Condition>,
        /// The initializers that have not finished.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub initializers: Vec<String>,
        /// The terminators that have not finished.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub terminators: Vec<String>,
    }

    /// The spec of a WorkspaceType.
    #[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    #[kube(
        group = "tenancy.kcp.io",
        version = "v1alpha1",
        kind = "WorkspaceType",
        plural = "workspacetypes",
        singular = "workspacetype",
        status = "WorkspaceTypeStatus",
        derive = "PartialEq",
        schema = "disabled",
        doc = "A type of workspaces: their default bindings, and who initializes and terminates them."
    )]
    #[serde(rename_all = "camelCase")]
    pub struct WorkspaceTypeSpec {
        /// Whether a controller initializes workspaces of this type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub initializer: Option<bool>,
        /// Whether a controller cleans up after workspaces of this type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub terminator: Option<bool>,
        /// The types that this one extends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub extend: Option<WorkspaceTypeExtension>,
        /// Labels of workspaces of this type.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub additional_workspace_labels: BTreeMap<String, String>,
        /// The type of children that name none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub default_child_workspace_type: Option<WorkspaceTypeReference>,
        /// The types that children may have.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub limit_allowed_children: Option<WorkspaceTypeSelector>,
        /// The types that the parent may have.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub limit_allowed_parents: Option<WorkspaceTypeSelector>,
        /// The exports that kcp binds in a new workspace, with all their claims accepted.
        #[serde(default, rename = "defaultAPIBindings", skip_serializing_if = "Vec::is_empty")]
        pub default_api_bindings: Vec<APIExportReference>,
        /// `InitializeOnly` or `Maintain`.
        #[serde(
            default,
            rename = "defaultAPIBindingLifecycle",
            skip_serializing_if = "Option::is_none"
        )]
        pub default_api_binding_lifecycle: Option<String>,
        /// Further ways to authenticate in workspaces of this type.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub authentication_configurations: Vec<AuthenticationConfigurationReference>,
        /// The rights of the initializer in the workspace. Empty: those of the workspace's owner.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub initializer_permissions: Vec<PolicyRule>,
        /// The rights of the terminator in the workspace.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub terminator_permissions: Vec<PolicyRule>,
    }

    /// The types that a WorkspaceType extends.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct WorkspaceTypeExtension {
        /// The types.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub with: Vec<WorkspaceTypeReference>,
    }

    /// A selection of WorkspaceTypes.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct WorkspaceTypeSelector {
        /// No type at all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub none: Option<bool>,
        /// These types. Empty: any type.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub types: Vec<WorkspaceTypeReference>,
    }

    /// An export that kcp binds in new workspaces.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct APIExportReference {
        /// The path of its workspace. `None`: the workspace of the WorkspaceType.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub path: Option<String>,
        /// The name of the APIExport.
        pub export: String,
    }

    /// The name of a WorkspaceAuthenticationConfiguration.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct AuthenticationConfigurationReference {
        /// The name.
        pub name: String,
    }

    /// The status of a WorkspaceType.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct WorkspaceTypeStatus {
        /// The conditions.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub conditions: Vec<Condition>,
        /// The addresses for initializers and terminators: both for each shard, whether the shard has such workspaces or not.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub virtual_workspaces: Vec<TypedVirtualWorkspace>,
    }

    /// An address for initializers or terminators.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct TypedVirtualWorkspace {
        /// The URL.
        pub url: String,
        /// `initializing` or `terminating`.
        #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
        pub type_: Option<String>,
    }
}
