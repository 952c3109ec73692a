//! The API of the consumers: what they order, and its status.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// A database.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug)]
#[kube(group = "db.example.io", version = "v1", kind = "Database", namespaced)]
#[kube(status = "DatabaseStatus", schema = "disabled")]
#[serde(rename_all = "camelCase")]
pub(crate) struct DatabaseSpec {
    /// The version of MongoDB.
    pub(crate) version: String,
    pub(crate) size: Size,
    /// The Secret of the consumer whose key `password` becomes the password of the database.
    pub(crate) password_secret: String,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Small,
    Large,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Creating,
    Ready,
    Updating,
    Failed,
}

/// What is reported to consumers. Each field may be missing, because a condition may be the only content of a status.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DatabaseStatus {
    pub(crate) phase: Option<Phase>,
    /// The version that runs.
    pub(crate) version: Option<String>,
    /// How many members run.
    pub(crate) members: Option<i64>,
    /// What the operator reports when something is wrong or unfinished.
    pub(crate) message: Option<String>,
    /// The Secret beside the database with the way to connect.
    pub(crate) connection_secret: Option<String>,
}
