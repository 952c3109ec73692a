#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
mod attempt;
mod cluster;
mod fleet;
pub mod layer;
mod provider;
mod rounds;
pub mod scope;
mod spec;
mod time;

pub use access::Access;
pub use cluster::{Cluster, KindStatus, WatchHandle};
pub use fleet::{
    ClusterNotFound, ClusterState, ClusterStatus, CredentialCounts, Fleet, FleetBuilder, FleetCounts,
    FleetEvent, FleetEvents, FleetSettings, FleetSnapshot, HUB, ProviderStatus, SINGLE_CLUSTER, ScopeStatus,
    ScopeWatchStatus,
};
pub use mcr_access::{
    AccessError, AccessPolicy, AddressPolicy, ApiVersion, Basic, BoxError, ClientCertificate, ClusterName,
    ContextAccess, Credential, CredentialError, CredentialPluginPolicy, CredentialSource, Endpoint,
    EndpointAccess, ExecPlugin, Fingerprint, ForbiddenAddress, Impersonation, InvalidClusterName,
    KubeconfigAccess, KubeconfigFile, Kubeconfigs, Place, Refresh, StaticCredential, Trust, check, contexts,
};
#[doc(hidden)]
pub use mcr_client::Settings as TransportSettings;
pub use mcr_client::{AnswerBody, TransportError, TransportErrorKind, explain_error};
pub use mcr_store::{DecodeError, Object, ObjectChange, ObjectKey, ObjectMetadata};
pub use mcr_watch::{
    ChangeSink, HubEvent, HubWatch, KindCounts, Store, StoreError, WatchError, WatchProblem, WatchRequest,
    WatchSettings, WatchStatus,
};
pub use provider::{BrokenCluster, Change, Discovery, Provider};
pub use scope::{Capabilities, Placement, Scope, ScopeLayout, ScopeRefusal, ScopedAccess, Upstream};
pub use spec::{Availability, ClusterSpec};

/// What other crates of the workspace share with the fleet. Not part of the API: it may change or go at any time.
#[doc(hidden)]
pub mod internal {
    pub use crate::{
        attempt::Attempt,
        rounds::{Held, Rounds},
    };
    pub use mcr_access::internal::lock;
    pub use mcr_client::internal::Backoff;
}
