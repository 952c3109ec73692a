#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
mod attempt;
mod causes;
pub mod doctor;
mod fleet;
pub mod hub;
pub mod layer;
mod layout;
mod provider;
mod rounds;
pub mod scope;
mod spec;
mod upstream;

// Every provider.
pub use access::Access;
pub use mcr_access::{BoxError, ClusterName, InvalidClusterName};
pub use provider::{BrokenCluster, Change, Discovery, DiscoverySettings, Provider};
pub use spec::{Availability, ClusterSpec, DISPLAY_NAME};

// A provider that reads objects in a hub.
pub use mcr_store::{Object, ObjectKey};
pub use mcr_watch::{HubEvent, HubWatch, WatchRequest};

// A provider that is made of others.
pub use fleet::{ClusterSink, Discovering, KnownCluster, ProviderSet};

// A provider that asks the clusters themselves.
pub use fleet::OneOffClients;

// A provider with credentials of its own.
pub use mcr_access::{
    ApiVersion, Basic, ClientCertificate, Credential, CredentialError, CredentialSource, Endpoint,
    EndpointAccess, ExecPlugin, Fingerprint, Impersonation, PluginService, Refresh, StaticCredential,
};
pub use mcr_client::{PluginAddressError, plugin_at};

// A provider of many clusters behind one endpoint.
pub use mcr_client::AnswerBody;
pub use mcr_store::ObjectMetadata;
pub use scope::{Capabilities, Placement, Scope, ScopeLayout, ScopeRefusal, ScopedAccess, Upstream};

// A provider that reads kubeconfigs.
pub use mcr_access::{
    AccessError, AccessPolicy, AddressPolicy, AllowedPlugin, ContextAccess, CredentialPluginPolicy,
    ForbiddenAddress, KubeconfigAccess, KubeconfigFile, Kubeconfigs, LABELS_EXTENSION, Place, PluginRefusal,
    Trust, contexts,
};

// A provider that runs programs.
pub use mcr_access::internal::process;

// A program that changes or limits requests.
pub use mcr_client::{
    LimitedRequests, ProxyEnvironment, RequestLimit, RequestService, Settings as TransportSettings,
    TransportLayer,
};

// The cryptography of TLS.
pub use mcr_access::crypto;

// Why a request failed.
pub use mcr_client::{TransportError, TransportErrorKind, explain_error};

// Names and texts that others have written.
pub use mcr_access::reason;
pub use mcr_client::{ObjectPath, UnusableName};

// A program that runs a fleet.
pub use fleet::{
    Cluster, ClusterNotFound, ClusterState, Epoch, Fleet, FleetBuilder, FleetEvent, FleetEvents,
    FleetSettings, HUB, LayeredCluster, ProviderId, ReadyCheck, SINGLE_CLUSTER,
};
pub use mcr_watch::WatchSettings;

// A program that watches and reads objects.
pub use fleet::{FleetObjects, MissingCluster};
pub use mcr_store::{DecodeError, ObjectChange};
pub use mcr_watch::{ChangeSink, Store, StoreError, WatchHandle};

// Who asks API servers.
pub use mcr_client::{InvalidUserAgent, UserAgent};

// The state of a fleet, and its counters.
pub use fleet::{
    ClusterStatus, CredentialCounts, FleetCounts, FleetSnapshot, ProviderStatus, ScopeStatus,
    ScopeWatchStatus,
};
pub use mcr_watch::{KindCounts, KindStatus, WatchError, WatchProblem, WatchStatus};

/// For the crates of this workspace. Not part of the API: it may change or go at any time.
#[doc(hidden)]
pub mod internal {
    pub use crate::causes::{causes, status_of, text_of_causes};
    pub use mcr_access::internal::{
        Outline, claims, is_format, outline, outline_parsed, rfc3339, rfc3339_option,
    };
    pub use mcr_client::internal::{
        inferred_kube_config, is_login_error, jitter, kube_client, kube_config, proxy_hint, tls,
        unused_proxy_variable,
    };
    pub use mcr_store::describe as describe_json_error;
    pub use mcr_watch::internal::Permit;
}
