//! The API of the MongoDB operator on the service cluster: the part of its CRD that is used here.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug)]
#[kube(
    group = "mongodbcommunity.mongodb.com",
    version = "v1",
    kind = "MongoDBCommunity"
)]
#[kube(
    plural = "mongodbcommunity",
    namespaced,
    status = "MongoDBCommunityStatus",
    schema = "disabled"
)]
pub(crate) struct MongoDBCommunitySpec {
    pub(crate) members: i64,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) version: String,
    pub(crate) security: Security,
    pub(crate) users: Vec<User>,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct Security {
    pub(crate) authentication: Authentication,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct Authentication {
    pub(crate) modes: Vec<String>,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) db: String,
    pub(crate) password_secret_ref: SecretRef,
    pub(crate) roles: Vec<Role>,
    pub(crate) scram_credentials_secret_name: String,
    /// The operator writes the way to connect into this Secret.
    pub(crate) connection_string_secret_name: String,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct SecretRef {
    pub(crate) name: String,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct Role {
    pub(crate) name: String,
    pub(crate) db: String,
}

/// The operator's CRD requires the first four fields.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MongoDBCommunityStatus {
    pub(crate) phase: String,
    pub(crate) mongo_uri: String,
    #[serde(rename = "currentMongoDBMembers")]
    pub(crate) current_mongodb_members: i64,
    pub(crate) current_stateful_set_replicas: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
}
