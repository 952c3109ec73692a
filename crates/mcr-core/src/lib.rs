#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
pub mod layer;
mod name;
mod provider;
mod spec;

pub use access::{
    Access, AccessError, AccessPolicy, AddressPolicy, ApiVersion, Basic, ClientCertificate, ContextAccess,
    Credential, CredentialError, CredentialPluginPolicy, CredentialSource, Endpoint, ExecPlugin, Fingerprint,
    ForbiddenAddress, Impersonation, KubeconfigAccess, KubeconfigFile, Parts, Place, Refresh, StaticCredential, Trust,
    check, contexts,
};
pub use name::{ClusterName, InvalidClusterName};
pub use provider::{BrokenCluster, Change, Discovery, Provider};
pub use spec::{Availability, ClusterSpec};

/// An error of any kind.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
