#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
mod attempt;
mod backoff;
mod cluster;
mod fleet;
mod foreign;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod latest;
pub mod layer;
mod name;
mod provider;
mod rounds;
pub mod scope;
mod slots;
mod spec;
mod store;
mod time;
mod transport;
mod watch;
mod weak;

pub use access::{
    Access, AccessError, AccessPolicy, AddressPolicy, ApiVersion, Basic, ClientCertificate, ContextAccess,
    Credential, CredentialError, CredentialPluginPolicy, CredentialSource, Endpoint, ExecPlugin, Fingerprint,
    ForbiddenAddress, Impersonation, KubeconfigAccess, KubeconfigFile, Kubeconfigs, Parts, Place, Refresh,
    StaticCredential, Trust, check, contexts,
};
pub use cluster::{Cluster, KindStatus, WatchHandle};
pub use fleet::{
    ClusterNotFound, ClusterState, ClusterStatus, CredentialCounts, Fleet, FleetBuilder, FleetCounts,
    FleetEvent, FleetEvents, FleetSettings, FleetSnapshot, HUB, KindCounts, ProviderStatus, SINGLE_CLUSTER,
    ScopeStatus, ScopeWatchStatus,
};
pub use name::{ClusterName, InvalidClusterName};
pub use provider::{BrokenCluster, Change, Discovery, Provider};
pub use scope::{Capabilities, Placement, Scope, ScopeLayout, ScopeRefusal, ScopedAccess, Upstream};
pub use spec::{Availability, ClusterSpec};
pub use store::{DecodeError, Object, ObjectChange, ObjectKey, ObjectMetadata, Store, StoreError};
#[doc(hidden)]
pub use transport::Settings as TransportSettings;
pub use transport::{AnswerBody, TransportError, TransportErrorKind};
pub use watch::{
    ChangeSink, HubEvent, HubWatch, WatchError, WatchProblem, WatchRequest, WatchSettings, WatchStatus,
};

/// An error's cause in words, with what to do about it where that is known.
///
/// The text of a `kube::Error` often stops at "client error (Connect)": what went wrong stands at the end of
/// its chain of sources. This walks the chain.
///
/// ```
/// use std::io;
/// let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
/// assert!(mcr_core::explain_error(&refused).contains("connection refused"));
/// ```
pub fn explain_error(error: &(dyn std::error::Error + 'static)) -> String {
    transport::explain(error)
}

/// What other crates of the workspace share with the fleet. Not part of the API: it may change or go at any time.
#[doc(hidden)]
pub mod internal {
    pub use crate::{
        attempt::Attempt,
        rounds::{Held, Rounds},
    };
}

/// An error of any kind.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
