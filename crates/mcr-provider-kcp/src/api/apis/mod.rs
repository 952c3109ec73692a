//! The group `apis.kcp.io`: exports of APIs and their bindings.
//!
//! kcp stores APIExports and APIBindings as [`v1alpha2`], and converts between the versions. A v1alpha1 manifest that uses
//! fields of v1alpha2 loses them without an error.

mod schema;
mod shared;
pub mod v1alpha1;
pub mod v1alpha2;

pub use schema::{
    APIResourceVersion, ColumnDefinition, Conversion, Names, ScaleSubresource, SelectableField, Subresources,
};
pub use shared::{
    APIExportStatus, BindingReference, BoundAPIResource, BoundSchema, Empty, ExportReference, Identity,
    MaximalPermissionPolicy, SecretReference, VirtualWorkspace,
};
