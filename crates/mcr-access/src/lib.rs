#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod contexts;
mod credential;
mod document;
mod endpoint;
mod error;
mod exec;
mod fields;
mod file;
mod fingerprint;
mod kubeconfig;
mod name;
mod namespace;
mod parts;
mod pem;
mod policy;
mod resolve;
mod resolved;
mod server;
mod sync;
mod trust;
mod user;
mod weak;

pub use contexts::{ContextAccess, KubeconfigFile, Kubeconfigs, contexts};
pub use credential::{
    Basic, ClientCertificate, Credential, CredentialError, CredentialSource, Impersonation, Refresh,
    StaticCredential,
};
pub use endpoint::Endpoint;
pub use error::{AccessError, Place};
pub use exec::{ApiVersion, ExecPlugin};
pub use fingerprint::Fingerprint;
pub use kubeconfig::KubeconfigAccess;
pub use name::{ClusterName, InvalidClusterName};
pub use parts::Parts;
pub use policy::{AccessPolicy, AddressPolicy, CredentialPluginPolicy, ForbiddenAddress};
pub use resolve::{check, resolve};
pub use resolved::Resolved;
pub use trust::Trust;

/// An error of any kind.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// For the crates of this workspace. Not part of the API: it may change or go at any time.
#[doc(hidden)]
pub mod internal {
    pub use crate::{
        document::Document, endpoint::plain, error::list, exec::output as exec_output, resolve::resolve_with,
        sync::lock, weak::WeakMap,
    };

    pub mod namespace {
        pub use crate::namespace::{is_valid, shared, usual};
    }

    pub mod pem {
        pub use crate::pem::{Half, authorities, provider};
    }
}
