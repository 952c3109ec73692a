//! The virtual workspace of an APIExport. It shows the contents of all workspaces of a shard that bind the export.

mod access;
mod adapt;
mod body;
mod lossy_apply;

pub(super) use adapt::answer;

/// The parts of a request's path: the export, and `*` or the id of a logical cluster.
#[derive(Debug)]
pub(super) struct ExportPath {
    pub(super) cluster: String,
    pub(super) export: String,
    pub(super) target: Option<String>,
}
