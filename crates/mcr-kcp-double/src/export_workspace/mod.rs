//! The virtual workspace of an APIExport: the content of all workspaces of a shard that bind the export.

mod access;
mod adapt;
mod body;
mod lossy_apply;

pub(super) use adapt::answer;

/// What the path of a request names: the export, and `*` or the id of a logical cluster.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) cluster: String,
    pub(super) export: String,
    pub(super) target: Option<String>,
}
